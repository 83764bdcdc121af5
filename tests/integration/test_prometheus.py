"""Prometheus' mean errors equal those of the referee on the same jobs."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.local.stack import Prometheus
from deploy.local.stack.servers import RULES
from streams.sources.swf import events_of, read_swf
from tests.support import scraped
from tests.support.deployment import PATIENCE_S, Deploy, until
from tests.support.scraped import value
from tests.support.traces import made_trace, shared_path

pytestmark = pytest.mark.long


@pytest.fixture
def prometheus(tmp_path: Path) -> Iterator[Prometheus]:
    with scraped.prometheus(tmp_path / "prometheus") as server:
        yield server


def mean(server: Prometheus, metric: str, method: str) -> float:
    chosen = f'{{site="made",method="{method}"}}'
    return value(server, f"sum({metric}_sum{chosen}) / sum({metric}_count{chosen})")


def test_prometheus_mean_errors_equal_referee(deploy: Deploy, prometheus: Prometheus, tmp_path: Path) -> None:
    trace, predictions = made_trace(tmp_path / "made.swf", jobs=600), tmp_path / "predictions.ndjson"
    events = list(events_of(read_swf(trace), "made"))
    here = deploy()
    prometheus.scrape({"queuecast": [here.worker.address]})
    here.send(events)
    here.worker.start()
    here.await_outputs(sum(map(len, here.expected(events).values())))
    predictions.write_bytes(b"\n".join(here.records()[here.topics.predictions, "made"]))
    referee = [sys.executable, str(shared_path("referee/score.py")), str(trace), str(predictions), "--json"]
    scored: dict[str, Any] = json.loads(subprocess.check_output(referee, timeout=PATIENCE_S))

    until(lambda: value(prometheus, 'queuecast_events_total{site="made"}') == len(events))
    for method, row in ((here.settings.engine.method, scored["predictions"]), ("zero", scored["always zero"])):
        assert mean(prometheus, "queuecast_wait_error_seconds", method) == pytest.approx(row["AAE"] * 3600, rel=1e-6)
        assert mean(prometheus, "queuecast_wait_error_response_ratio", method) == pytest.approx(row["PPE"], rel=1e-6)
        assert value(prometheus, f'sum(queuecast_wait_error_seconds_count{{method="{method}"}})') == row["jobs"]
    assert scored["predictions"]["AAE"] != scored["always zero"]["AAE"]
    assert value(prometheus, 'sum(queuecast_wait_error_seconds_count{jobs="cancelled",method="zero"})') > 0


def test_prometheus_loads_project_rules_by_default(prometheus: Prometheus) -> None:
    groups = scraped.api_data(prometheus, "rules")["groups"]
    assert {Path(group["file"]).name for group in groups} == {file.name for file in RULES}
