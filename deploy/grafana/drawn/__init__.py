"""The dashboards as pictures, without a Grafana: `python -m deploy.grafana.drawn DIRECTORY` plays the demo's grid on a
stack of its own under Prometheus, asks every panel's queries over that time, and draws what they answer.
"""
