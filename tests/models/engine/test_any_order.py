"""The state stays valid for any events in any order."""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from models.engine.engine import Engine
from models.records import (
    Alter,
    AnyEvent,
    Cancel,
    Capacity,
    End,
    ExpectedStart,
    Heartbeat,
    Hold,
    Release,
    Requeue,
    Resume,
    Start,
    Submit,
    Suspend,
)
from tests.support.stories import ENDED, anomalies, applied, assert_sound, contents, new_engine, outcomes


def job_story(draw: st.DrawFn, number: int) -> list[AnyEvent]:
    """Draw the events of one job in a valid order at increasing times."""
    key: dict[str, Any] = {"site": "s", "job": str(number)}
    time = float(draw(st.integers(0, 50)))
    events: list[AnyEvent] = []

    def add(kind: type[AnyEvent], **fields: Any) -> None:
        nonlocal time
        events.append(kind(**key, time=time, **fields))
        time += draw(st.integers(1, 20)) / 4

    user, queue = draw(st.sampled_from(["ada", "bob", None])), draw(st.sampled_from(["q", None]))
    walltime = draw(st.sampled_from([None, 0.1, 60.0]))
    kinds: list[dict[str, Any]] = [{}, {"dependency": "afterok:1"}, {"eligible": time + 9.0, "qos": "high"}]
    rare = draw(st.sampled_from([*kinds, {"het_group": "g"}, {"late": True}]))
    add(Submit, user=user, queue=queue, cpus=draw(st.integers(1, 9)), walltime=walltime, **rare)
    for attempt in range(3):
        key["attempt"] = attempt
        for turn in draw(st.lists(st.sampled_from(["hold", "alter", "depend", "explain"]), max_size=3)):
            if turn == "hold":
                add(Hold)
                add(Release)
            elif turn == "depend":
                add(Alter, dependency=draw(st.sampled_from(["", "after:2"])))
            elif turn == "explain":
                add(Alter, priority=draw(st.floats(0.0, 9.0)), pending_reason=draw(st.sampled_from(["", "Priority"])))
            else:
                walltime = draw(st.sampled_from([None, 0.3, 90.0]))
                add(Alter, cpus=draw(st.integers(1, 9)), walltime=walltime, queue="long")
        fate = draw(st.sampled_from(["queued", "cancelled", "running", "ended", "ended", "requeued"]))
        if fate == "cancelled":
            add(Cancel)
        elif fate != "queued":
            if draw(st.booleans()):
                add(ExpectedStart, by=draw(st.sampled_from("ab")), expected=time + 5.0)
            given = draw(st.sampled_from([{}, {"cpus": 3}, {"partition": "q", "nodes": 2, "gpus": 4}]))
            add(Start, **given)
            for _ in range(draw(st.sampled_from([0, 0, 1, 2]))):
                add(Suspend, releases=draw(st.booleans()))
                add(Resume)
            if draw(st.booleans()):
                add(Alter, cpus=2, gpus=1, nodes=1, unlimited=True)
        if fate == "ended":
            add(End)
        if fate != "requeued":
            break
        add(Requeue, state=draw(st.sampled_from([None, "preempted"])))
    return events


def array_story(draw: st.DrawFn, number: int) -> list[AnyEvent]:
    """Draw the events of a job array that queues as one row, and of its tasks."""
    row, time = f"array{number}", float(draw(st.integers(0, 50)))
    tasks = draw(st.integers(1, 4))
    events: list[AnyEvent] = [Submit(site="s", job=row, time=time, cpus=2, array_size=tasks, user="ada")]
    for task in range(tasks):
        time += draw(st.integers(1, 20)) / 4
        key: dict[str, Any] = {"site": "s", "job": f"{row}_{task}", "array": row}
        match draw(st.sampled_from(["ends", "ends", "runs", "cancelled", "rest cancelled"])):
            case "rest cancelled":
                return [*events, Cancel(site="s", job=row, time=time)]
            case "cancelled":
                events.append(Cancel(**key, time=time))
            case fate:
                events.append(Start(**key, time=time))
                if fate == "ends":
                    events.append(End(**key, time=time + draw(st.integers(1, 40)) / 4))
    return events


@st.composite
def orderly(draw: st.DrawFn) -> list[AnyEvent]:
    """Draw the events of some jobs and the machine in the order of their times."""
    events: list[AnyEvent] = [
        Capacity(site="s", time=float(time), cpus=8, nodes=4, down_nodes=draw(st.integers(0, 4)))
        for time in draw(st.sets(st.integers(0, 100), max_size=3))
    ]
    events += [Heartbeat(site="s", time=float(time)) for time in draw(st.sets(st.integers(0, 200), max_size=5))]
    for number in range(draw(st.integers(1, 6))):
        events += job_story(draw, number)
    if draw(st.booleans()):
        events += array_story(draw, 0)
    return sorted(events, key=lambda event: event.time)


@st.composite
def disorderly(draw: st.DrawFn) -> tuple[list[AnyEvent], list[AnyEvent]]:
    """Draw ordered events and the same events delayed by some places, repeated or lost."""
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


@given(disorderly())
def test_disordered_events_keep_totals_valid_and_no_extra_jobs(pair: tuple[list[AnyEvent], list[AnyEvent]]) -> None:
    happened, came = pair
    engine = new_engine()
    for each in came:
        engine.apply(each)
        assert_sound(engine)
    ended = {key for key, job in engine.context.state.jobs.items() if job.phase is ENDED}
    assert not ended
    assert engine.context.state.jobs.keys() <= fates(happened).context.state.jobs.keys()


@given(disorderly(), st.randoms(use_true_random=False))
def test_lost_events_keep_totals_valid(pair: tuple[list[AnyEvent], list[AnyEvent]], dice: Any) -> None:
    engine = new_engine()
    for each in pair[1]:
        if dice.random() < 0.7:
            engine.apply(each)
            assert_sound(engine)


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


@given(orderly(), st.data())
def test_duplicate_event_changes_only_counters(events: list[AnyEvent], data: st.DataObject) -> None:
    engine = new_engine()
    for place, each in enumerate(events):
        assert not anomalies(engine.apply(each))
        before = contents(engine)
        for earlier in [place, *data.draw(st.lists(st.integers(0, place), max_size=3))]:
            records = engine.apply(events[earlier])
            assert anomalies(records) == records
        assert contents(engine) == before


@given(disorderly(), st.data())
def test_engine_saved_at_any_event_continues_identically(
    pair: tuple[list[AnyEvent], list[AnyEvent]], data: st.DataObject
) -> None:
    came = pair[1]
    place = data.draw(st.integers(0, len(came)))
    whole, engine = new_engine(), new_engine()
    expected = [whole.apply(each) for each in came]
    first = [engine.apply(each) for each in came[:place]]
    state, changes = engine.checkpoint()
    again = Engine.load(state, changes.started, changes.runs, engine.settings, changes.rows)
    assert [*first, *(again.apply(each) for each in came[place:])] == expected
    assert contents(again) == contents(whole)
