"""Hostile events that the schema allows, within a real trace, do not raise the site's error.

Many more of them: `TESTS_HOSTILE_EVENTS=100000 pytest tests/models/engine/test_hostile.py`.
"""

import os
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import islice

import msgspec
import pytest

from models.durations import DAY_S, WEEK_S
from models.engine.engine import Engine
from models.engine.histories import Changes
from models.engine.outgoing import Record
from models.engine.settings import EngineSettings
from models.records import AnyEvent, Outcome, Submit
from streams.sources.swf import events_of, read_swf
from tests.support.hostile import Hostile
from tests.support.sizes import mostly_long
from tests.support.traces import trace_path

SETTINGS = EngineSettings(
    method="qespera", shadows=("median",), runtimes="closest", bounds="", what_if_method="qespera"
)
COUNT = int(os.environ.get("TESTS_HOSTILE_EVENTS", "2000"))
BEFORE, AFTER, CPUS = 3000, 900, 100
MAX_ERROR_RATIO = 1.05

GROUPS = {
    "sizes": ("absurd_sizes",),
    "far times": ("absurd_times",),
    "near times": ("near_times",),
    "repeats": ("repeats", "many_repeats", "shuffled_repeats"),
    "all times": ("absurd_times", "near_times"),
    "unknown": ("unknown_jobs", "running_for_ever"),
    "all": (),
}


@cache
def genuine() -> tuple[Sequence[AnyEvent], Sequence[AnyEvent]]:
    """Return the events of a trace's first jobs and those of more than a week after them."""
    trace = read_swf(trace_path("KTH"))
    jobs = msgspec.structs.replace(trace, jobs=trace.jobs[: BEFORE + AFTER])
    events = list(events_of(jobs, "s"))
    begin = [place for place, event in enumerate(events) if isinstance(event, Submit)][BEFORE]
    return events[:begin], events[begin:]


def applied(engine: Engine, events: Iterable[AnyEvent], live: bool) -> list[Record]:
    return [record for event in events for record in engine.apply(event, event.time + 2.0 if live else None)]


@cache
def saved(live: bool) -> tuple[bytes, Changes]:
    engine = Engine("s", SETTINGS)
    applied(engine, genuine()[0], live)
    return engine.checkpoint()


def copy(live: bool) -> Engine:
    """Return an engine after the events before the attack."""
    state, changes = saved(live)
    return Engine.load(state, changes.started, changes.runs, SETTINGS, changes.rows)


def errors(engine: Engine, live: bool) -> dict[str, float]:
    """Return the error of each genuine job submitted in the week after the attack, in seconds."""
    past, future = genuine()
    end = past[-1].time + WEEK_S
    records = applied(engine, future, live)
    outcomes = [record for record in records if isinstance(record, Outcome) and record.actual_run_s is None]
    return {o.job: abs(o.error_s) for o in outcomes if past[-1].time <= o.made_at < end and "hostile" not in o.job}


@cache
def undisturbed(live: bool) -> dict[str, float]:
    return errors(copy(live), live)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("live", mostly_long([True, False]))
@pytest.mark.parametrize("group", GROUPS)
def test_hostile_events_keep_next_week_error_within_5_percent(group: str, live: bool) -> None:
    past, now = genuine()[0], genuine()[0][-1].time
    attacked, quiet = copy(live), undisturbed(live)
    for event in Hostile(past, CPUS, seed=1, kinds=GROUPS[group]).events(COUNT):
        attacked.apply(event, now + 2.0 if live else None)
    found = errors(attacked, live)
    both = quiet.keys() & found.keys()
    assert len(quiet) > 300 and len(both) > 0.95 * len(quiet)
    error, usual = sum(found[job] for job in both), sum(quiet[job] for job in both)
    print(f"{group} {'live' if live else 'offline'}: {error / usual - 1:+.1%} of {len(both)} jobs")
    assert error < MAX_ERROR_RATIO * usual


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", ["near_times", "unknown_jobs", "running_for_ever"])
def test_steady_attack_on_default_keeps_error_within_5_percent(kind: str) -> None:
    """Starts of jobs that do not exist arrive between all genuine events."""
    (past, future), quiet = genuine(), engine_of_default()
    attacked = engine_of_default()
    hostile = Hostile(past, CPUS, seed=1, kinds=[kind])
    events = hostile.events(2 * len(future))
    usual, found = dict[str, float](), dict[str, float]()
    for event in future:
        usual |= wait_errors(applied(quiet, [event], live=True))
        applied(attacked, islice(events, 2), live=True)
        found |= wait_errors(applied(attacked, [event], live=True))
        hostile.pass_to(event.time)
    both = usual.keys() & found.keys()
    assert len(both) > 0.95 * len(usual) > 500
    assert sum(found[job] for job in both) < MAX_ERROR_RATIO * sum(usual[job] for job in both)


def engine_of_default() -> Engine:
    """Return an engine of the default method after the events before the attack."""
    state, changes = saved_default()
    return Engine.load(state, changes.started, changes.runs, EngineSettings(), changes.rows)


@cache
def saved_default() -> tuple[bytes, Changes]:
    engine = Engine("s", EngineSettings())
    applied(engine, genuine()[0], live=True)
    return engine.checkpoint()


def wait_errors(records: Iterable[Record]) -> dict[str, float]:
    """Return the absolute wait error of each job in seconds."""
    outcomes = [record for record in records if isinstance(record, Outcome) and record.actual_run_s is None]
    return {outcome.job: abs(outcome.error_s) for outcome in outcomes if "hostile" not in outcome.job}


def test_unsubmitted_running_jobs_give_way_to_submitted_jobs() -> None:
    engine, (past, future) = copy(live=True), genuine()
    applied(engine, Hostile(past, CPUS, 1, ["running_for_ever"]).events(500), live=True)
    running = [job for job in engine.context.state.jobs.values() if not job.requested]
    assert 0 < sum(job.counted_cpus for job in running) <= CPUS
    applied(engine, [event for event in future if event.time < past[-1].time + DAY_S], live=True)
    running = [job for job in engine.context.state.jobs.values() if not job.requested]
    assert sum(job.counted_cpus for job in running) <= CPUS
    assert engine.anomalies["gave_up_unsubmitted"] > 450
