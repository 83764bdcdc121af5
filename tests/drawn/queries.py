"""Query Prometheus for the panels of a dashboard: series over time, or latest values."""

import json
import math
import re
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from deploy.local.stack import Prometheus

STEPS = 150
"""Number of points of a line."""

LATEST_S = 30.0
"""Range of a query for the latest value (s), as a busy machine may miss a scrape."""

EVERYTHING = ".+"
"""Value of a variable that matches all values."""

Labels = Mapping[str, str]


class Series(NamedTuple):
    """A line of a panel: its name in the legend, its labels, and its points (Unix seconds, value)."""

    legend: str
    labels: Labels
    times: list[float]
    values: list[float]


class PanelAnswers(NamedTuple):
    """A panel of the dashboard's file, and the results of its queries."""

    panel: dict[str, Any]
    answers: list[list[Series]]

    @property
    def kind(self) -> str:
        """Type of the panel: timeseries, stat, bargauge, table, or row for the title of a section."""
        return str(self.panel["type"])

    @property
    def title(self) -> str:
        """Title of the panel."""
        return str(self.panel["title"])


def answered(prometheus: Prometheus, dashboard: dict[str, Any], begin: float, end: float) -> list[PanelAnswers]:
    """Return each panel with its results from `begin` to `end` (Unix seconds), for all sites and methods."""
    names = [variable["name"] for variable in dashboard["templating"]["list"]]
    span = {"window": f"{max(round(end - begin), 1)}s", "__rate_interval": "8s"}
    variables = dict.fromkeys(names, EVERYTHING) | span
    step = max((end - begin) / STEPS, 0.5)
    return [
        PanelAnswers(
            panel, [_ask(prometheus, target, variables, begin, end, step) for target in panel.get("targets", ())]
        )
        for panel in dashboard["panels"]
    ]


def _ask(
    prometheus: Prometheus, target: dict[str, Any], variables: Labels, begin: float, end: float, step: float
) -> list[Series]:
    expr = str(target["expr"])
    for name in sorted(variables, key=len, reverse=True):
        expr = expr.replace(f"${name}", variables[name])
    legend = str(target["legendFormat"])
    start = max(begin, end - LATEST_S) if target.get("instant") else begin
    results = _query(prometheus, "query_range", query=expr, start=start, end=end, step=step)
    return sorted(_series(results, legend), key=lambda series: series.legend)


def _query(prometheus: Prometheus, page: str, **query: object) -> list[dict[str, Any]]:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    url = f"{prometheus.url}/api/v1/{page}?{urllib.parse.urlencode(query)}"
    with opener.open(url, timeout=30) as answer:
        found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
    return found


def _series(results: list[dict[str, Any]], legend: str) -> Iterator[Series]:
    for one in results:
        labels = one["metric"]
        points = [(time, float(value)) for time, value in one["values"]]
        kept = [(time, value) for time, value in points if math.isfinite(value)]
        if kept:
            yield Series(_named(legend, labels), labels, [time for time, _ in kept], [value for _, value in kept])


def _named(legend: str, labels: Labels) -> str:
    """Replace the names of labels in double braces in a legend by their values."""
    return re.sub(r"{{(\w+)}}", lambda match: labels.get(match[1], ""), legend)
