"""Draw the dashboards without Grafana: `python -m tests.drawn DIRECTORY`.

It plays the demo's grid on a separate stack with Prometheus, runs the queries of every panel, and draws the results.
"""
