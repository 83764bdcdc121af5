"""Dashboards: all panels have a description and correct queries."""

import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from models.method_registry import TRIVIAL
from tests.support.dashboards import FILES, in_lines, loaded, panel_queries, panels

DEPLOY = Path(__file__).parents[2] / "deploy"
PROVISIONING = DEPLOY / "grafana" / "provisioning"

of_each = pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)


@of_each
def test_dashboard_file_has_one_line_per_panel(file: Path) -> None:
    """To reformat an export of Grafana: `python -m tests.support.dashboards`."""
    assert file.read_text(encoding="utf-8") == in_lines(loaded(file))


@of_each
def test_dashboard_has_stable_uid_and_selectable_prometheus(file: Path) -> None:
    dashboard = loaded(file)
    assert dashboard["uid"] == f"queuecast-{file.stem}"
    assert [v["name"] for v in dashboard["templating"]["list"] if v["type"] == "datasource"] == ["datasource"]
    sources = [panel["datasource"] for panel in panels(dashboard)]
    sources += [target["datasource"] for panel in panels(dashboard) for target in panel["targets"]]
    assert {source["uid"] for source in sources} == {"${datasource}"}


@of_each
def test_dashboard_panels_have_description_unit_and_legend(file: Path) -> None:
    for panel in panels(loaded(file)):
        assert panel["title"]
        assert panel["description"].endswith("."), panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"] not in ("", "ops")  # events are not operations
        if panel["type"] in ("timeseries", "bargauge"):  # gives a method the same color in all panels
            assert panel["fieldConfig"]["defaults"]["color"] == {"mode": "palette-classic-by-name"}, panel["title"]
        assert panel["targets"]
        assert all(target["legendFormat"] and target["expr"] for target in panel["targets"])
        if panel["type"] == "timeseries":
            assert panel["options"]["legend"]["showLegend"]
            for target in panel["targets"]:  # otherwise each series once among the largest is drawn
                assert ("topk" in target["expr"]) == ("@ end()" in target["expr"]), panel["title"]


@of_each
def test_dashboard_panels_have_unique_ids_and_positions(file: Path) -> None:
    everything = loaded(file)["panels"]
    assert max(Counter(panel["id"] for panel in everything).values()) == 1
    cells = Counter(
        (x, y)
        for panel in everything
        for place in [panel["gridPos"]]
        for x in range(place.get("x", 0), place.get("x", 0) + place["w"])
        for y in range(place.get("y", 0), place.get("y", 0) + place["h"])
    )
    assert max(cells.values()) == 1
    assert max(x for x, _ in cells) < 24


@of_each
def test_dashboard_variables_equal_used_variables(file: Path) -> None:
    dashboard = loaded(file)
    used = {name for panel in panels(dashboard) for t in panel["targets"] for name in re.findall(r"\$(\w+)", t["expr"])}
    there = {variable["name"] for variable in dashboard["templating"]["list"]} - {"datasource"}
    assert used - {"__rate_interval"} == there


@of_each
def test_dashboard_queries_are_valid_promql(file: Path, tmp_path: Path) -> None:
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("promtool is not installed")
    queries = [query.expr for query in panel_queries(file, window="1d", __rate_interval="1m")]
    rules = [{"record": f"panel:{number}", "expr": expr} for number, expr in enumerate(queries)]
    written = tmp_path / "queries.yaml"
    written.write_text(yaml.safe_dump({"groups": [{"name": file.stem, "rules": rules}]}))
    done = subprocess.run([program, "check", "rules", written], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_gain_query_compares_method_with_baselines() -> None:
    (gain,) = {
        query.expr for query in panel_queries(FILES[0], window="1d") if "group_left () (min by (site)" in query.expr
    }
    ours, rules = gain.split("group_left")
    assert f'method!~"{"|".join(TRIVIAL)}"' in ours
    assert f'method=~"{"|".join(TRIVIAL)}"' in rules


def test_roles_table_columns_equal_query_labels() -> None:
    (table,) = (panel for panel in panels(loaded(FILES[0])) if panel["title"] == "Roles")
    (tidy,) = table["transformations"]
    by = re.findall(r"by \((.+)\) \(queuecast_method_info", table["targets"][0]["expr"])
    assert by == [", ".join(sorted(tidy["options"]["indexByName"], key=tidy["options"]["indexByName"].get))]
    assert tidy["options"]["excludeByName"] == {"Time": True, "Value": True}


def test_grafana_finds_the_dashboards_and_prometheus() -> None:
    compose = yaml.safe_load((DEPLOY / "compose" / "compose.yaml").read_text())
    (provider,) = _provisioned("dashboards")["providers"]
    mounts = dict(volume.split(":")[:2] for volume in compose["services"]["grafana"]["volumes"])
    assert mounts["../grafana/dashboards"] == provider["options"]["path"]
    assert mounts["../grafana/provisioning"] == "/etc/grafana/provisioning"
    (source,) = _provisioned("datasources")["datasources"]
    assert source["type"] == "prometheus"
    assert source["url"] == "http://prometheus:9090"
    prometheus = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yaml").read_text())
    assert source["jsonData"]["timeInterval"] == prometheus["global"]["scrape_interval"]


def _provisioned(kind: str) -> dict[str, Any]:
    (file,) = (PROVISIONING / kind).iterdir()
    document: dict[str, Any] = yaml.safe_load(file.read_text())
    return document


PART = re.compile(r"sum by \([\w, ]+\) \(increase\(\w+_jobs_total\{[^}]*\}\[1d\]\)\) / ")


@of_each
def test_dashboard_share_queries_are_clamped_to_one(file: Path) -> None:
    """For a new series, Prometheus extrapolates the part further than the whole, up to 110 %."""
    for query in panel_queries(file, window="1d"):
        for found in PART.finditer(query.expr):
            assert query.expr[: found.start()].endswith("clamp_max("), query.where


def test_clamped_share_query_is_at_most_one(tmp_path: Path) -> None:
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("promtool is not installed")
    (query, *_) = [one for one in panel_queries(FILES[0], window="14m") if ": Without an estimate: " in one.where]
    part, whole = (f'{name}{{site="a",method="m",jobs="started"}}' for name in re.findall(r"queuecast_\w+", query.expr))
    share = query.expr.removeprefix("clamp_max(").removesuffix(", 1)")
    one = [{"labels": '{method="m"}', "value": 1}]
    tests = {
        "interval": "1m",
        "input_series": [{"series": part, "values": "_x9 21+20x5"}, {"series": whole, "values": "_x9 23+20x5"}],
        "promql_expr_test": [
            {"expr": expr, "eval_time": "15m", "exp_samples": one} for expr in (f"{share} > bool 1", query.expr)
        ],
    }
    written = tmp_path / "test.yaml"
    written.write_text(yaml.safe_dump({"rule_files": [], "evaluation_interval": "1m", "tests": [tests]}))
    done = subprocess.run([program, "test", "rules", written], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


@of_each
def test_dashboard_sums_increases_of_counters_that_move(file: Path) -> None:
    for query in panel_queries(file, window="1d", __rate_interval="1m"):
        assert not re.search(r"(rate|increase)\((sum|max)", query.expr), query.where
