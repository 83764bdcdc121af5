"""Jobs that start in the same second are not compared with each other."""

from itertools import pairwise

import numpy as np
import pytest

from models.engine.asking.what_if import consider
from models.engine.engine import Engine
from models.records import Capacity, End, Prediction, Start, Submit
from models.simulation import generate
from models.site.job import Job
from models.stored_values import encode, reader
from models.waits.order.order_features import COUNT
from models.waits.order.same_second import MOST, SameSecond, StartedJob
from tests.models.waits.order.test_order import SETTINGS, engine_after, method
from tests.simulation.schedulers import run_changing


def start(name: str, others: str, place: int = 1, nth: tuple[int, ...] = ()) -> StartedJob:
    """Return a start of a job; the others have one letter each."""
    size = len(others)
    features = np.arange(size + 1, dtype=np.float32)[:, None] * np.ones(COUNT, np.float32)
    numbers = np.array(nth or [0] * size, np.int64)
    keys, ranks = [(other, 0) for other in others], np.arange(size)
    return StartedJob((name, 0), keys, numbers, features, np.arange(size + 1), ranks, place, False, 60.0)


def names(found: list[StartedJob]) -> list[str]:
    return ["".join(key[0] for key in one.others) for one in found]


def test_start_is_compared_without_those_of_its_second() -> None:
    second = SameSecond()
    assert second.add(5.0, start("x", "ayb")) == second.add(5.0, start("y", "ab")) == second.take_before(5.0) == []
    first, last = second.take_before(6.0)
    assert names([first, last]) == ["ab", "ab"]
    assert first.features[:, 0].tolist() == [0.0, 1.0, 3.0]
    assert (first.places.tolist(), first.priorities.tolist()) == ([0, 1, 3], [0, 2])
    assert second.take_before(7.0) == []


def test_start_of_another_second_ends_the_second() -> None:
    second = SameSecond()
    second.add(5.0, start("x", "ay"))
    assert names(second.add(6.0, start("y", "a"))) == ["ay"]
    assert names(second.add(4.0, start("z", "b"))) == ["a"]  # a late event


def test_place_is_counted_without_jobs_that_start_next() -> None:
    second = SameSecond()
    for name, place in (("x", 3), ("y", 1), ("z", 3), ("w", 1)):
        second.add(5.0, start(name, "", place))
    assert [one.place for one in second.take_before(6.0)] == [1, 1, 2, 1]
    for name, place in (("x", 3), ("y", 2), ("z", 2)):  # z was behind x: without x and y it is the second
        second.add(6.5, start(name, "", place))
    assert [one.place for one in second.take_before(6.6)] == [2, 2, 2]
    second.add(7.0, start("x", "", 0))
    second.add(7.0, start("y", "", 0))
    assert [one.place for one in second.take_before(8.0)] == [0, 0]


def test_tasks_that_started_are_left_out() -> None:
    second = SameSecond()
    for one in (start("x", "aaab", nth=(0, 1, 2, 0)), start("a", ""), start("a", "")):
        second.add(5.0, one)
    first, *_ = second.take_before(6.0)
    assert list(zip(names([first])[0], first.nth.tolist(), strict=True)) == [("a", 2), ("b", 0)]


def test_number_of_starts_is_limited() -> None:
    second = SameSecond()
    for _ in range(MOST):
        assert second.add(5.0, start("x", "a")) == []
    assert len(second.add(5.0, start("x", "a"))) == MOST
    assert len(second.starts) == 1


@pytest.mark.parametrize("array", [None, "7"])  # of tasks that were submitted one by one
@pytest.mark.parametrize(("later_s", "pairs"), [(0.0, 0.0), (1.0, 1.0)])
def test_same_second_teaches_no_order(later_s: float, pairs: float, array: str | None) -> None:
    engine = engine_after([Capacity(site="alder", time=0.0, cpus=4)])
    for number, user in enumerate(("ada", "bob", "cid")):
        time, cpus = 10.0 + number, 2 if number else 4
        engine.apply(Submit(site="alder", time=time, job=user, user=user, cpus=cpus, walltime=3600.0, array=array))
    engine.apply(Start(site="alder", time=20.0, job="ada"))
    engine.apply(End(site="alder", time=500.0, job="ada"))
    before, seen = method(engine).preference.weights.copy(), method(engine)._fit.site.pairs
    engine.apply(Start(site="alder", time=500.0, job="cid"))
    engine.apply(Start(site="alder", time=500.0 + later_s, job="bob"))
    engine.apply(End(site="alder", time=900.0, job="cid"))
    assert method(engine)._fit.site.pairs - seen == pytest.approx(pairs, abs=0.01)
    assert (method(engine).preference.weights == before).all() == (not pairs)


def test_what_if_after_a_start_has_the_reason_of_the_prediction() -> None:
    engine, compared = engine_after([]), 0
    for event in run_changing(generate(5, 400, cpus=64, load=0.95), 64, "alder", "multifactor"):
        if not isinstance(event, Submit):
            engine.apply(event)
            continue
        job = Job("", 0, event.time, user=event.user, cpus=event.cpus, walltime=event.walltime, queue=event.queue)
        (asked,) = consider(engine, [job])
        (predicted,) = (one for one in engine.apply(event) if isinstance(one, Prediction) and one.method == "order")
        assert predicted.reason == asked.reason
        compared += "of recent starts" in (asked.reason or "")
    assert compared


def test_restart_within_a_second_changes_nothing() -> None:
    events = list(run_changing(generate(5, 300, cpus=64, load=0.95), 64, "alder", "multifactor"))
    together = [
        nth
        for nth, (one, other) in enumerate(pairwise(events))
        if isinstance(one, Start) and isinstance(other, Start) and one.time == other.time
    ]
    cut = together[len(together) // 2] + 1
    whole, half = engine_after(events[:cut]), engine_after(events[:cut])
    state, changes = half.checkpoint()
    assert method(half)._same_second.starts
    again = Engine.load(state, changes.started, changes.runs, SETTINGS, changes.rows)
    for event in events[cut:]:
        assert again.apply(event) == whole.apply(event)
    assert method(again).save() == method(whole).save()


def test_invalid_stored_start_is_rejected() -> None:
    short, infinite, outside = start("x", "ab"), start("x", "ab"), start("x", "ab")
    short.nth = short.nth[:1]
    infinite.features[0, 0] = np.inf
    outside.places[0] = -1
    SameSecond(5.0, [start("x", "ab")]).check()
    for one in (short, infinite, outside):
        with pytest.raises(ValueError, match="start"):
            SameSecond(5.0, [one]).check()


@pytest.mark.parametrize(("field", "value"), [("place", -1), ("place", 1 << 63), ("planned_s", np.nan)])
def test_stored_start_with_invalid_number_is_rejected(field: str, value: float) -> None:
    invalid = start("x", "ab")
    setattr(invalid, field, value)
    with pytest.raises(ValueError, match="not a second"):
        reader(SameSecond, "a second")(encode(SameSecond(5.0, [invalid])))
