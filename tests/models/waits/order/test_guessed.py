"""A considered job is placed by a model of the scheduler's priorities of the other jobs."""

import numpy as np
import pytest
from numpy.typing import NDArray

from models.engine.asking.what_if import consider
from models.engine.engine import Engine
from models.engine.settings import EngineSettings
from models.records import Capacity, End, Start, Submit
from models.site.job import Job
from models.waits.order.guessed import PriorityModel, _descending
from models.waits.order.order_features import QueuedJobs
from tests.support.queues import queued_of

SETTINGS = EngineSettings(method="order", shadows=(), bounds="", what_if_method="order", history=200)
HOUR_S = 3600.0
DAY_S = 24 * HOUR_S


def queue_of(priorities: dict[str, tuple[str, float]], used_min: dict[str, float]) -> Engine:
    """Build a site with past usage, one job running on all of it, and queued jobs with users and priorities."""
    engine, now = Engine("alder", SETTINGS), 1.0
    engine.apply(Capacity(site="alder", time=0.0, cpus=4))
    for number, (user, minutes) in enumerate([*used_min.items(), ("runs", 60.0)]):
        job = f"ran{number}"
        engine.apply(Submit(site="alder", time=now, job=job, user=user, cpus=4, walltime=minutes * 60.0))
        engine.apply(Start(site="alder", time=now, job=job))
        if user != "runs":
            now += minutes * 60.0
            engine.apply(End(site="alder", time=now, job=job))
    for number, (name, (user, priority)) in enumerate(priorities.items()):
        engine.apply(
            Submit(
                site="alder",
                time=now + 10.0 + number,
                job=name,
                user=user,
                cpus=4,
                walltime=HOUR_S,
                priority=priority,
            )
        )
    return engine


def place(engine: Engine, user: str) -> str:
    (answer,) = consider(engine, [Job("", 0, engine.time, user=user, cpus=4, walltime=HOUR_S)])
    return answer.reason.partition("place ")[2].partition(" ")[0]


@pytest.mark.parametrize(("user", "found"), [("ada", "2"), ("bob", "4"), ("eve", "3")])
def test_considered_job_is_placed_next_to_jobs_of_its_user(user: str, found: str) -> None:
    priorities = {"a": ("ada", 500.0), "b": ("bob", 10.0), "c": ("eve", 30.0)}
    assert place(queue_of(priorities, {}), user) == found


@pytest.mark.parametrize(("user", "found"), [("new", "1"), ("fay", "3"), ("gus", "6")])
def test_user_without_queue_is_ranked_by_usage(user: str, found: str) -> None:
    priorities = {"d": ("dan", 100.0), "a": ("ada", 900.0), "c": ("cy", 300.0), "b": ("bob", 700.0), "e": ("eve", 50.0)}
    used_min = {"ada": 1.0, "bob": 4.0, "cy": 16.0, "dan": 32.0, "eve": 64.0, "fay": 8.0, "gus": 128.0}
    assert place(queue_of(priorities, used_min), user) == found


def test_unexplained_priorities_fall_back_to_learned_order() -> None:
    priorities = {"a": ("ada", 10.0), "b": ("bob", 500.0), "c": ("cy", 30.0), "d": ("dan", 400.0)}
    assert place(queue_of(priorities, {"ada": 1.0, "bob": 16.0, "cy": 4.0, "dan": 8.0}), "new") == "5"


def columns(rng: np.random.Generator, jobs: int, user: NDArray[np.int64]) -> QueuedJobs:
    cpus, planned_s = rng.integers(1, 64, jobs), rng.uniform(60.0, DAY_S, jobs)
    rows = zip(cpus, np.full(jobs, HOUR_S), planned_s, user, strict=True)
    return queued_of(list(rows), rng.uniform(0.0, 3 * DAY_S, jobs).tolist())


def test_priority_model_separates_age_size_length_and_kind() -> None:
    rng = np.random.default_rng(1)
    user, kinds = rng.integers(1, 6, 60), [("q", "high" if number % 3 else "low") for number in range(60)]
    queued = columns(rng, 60, user)
    level = 300.0 * (np.array([qos for _, qos in kinds]) == "high")
    priorities = 1000.0 * user + 100.0 * queued.age_s / DAY_S + 200.0 * queued.cpus / 64 + level
    known = QueuedJobs(*(column[:-1] for column in queued._replace(priority=priorities)))
    guessed = PriorityModel.of(known, kinds[:-1], np.zeros((7, 2)), 64)
    assert guessed.priority(queued, kinds[-1], np.zeros((7, 2))) == pytest.approx(priorities[-1], abs=10.0)


def test_priority_model_does_not_depend_on_user_codes() -> None:
    rng = np.random.default_rng(2)
    user, code, used = rng.integers(1, 9, 50), rng.permutation(np.arange(1, 11)), rng.random((11, 2))
    queued = columns(rng, 50, user)._replace(priority=rng.random(50))
    other_used = used.copy()
    other_used[code] = used[1:]
    found = PriorityModel.of(queued, [None] * 50, used, 64)
    other = PriorityModel.of(queued._replace(user=code[user - 1]), [None] * 50, other_used, 64)
    assert np.array_equal(found.slopes, other.slopes)
    for user_code in range(1, 11):
        last = queued._replace(user=np.append(user[:-1], user_code))
        moved = queued._replace(user=code[last.user - 1])
        priority, again = found.priority(last, None, used), other.priority(moved, None, other_used)
        assert priority == again or (np.isnan(priority) and np.isnan(again))


def test_descending_pools_increasing_values() -> None:
    assert _descending(np.array([5.0, 1.0, 3.0, 2.0, 0.0]), np.ones(5)).tolist() == [5.0, 2.0, 2.0, 2.0, 0.0]
    assert _descending(np.array([1.0, 4.0]), np.array([2.0, 1.0])).tolist() == [2.0, 2.0]
