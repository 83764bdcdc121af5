"""The Grafana dashboards, as code: accuracy, flow, sites and sources.

`python -m deploy.grafana` writes them into `dashboards` as the JSON that Grafana reads.
"""

import json
from pathlib import Path
from typing import Any

from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard

from deploy.grafana.accuracy import accuracy
from deploy.grafana.flow import flow
from deploy.grafana.sites import sites
from deploy.grafana.sources import sources

FOLDER = Path(__file__).parent / "dashboards"

DASHBOARDS = {"accuracy": accuracy, "flow": flow, "sites": sites, "sources": sources}
"""Makers of the dashboards, by the name of their file."""


def as_json(dashboard: Dashboard) -> str:
    """What Grafana reads: one line for each panel and each of the dashboard's own fields, so that changes show."""
    fields: dict[str, Any] = json.loads(_in_a_line(dashboard))
    panels = ",\n".join(_in_a_line(panel) for panel in fields.pop("panels"))
    others = "".join(f'"{name}": {_in_a_line(value)},\n' for name, value in sorted(fields.items()))
    return f'{{\n{others}"panels": [\n{panels}\n]\n}}\n'


def _in_a_line(part: object) -> str:
    return json.dumps(part, cls=JSONEncoder, sort_keys=True, ensure_ascii=False)
