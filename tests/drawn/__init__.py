"""The dashboards as pictures, without a Grafana: `python -m tests.drawn DIRECTORY` plays the demo's grid on a
stack of its own under Prometheus, asks every panel's queries over that time, and draws what they answer.
"""
