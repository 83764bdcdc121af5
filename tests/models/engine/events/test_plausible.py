"""An implausible event is rejected and changes nothing at its site."""

import random
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

import msgspec
import pytest

from models.durations import DAY_S, WEEK_S
from models.engine.asking.accuracy import weeks
from models.engine.engine import Engine
from models.engine.outgoing import Anomaly, Record
from models.engine.settings import EngineSettings
from models.records import Alter, AnyEvent, Capacity, Outcome, Pool, Submit
from models.simulation import generate, run
from models.site.job import NO_LIMIT_S
from tests.support.engines import MEDIAN
from tests.support.events import cancel, capacity, end, start, submit
from tests.support.stories import contents

SETTINGS = EngineSettings(method="qespera", shadows=("median",), runtimes="closest", bounds="", history=200)
ORIGIN = 1.7e9
YEARS_S = 3 * 365 * DAY_S


@cache
def genuine(jobs: int = 300, declared: bool = True) -> list[AnyEvent]:
    events = run(generate(5, jobs, cpus=64, load=0.9, start_time=int(ORIGIN)), 64, "s")
    return [event for event in events if declared or not isinstance(event, Capacity)]


def applied(engine: Engine, events: Iterable[AnyEvent], live: bool) -> list[Record]:
    """Return the records of events that arrive two seconds late, or offline."""
    return [record for event in events for record in engine.apply(event, event.time + 2.0 if live else None)]


def disturbed(events: Sequence[AnyEvent], hostile: Sequence[AnyEvent], every: int, live: bool) -> tuple[Engine, ...]:
    """Return an engine that got these events alone and one that also got hostile events."""
    quiet, other = Engine("s", SETTINGS), Engine("s", SETTINGS)
    for place, event in enumerate(events):
        arrived = event.time + 2.0 if live else None
        expected = quiet.apply(event, arrived)
        if place >= 40 and place % every == 0:
            wrong = hostile[place // every % len(hostile)]
            (anomaly,) = (record for record in other.apply(wrong, arrived) if not isinstance(record, Outcome))
            assert isinstance(anomaly, Anomaly) and anomaly.rejected
        records = other.apply(event, arrived)
        assert [one for one in records if not isinstance(one, Anomaly)] == [
            one for one in expected if not isinstance(one, Anomaly)
        ]
    return quiet, other


HOSTILE: list[AnyEvent] = [
    capacity(64, 1e11),
    capacity(10**9, ORIGIN + DAY_S),
    submit("h1", ORIGIN + YEARS_S, cpus=8),
    submit("h2", ORIGIN - YEARS_S, cpus=8),
    submit("h3", ORIGIN + DAY_S / 2, cpus=10**9, walltime=1e11),
    submit("h4", ORIGIN + DAY_S / 2, eligible=1e11),
    start("h5", ORIGIN + DAY_S / 2, cpus=10**9),
    end("h6", 0.0),
    start("h7", 1e11),
    Alter(site="s", job="h8", time=ORIGIN + 3600.0, cpus=10**7),
]


@pytest.mark.parametrize("live", [False, True])
@pytest.mark.parametrize("declared", [False, True])
def test_hostile_events_do_not_change_records_of_other_jobs(live: bool, declared: bool) -> None:
    hostile = [msgspec.structs.replace(each, time=each.time) for each in HOSTILE]
    events = genuine(declared=declared)
    if live:  # A live site rejects implausible times, so use only events far from its time.
        hostile = [each for each in hostile if abs(each.time - ORIGIN) > YEARS_S / 2]
    quiet, other = disturbed(events, hostile, 5, live)
    assert quiet.context.state.jobs.keys() == other.context.state.jobs.keys()
    assert (quiet.time, quiet.context.cpus, quiet.context.capacity) == (
        other.time,
        other.context.cpus,
        other.context.capacity,
    )
    assert quiet.scores.accuracy == other.scores.accuracy
    assert quiet.queues.seen == other.queues.seen


@pytest.mark.parametrize("live", [False, True])
@pytest.mark.parametrize("ahead_s", [YEARS_S, -YEARS_S])
def test_events_with_jumped_clock_are_rejected_without_effect(live: bool, ahead_s: float) -> None:
    engine = Engine("s", SETTINGS)
    events = genuine()
    applied(engine, events[:400], live)
    jobs, accuracy = set(engine.context.state.jobs), engine.scores.accuracy["qespera"].jobs
    now = events[399].time
    for number in range(128):
        event = submit(f"h{number}", now + ahead_s + number, cpus=4)
        (anomaly,) = engine.apply(event, now if live else None)
        assert isinstance(anomaly, Anomaly) and (anomaly.reason, anomaly.implausible) == ("implausible_time", True)
    assert set(engine.context.state.jobs) == jobs
    applied(engine, events[400:], live)
    assert engine.scores.accuracy["qespera"].jobs > accuracy
    later = [submit(f"l{n}", events[-1].time + n * DAY_S / 64, cpus=1) for n in range(20 * 64)]
    applied(engine, later, live)
    assert all(week.end - week.begin <= 2 * WEEK_S for week in weeks(engine, engine.time))
    assert len(weeks(engine, engine.time)) > 2


@pytest.mark.parametrize("live", [False, True])
def test_late_end_is_applied_and_keeps_the_clock(live: bool) -> None:
    engine = Engine("s", SETTINGS)
    now = ORIGIN
    for number in range(100):
        now = ORIGIN + 3600.0 * number
        applied(engine, [submit(str(number), now, cpus=1), start(str(number), now)], live)
    outcomes = engine.apply(end("5", ORIGIN + 5 * 3600.0 + 60.0), now if live else None)
    assert any(isinstance(record, Outcome) and record.actual_run_s == 60.0 for record in outcomes)
    assert engine.time == now
    engine.apply(end("5", ORIGIN), now if live else None)  # A duplicate end.
    assert engine.time == now


def test_capacity_of_far_future_does_not_outdate_later_events() -> None:
    engine = Engine("s", SETTINGS)
    for event in (capacity(64, ORIGIN), capacity(32, 1e11), capacity(128, ORIGIN + 60.0)):
        engine.apply(event, ORIGIN + 60.0)
    assert engine.context.cpus == 128


def test_implausible_start_does_not_set_undeclared_site_size() -> None:
    engine = Engine("s", SETTINGS)
    applied(engine, genuine(declared=False)[:300], live=True)
    size, now = engine.context.cpus, genuine(declared=False)[299].time
    assert 0 < size <= 64
    for number, cpus in enumerate((10**9, 10**7, 10**6, 10**4)):
        (anomaly,) = engine.apply(start(f"h{number}", now, cpus=cpus), now)
        assert isinstance(anomaly, Anomaly) and anomaly.reason == "implausible_size"
    assert engine.context.cpus == size


def test_walltime_beyond_all_bounds_is_no_limit() -> None:
    engine = Engine("s", SETTINGS)
    applied(engine, genuine()[:200], live=True)
    now = genuine()[199].time
    (anomaly, *_) = engine.apply(submit("long", now, cpus=1, walltime=1e11), now)
    assert isinstance(anomaly, Anomaly) and (anomaly.reason, anomaly.rejected) == ("unlimited_walltime", False)
    job = engine.context.state.jobs["long", 0]
    assert job.limit_s is None and job.planned_run_s == NO_LIMIT_S
    engine.apply(Alter(site="s", job="long", time=now + 1.0, walltime=3600.0), now)
    assert job.planned_run_s == 3600.0
    engine.apply(Alter(site="s", job="long", time=now + 2.0, walltime=1e11), now)
    assert job.limit_s is None and job.planned_run_s == NO_LIMIT_S


@pytest.mark.parametrize("live", [False, True])
def test_submit_older_than_limit_is_not_learned(live: bool) -> None:
    engine = Engine("s", SETTINGS)
    applied(engine, genuine()[:300], live)
    now, learnt = genuine()[299].time, engine.context.history.count
    arrived = now if live else None
    records = engine.apply(submit("old", now - 200 * DAY_S, cpus=1), arrived)
    assert isinstance(records[0], Anomaly) and records[0].reason == "late_submit"
    records = engine.apply(start("old", now), arrived) + engine.apply(end("old", now + 60.0), arrived)
    assert not [record for record in records if isinstance(record, Outcome)]
    assert engine.context.history.count == learnt
    assert now <= engine.time <= now + 60.0


HOSTILE_TIMES = (0.0, 1.0, ORIGIN - YEARS_S, ORIGIN + YEARS_S, ORIGIN + 30 * YEARS_S, 1e11)


def hostile_event(dice: random.Random, near: float) -> AnyEvent:
    """Return an event that the schema allows, with an impossible time or an impossible size."""
    job, impossible = dice.choice(["h1", "h2", "1", "20", "59"]), dice.random() < 0.5
    time = dice.choice(HOSTILE_TIMES) if impossible else near
    cpus = dice.randint(1, 64) if impossible else dice.choice([10**7 + 1, 10**8, 10**9])
    kinds: list[AnyEvent] = [submit(job, time, cpus=cpus), start(job, time, cpus=cpus), capacity(cpus, time)]
    return dice.choice([*kinds, end(job, time), cancel(job, time)] if impossible else kinds)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("live", [False, True])
@pytest.mark.parametrize("declared", [False, True])
def test_implausible_events_do_not_change_records_of_others(seed: int, live: bool, declared: bool) -> None:
    quiet, other, dice = Engine("s", MEDIAN), Engine("s", MEDIAN), random.Random(seed)
    for event in genuine(60, declared):
        arrived = event.time + 2.0 if live else None
        expected = [record for record in quiet.apply(event, arrived) if not isinstance(record, Anomaly)]
        assert [record for record in other.apply(event, arrived) if not isinstance(record, Anomaly)] == expected
        if quiet.events > 8 and dice.random() < 0.1:
            (anomaly,) = other.apply(hostile_event(dice, event.time), arrived)
            assert isinstance(anomaly, Anomaly) and anomaly.implausible
    assert contents(quiet) | {"size": None} == contents(other) | {"size": None}
    assert quiet.time == other.time and quiet.context.cpus == other.context.cpus


@pytest.mark.parametrize(
    ("pools", "what"),
    [
        ([Pool(name=f"p{n}", nodes=10**9, cpus=10**9) for n in range(20)], "nodes"),
        ([Pool(name="p", nodes=10**4, cpus=10**9)], "CPUs"),
        ([Pool(name="p", nodes=10**4, cpus=1, gpus={"a": 10**9})], "GPUs"),
        ([Pool(name="p", nodes=10**4, cpus=1, memory=1 << 60)], "bytes of memory"),
    ],
)
def test_capacity_is_checked_by_the_total_of_its_pools(pools: list[Pool], what: str) -> None:
    engine = Engine("s", SETTINGS)
    (anomaly,) = engine.apply(Capacity(site="s", time=ORIGIN, cpus=8, pools=pools))
    assert isinstance(anomaly, Anomaly) and anomaly.rejected and f"{what} in all pools" in anomaly.detail
    assert engine.context.capacity is None
    engine.checkpoint()


@pytest.mark.parametrize("request_", [{"memory": 1 << 59}, {"gpu_types": {"a": 10**9}}, {"array_size": 10**7}])
def test_submit_with_implausible_request_is_rejected(request_: dict[str, Any]) -> None:
    (anomaly,) = Engine("s", SETTINGS).apply(Submit(site="s", time=ORIGIN, job="1", cpus=10**6, **request_))
    assert isinstance(anomaly, Anomaly) and anomaly.rejected
