"""The guard over generated workloads: bursts, storms of cancellations, a user who fills the machine, outages.

Estimates of the experts are drawn, not computed: in each episode each expert has its own error factor, which all jobs
of the episode share, as the jobs of a burst do. So thousands of jobs can be mixed and guarded within a second.
"""

from collections import deque
from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import count
from typing import NamedTuple

import numpy as np
import pytest

from models.waits.blend.blend import ORDER, RIVALS, TRIVIAL
from models.waits.blend.guard import Guard
from models.waits.blend.mixture_snapshot import MEDIAN, PROBABILITIES, QUANTILES
from models.waits.blend.quantiles import Quantiles
from tests.support.judged import bounds_left, choices_left
from tests.support.sizes import mostly_long

EXPERTS = [*TRIVIAL, "qespera", "order", "policy", "boosted by logs", "boosted by roots"]
HOUR, STRETCH = 3600.0, 2000
KINDS = ["calm", "calm", "calm", "burst", "storm", "week", "outage", "doubles"]


class EpisodeJob(NamedTuple):
    """One job: submit time, wait, user, the estimates of the experts (without the baselines), and its episode."""

    submit: float
    wait_s: float
    user: int
    estimates_s: np.ndarray
    episode: int


def episode(kind: str, begin: float, level_s: float, number: int, dice: np.random.Generator) -> list[EpisodeJob]:
    """Return the jobs of one episode of this kind from `begin` on."""
    spread = np.exp(dice.normal(0.0, [0.3, 0.3, 0.3, 0.3]))
    if kind == "calm":
        jobs = int(dice.integers(300, 1500))
        submits = begin + np.cumsum(dice.exponential(120.0, jobs))
        waits, users = level_s * dice.lognormal(0.0, 1.0, jobs), -dice.integers(1, 40, jobs)
    else:
        jobs = int(10 ** dice.uniform(1.0, 4.0))
        submits, users = begin + np.sort(dice.uniform(0.0, 600.0, jobs)), np.full(jobs, number)
        spread = np.exp(dice.normal(0.0, [2.0, 0.7, 1.0, 1.5]))  # an error of a new kind
        waits = level_s + dice.uniform(0.0, 20.0) * np.arange(jobs)
    if kind == "storm":  # withdrawn soon
        waits = dice.uniform(60.0, 1200.0, jobs)
    elif kind == "week":
        submits = begin + np.sort(dice.uniform(0.0, 7 * 86400.0, jobs))
        waits = np.linspace(level_s, 40 * HOUR, jobs)
    elif kind == "outage":
        waits = begin + 12 * HOUR - submits + dice.uniform(0.0, HOUR, jobs)
    estimates_s = waits[:, None] * spread * dice.lognormal(0.0, 0.4, (jobs, 4))
    return [
        EpisodeJob(*row, number)
        for row in zip(submits.tolist(), waits.tolist(), users.tolist(), estimates_s, strict=True)
    ]


def workload(seed: int, jobs: int = 12_000) -> Iterator[EpisodeJob]:
    """Return episodes in sequence, some overlapping, in the order of submission."""
    dice, begin, level_s, found = np.random.default_rng(seed), 0.0, 2 * HOUR, list[EpisodeJob]()
    for number in count():
        if len(found) >= jobs:
            break
        kind = str(dice.choice(KINDS)) if number > 1 else "calm"
        if kind == "doubles":  # the machine doubles
            level_s = max(level_s / 2.0, HOUR / 2.0)
            continue
        found += episode(kind, begin, level_s, number, dice)
        begin += dice.uniform(0.2, 2.0) * 86400.0
    return iter(sorted(found, key=lambda job: job.submit)[:jobs])


class Errors(NamedTuple):
    """Errors of each job in seconds, in the order of submission."""

    guarded: np.ndarray
    mixture: np.ndarray
    zero: np.ndarray
    recent: np.ndarray
    held: np.ndarray  # by the bound of 0.9
    episode: np.ndarray

    def by_episode(self, of: np.ndarray) -> float:
        """Return the mean over episodes with equal weights."""
        _, places = np.unique(self.episode, return_inverse=True)
        return float((np.bincount(places, of) / np.bincount(places)).mean())

    def stretches(self, of: np.ndarray) -> np.ndarray:
        """Return means over stretches of 2000 jobs without the first, which is for training."""
        return of[STRETCH : len(of) // STRETCH * STRETCH].reshape(-1, STRETCH).mean(axis=1)


def run(jobs: Iterator[EpisodeJob]) -> Errors:
    """Mix and guard the experts' estimates, and train as the jobs leave."""
    quantiles = Quantiles(EXPERTS, [1.0] * len(EXPERTS), schedules=("order",))
    guard = Guard(range(len(TRIVIAL)), RIVALS, ORDER)
    recent, queued, leaving, rows, longest_s = deque([0.0], maxlen=1000), dict[int, int](), [], [], 0.0
    for number, job in enumerate(jobs):
        while leaving and leaving[0][0] <= job.submit:
            at, _, left, snapshot, choice, medians = heappop(leaving)
            queued[left.user] -= 1
            recent.append(left.wait_s)
            longest_s = max(longest_s, left.wait_s)
            choices_left(guard, choice.waits_s, medians, 0.0, left.wait_s, at, snapshot.weight, str(left.user))
            bounds_left(quantiles, snapshot, left.wait_s, True, np.ones(2 * QUANTILES, np.bool_))
        waits_s = np.full((QUANTILES, len(EXPERTS)), np.nan)
        waits_s[:, 0], waits_s[:, 1] = 0.0, np.quantile(recent, PROBABILITIES)
        waits_s[MEDIAN, [2, 3, 5, 6]] = np.fmin(job.estimates_s, [longest_s, np.inf, longest_s, longest_s])
        snapshot = quantiles.mix(waits_s, weight=1.0 / (1.0 + queued.get(job.user, 0)))
        choice = guard.choose(snapshot.bounds[MEDIAN].item(), waits_s[MEDIAN], str(job.user))
        snapshot = snapshot.with_estimate(choice.wait_s, choice.most_s)
        queued[job.user] = queued.get(job.user, 0) + 1
        heappush(leaving, (job.submit + job.wait_s, number, job, snapshot, choice, waits_s[MEDIAN]))
        compared_s = np.array([snapshot.wait_s, snapshot.bounds[MEDIAN], 0.0, waits_s[MEDIAN, 1]])
        rows.append([*np.abs(compared_s - job.wait_s), job.wait_s <= snapshot.bounds[2], job.episode])
    return Errors(*np.array(rows).T)


@pytest.mark.parametrize("seed", mostly_long([14, 1, 3, 16]))
def test_guarded_error_is_near_better_baseline_in_all_stretches(seed: int) -> None:
    errors = run(workload(seed, 8000))
    trivial = np.minimum(errors.stretches(errors.zero), errors.stretches(errors.recent))
    assert (errors.stretches(errors.guarded) <= 1.15 * trivial).all()
    assert errors.by_episode(errors.guarded) < 0.8 * errors.by_episode(
        np.minimum(errors.zero, errors.recent).clip(60.0)
    )


def trap(burst: int) -> Iterator[EpisodeJob]:
    """Yield a burst of jobs that start soon, which the best recent expert overestimates by far."""
    dice = np.random.default_rng(5)
    for number in range(2000):
        wait_s = 2 * HOUR * dice.lognormal(0.0, 1.0)
        estimates_s = wait_s * dice.lognormal(0.0, [0.3, 0.6, 0.6, 0.6])
        yield EpisodeJob(300.0 * number, wait_s, -(number % 20), estimates_s, 0)
    for number in range(burst):
        yield EpisodeJob(600_000.0 + number / 10.0, 300.0, 1, HOUR * np.array([50.0, 0.1, 4.0, 12.0]), 1)


def test_later_jobs_of_a_burst_learn_from_the_first() -> None:
    errors = run(trap(burst=4500))
    # The first start comes after 3000 more jobs.
    first, last = errors.guarded[2000:3000].mean(), errors.guarded[-1000:].mean()
    assert last < 0.05 * first
    assert first < errors.mixture[2000:3000].mean()
