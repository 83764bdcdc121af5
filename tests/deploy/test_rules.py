"""Prometheus rules: each alert fires on matching data, and not on healthy data or just below the limit."""

import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.local.stack.servers import RULES
from tests.deploy.alert_data import FIRES, HEALTHY, SHORT_OF_IT, Data, Series

FOLDER = Path(__file__).parents[2] / "deploy" / "prometheus"

GROUPS: list[dict[str, Any]] = [group for file in RULES for group in yaml.safe_load(file.read_text())["groups"]]
ALERTS = {rule["alert"]: rule for group in GROUPS for rule in group["rules"] if "alert" in rule}
RECORDS = [rule["record"] for group in GROUPS for rule in group["rules"] if "record" in rule]


def promtool(*arguments: str | Path) -> None:
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("promtool is not installed")
    done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def needed_for(alert: str) -> list[dict[str, Any]]:
    """Return the groups with this alert and the recording rules that it reads, also through other rules."""
    needed = {alert}
    reading = [ALERTS[alert]["expr"]]
    while reading:
        text = reading.pop()
        read = [rule for group in GROUPS for rule in group["rules"] if rule.get("record", alert) in text]
        reading += [rule["expr"] for rule in read if rule["record"] not in needed]
        needed |= {rule["record"] for rule in read}
    chosen = [
        group | {"rules": [rule for rule in group["rules"] if {rule.get("record"), rule.get("alert")} & needed]}
        for group in GROUPS
    ]
    return [group for group in chosen if group["rules"]]


def found(directory: Path, data: Data, *expected: tuple[str, float | None]) -> None:
    """Check that each expression has this value under the rules, or no result for None."""
    found_in_each(directory, [data], RULES, *expected)


def found_in_each(
    directory: Path, sets: Sequence[Data], rules: Sequence[Path], *expected: tuple[str, float | None]
) -> None:
    """Check each of these data sets; promtool uses one evaluation interval per file."""
    files = []
    for step in sorted({data.step for data in sets}):
        document = {
            "rule_files": [str(rule) for rule in rules],
            "evaluation_interval": step,
            "group_eval_order": [group["name"] for group in GROUPS],
            "tests": [_case(data, expected) for data in sets if data.step == step],
        }
        files.append(directory / f"test-{step}.yaml")
        files[-1].write_text(yaml.safe_dump(document))
    promtool("test", "rules", *files)


def _case(data: Data, expected: Sequence[tuple[str, float | None]]) -> dict[str, Any]:
    tests = [
        {
            "expr": expr,
            "eval_time": data.at,
            "exp_samples": [] if value is None else [{"labels": "{}", "value": value}],
        }
        for expr, value in expected
    ]
    series = [{"series": name, "values": values} for name, values in data.series.items()]
    return {"name": str(data), "interval": data.step, "input_series": series, "promql_expr_test": tests}


def test_prometheus_config_passes_promtool_check() -> None:
    promtool("check", "config", FOLDER / "prometheus.yaml")


def test_prometheus_config_lists_all_rule_files() -> None:
    assert [path.name for path in RULES] == yaml.safe_load((FOLDER / "prometheus.yaml").read_text())["rule_files"]


def check_alert(directory: Path, alert: str, sets: Sequence[Data], expected: float | None) -> None:
    """Check whether the alert fires on each of these data sets, without the rules that it does not need."""
    rules = directory / "rules.yaml"
    rules.write_text(yaml.safe_dump({"groups": needed_for(alert)}))
    found_in_each(directory, sets, [rules], (f'count(ALERTS{{alertname="{alert}",alertstate="firing"}})', expected))


@pytest.mark.parametrize("alert", ALERTS)
def test_alert_fires_on_matching_data(alert: str, tmp_path: Path) -> None:
    check_alert(tmp_path, alert, FIRES[alert], 1)


@pytest.mark.parametrize("alert", ALERTS)
def test_alert_is_quiet_just_below_limit(alert: str, tmp_path: Path) -> None:
    check_alert(tmp_path, alert, SHORT_OF_IT[alert], None)


def test_alerts_are_quiet_on_healthy_data(tmp_path: Path) -> None:
    measures = (
        "site_method:queuecast_wait_error_seconds:mean1d",
        "site_method:queuecast_jobs_without_estimate:ratio1h",
    )
    there = [(f"count(count by (site) ({name}))", 1.0) for name in measures]
    found(tmp_path, HEALTHY, ("count(ALERTS)", None), *there)


def moved(metric: str, before: str, after: str) -> Series:
    """Return a site's series that changes its worker after an hour."""
    name, labels = metric.rstrip("}").split("{")
    old, new = (f'{name}{{{labels},instance="{instance}"}}' for instance in "ab")
    return {old: f"{before}x60 stale", new: f"_x60 {after}x60"}


def test_rule_counts_a_moving_site_once_and_without_a_reset(tmp_path: Path) -> None:
    labels = 'site="s",method="zero",jobs="started"'
    data = Data(
        "2h",
        moved(f"queuecast_wait_error_seconds_sum{{{labels}}}", "0+600", "36000+60")
        | moved(f"queuecast_wait_error_seconds_count{{{labels}}}", "0+1", "60+1"),
    )
    mean = "round(sum(site_method:queuecast_wait_error_seconds:mean1d), 10)"
    found(
        tmp_path, data, (mean, 330), ("round(sum(site_method:queuecast_wait_error_seconds_count:increase1d), 10)", 120)
    )


def test_rule_counts_jobs_of_doubly_scraped_site_once(tmp_path: Path) -> None:
    queued = 'queuecast_live_jobs{site="s",phase="queued"}'
    overlap = moved(queued, "7", "8") | {'queuecast_live_jobs{site="s",phase="queued",instance="a"}': "7x61 stale"}
    for at, jobs in (("59m", 7), ("61m", 8), ("63m", 8)):
        found(tmp_path, Data(at, overlap), ("sum(site_phase:queuecast_live_jobs:max)", jobs))


@pytest.mark.parametrize("alert", ALERTS)
def test_alert_has_severity_summary_and_runbook_url(alert: str) -> None:
    rule, anchor = ALERTS[alert], alert.lower()
    assert rule["labels"]["severity"] in ("info", "warning", "critical")
    assert rule["annotations"]["summary"]
    assert rule["annotations"]["description"]
    assert rule["annotations"]["runbook_url"] == f"http://127.0.0.1:6067/alerts#{anchor}"


def test_runbook_sections_equal_alerts() -> None:
    text = (FOLDER / "RUNBOOK.md").read_text()
    assert re.findall(r"^## (\w+)$", text, re.M) == list(ALERTS)


def test_recording_rule_names_are_level_metric_operation() -> None:
    assert RECORDS
    assert [name for name in RECORDS if not re.fullmatch(r"([a-z_]+:)?queuecast_[a-z0-9_]+:[a-z0-9_]+", name)] == []
