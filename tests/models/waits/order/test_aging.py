"""Changes of the queue order over time."""

import numpy as np
import pytest

from models.engine.engine import Engine
from models.engine.settings import EngineSettings
from models.simulation import generate, run
from models.waits.order import LearntOrder
from models.waits.order.aging import FIRST_S, Aging, UsageSinceSort, add_use, reordered, usage_after
from models.waits.order.order_features import NAMES, DecayedUsage, accrue
from models.waits.order.pair_preference import NO_QUEUE
from models.waits.order.schedule import Limits, line_of, schedule
from models.waits.order.usage import HALVES
from tests.support.queues import Row, aging_of, people_of, queued_of, running_of

HOUR_S = 3600.0


def weights(by_name: dict[str, float], queue: float = 0.0) -> np.ndarray:
    """Return weights by feature name, with the queue's weight in the first place."""
    found = np.zeros(NO_QUEUE + 1)
    for name, weight in by_name.items():
        found[NAMES.index(name)] = weight
    found[len(NAMES)] = queue
    return found


def starts(queued: list[Row], age_s: list[float], on: list[Row], learnt: np.ndarray, first_s: float) -> list[float]:
    """Return the start of each job in hours at a site of two CPUs; the second job's queue has a weight.

    The jobs are given in their present order.
    """
    jobs, running = queued_of(queued, age_s), running_of(on)
    jobs.queue[1] = len(NAMES)
    aging = aging_of(jobs, 4, 2, learnt, first_s)._replace(people=people_of(4, running))
    line = line_of(jobs, np.arange(len(queued)))
    found, _ = schedule(2 - int(running.cpus.sum()), running, line, aging, Limits(), -1, False)
    return [float(start_s / HOUR_S) for start_s in found]


def test_aging_moves_job_at_maximum_age_behind_a_younger_one() -> None:
    learnt = weights({"age, share of 0.5 d": 1.0}, queue=0.5)
    queued, on = [(2, HOUR_S, HOUR_S, 1), (2, HOUR_S, HOUR_S, 2)], [(2, 10 * HOUR_S, 10 * HOUR_S, 3)]
    ages = [24 * HOUR_S, 0.0]  # now 1 and 0.5; in ten hours still 1, and 1.33
    assert starts(queued, ages, on, learnt, FIRST_S) == [11.0, 10.0]
    assert starts(queued, ages, on, learnt, np.inf) == [10.0, 11.0]
    assert starts(queued, ages, on, learnt, 11 * HOUR_S) == [10.0, 11.0]


def test_aging_moves_jobs_of_user_with_running_jobs_back() -> None:
    learnt = weights({"user's usage, 1 d, 0.06": 1.0})
    queued, on = [(2, HOUR_S, HOUR_S, 1), (2, HOUR_S, HOUR_S, 2)], [(2, 20 * HOUR_S, 20 * HOUR_S, 1)]
    assert starts(queued, [10.0, 0.0], on, learnt, FIRST_S) == [21.0, 20.0]
    assert starts(queued, [10.0, 0.0], on, learnt, np.inf) == [20.0, 21.0]


def test_aging_sorts_the_queue_again_at_growing_intervals() -> None:
    """Users with less usage are first at 20, 30 and 50 h; at 40 h the order of 30 h is kept, until 45 h."""
    learnt = weights({"user's usage, 1 d, 0.06": 1.0, "user's usage, 1 d, 0.2": 1.0})
    long = (2, 10 * HOUR_S, 10 * HOUR_S)
    queued: list[Row] = [(*long, 1), (*long, 1), (*long, 1), (*long, 2), (*long, 2), (*long, 2)]
    found = starts(queued, [0.0] * 6, [(2, 10 * HOUR_S, 10 * HOUR_S, 3)], learnt, FIRST_S)
    assert found == [10.0, 30.0, 40.0, 20.0, 50.0, 60.0]


@pytest.mark.parametrize("passed_s", [HOUR_S, 12 * HOUR_S])
def test_usage_after_counts_new_usage_at_half_of_the_interval(passed_s: float) -> None:
    before = np.array([[0.0] * len(HALVES), [5e4] * len(HALVES), [0.0] * len(HALVES)])
    people = DecayedUsage(before, before[:1], np.zeros(3, np.int64), np.zeros(3, np.int64))
    use = UsageSinceSort(np.zeros(3), np.zeros(1))
    for user in (1, 2):
        add_use(use, user, 0, 4 * passed_s)
    found = usage_after(people, use, passed_s, people.held, people.runs)
    exact = before * 2.0 ** (-passed_s / HALVES)
    accrue(exact, np.array([4, 4]), np.array([1, 2]), np.full(2, passed_s))
    np.testing.assert_allclose(found.users[1:], exact[1:], rtol=0.005)
    assert not use.users.any() and not use.accounts.any()


def test_aging_at_zero_delay_keeps_the_order() -> None:
    engine = Engine("alder", EngineSettings(method="order", shadows=(), bounds=""))
    deepest = 0
    for event in run(generate(5, 600, cpus=64, load=1.2, users=12), 64, "alder", "multifactor"):
        engine.apply(event)
        method = engine.methods.waits["order"]
        assert isinstance(method, LearntOrder)
        ordered = method.ordered(engine.context, event.time)
        sight, limited = ordered.sight, ordered.limits.several < np.inf
        people, learnt = sight.people, ordered.preference.weights
        aging = Aging(sight.queued, ordered.order, people, sight.cpus, learnt, limited, 0.0)
        waiting = np.arange(len(ordered.order))
        assert reordered(aging, waiting, 0.0, people).tolist() == waiting.tolist()
        deepest = max(deepest, len(waiting))
    assert deepest > 20
