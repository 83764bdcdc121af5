"""EASY in a given order with limits: manual schedules, and properties of any schedule."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.waits.order.aging import FIRST_S
from models.waits.order.pair_preference import NO_QUEUE
from models.waits.order.schedule import GRAIN, Limits, line_of, schedule
from models.waits.schedules import Jobs, Live, easy
from tests.support.queues import Row, aging_of, limits_of, queued_of, running_of

USERS = 10


def starts(
    free: int,
    running: Sequence[Row],
    queued: Sequence[Row],
    limits: Limits | None = None,
    weights: np.ndarray | None = None,
    target: int = -1,
    only_now: bool = False,
    queues: Sequence[int] = (),
    arrive: Sequence[float] = (),
) -> list[float]:
    """Simulate a fixed order or, with `weights`, an order that is recomputed from them at growing intervals.

    `queues` are the weight indices of the jobs' queues, if any: of the running jobs, then of the queued ones. The
    queued jobs `arrive` at these times, if any.
    """
    jobs, on = queued_of(queued), running_of(running)
    if queues:
        jobs = jobs._replace(queue=np.array(queues[len(running) :]))
        on = on._replace(queue=np.array(queues[: len(running)], np.int64))
    line = line_of(jobs, np.arange(len(queued)))
    if arrive:
        jobs = jobs._replace(age_s=-np.array(arrive))
        line = line._replace(arrives_s=np.array(arrive))
    aging = aging_of(jobs, USERS, 32, weights, np.inf if weights is None else FIRST_S)
    found, _ = schedule(free, on, line, aging, limits or Limits(), target, only_now)
    return list(found.tolist())


def test_first_job_that_does_not_fit_gets_a_reservation() -> None:
    queued = [(4, 100.0, 100.0, 1), (1, 60.0, 60.0, 2), (1, 40.0, 40.0, 3)]
    assert starts(1, [(3, 50.0, 50.0, 0)], queued) == [50.0, 150.0, 0.0]


def test_withdrawn_job_uses_no_cpus_and_delays_no_job() -> None:
    jobs = queued_of([(4, 100.0, 100.0, 1), (3, 100.0, 100.0, 2), (1, 70.0, 70.0, 3), (4, 9.0, 9.0, 4)])
    jobs = jobs._replace(stays_s=np.array([40.0, np.inf, np.inf, 1e6]))
    line, aging = line_of(jobs, np.arange(4)), aging_of(jobs, USERS, 4)
    found, _ = schedule(0, running_of([(3, 50.0, 50.0, 0), (1, 60.0, 60.0, 0)]), line, aging, Limits(), -1, False)
    assert found.tolist() == [150.0, 50.0, 60.0, 150.0]


def test_schedule_of_many_running_jobs_is_cut_short() -> None:
    many = 7000
    on = running_of([(1, float(number), float(number), 0) for number in range(1, many + 1)])
    jobs = queued_of([(many, 100.0, 100.0, 1), (many, 50.0, 50.0, 2)])
    line, aging = line_of(jobs, np.arange(2)), aging_of(jobs, USERS, many)
    found, cut_short = schedule(0, on, line, aging, Limits(), -1, False)
    assert cut_short
    assert found[1] - found[0] == 100.0
    assert 0.0 < found[0] < many
    few = running_of([(many, 60.0, 60.0, 0)])
    found, cut_short = schedule(0, few, line, aging, Limits(), -1, False)
    assert (found.tolist(), cut_short) == ([60.0, 160.0], False)


def test_schedule_starts_jobs_in_the_given_order() -> None:
    assert starts(0, [(1, 10.0, 10.0, 0)], [(1, 30.0, 30.0, 2), (1, 20.0, 20.0, 1)]) == [10.0, 40.0]


def test_user_above_a_limit_is_skipped() -> None:
    queued = [(2, 100.0, 100.0, 1), (4, 10.0, 10.0, 2)]
    running = [(2, 50.0, 50.0, 1)]
    assert starts(6, running, queued, Limits(several=3.0)) == [50.0, 0.0]
    assert starts(6, running, queued, Limits(jobs=1.0)) == [50.0, 0.0]
    assert starts(6, running, queued, Limits(jobs=1.0, depth=1.0)) == [50.0, 0.0]  # kept jobs are not counted
    assert starts(8, [], queued, Limits(alone=3.0)) == [0.0, np.inf]
    assert starts(8, [(2, 5000.0, 5000.0, 1)], [(3, 9.0, 9000.0, 2), (4, 9.0, 3600.0, 2)], limits_of({1: 3.0})) == [
        5000.0,
        0.0,
    ]
    assert starts(8, [], [(2, 9.0, 9.0, 0)] * 2, Limits(alone=1.0, several=1.0, jobs=1.0)) == [0.0, 0.0]  # no user


def test_queue_above_a_limit_is_skipped() -> None:
    running, queued = [(2, 50.0, 50.0, 1)], [(2, 100.0, 100.0, 2), (4, 10.0, 10.0, 3)]
    assert starts(6, running, queued, limits_of({40: 3.0}), queues=[40, 40, 41]) == [50.0, 0.0]
    assert starts(6, running, queued, limits_of({40: 4.0}), queues=[40, 40, 41]) == [0.0, 0.0]
    assert starts(6, running, queued, limits_of({40: 3.0}), queues=[41, 40, 40]) == [0.0, 100.0]  # one starts
    assert starts(8, [], [(5, 9.0, 9.0, 1)] * 2, limits_of({40: 3.0}), queues=[40, 40]) == [0.0, 9.0]  # alone


def test_job_kept_by_its_queue_has_no_reservation() -> None:
    running, queued = [(4, 50.0, 50.0, 1)], [(8, 10.0, 10.0, 2), (4, 100.0, 100.0, 3)]
    assert starts(4, running, queued, limits_of({40: 6.0}), queues=[40, 40, 41]) == [100.0, 0.0]
    assert starts(4, running, queued, queues=[40, 40, 41]) == [50.0, 60.0]


def test_schedule_ends_at_the_requested_job() -> None:
    running, queued = [(4, 10.0, 10.0, 0)], [(4, 5.0, 5.0, user) for user in range(3)]
    assert starts(0, running, queued, target=1) == [10.0, 15.0, np.inf]
    assert starts(4, running, queued, only_now=True) == [0.0, np.inf, np.inf]


def test_arriving_job_gets_its_place_in_the_order() -> None:
    running, queued = [(4, 50.0, 50.0, 0)], [(4, 30.0, 30.0, 1), (4, 100.0, 100.0, 2), (4, 10.0, 10.0, 3)]
    assert starts(0, running, queued, arrive=[20.0, 0.0, 0.0]) == [50.0, 80.0, 180.0]
    assert starts(0, running, queued, arrive=[50.5, 0.0, 0.0]) == [150.0, 50.0, 180.0]  # the second has started
    assert starts(0, running, queued, arrive=[0.0, 20.0, 0.0], target=2) == [50.0, 80.0, 180.0]
    assert starts(0, running, queued, arrive=[0.0, 90.5, 0.0]) == [50.0, np.inf, 80.0]  # no other job waits for it


def test_job_that_arrives_as_another_ends_is_sorted() -> None:
    running, queued = [(4, 4000.0, 4000.0, 0)], [(4, 9000.0, 9000.0, 1), (4, 60.0, 60.0, 2), (4, 60.0, 60.0, 3)]
    weights = np.zeros(NO_QUEUE + 1)
    assert starts(0, running, queued, weights=weights, arrive=[4000.0, 0.0, 0.0]) == [4000.0, 13_000.0, 13_060.0]
    assert starts(0, running, queued, weights=weights, arrive=[0.0, 0.0, 4000.0]) == [4000.0, 13_000.0, 13_060.0]


def test_running_job_without_an_end_keeps_its_cpus() -> None:
    assert starts(0, [(4, np.inf, np.inf, 0)], [(4, 30.0, 30.0, 1)]) == [np.inf]
    assert starts(0, [(4, np.inf, np.inf, 0)], [(4, 30.0, 30.0, 1)] * 2, arrive=[0.0, 20.0]) == [np.inf, np.inf]


def test_arriving_job_is_backfilled() -> None:
    running, queued = [(3, 50.0, 50.0, 0)], [(4, 30.0, 30.0, 1), (1, 25.0, 25.0, 2), (1, 25.0, 25.0, 3)]
    assert starts(1, running, queued, arrive=[0.0, 20.0, 0.0]) == [50.0, 25.0, 0.0]
    assert starts(1, running, queued, arrive=[0.0, 20.0, 60.0])[:2] == [50.0, 20.0]


jobs = st.tuples(st.integers(1, 8), st.floats(1.0, 1e4), st.floats(1.0, 3.0), st.integers(0, 3)).map(
    lambda job: (job[0], job[1], job[1] * job[2], job[3])
)


@given(
    st.lists(jobs, max_size=4),
    st.lists(jobs, min_size=1, max_size=20),
    st.sampled_from([np.inf, 6.0]),
    st.sampled_from([None, 1, 2, 3]),
)
def test_schedule_starts_jobs_only_if_cpus_and_limits_allow(
    running: list[Row], queued: list[Row], several: float, seed: int | None
) -> None:
    cpus, weights = 32, None if seed is None else np.random.default_rng(seed).normal(size=NO_QUEUE + 1)
    found = starts(cpus - sum(job[0] for job in running), running, queued, Limits(several=several), weights)
    held = [(0.0, job[1], job) for job in running]
    held += [(start, start + job[1], job) for start, job in zip(found, queued, strict=True)]
    assert np.isfinite(found).all()
    for start, _, job in held:
        beside = [other for begin, end, other in held if begin <= start < end]
        assert sum(other[0] for other in beside) <= cpus
        its = [other[0] for other in beside if other[3] == job[3]]
        alone = not running or job not in running
        assert job[3] == 0 or start == 0.0 or len(its) == 1 or sum(its) <= several or not alone


@given(st.lists(jobs, max_size=4), st.lists(jobs, min_size=1, max_size=20), st.data())
def test_arriving_jobs_start_after_their_arrival(running: list[Row], queued: list[Row], data: st.DataObject) -> None:
    cpus, times = 32, st.sampled_from([0.0, 0.0, 5.0, 800.0, 900.0, 4000.0, 9000.0, 9000.5, 50_000.0])
    arrive = data.draw(st.lists(times, min_size=len(queued), max_size=len(queued)))
    weights = np.random.default_rng(data.draw(st.integers(0, 3))).normal(size=NO_QUEUE + 1)
    found = starts(cpus - sum(job[0] for job in running), running, queued, weights=weights, arrive=arrive)
    held = [(0.0, job[1], job[0]) for job in running]
    held += [(start, start + job[1], job[0]) for start, job in zip(found, queued, strict=True) if np.isfinite(start)]
    for start, time in zip(found, arrive, strict=True):
        assert start >= time and (np.isfinite(start) or time > 0.0)
    for start, _, _ in held:
        assert sum(own for begin, end, own in held if begin <= start < end) <= cpus
    present = [place for place, time in enumerate(arrive) if time == 0.0]
    late = [1e9 if time else 0.0 for time in arrive]
    alone = starts(
        cpus - sum(job[0] for job in running), running, [queued[place] for place in present], weights=weights
    )
    without = starts(cpus - sum(job[0] for job in running), running, queued, weights=weights, arrive=late)
    assert [without[place] for place in present] == alone


@given(st.lists(jobs, max_size=4), jobs)
def test_single_queued_job_starts_as_under_easy(running: list[Row], job: Row) -> None:
    def columns(rows: Sequence[Row]) -> Jobs:
        table = np.array(rows, np.float64).reshape(-1, 4).T
        return Jobs(table[0].astype(np.int64), table[1].copy(), table[2].copy())

    true_s = float(easy(Live(32, columns(running), columns([job])), True)[0])
    (found,) = starts(32 - sum(other[0] for other in running), running, [job])
    assert true_s <= found <= true_s * (1 + GRAIN) ** 2 + 1e-9 or found == pytest.approx(true_s)
