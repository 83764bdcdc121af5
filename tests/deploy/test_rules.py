"""Prometheus rules: each alert fires on matching data, and not on healthy data or just below the limit."""

import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from deploy.local.stack.servers import RULES

FOLDER = Path(__file__).parents[2] / "deploy" / "prometheus"

Series = dict[str, str]
"""Samples by series, in promtool's notation: `0+5x60` is 0, 5, 10 … 300."""


class Data(NamedTuple):
    """Series with samples every `step`, and the time of evaluation."""

    at: str
    series: Series
    step: str = "1m"


def events(values: str) -> Series:
    return {'queuecast_events_total{site="s",instance="a"}': values}


def errors(method: str, each: int, jobs: float, steps: int, left: str = "started") -> Series:
    labels = f'{{site="s",method="{method}",jobs="{left}",instance="a"}}'
    return {
        f"queuecast_wait_error_seconds_sum{labels}": f"0+{each * jobs:g}x{steps}",
        f"queuecast_wait_error_seconds_count{labels}": f"0+{jobs:g}x{steps}",
    }


def role(role: str, method: str = "qespera", values: str = "1x600", instance: str = "a") -> Series:
    return {f'queuecast_method_info{{site="s",method="{method}",role="{role}",instance="{instance}"}}': values}


def waited(share: float, jobs: float, steps: int) -> Series:
    """Return jobs of which `share` waited over a minute."""
    labels = 'site="s",method="zero",jobs="started"'
    return {
        f'queuecast_wait_error_seconds_bucket{{{labels},le="60.0"}}': f"0+{(1 - share) * jobs:g}x{steps}",
        f"queuecast_wait_error_seconds_count{{{labels}}}": f"0+{jobs:g}x{steps}",
    }


def trivial(jobs: float, steps: int) -> Series:
    return errors("zero", 1000, jobs, steps) | errors("median", 1500, jobs, steps)


def bounds(bound: str, held: float, jobs: float, steps: int, method: str = "qespera") -> Series:
    labels = f'{{site="s",method="{method}",jobs="started",bound="{bound}"}}'
    return {
        f"queuecast_bound_scored_jobs_total{labels}": f"0+{jobs:g}x{steps}",
        f"queuecast_bound_covered_jobs_total{labels}": f"0+{held * jobs:g}x{steps}",
    }


def unestimated(share: float, jobs: float, steps: int = 120, method: str = "qespera") -> Series:
    labels = f'{{site="s",method="{method}",jobs="started"}}'
    counted = {f"queuecast_jobs_without_estimate_total{labels}": f"0+{share * jobs:g}x{steps}"}
    return counted | errors(method, 60, jobs, steps)


def late(predictions: float, of: float, steps: int = 30) -> Series:
    return {
        'queuecast_late_predictions_total{instance="a"}': f"0+{predictions:g}x{steps}",
        'queuecast_prediction_latency_seconds_count{instance="a"}': f"0+{of:g}x{steps}",
    }


def unread(values: str, calls: bool = False) -> Series:
    """Return the time since a source's last record, and its calls if it polls the scheduler."""
    labels = 'site="s",source="slurm",instance="a"'
    called = {f'queuecast_source_calls_total{{{labels},call="squeue"}}': "0+1x500"} if calls else {}
    return called | {f"queuecast_source_last_record_age_seconds{{{labels}}}": values}


def rejects(values: str, reason: str = "not_json") -> Series:
    return {f'queuecast_events_rejected_total{{reason="{reason}",instance="a"}}': values}


def implausible(values: str) -> Series:
    return {'queuecast_events_implausible_total{reason="implausible_time",instance="a"}': values}


def lag(values: str) -> Series:
    return {'queuecast_consumer_lag_messages{partition="3",instance="a"}': values}


def started(values: str) -> Series:
    return {'process_start_time_seconds{job="queuecast",instance="a"}': values}


def estimates(values: str) -> Series:
    return {'queuecast_estimates_timestamp_seconds{site="s"}': values}


def running(values: str) -> Series:
    return {'queuecast_live_jobs{site="s",phase="running",instance="a"}': values}


def failing(values: str) -> Series:
    return {'queuecast_notify_webhook_failing_seconds{instance="c"}': values}


def dropped(values: str) -> Series:
    return {'queuecast_http_dropped_connections_total{why="slow",instance="b"}': values}


OUT = role("wait")
"""The method that publishes the predictions."""

TRIED = role("wait", "zero") | role("shadow")

MOVED = role("wait", values="1x145 stale") | role("wait", values="_x144 1x300", instance="b")
"""Two workers export it in the scrape of the move."""

STARTED_AGAIN = role("wait", values="1x100 _ 1x300")

FIRES = {
    "QueuecastDown": [Data("5m", {'up{job="queuecast",instance="a"}': "1 0x9"})],
    "QueuecastNoWorker": [Data("5m", {'up{job="queuecast-serve",instance="b"}': "1x10"})],
    "QueuecastRestarting": [Data("25m", started("100x5 400x5 700x5 1000x10"))],
    "QueuecastBrokerDown": [Data("5m", {'queuecast_broker_up{instance="a"}': "1 0x9"})],
    "QueuecastRedisDown": [Data("2m", {'queuecast_redis_up{instance="a"}': "1 0x9"})],
    "QueuecastCheckpointOld": [Data("4m", {'queuecast_checkpoint_age_seconds{instance="a"}': "0 70 130 190 250"})],
    "QueuecastEventsLost": [Data("5m", {'queuecast_events_lost_total{instance="a",partition="3"}': "_ _ 40x8"})],
    "QueuecastSiteSilent": [
        Data("25h10m", events("0+100x144 14400x20"), "10m"),
        Data("30h10m", events("0+10x144 1440x40"), "10m"),
        Data("48h40m", events("0+10x144 1440x180") | running("5x350"), "10m"),
    ],
    "QueuecastSiteStale": [Data("8m", {'queuecast_site_stale{site="s",instance="a"}': "0x3 1x10"})],
    "QueuecastSourceSilent": [Data("25m", unread("0+60x30", calls=True)), Data("7h", unread("0+60x500"))],
    "QueuecastUnknownFields": [Data("40m", {'queuecast_unknown_fields_total{field="wallclock"}': "_x30 1x20"})],
    "QueuecastLagGrowing": [Data("30m", lag("0+200x30"))],
    "QueuecastDeadLetters": [
        Data("35m", rejects("_x30 12x10")),
        Data("90m", rejects("100+1x100")),
        Data("35m", rejects("_x30 1x10", "poison")),
    ],
    "QueuecastEventsImplausible": [Data("10m", implausible("_x5 25x10")), Data("60m", implausible("100+2x60"))],
    "QueuecastTrainingHangs": [
        Data("20m", {"queuecast_training_seconds": "0+60x20"}),
        Data("50m", {"queuecast_training_restarts_total": "0x10 1x10 2x40"}),
    ],
    "QueuecastPredictionsLate": [Data("25m", late(5, of=10))],
    "QueuecastConnectionsDropped": [Data("30m", dropped("0+10x40"))],
    "QueuecastWebhookFailing": [Data("25m", failing("0+60x30"))],
    "QueuecastEstimatesStale": [Data("30m", estimates("0x40"))],
    "QueuecastWorseThanBaseline": [
        *(
            Data("28h", trivial(10, 180) | errors("qespera", 1200, 10, 180) | out, "10m")
            for out in (OUT, MOVED, STARTED_AGAIN)
        ),
        Data(
            "28h",
            OUT | trivial(10, 180) | errors("qespera", 500, 10, 180) | errors("qespera", 3500, 10, 180, "cancelled"),
            "10m",
        ),
        Data("28h", trivial(10, 180) | role("wait", "median"), "10m"),
    ],
    "QueuecastBoundsTooLow": [
        Data("12h", OUT | bounds("0.95", 0.88, 10, 80), "10m"),
        Data("12h", OUT | bounds("0.9", 0.8, 10, 80) | bounds("0.9", 0.8, 10, 80, "qbets"), "10m"),
        Data("31h", MOVED | bounds("0.9", 0.8, 10, 200), "10m"),
    ],
    "QueuecastBoundsTooWide": [
        Data("70h", OUT | bounds("0.9", 0.96, 10, 400), "30m"),
        Data("70h", OUT | role("wait", instance="b") | bounds("0.95", 0.98, 10, 400) | waited(0.2, 10, 400), "30m"),
    ],
    "QueuecastNoEstimates": [
        Data("90m", OUT | unestimated(0.5, 1)),
        Data("90m", OUT | role("wait", instance="b") | unestimated(0.5, 1)),
    ],
}
"""Data on which each alert fires."""

SHORT_OF_IT = {
    "QueuecastDown": [
        Data("4m", {'up{job="queuecast",instance="a"}': "1x3 0 1x6"}),
        Data("5m", {'up{job="another",instance="a"}': "0x10"}),
    ],
    "QueuecastNoWorker": [Data("5m", {'queuecast_sites{instance="a"}': "0x10"})],
    "QueuecastRestarting": [Data("25m", started("100x10 700x15"))],
    "QueuecastBrokerDown": [Data("4m", {'queuecast_broker_up{instance="a"}': "1x3 0 1x6"})],
    "QueuecastRedisDown": [Data("4m", {'queuecast_redis_up{instance="a"}': "1x3 0 1x6"})],
    "QueuecastCheckpointOld": [Data("4m", {'queuecast_checkpoint_age_seconds{instance="a"}': "0 2 61 2 0"})],
    "QueuecastEventsLost": [Data("90m", {'queuecast_events_lost_total{instance="a",partition="3"}': "40x95"})],
    "QueuecastSiteSilent": [
        Data("25h10m", events("0+10x144 1440x20"), "10m"),  # an hour without events of a small site
        Data("32h", events("0+0.5x144 72x60"), "10m"),  # a night without events of a very small site
        Data("48h40m", events("0+10x144 1440x180") | running("4x350"), "10m"),
        Data(
            "26h",
            events("0+100x144 stale") | {'queuecast_events_total{site="s",instance="b"}': "_x144 14400+100x20"},
            "10m",
        ),
    ],
    "QueuecastSiteStale": [Data("8m", {'queuecast_site_stale{site="s",instance="a"}': "0x3 1 0x10"})],
    "QueuecastSourceSilent": [Data("25m", unread("30x30", calls=True)), Data("5h", unread("0+60x500"))],
    "QueuecastUnknownFields": [Data("120m", {'queuecast_unknown_fields_total{field="wallclock"}': "1x150"})],
    "QueuecastLagGrowing": [Data("30m", lag("9000-100x30")), Data("30m", lag("0+10x30"))],
    "QueuecastDeadLetters": [Data("90m", rejects("100x100")), Data("35m", rejects("_x30 5x10"))],
    "QueuecastEventsImplausible": [Data("60m", implausible("100x60")), Data("10m", implausible("_x5 15x10"))],
    "QueuecastTrainingHangs": [
        Data("20m", {"queuecast_training_seconds": "0x5 200x5 0x10"}),
        Data("50m", {"queuecast_training_restarts_total": "5x10 6x40"}),
    ],
    "QueuecastPredictionsLate": [Data("25m", late(5, of=200)), Data("25m", late(1, of=1))],
    "QueuecastConnectionsDropped": [Data("30m", dropped("0+5x40")), Data("40m", dropped("0x19 90x30"))],
    "QueuecastWebhookFailing": [Data("17m", failing("0+60x30")), Data("30m", failing("0+60x14 0x20"))],
    "QueuecastEstimatesStale": [Data("34m", estimates("0x15 900x25"))],
    "QueuecastWorseThanBaseline": [
        Data("34h", OUT | trivial(10, 180) | errors("qespera", 1050, 10, 180), "30m"),
        Data("34h", OUT | trivial(0.5, 180) | errors("qespera", 3000, 0.5, 180), "30m"),
        Data("34h", OUT | trivial(10, 180) | errors("qbets", 3000, 10, 180) | role("bounds", "qbets"), "30m"),
        Data("34h", TRIED | trivial(10, 180) | errors("qespera", 3000, 10, 180), "30m"),
        Data("26h", OUT | trivial(10, 180) | errors("qespera", 3000, 10, 180), "30m"),
    ],
    "QueuecastBoundsTooLow": [
        Data("12h", OUT | bounds("0.95", 0.92, 10, 80), "10m"),
        Data("12h", OUT | bounds("0.95", 0.5, 0.10, 80), "10m"),
        Data("12h", OUT | bounds("0.5", 0.3, 10, 80), "10m"),
        Data("12h", TRIED | bounds("0.9", 0.5, 10, 80), "10m"),
        Data("12h", OUT | bounds("0.9", 0.9, 10, 80) | bounds("0.9", 0.5, 10, 80, "another"), "10m"),
    ],
    "QueuecastBoundsTooWide": [
        Data("70h", OUT | bounds("0.9", 0.94, 10, 400) | bounds("0.95", 0.97, 10, 400), "30m"),
        Data("70h", OUT | bounds("0.9", 1.0, 1, 400), "30m"),
        Data("70h", OUT | bounds("0.75", 1.0, 10, 400), "30m"),
        Data("70h", OUT | bounds("0.9", 1.0, 10, 400) | waited(0.05, 10, 400), "30m"),  # no bound can be narrower
        Data("70h", TRIED | bounds("0.9", 1.0, 10, 400), "30m"),
        Data("62h", OUT | bounds("0.9", 1.0, 10, 400), "30m"),
    ],
    "QueuecastNoEstimates": [
        Data("90m", OUT | unestimated(0.1, 1)),
        Data("90m", OUT | unestimated(1.0, 0.2)),
        Data("90m", OUT | unestimated(1.0, 1, method="median")),
        Data("90m", TRIED | unestimated(1.0, 1)),
    ],
}
"""Similar data on which each alert is quiet."""

HEALTHY = Data(
    "30h",
    {
        'up{job="queuecast",instance="a"}': "1x600",
        'queuecast_sites{instance="a"}': "3x600",
        **started("100x600"),
        'queuecast_broker_up{instance="a"}': "1x600",
        'queuecast_redis_up{instance="a"}': "1x600",
        **events("0+30x600"),
        **running("40x600"),
        **lag("5x600"),
        **rejects("0+0.1x600"),
        **late(0, of=10, steps=600),
        **estimates("0+180x600"),
        **failing("0 30 0 0 45 0x595"),
        **OUT,
        **trivial(3, 600),
        **waited(0.6, 3, 600),
        **unestimated(0.01, 3, 600),
        **bounds("0.95", 0.96, 3, 600),
        **bounds("0.9", 0.93, 3, 600),
        **bounds("0.5", 0.58, 3, 600),
    },
    "3m",
)


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
