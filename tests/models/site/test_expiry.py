"""Jobs whose end is never reported are given up: on time, in order, and not by a wrong clock."""

import random
from functools import cache
from typing import Any

import msgspec
import pytest

from models.durations import DAY_S
from models.engine.engine import EVENTS_PER_SWEEP, Engine
from models.engine.outgoing import Anomaly, Record
from models.engine.settings import EngineSettings
from models.records import Alter, AnyEvent, Cancel, Capacity, End, Hold, JobKey, Requeue, Start, Submit, Suspend
from models.site.expiry import MIN_AGREEING_EVENTS, Expiry, due
from models.site.history import StartedJob
from models.site.job import Job, Phase
from models.site.runs import Run
from models.site.state import SiteState
from models.timers import MIN_STALE_ENTRIES
from tests.support.events import end, start, submit
from tests.support.sizes import mostly_long

SETTINGS = EngineSettings(method="median", shadows=("zero",), bounds="", history=50)
FAR = 1e11
HELD_APART = ("stale_capacity", "implausible_time")


def submit_on(job: str, day: float = 0.0, walltime_days: float | None = None) -> Submit:
    walltime = None if walltime_days is None else walltime_days * DAY_S
    return submit(job, day * DAY_S, user="ada", cpus=4, walltime=walltime)


def start_on(job: str, day: float = 0.0) -> Start:
    return start(job, day * DAY_S)


def end_on(job: str, day: float = 0.0) -> End:
    return end(job, day * DAY_S)


def engine_after(*events: AnyEvent, settings: EngineSettings = SETTINGS) -> Engine:
    engine = Engine("s", settings)
    for event in events:
        engine.apply(event)
    return engine


def ticks(engine: Engine, *times: float) -> list[Record]:
    """Apply events at these times that concern no job; return only the records about other jobs."""
    records = [record for time in times for record in engine.apply(Capacity(site="s", time=time, cpus=8))]
    return [record for record in records if not isinstance(record, Anomaly) or record.reason not in HELD_APART]


def until(engine: Engine, day: float) -> list[str]:
    """Let all events agree on this day and trigger a sweep; return the reasons and jobs."""
    steps = range(int(engine.time), int(day * DAY_S), 50 * int(DAY_S))
    return reasons(ticks(engine, *map(float, steps), *[day * DAY_S] * (MIN_AGREEING_EVENTS + EVENTS_PER_SWEEP)))


def reasons(records: list[Record]) -> list[str]:
    assert all(isinstance(record, Anomaly) and not record.rejected for record in records)
    return [f"{record.reason} {record.detail.split()[1]}" for record in records if isinstance(record, Anomaly)]


def assert_sound(engine: Engine) -> None:
    """Check that the totals equal those of the live jobs."""
    recount = SiteState()
    for job in engine.context.state.jobs.values():
        recount.enter(job)
    assert engine.context.state._totals == recount._totals


# Due times.


@pytest.mark.parametrize(
    ("phase", "walltime_days", "day"),
    [
        (Phase.QUEUED, 1.0, 401.0),
        (Phase.HELD, 1.0, 401.0),
        (Phase.ENDED_BEFORE_START, 1.0, 401.0),
        (Phase.RUNNING, 1.0, 5.0 + 3.0 + 7.0),
        (Phase.RUNNING, 100.0, 5.0 + 300.0 + 7.0),
        (Phase.RUNNING, None, 405.0),
        (Phase.RUNNING, 0.0, 405.0),
    ],
)
def test_job_due_time_depends_on_phase_and_time_limit(phase: Phase, walltime_days: float | None, day: float) -> None:
    job = Job.of(submit_on("1", 1.0, walltime_days))
    job.phase, job.start = phase, 5.0 * DAY_S if phase is Phase.RUNNING else None
    assert due(job) == day * DAY_S


STORIES: list[tuple[list[AnyEvent], float, str]] = [
    ([submit_on("1", 2.0)], 402.0, "gave_up_queued"),
    ([submit_on("1", 2.0), Hold(site="s", job="1", time=3.0 * DAY_S)], 402.0, "gave_up_held"),
    ([submit_on("1", 2.0), end_on("1", 3.0)], 4.0, "gave_up_ended"),
    ([submit_on("1", 2.0), start_on("1", 3.0)], 403.0, "gave_up_running"),
    ([submit_on("1", 2.0, 1.0), start_on("1", 3.0)], 13.0, "gave_up_running"),
    ([start_on("1", 3.0)], 403.0, "gave_up_running"),
    ([start_on("1", 3.0), submit_on("1", 2.0, 1.0)], 13.0, "gave_up_running"),
    ([submit_on("1", 20.0, 1.0), start_on("1", 3.0)], 13.0, "gave_up_running"),  # start before submit
    ([submit_on("1", 2.0), start_on("1", 3.0), Requeue(site="s", job="1", time=4.0 * DAY_S)], 404.0, "gave_up_queued"),
]
"""Events of a job, the day on which it is given up, and the reason."""


@pytest.mark.parametrize(("events", "day", "reason"), STORIES)
def test_job_that_never_ends_is_given_up_when_due(events: list[AnyEvent], day: float, reason: str) -> None:
    engine = engine_after(*events)
    assert until(engine, day - 1e-4) == []
    assert len(engine.context.state) == 1
    assert until(engine, day) == [f"{reason} 1"]
    assert engine.anomalies[reason] == 1
    assert len(engine.context.state) == 0
    assert_sound(engine)
    assert until(engine, day + 1000.0) == []


@pytest.mark.parametrize("last", [end_on("1", 4.0), Cancel(site="s", job="1", time=4.0 * DAY_S)])
def test_departed_job_is_not_given_up(last: AnyEvent) -> None:
    engine = engine_after(submit_on("1", 2.0), start_on("1", 3.0), last)
    assert until(engine, 1000.0) == []


def test_job_that_starts_gets_a_new_due_time() -> None:
    engine = engine_after(submit_on("1", 0.0, 20.0), submit_on("2", 0.0, 20.0))
    assert until(engine, 399.0) == []
    engine.apply(start_on("1", 399.0))
    assert until(engine, 465.0) == ["gave_up_queued 2"]
    assert until(engine, 466.0) == ["gave_up_running 1"]


def test_departed_job_id_submitted_again_is_not_watched() -> None:
    engine = engine_after(submit_on("1"), start_on("1"), end_on("1"))
    for event in (submit_on("2"), start_on("2"), end_on("2"), submit_on("3", 60.0), submit_on("1", 100.0)):
        engine.apply(event)
    assert until(engine, 499.0) == ["gave_up_queued 3"]
    assert until(engine, 500.0) == []


@pytest.mark.parametrize(("walltime_days", "day"), [(1.0, 10.0), (20.0, 67.0)])
@pytest.mark.parametrize("started_first", [True, False])
def test_altered_time_limit_changes_the_due_time(walltime_days: float, day: float, started_first: bool) -> None:
    alter = Alter(site="s", job="1", time=0.0, walltime=walltime_days * DAY_S)
    events: list[AnyEvent] = [start_on("1"), alter] if started_first else [alter, start_on("1")]
    engine = engine_after(submit_on("1", 0.0, 10.0), *events)
    assert until(engine, day - 1e-4) == []
    assert until(engine, day) == ["gave_up_running 1"]


# Agreement of event times.


@pytest.mark.parametrize(
    "place", [*range(0, 2 * EVENTS_PER_SWEEP, 7), EVENTS_PER_SWEEP - 2, EVENTS_PER_SWEEP - 1, EVENTS_PER_SWEEP]
)
def test_single_wrong_time_gives_up_no_job(place: int) -> None:
    engine = engine_after(submit_on("1"))
    times = [100.0] * (2 * EVENTS_PER_SWEEP)
    times[place] = FAR
    assert ticks(engine, *times) == []
    assert len(engine.context.state) == 1


def test_sweep_requires_enough_agreeing_events() -> None:
    for far in (MIN_AGREEING_EVENTS - 1, MIN_AGREEING_EVENTS):
        engine = engine_after(start_on("1"), submit_on("1", walltime_days=1.0))
        times = [100.0] * (EVENTS_PER_SWEEP - 2 - far) + [50 * DAY_S] * far
        assert reasons(ticks(engine, *times)) == ["gave_up_running 1"] * (far == MIN_AGREEING_EVENTS)


def test_late_event_time_delays_the_sweep() -> None:
    engine = engine_after(start_on("1"), submit_on("1", walltime_days=1.0))
    late = [50.0 * DAY_S] * (EVENTS_PER_SWEEP - 3)
    assert ticks(engine, *late) == []
    engine.apply(submit_on("2", 5.0))  # this event triggers the sweep
    assert (1, engine.context.state.jobs.keys()) == (engine.events // EVENTS_PER_SWEEP, {("1", 0), ("2", 0)})
    assert until(engine, 50.0) == ["gave_up_running 1"]


def test_sweep_requires_a_minimum_number_of_events() -> None:
    state = SiteState()
    expiry = Expiry(state)
    job = Job.of(submit_on("1"))
    state.enter(job)
    expiry.watch(job, job.key)
    for _ in range(MIN_AGREEING_EVENTS - 1):
        expiry.tick(FAR)
        assert expiry.overdue() == []
    expiry.tick(FAR)
    assert expiry.overdue() == [job]


# Effects of giving up.


def test_given_up_job_is_not_scored_or_learned() -> None:
    engine = engine_after(*(event for events, _, _ in STORIES[:4] for event in renamed(events)))
    before = measured(engine)
    assert len(until(engine, 1000.0)) == 4
    assert measured(engine) == before


def renamed(events: list[AnyEvent]) -> list[AnyEvent]:
    """Return the same events for another job."""
    return [msgspec.structs.replace(event, job=f"job{id(events)}") for event in events]


def measured(engine: Engine) -> bytes:
    """Return all scores and histories of jobs."""
    context = engine.context
    return msgspec.msgpack.encode(
        (engine.scores.accuracy, engine.scores.cancelled, context.history.waits.tolist(), list(context.runs))
    )


def test_methods_forget_given_up_jobs_that_never_ran(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = engine_after(
        submit_on("queued"),
        submit_on("held"),
        Hold(site="s", job="held", time=0.0),
        submit_on("ended"),
        end_on("ended"),
        submit_on("running"),
        start_on("running"),
    )
    forgotten: list[JobKey] = []
    monkeypatch.setattr(engine.methods.waits["median"], "forget", forgotten.append)
    assert len(until(engine, 1000.0)) == 4
    assert sorted(forgotten) == [("ended", 0), ("held", 0), ("queued", 0)]


@pytest.mark.parametrize(("events", "day", "reason"), STORIES)
def test_event_after_give_up_is_reported_as_duplicate(events: list[AnyEvent], day: float, reason: str) -> None:
    engine = engine_after(*events)
    [(_, attempt)] = engine.context.state.jobs
    until(engine, day)
    for kind in (Submit, Start, End, Cancel, Requeue):
        [record] = engine.apply(kind(site="s", job="1", time=day * DAY_S, attempt=attempt))
        assert isinstance(record, Anomaly) and record.reason == f"duplicate_{kind.kind}"
    assert len(engine.context.state) == 0


def test_ended_job_is_given_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = engine_after(submit_on("1", 0.0), submit_on("2", 1.0), end_on("2", 1.0))
    forgotten: list[JobKey] = []
    monkeypatch.setattr(engine.methods.waits["median"], "forget", forgotten.append)
    assert until(engine, 1000.0) == ["gave_up_ended 2", "gave_up_queued 1"]
    assert sorted(forgotten) == [("1", 0), ("2", 0)]
    assert len(engine.context.state) == 0
    assert_sound(engine)


# Order.


def test_longest_overdue_job_is_given_up_first() -> None:
    engine = engine_after(
        submit_on("c", 3.0), submit_on("b", 1.0), submit_on("a", 2.0), submit_on("z", 0.0), submit_on("d", 1.0)
    )
    engine.apply(start_on("z", 4.0))
    assert until(engine, 1000.0) == [
        "gave_up_queued b",
        "gave_up_queued d",
        "gave_up_queued a",
        "gave_up_queued c",
        "gave_up_running z",
    ]


@cache
def workload() -> list[AnyEvent]:
    """Return some years of jobs; half of the events are lost and some have wrong times."""
    dice = random.Random(1)
    events: list[AnyEvent] = []
    for number in range(500):
        key: dict[str, Any] = {"site": "s", "job": str(number)}
        day = number * 4.5 + dice.random()
        walltime = dice.choice([None, 3600.0, 9.0 * DAY_S])
        events.append(Submit(**key, time=day * DAY_S, user=dice.choice(["ada", "bob"]), cpus=3, walltime=walltime))
        for kind, later in ((Hold, 1.0), (Start, 20.0), (Alter, 25.0), (Suspend, 25.0), (End, 30.0)):
            if kind is Suspend and number % 5:
                continue
            if dice.random() < 0.5:
                fields: dict[str, Any] = {"walltime": dice.choice([60.0, 50.0 * DAY_S])} if kind is Alter else {}
                events.append(kind(**key, time=(day + later * dice.random()) * DAY_S, **fields))
    events.sort(key=lambda event: event.time)
    return [msgspec.structs.replace(each, time=FAR) if dice.random() < 0.01 else each for each in events]


def to_json(records: list[Record]) -> bytes:
    return msgspec.json.encode([(type(record).__name__, record) for record in records])


@cache
def expected_records() -> list[bytes]:
    engine = Engine("s", SETTINGS)
    return [to_json(engine.apply(event)) for event in workload()]


def test_totals_stay_exact_and_the_state_small() -> None:
    engine = Engine("s", SETTINGS)
    most = 0
    for event in workload():
        engine.apply(event)
        assert_sound(engine)
        most = max(most, len(engine.context.state))
    assert {f"gave_up_{phase}" for phase in Phase if phase is not Phase.UNCONFIRMED} <= engine.anomalies.keys()
    assert most < 250 and len(engine.context.state) < most


@pytest.mark.parametrize("every", [*mostly_long([64, 1, 5]), 311])
def test_saved_and_loaded_engine_expires_the_same_jobs(every: int) -> None:
    engine = Engine("s", SETTINGS)
    started: list[StartedJob] = []
    runs: list[Run] = []
    for place, event in enumerate(workload()):
        assert to_json(engine.apply(event)) == expected_records()[place]
        if place % every == every - 1:
            state, changes = engine.checkpoint()
            started = [*started, *changes.started][-SETTINGS.history :]
            runs = [run for run in (*runs, *changes.runs) if run not in changes.forgotten_runs]
            engine = Engine.load(state, started, runs, SETTINGS)


def test_expiry_timers_are_bounded_by_the_live_jobs() -> None:
    state = SiteState()
    expiry = Expiry(state)
    stays = Job.of(submit_on("stays"))
    state.enter(stays)
    expiry.watch(stays, stays.key)
    for number in range(4 * MIN_STALE_ENTRIES):
        job = Job.of(submit_on(str(number)))
        state.enter(job)
        expiry.watch(job, job.key)
        state.leave(job)
        assert expiry.overdue() == []
        assert len(expiry._timers) <= MIN_STALE_ENTRIES + 4
    for _ in range(MIN_AGREEING_EVENTS):
        expiry.tick(FAR)
    assert expiry.overdue() == [stays]
