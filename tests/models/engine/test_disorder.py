"""Events that come late, twice, out of order or not at all: each has its outcome, and none corrupts the state."""

import ast
import inspect
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.engine import engine as engine_module
from models.engine.checkpoint import read_saved
from models.engine.engine import Engine
from models.engine.outgoing import Anomaly, Record
from models.engine.settings import Settings
from models.records import (
    Alter,
    AnyEvent,
    Cancel,
    Capacity,
    End,
    Hold,
    Outcome,
    Prediction,
    Release,
    Requeue,
    Start,
    Submit,
)
from models.site.state import SITE, Phase, SiteState, micros

SETTINGS = Settings(method="median", shadows=("zero",), runtimes="closest", bounds="", history=50, remembered=100)
README = Path(__file__).parents[3] / "README.md"
KINDS = {kind.kind: kind for kind in AnyEvent.__args__}


def event(text: str, **fields: Any) -> AnyEvent:
    """The event that "start@150" or, of the next attempt, "start'@150" means, of job 1."""
    kind, _, time = text.partition("@")
    attempt = kind.count("'")
    return KINDS[kind.rstrip("'")](site="s", job="1", time=float(time), attempt=attempt, **fields)  # type: ignore[no-any-return]


def story(text: str) -> list[AnyEvent]:
    """The events that a line of words means."""
    return [event(word) for word in text.split()]


def new_engine() -> Engine:
    return Engine("s", SETTINGS)


def applied(engine: Engine, events: Sequence[AnyEvent]) -> list[Record]:
    return [record for event in events for record in engine.apply(event)]


def anomalies(records: list[Record]) -> list[Anomaly]:
    return [record for record in records if isinstance(record, Anomaly)]


def outcomes(records: list[Record]) -> list[Outcome]:
    return [record for record in records if isinstance(record, Outcome)]


def predictions(records: list[Record]) -> list[Prediction]:
    return [record for record in records if isinstance(record, Prediction)]


def live(engine: Engine) -> dict[int, Phase]:
    """The phase of each live attempt at job 1."""
    return {attempt: job.phase for (_, attempt), job in engine.context.state.jobs.items()}


def assert_sound(engine: Engine) -> None:
    """The totals are those of the jobs that are there."""
    recount = SiteState()
    for job in engine.context.state.jobs.values():
        recount.enter(job)
    assert engine.context.state._totals == recount._totals


QUEUED, HELD, RUNNING, ENDED = Phase.QUEUED, Phase.HELD, Phase.RUNNING, Phase.ENDED_BEFORE_START

# What comes, which anomalies it makes (an exclamation mark: rejected), and the attempts that are live after it.
TABLE: list[tuple[str, str, dict[int, Phase]]] = [
    # As it should be.
    ("submit@100", "", {0: QUEUED}),
    ("submit@100 start@150", "", {0: RUNNING}),
    ("submit@100 start@100 end@100", "", {}),
    ("submit@100 start@150 end@300", "", {}),
    ("submit@100 cancel@150", "", {}),
    ("submit@100 hold@110", "", {0: HELD}),
    ("submit@100 hold@110 release@120", "", {0: QUEUED}),
    ("submit@100 hold@110 cancel@120", "", {}),
    ("submit@100 hold@110 alter@115 release@120 alter@130 start@150 alter@160 end@300", "", {}),
    ("submit@100 start@150 requeue@200", "", {1: QUEUED}),
    ("submit@100 start@150 requeue@200 start'@250 requeue'@260 start''@270 end''@300", "", {}),
    # Twice.
    ("submit@100 submit@100", "duplicate_submit", {0: QUEUED}),
    ("submit@100 start@150 submit@100", "duplicate_submit", {0: RUNNING}),
    ("submit@100 start@150 start@150", "duplicate_start", {0: RUNNING}),
    ("submit@100 start@150 end@300 submit@100", "duplicate_submit", {}),
    ("submit@100 start@150 end@300 start@150", "duplicate_start", {}),
    ("submit@100 start@150 end@300 end@300", "duplicate_end", {}),
    ("submit@100 start@150 end@300 cancel@300", "duplicate_cancel", {}),
    ("submit@100 cancel@150 cancel@150", "duplicate_cancel", {}),
    ("submit@100 cancel@150 submit@100", "duplicate_submit", {}),
    ("submit@100 hold@110 hold@110", "hold_of_job_not_queued", {0: HELD}),
    ("submit@100 hold@110 release@120 release@120", "release_of_job_not_held", {0: QUEUED}),
    ("submit@100 hold@110 release@120 hold@110", "stale_hold!", {0: QUEUED}),
    ("submit@100 hold@110 release@120 hold@130 release@120", "stale_release!", {0: HELD}),
    ("submit@100 hold@110 hold@130 release@120", "hold_of_job_not_queued stale_release!", {0: HELD}),
    ("submit@100 alter@120 alter@110", "stale_alter!", {0: QUEUED}),
    ("submit@100 alter@120 hold@110", "", {0: HELD}),
    ("submit@100 start@150 requeue@200 requeue@200", "duplicate_requeue", {1: QUEUED}),
    ("submit@100 start@150 requeue@200 start@150", "duplicate_start", {1: QUEUED}),
    ("submit@100 start@150 requeue@200 submit'@200", "duplicate_submit", {1: QUEUED}),
    # Never submitted, or submitted late.
    ("start@150", "start_without_submit", {0: RUNNING}),
    ("start@150 start@150", "start_without_submit duplicate_start", {0: RUNNING}),
    ("start@150 end@300", "start_without_submit", {}),
    ("start@150 submit@100", "start_without_submit submit_after_start", {0: RUNNING}),
    ("start@150 submit@100 submit@100", "start_without_submit submit_after_start duplicate_submit", {0: RUNNING}),
    ("start@150 submit@100 end@300", "start_without_submit submit_after_start", {}),
    ("start@150 end@300 submit@100", "start_without_submit duplicate_submit", {}),
    ("end@300", "end_without_start", {}),
    ("end@300 end@300", "end_without_start duplicate_end", {}),
    ("end@300 submit@100", "end_without_start duplicate_submit", {}),
    ("end@300 start@150 submit@100", "end_without_start duplicate_start duplicate_submit", {}),
    ("cancel@150", "cancel_without_submit", {}),
    ("cancel@150 submit@100", "cancel_without_submit duplicate_submit", {}),
    ("cancel@150 cancel@150", "cancel_without_submit duplicate_cancel", {}),
    ("hold@110", "hold_of_job_not_queued", {}),
    ("hold@110 submit@100", "hold_of_job_not_queued", {0: QUEUED}),
    ("release@120", "release_of_job_not_held", {}),
    ("alter@120", "alter_of_unknown_job", {}),
    ("requeue@200", "requeue_of_unknown_job", {}),
    ("requeue@200 requeue@200", "requeue_of_unknown_job duplicate_requeue", {}),
    ("requeue@200 submit@100 start@150", "requeue_of_unknown_job duplicate_submit duplicate_start", {}),
    # In another order.
    ("submit@100 end@300", "end_seen_before_start", {0: ENDED}),
    ("submit@100 end@300 start@150", "end_seen_before_start", {}),
    ("submit@100 end@300 start@300", "end_seen_before_start", {}),
    ("submit@100 end@300 start@361", "end_seen_before_start start_after_end!", {0: ENDED}),
    ("submit@100 end@300 end@300", "end_seen_before_start duplicate_end", {0: ENDED}),
    ("submit@100 end@300 start@150 end@300", "end_seen_before_start duplicate_end", {}),
    ("submit@100 end@300 submit@100", "end_seen_before_start duplicate_submit", {0: ENDED}),
    ("submit@100 end@300 cancel@300", "end_seen_before_start cancel_after_end", {0: ENDED}),
    ("submit@100 end@300 hold@310", "end_seen_before_start hold_of_job_not_queued", {0: ENDED}),
    ("submit@100 end@300 release@310", "end_seen_before_start release_of_job_not_held", {0: ENDED}),
    ("submit@100 end@300 requeue@310", "end_seen_before_start requeue_after_end", {0: ENDED}),
    ("submit@100 hold@110 end@300", "end_seen_before_start", {0: ENDED}),
    ("submit@100 release@120 hold@110", "release_of_job_not_held stale_hold!", {0: QUEUED}),
    ("submit@100 hold@110 start@150 release@120", "release_of_job_not_held", {0: RUNNING}),
    ("submit@100 start@150 hold@110", "hold_of_job_not_queued", {0: RUNNING}),
    ("submit@100 requeue@200", "requeue_seen_before_start", {1: QUEUED}),
    ("submit@100 requeue@200 start@150", "requeue_seen_before_start duplicate_start", {1: QUEUED}),
    ("submit@100 start@150 submit'@200 requeue@200", "duplicate_submit", {1: QUEUED}),
    ("submit@100 start@150 start'@250 requeue@200", "start_without_submit submit_after_start", {1: RUNNING}),
    ("submit@100 start@150 start'@250 end'@300 requeue@200", "start_without_submit duplicate_submit", {}),
    ("submit@100 start@150 end'@300 requeue@200", "end_without_start duplicate_submit", {}),
    ("start@150 requeue@200 submit@100", "start_without_submit duplicate_submit", {1: QUEUED}),
    # By clocks that differ by up to a minute.
    ("submit@100 start@40", "", {0: RUNNING}),
    ("submit@100 start@40 end@300", "", {}),
    ("submit@100 start@99 start@150", "duplicate_start", {0: RUNNING}),
    ("submit@100 hold@110 start@40", "", {0: RUNNING}),
    ("submit@100 cancel@40", "", {}),
    ("submit@100 start@150 end@90", "", {}),
    ("submit@100 start@150 cancel@90", "cancel_while_running", {}),
    ("submit@100 end@99", "end_seen_before_start", {0: ENDED}),
    ("submit@100 end@99 start@99", "end_seen_before_start", {}),
    ("submit@100 end@300 start@40", "end_seen_before_start", {}),
    ("submit@100 end@300 start@360", "end_seen_before_start", {}),
    # Against time: it happened, but not then.
    ("submit@100 start@39", "start_before_submit", {0: RUNNING}),
    ("submit@100 start@39 start@150", "start_before_submit duplicate_start", {0: RUNNING}),
    ("submit@100 start@39 submit@100", "start_before_submit duplicate_submit", {0: RUNNING}),
    ("submit@100 start@39 end@300", "start_before_submit", {}),
    ("submit@100 start@39 end@300 end@300", "start_before_submit duplicate_end", {}),
    ("submit@100 start@39 requeue@200", "start_before_submit", {1: QUEUED}),
    ("submit@100 hold@110 start@39 release@120", "start_before_submit release_of_job_not_held", {0: RUNNING}),
    ("submit@100 end@300 start@39", "end_seen_before_start start_before_submit", {}),
    ("submit@100 end@300 start@39 start@39", "end_seen_before_start start_before_submit duplicate_start", {}),
    ("submit@100 end@9 start@5", "end_seen_before_start start_before_submit", {}),
    ("submit@100 cancel@39", "cancel_before_submit", {}),
    ("submit@100 cancel@39 cancel@150", "cancel_before_submit duplicate_cancel", {}),
    ("submit@100 cancel@39 start@150", "cancel_before_submit duplicate_start", {}),
    ("submit@100 start@150 end@89", "end_before_start", {}),
    ("submit@100 start@150 end@89 end@300", "end_before_start duplicate_end", {}),
    ("submit@100 start@150 cancel@89", "cancel_while_running end_before_start", {}),
    # Against time: rejected.
    ("submit@100 end@9 start@100", "end_seen_before_start start_after_end!", {0: ENDED}),
    ("submit@100 requeue@39", "requeue_before_start!", {0: QUEUED}),
    ("submit@100 start@150 requeue@89", "requeue_before_start!", {0: RUNNING}),
    # Cancelled while it runs: it has ended.
    ("submit@100 start@150 cancel@200", "cancel_while_running", {}),
    ("submit@100 start@150 cancel@200 end@200", "cancel_while_running duplicate_end", {}),
]


@pytest.mark.parametrize(("text", "reasons", "after"), TABLE, ids=[row[0] for row in TABLE])
def test_what_comes_has_its_outcome(text: str, reasons: str, after: dict[int, Phase]) -> None:
    engine = new_engine()
    found = anomalies(applied(engine, story(text)))
    assert " ".join(anomaly.reason + "!" * anomaly.rejected for anomaly in found) == reasons
    assert live(engine) == after
    assert engine.events == len(text.split())
    assert sum(engine.anomalies.values()) == len(found)
    assert all("job 1" in anomaly.detail or anomaly.reason.startswith("stale_") for anomaly in found)
    assert_sound(engine)


@pytest.mark.parametrize("text", [text for text, reasons, _ in TABLE if "!" in reasons])
def test_what_is_rejected_changes_nothing(text: str) -> None:
    engine = new_engine()
    rejected = 0
    for each in story(text):
        before = contents(engine)
        records = engine.apply(each)
        if any(anomaly.rejected for anomaly in anomalies(records)):
            rejected += 1
            assert contents(engine) == before
            assert anomalies(records) == records
    assert rejected == 1


def contents(engine: Engine) -> dict[str, Any]:
    """All of a state but what every event is counted in or may end, and which rows are to be deleted."""
    saved, _ = engine.checkpoint()
    assert read_saved(saved).site == "s"
    found: dict[str, Any] = msgspec.msgpack.decode(saved)
    return {
        name: value
        for name, value in found.items()
        if name not in ("events", "anomalies", "times", "forgotten", "weeks")
    }


# What the outcomes amount to.


def test_a_start_that_comes_after_its_end_tells_the_wait_and_the_run_time() -> None:
    engine, orderly = new_engine(), new_engine()
    late = outcomes(applied(engine, story("submit@100 end@300 start@150")))
    assert late == outcomes(applied(orderly, story("submit@100 start@150 end@300")))
    assert [(outcome.actual_wait_s, outcome.actual_run_s) for outcome in late] == [(50.0, None), (50.0, 150.0)]
    assert contents(engine) == contents(orderly)


def test_a_job_first_seen_at_its_start_is_left_out_of_accuracy_and_history() -> None:
    engine = new_engine()
    records = applied(engine, [event("start@150", cpus=8), event("submit@100", user="ada", cpus=4), event("end@300")])
    assert not outcomes(records) and not predictions(records)
    assert (
        engine.scores.accuracy["median"].jobs
        == engine.scores.accuracy["median"].responses
        == len(engine.context.history)
        == 0
    )
    assert [run.run_s for run in engine.context.runs] == [150.0] * 3  # by user and size, by user, of the site


@pytest.mark.parametrize(
    ("text", "wait_s", "run_s"),
    [
        ("submit@100 start@40 end@300", 0.0, 260.0),
        ("submit@100 end@300 start@40", 0.0, 260.0),
        ("submit@100 start@40 end@40", 0.0, 0.0),
        ("submit@100 start@150 end@90", 50.0, 0.0),
        ("submit@100 start@150 cancel@90", 50.0, 0.0),
        ("submit@100 end@90 start@150", 50.0, 0.0),
        ("submit@100 end@99 start@99", 0.0, 0.0),
    ],
)
def test_clocks_that_differ_make_no_negative_times(text: str, wait_s: float, run_s: float) -> None:
    engine = new_engine()
    found = outcomes(applied(engine, story(text)))
    assert [(each.actual_wait_s, each.actual_run_s) for each in found] == [(wait_s, None), (wait_s, run_s)]
    assert engine.scores.accuracy["median"].jobs == engine.scores.accuracy["median"].responses == 1
    assert engine.context.history.waits.tolist() == [wait_s]
    assert {run.run_s for run in engine.context.runs} == {run_s}


def test_a_cancel_up_to_a_minute_before_its_submit_has_not_waited() -> None:
    engine = new_engine()
    [outcome] = outcomes(applied(engine, story("submit@100 cancel@40")))
    assert (outcome.censored, outcome.actual_wait_s) == (True, 0.0)
    assert engine.scores.cancelled["median"].jobs == engine.scores.cancelled["median"].responses == 1


@pytest.mark.parametrize(
    "text",
    [
        "submit@100 start@39 end@300",
        "submit@100 start@39 cancel@300",
        "submit@100 end@300 start@39",
        "submit@100 end@9 start@5",
        "submit@100 cancel@39",
    ],
)
def test_nothing_is_learnt_of_a_job_that_happened_against_time(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = new_engine()
    told: list[tuple[str, int]] = []
    monkeypatch.setattr(engine.methods.waits["median"], "forget", told.append)
    assert not outcomes(applied(engine, story(text)))
    for measured in (engine.scores.accuracy["median"], engine.scores.cancelled["median"]):
        assert measured.jobs == measured.responses == 0
    assert engine.scores.run_accuracy["closest"].jobs == 0
    assert len(engine.context.history) == len(engine.context.runs) == 0
    assert told == [("1", 0)]


def test_an_end_long_before_its_start_tells_no_run_time() -> None:
    engine = new_engine()
    [outcome] = outcomes(applied(engine, story("submit@100 start@150 end@89")))
    assert (outcome.actual_wait_s, outcome.actual_run_s) == (50.0, None)
    assert (engine.scores.accuracy["median"].jobs, engine.scores.accuracy["median"].responses) == (1, 0)
    assert (len(engine.context.history), len(engine.context.runs)) == (1, 0)


def test_a_job_that_starts_long_before_its_submit_runs_from_then_on() -> None:
    engine = new_engine()
    applied(engine, [event("submit@100", user="ada", cpus=4), event("start@39")])
    running = engine.context.state.totals(("user", "ada"), RUNNING)
    assert (running.cpus, running.since) == (4, micros(39.0))


def test_a_late_submit_fills_in_the_request() -> None:
    engine = new_engine()
    applied(engine, [event("start@150", cpus=8)])
    assert engine.context.state.totals(SITE, RUNNING).cpus == 8
    request = {"user": "ada", "group": "g", "account": "a", "queue": "q", "executable": "x", "cpus": 4, "nodes": 2}
    applied(engine, [event("submit@100", **request, gpus=1, memory=5, walltime=60.0)])
    job = engine.context.state.jobs["1", 0]
    assert {name: getattr(job, name) for name in request} == request
    assert (job.gpus, job.memory, job.walltime, job.planned_run_s, job.submit) == (1, 5, 60.0, 60.0, 100.0)
    running = engine.context.state.totals(("user", "ada"), RUNNING)
    assert (running.cpus, running.planned_run_us, running.since) == (4, micros(60.0), micros(150.0))


def test_a_job_first_seen_at_its_start_is_expected_to_run_as_others_did() -> None:
    engine = new_engine()
    for number in range(2):
        request: dict[str, Any] = {"site": "s", "job": f"before{number}"}
        applied(engine, [Submit(**request, time=0.0), Start(**request, time=1.0), End(**request, time=101.0)])
    applied(engine, story("start@150"))
    assert engine.context.state.jobs["1", 0].planned_run_s == 100.0
    applied(engine, story("submit@100"))
    assert engine.context.state.jobs["1", 0].planned_run_s == 100.0


def test_a_cancelled_job_has_a_censored_wait_and_is_history_for_nobody() -> None:
    engine = new_engine()
    [outcome] = outcomes(applied(engine, story("submit@100 cancel@150")))
    assert (outcome.censored, outcome.actual_wait_s, outcome.actual_run_s) == (True, 50.0, None)
    assert len(engine.context.history) == engine.scores.accuracy["median"].jobs == 0
    assert engine.scores.cancelled["median"].jobs == engine.scores.cancelled["median"].responses == 1


def test_a_job_cancelled_while_it_runs_has_a_wait_and_a_run_time() -> None:
    engine = new_engine()
    found = outcomes(applied(engine, story("submit@100 start@150 cancel@200")))
    assert [(outcome.censored, outcome.actual_run_s) for outcome in found] == [(False, None), (False, 50.0)]


@pytest.mark.parametrize(
    ("text", "wait_s", "wait_from"),
    [
        ("submit@100 start@150", 50.0, "submit"),
        ("submit@100 hold@110 release@130 start@150", 20.0, "eligible"),
        ("submit@100 hold@110 release@130 hold@140 release@145 start@150", 5.0, "eligible"),
        ("submit@100 hold@100 release@100 start@150", 50.0, "submit"),
        ("submit@100 hold@110 release@150 start@150", 0.0, "eligible"),
        ("submit@100 hold@110 start@150", 50.0, "submit"),  # nobody told of its release
        ("submit@100 hold@110 release@160 start@150", 0.0, "eligible"),
        ("submit@100 hold@110 release@90 start@150", 50.0, "submit"),  # against time
    ],
)
def test_the_wait_counts_from_the_release(text: str, wait_s: float, wait_from: str) -> None:
    [outcome] = outcomes(applied(new_engine(), story(text)))
    assert (outcome.actual_wait_s, outcome.wait_from) == (wait_s, wait_from)


def test_a_release_does_not_bring_the_begin_time_forward() -> None:
    events = [event("submit@100", eligible=140.0), *story("hold@110 release@120 start@150")]
    [outcome] = outcomes(applied(new_engine(), events))
    assert (outcome.actual_wait_s, outcome.wait_from) == (10.0, "eligible")


def test_a_requeued_job_is_a_new_attempt_with_its_own_prediction() -> None:
    engine = new_engine()
    request = {"user": "ada", "queue": "q", "executable": "x", "cpus": 4, "walltime": 60.0, "eligible": 120.0}
    applied(engine, [event("submit@100", **request), *story("start@150 alter@160")])
    [prediction] = engine.apply(event("requeue@200"))
    assert isinstance(prediction, Prediction)
    assert (prediction.job, prediction.attempt, prediction.made_at) == ("1", 1, 200.0)
    assert prediction.predicted_wait_s == 30.0 and prediction.predicted_start == 230.0
    again = engine.context.state.jobs["1", 1]
    assert {name: getattr(again, name) for name in request} == request | {"eligible": None}
    found = outcomes(applied(engine, story("start'@260 end'@300")))
    assert [(outcome.attempt, outcome.made_at, outcome.actual_wait_s) for outcome in found] == [(1, 200.0, 60.0)] * 2
    assert found[-1].actual_run_s == 40.0
    assert [run.run_s for run in engine.context.runs][-1] == 40.0  # the attempt that was broken off tells no run time


def test_an_alter_changes_the_request_and_the_totals() -> None:
    engine = new_engine()
    applied(engine, [event("submit@100", user="ada", queue="short", cpus=4, walltime=60.0)])
    applied(engine, [event("alter@110", queue="long", cpus=8)])
    applied(engine, [event("alter@120", walltime=600.0, nodes=2)])
    job = engine.context.state.jobs["1", 0]
    assert (job.queue, job.cpus, job.walltime, job.planned_run_s, job.nodes) == ("long", 8, 600.0, 600.0, 2)
    totals = engine.context.state.totals(("queue", "long"), QUEUED)
    assert (totals.count, totals.cpus, totals.planned_run_us) == (1, 8, micros(600.0))
    assert engine.context.state.totals(("queue", "short"), QUEUED).count == 0


def test_an_altered_running_job_counts_with_its_new_walltime() -> None:
    engine = new_engine()
    applied(engine, [event("submit@100", walltime=60.0), event("start@150"), event("alter@160", walltime=600.0)])
    assert engine.context.state.totals(SITE, RUNNING).planned_run_us == micros(600.0)
    applied(engine, story("end@300"))
    assert [run.walltime for run in engine.context.runs] == [600.0]


def test_a_wait_that_is_over_is_not_altered() -> None:
    engine = new_engine()
    events = [event("submit@100"), event("start@150"), event("alter@160", eligible=140.0), event("end@300")]
    found = outcomes(applied(engine, events))
    assert [(outcome.actual_wait_s, outcome.wait_from) for outcome in found] == [(50.0, "submit")] * 2


def test_an_altered_begin_time_moves_the_begin_of_the_wait() -> None:
    events = [event("submit@100"), event("alter@110", eligible=140.0), event("start@150")]
    [outcome] = outcomes(applied(new_engine(), events))
    assert (outcome.actual_wait_s, outcome.wait_from) == (10.0, "eligible")


def test_an_older_capacity_does_not_undo_a_newer_one() -> None:
    engine = new_engine()
    newer, older = (Capacity(site="s", time=time, cpus=int(time)) for time in (20.0, 10.0))
    assert engine.apply(newer) == []
    [anomaly] = engine.apply(older)
    assert isinstance(anomaly, Anomaly) and (anomaly.reason, anomaly.rejected) == ("stale_capacity", True)
    assert engine.context.capacity == newer


def other_jobs(count: int) -> list[AnyEvent]:
    """Jobs that come and go, so that older ones are forgotten."""
    jobs: list[dict[str, Any]] = [{"site": "s", "job": f"other{number}", "time": 400.0} for number in range(count)]
    return [kind(**job) for job in jobs for kind in (Submit, Start, End)]


def test_a_job_that_left_long_ago_is_forgotten() -> None:
    engine = new_engine()
    applied(engine, [*story("submit@100 start@150 end@300"), *other_jobs(99)])
    assert [anomaly.reason for anomaly in anomalies(engine.apply(event("submit@100")))] == ["duplicate_submit"]
    applied(engine, other_jobs(100)[-3:])
    assert predictions(engine.apply(event("submit@100")))


def test_an_end_whose_start_never_comes_is_forgotten_with_its_job() -> None:
    engine = new_engine()
    applied(engine, [*story("submit@100 end@300"), *other_jobs(99)])
    assert live(engine) == {0: ENDED}
    applied(engine, other_jobs(100)[-3:])
    assert live(engine) == {}
    assert_sound(engine)


def test_methods_are_told_of_every_job_that_leaves_without_a_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = new_engine()
    told: list[tuple[str, int]] = []
    monkeypatch.setattr(engine.methods.waits["median"], "forget", told.append)
    applied(engine, story("submit@100 cancel@150"))
    applied(engine, [msgspec.structs.replace(each, job="2") for each in story("submit@100 requeue@150")])
    applied(engine, [msgspec.structs.replace(each, job="3") for each in story("submit@100 end@150")])
    applied(engine, [msgspec.structs.replace(each, job="4") for each in story("submit@100 start@120 end@150")])
    assert told == [("1", 0), ("2", 0)]
    applied(engine, other_jobs(100))
    assert told == [("1", 0), ("2", 0), ("3", 0)]


# Whatever comes.


def job_story(draw: st.DrawFn, number: int) -> list[AnyEvent]:
    """What befalls one job, in a valid order, at ever later times."""
    key: dict[str, Any] = {"site": "s", "job": str(number)}
    time = float(draw(st.integers(0, 50)))
    events: list[AnyEvent] = []

    def add(kind: type[AnyEvent], **fields: Any) -> None:
        nonlocal time
        events.append(kind(**key, time=time, **fields))
        time += draw(st.integers(1, 20)) / 4

    user, queue = draw(st.sampled_from(["ada", "bob", None])), draw(st.sampled_from(["q", None]))
    add(Submit, user=user, queue=queue, cpus=draw(st.integers(1, 9)), walltime=draw(st.sampled_from([None, 0.1, 60.0])))
    for attempt in range(3):
        key["attempt"] = attempt
        for turn in draw(st.lists(st.sampled_from(["hold", "alter"]), max_size=3)):
            if turn == "hold":
                add(Hold)
                add(Release)
            else:
                walltime = draw(st.sampled_from([None, 0.3, 90.0]))
                add(Alter, cpus=draw(st.integers(1, 9)), walltime=walltime, queue="long")
        fate = draw(st.sampled_from(["queued", "cancelled", "running", "ended", "ended", "requeued"]))
        if fate == "cancelled":
            add(Cancel)
        elif fate != "queued":
            add(Start, cpus=draw(st.sampled_from([None, 3])))
        if fate == "ended":
            add(End)
        if fate != "requeued":
            break
        add(Requeue)
    return events


@st.composite
def orderly(draw: st.DrawFn) -> list[AnyEvent]:
    """The events of some jobs and the machine, as they happened."""
    events: list[AnyEvent] = [
        Capacity(site="s", time=float(time), cpus=8, nodes=4, down_nodes=draw(st.integers(0, 4)))
        for time in draw(st.sets(st.integers(0, 100), max_size=3))
    ]
    for number in range(draw(st.integers(1, 6))):
        events += job_story(draw, number)
    return sorted(events, key=lambda event: event.time)


@st.composite
def disorderly(draw: st.DrawFn) -> tuple[list[AnyEvent], list[AnyEvent]]:
    """Events as they happened, and as they came: each up to some places late, some of them twice, some never."""
    events = draw(orderly())
    window = draw(st.integers(0, 10))
    came = [
        (place + draw(st.integers(0, window)), event)
        for place, event in enumerate(events)
        for _ in range(draw(st.sampled_from([1, 1, 1, 2, 3])))
    ]
    return events, [event for _, event in sorted(came, key=lambda pair: pair[0])]


def fates(events: list[AnyEvent]) -> Engine:
    engine = new_engine()
    assert not anomalies(applied(engine, events))
    return engine


@settings(deadline=None)
@given(disorderly())
def test_disorder_leaves_sound_totals_and_no_ghosts(pair: tuple[list[AnyEvent], list[AnyEvent]]) -> None:
    happened, came = pair
    engine = new_engine()
    for each in came:
        engine.apply(each)
        assert_sound(engine)
    ended_unseen = {key for key, job in engine.context.state.jobs.items() if job.phase is ENDED}
    assert not ended_unseen
    assert engine.context.state.jobs.keys() <= fates(happened).context.state.jobs.keys()


@settings(deadline=None)
@given(disorderly(), st.randoms(use_true_random=False))
def test_lost_events_leave_sound_totals(pair: tuple[list[AnyEvent], list[AnyEvent]], dice: Any) -> None:
    engine = new_engine()
    for each in pair[1]:
        if dice.random() < 0.7:
            engine.apply(each)
            assert_sound(engine)


@settings(deadline=None)
@given(disorderly(), st.data())
def test_wrong_times_leave_sound_totals_and_no_negative_times(
    pair: tuple[list[AnyEvent], list[AnyEvent]], data: st.DataObject
) -> None:
    engine = new_engine()
    for each in pair[1]:
        time = data.draw(st.one_of(st.just(each.time), st.floats(0.0, 1e11), st.floats(0.0, 300.0)))
        for outcome in outcomes(engine.apply(msgspec.structs.replace(each, time=time))):
            assert outcome.actual_wait_s >= 0.0 and (outcome.actual_run_s or 0.0) >= 0.0
        assert_sound(engine)


@settings(deadline=None)
@given(orderly(), st.data())
def test_a_duplicate_at_once_or_later_changes_nothing_but_counters(events: list[AnyEvent], data: st.DataObject) -> None:
    engine = new_engine()
    for place, each in enumerate(events):
        assert not anomalies(engine.apply(each))
        before = contents(engine)
        for earlier in [place, *data.draw(st.lists(st.integers(0, place), max_size=3))]:
            records = engine.apply(events[earlier])
            assert anomalies(records) == records
        assert contents(engine) == before


# What is said of it.


def reasons() -> set[str]:
    """Every reason for an anomaly that the engine's source can give."""
    found = set()
    for function in ast.walk(ast.parse(inspect.getsource(engine_module))):
        if isinstance(function, ast.FunctionDef):
            for call in ast.walk(function):
                if isinstance(call, ast.Call) and isinstance(call.func, ast.Name):
                    if call.func.id == "Anomaly":
                        found |= named(call.args[0])
                    elif call.func.id == "_stale":
                        found |= {f"stale_{ast.unparse(function.args.args[1].annotation or call).lower()}"}
    return found


def named(reason: ast.expr) -> set[str]:
    """The reasons that an expression in the source can amount to; those of `_stale` its callers tell."""
    match reason:
        case ast.Constant(value=str(text)):
            return {text}
        case ast.IfExp(body=one, orelse=other):
            return named(one) | named(other)
        case ast.JoinedStr(values=[ast.Constant(value=str(text)), blank]):
            fillings = {"{job.phase}": set(Phase), "{event.kind}": set()}
            return {text + filling for filling in fillings[ast.unparse(blank)]}
    raise AssertionError(f"cannot tell what reason {ast.unparse(reason)} gives")


def documented() -> set[str]:
    """The reasons in the last column of the README's table."""
    section = README.read_text().partition("### When events come late, twice or wrong\n")[2].partition("\n## ")[0]
    rows = [line.split("|") for line in section.splitlines() if line.startswith("|")]
    return {reason for row in rows for reason in re.findall(r"`(.*?)`", row[-2])}


def test_every_anomaly_has_its_story_here() -> None:
    told = {reason.rstrip("!") for _, story_reasons, _ in TABLE for reason in story_reasons.split()}
    elsewhere = {"stale_capacity", "state_full", *(f"gave_up_{phase}" for phase in Phase)}
    assert told | elsewhere == reasons()


def test_the_readme_names_every_anomaly() -> None:
    unreadable = {"malformed", "not_json", "too_large", "wrong_key"}
    assert documented() == reasons() | unreadable
