"""The Grafana dashboards, as code: accuracy, flow, sites and sources.

`python -m deploy.grafana` writes them into `dashboards` as the JSON that Grafana reads.
"""

import json
from pathlib import Path

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
    """What Grafana reads."""
    return json.dumps(dashboard, cls=JSONEncoder, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
