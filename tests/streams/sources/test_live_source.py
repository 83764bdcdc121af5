"""A running source: its counters, options and HTTP metrics."""

import urllib.request
from collections.abc import Iterator

import pytest

from deploy.local.stack.process import free_port
from models.records import Heartbeat, Start, Submit
from streams.errors import UserError
from streams.operate.checks import check_source
from streams.process.scraping import serve_metrics
from streams.settings import Settings
from streams.sources import live_source as running
from streams.sources.contract import Calls, Cursor, OnSkipped, SkippedPart, Source, Step, refuse
from streams.sources.live_source import MAX_WARNED, REPORT_S, Watch, run_source
from streams.sources.publisher import OutgoingEvent, Stop
from streams.sources.source_registry import options_for


class Made(Source):
    """A source of two events with counters of records and calls."""

    name = "made"
    sites = ("here",)

    def __init__(
        self,
        location: str,
        site: str | None = None,
        on_skipped: OnSkipped = refuse,
        pause_s: float = 1.0,
        zone: str = "",
    ) -> None:
        self.records = 5
        self.left_out = {"job steps": 3}
        self.lag = {"bytes": 12.0}
        self.calls = {"squeue": Calls(4, 1, 2.0, 0.25)}

    def events(self, cursor: Cursor | None = None) -> Iterator[Step]:
        yield Submit(site="here", time=100.0, job="7"), b"1"
        yield Start(site="here", time=160.0, job="7"), b"2"


def test_source_options_are_converted_to_declared_types() -> None:
    assert options_for(Made, ["pause_s=2", "zone=UTC"]) == {"pause_s": 2.0, "zone": "UTC"}
    with pytest.raises(UserError, match="the options of made are: pause_s, zone"):
        options_for(Made, ["speed=2"])
    with pytest.raises(UserError, match="pause_s=soon"):
        options_for(Made, ["pause_s=soon"])


def test_watch_counts_and_reports_source_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    def send_all(_: Settings, steps: Iterator[OutgoingEvent], on_sent: object, *rest: object) -> None:
        for step in steps:
            on_sent(step.event)

    monkeypatch.setattr(running, "publish", send_all)
    reports: list[str] = []
    now = [0.0]
    watch = Watch(reports.append, clock=lambda: now[0], wall_clock=lambda: 190.0)
    assert list(watch.collect()) == []
    run_source(Settings(), Made("x"), watch, None, Stop())
    assert watch.report() == "5 records, 2 events sent, 0 skipped; squeue: 4 calls, 0.50 s each, 1 failed"
    assert watch.since_event_s == 30.0
    now[0] = 45.0
    assert watch.since_read_s == 45.0
    for number in range(MAX_WARNED + 5):
        watch.on_skipped(SkippedPart("log", number, "field 1 (time)", "'soon'", "Unix seconds"))
    assert len(reports) == MAX_WARNED
    now[0] += REPORT_S
    watch.poll()
    assert reports[-1].startswith("5 records, 2 events sent, 25 skipped")
    values = {
        (sample.name, *(value for key, value in sample.labels.items() if key not in ("source", "site"))): sample.value
        for metric in watch.collect()
        for sample in metric.samples
    }
    prefix = "queuecast_source_"
    assert values[prefix + "records_total",] == 5
    assert values[prefix + "events_total", "submit"] == 1
    assert values[prefix + "skipped_total", "job steps"] == 3
    assert values[prefix + "skipped_total", "field 1 (time)"] == 25
    assert values[prefix + "lag", "bytes"] == 12
    assert values[prefix + "last_event_age_seconds",] == 30
    assert values[prefix + "call_seconds_total", "squeue"] == 2
    assert values[prefix + "failed_calls_total", "squeue"] == 1
    assert values[prefix + "last_call_seconds", "squeue"] == 0.25


def test_heartbeats_are_no_records_of_a_source() -> None:
    now = 0.0
    watch = Watch(lambda _: None, clock=lambda: now, wall_clock=lambda: 190.0)
    watch.on_sent(Submit(site="here", time=100.0, job="7"))
    watch.poll()
    now = 300.0
    watch.on_sent(Heartbeat(site="here", time=180.0))
    watch.poll()
    assert (watch.records, watch.since_read_s, watch.since_event_s) == (1, 300.0, 90.0)


def test_source_metrics_are_served_and_checked() -> None:
    watch, port = Watch(lambda _: None), free_port()
    end = serve_metrics(watch, "127.0.0.1", port)
    try:
        assert check_source(f"127.0.0.1:{port}").state == "warn"  # the source has not started
        watch.source = Made("x")
        found = check_source(f"127.0.0.1:{port}")
        assert found.found == f"127.0.0.1:{port}: 5 records, the last 0s ago; 4 calls of 0.50 s each, 1 failed"
        assert (found.state, found.advice) == ("warn", "see its log for why they fail")
        watch.source.calls["squeue"].failed = 0
        assert check_source(f"127.0.0.1:{port}").state == "ok"
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            text = answer.read().decode()
    finally:
        end()
    assert 'queuecast_source_records_total{site="here",source="made"} 5.0' in text
    assert 'queuecast_source_last_record_age_seconds{site="here",source="made"}' in text
    assert check_source(f"127.0.0.1:{port}").state == "fail"
