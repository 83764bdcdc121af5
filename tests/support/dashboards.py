"""What the dashboards' files ask of Prometheus.

`python -m tests.support.dashboards` writes them again as they are kept: a line for each panel, its title first. So a
dashboard that Grafana has exported shows what was changed.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

FILES = sorted((Path(__file__).parents[2] / "deploy" / "grafana" / "dashboards").glob("*.json"))


HEAD = ("title", "type", "description", "gridPos", "id")
"""The fields with which a panel's line begins."""


class PanelQuery(NamedTuple):
    """A query of a panel: where it stands, what it is, and how its answer is called."""

    where: str
    expr: str
    legend: str


def loaded(file: Path) -> dict[str, Any]:
    """A dashboard."""
    dashboard: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return dashboard


def in_lines(dashboard: dict[str, Any]) -> str:
    """A dashboard as its file has it."""
    places = {name: place for place, name in enumerate(HEAD)}

    def line(part: Any) -> str:
        if isinstance(part, dict):
            part = {name: part[name] for name in sorted(part, key=lambda name: (places.get(name, len(HEAD)), name))}
        return json.dumps(part, ensure_ascii=False)

    lines = ",\n".join(map(line, dashboard["panels"]))
    others = "".join(f'"{name}": {line(value)},\n' for name, value in sorted(dashboard.items()) if name != "panels")
    return f'{{\n{others}"panels": [\n{lines}\n]\n}}\n'


def panels(dashboard: dict[str, Any]) -> list[dict[str, Any]]:
    """Its panels, without the titles of its sections."""
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def panel_queries(file: Path, **variables: str) -> Iterator[PanelQuery]:
    """Every query of a dashboard, with values for some of its variables, and everything for the others."""
    dashboard = loaded(file)
    names = [variable["name"] for variable in dashboard["templating"]["list"]]
    values = dict.fromkeys(names, ".+") | variables
    for panel in panels(dashboard):
        for target in panel["targets"]:
            where = f"{dashboard['uid']}: {panel['title']}: {target['legendFormat']}"
            yield PanelQuery(where, substituted(target["expr"], values), target["legendFormat"])


def substituted(expr: str, values: dict[str, str]) -> str:
    """A query with values for its variables, the longest names first."""
    for name in sorted(values, key=len, reverse=True):
        expr = expr.replace(f"${name}", values[name])
    return expr


if __name__ == "__main__":
    for one in FILES:
        one.write_text(in_lines(loaded(one)), encoding="utf-8")
