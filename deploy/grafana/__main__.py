"""Writes the dashboards into the folder that Grafana reads."""

from deploy.grafana import DASHBOARDS, FOLDER, as_json

for name, dashboard in DASHBOARDS.items():
    (FOLDER / f"{name}.json").write_text(as_json(dashboard()), encoding="utf-8")
