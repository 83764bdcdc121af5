"""The queue in its learned order, and the place of a hypothetical job in it."""

from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from models.arrays import Flags, Floats, Ints
from models.waits.order.aging import FIRST_S, Aging
from models.waits.order.guessed import PriorityModel
from models.waits.order.order_features import before_each
from models.waits.order.pair_preference import Preference, scores_of
from models.waits.order.schedule import Limits, line_of, schedule
from models.waits.order.site_view import SiteView

MAX_SIMULATED, MAX_SIMULATED_OF_PART = 2000, 250
"""Maximum number of simulated jobs, the first in the order: for a whole queue, and for a part of one."""

MAX_ALONE = 100
"""Maximum number of jobs with an expected withdrawal whose start is simulated as if they stayed: a schedule for
each."""


class QueueAhead(NamedTuple):
    """The queue ahead of a job.

    Attributes:
        start_s: seconds until the job starts; infinity: never.
        place: its place in the order of the queue; 0 is the first.
        work: work of the queued jobs before it, in CPU-seconds by their predicted run times.
        cut_short: whether the simulation ended at `MAX_WORK`.
    """

    start_s: float
    place: int
    work: float
    cut_short: bool = False


@dataclass(frozen=True, eq=False)
class OrderedQueue:
    """A site and the order of its queue: `order` are places in `sight.queued`.

    By place, `tiers` descend. Within each tier the reported `priorities` descend, where they are used (else None), and
    within these the `scores`. `work` and `jobs` (one longer than the order) are the sums over the jobs before.
    """

    sight: SiteView
    preference: Preference
    limits: Limits
    order: Ints
    scores: Floats
    tiers: Ints
    priorities: Floats | None
    work: Floats
    jobs: Ints

    @classmethod
    def of(cls, sight: SiteView, preference: Preference, limits: Limits, trusted: bool = False) -> "OrderedQueue":
        """Put the queue in order; O(queued · log queued).

        The order is first by the tiers of partitions, where a site reports them. It is then by the scheduler's own
        priorities, where all jobs report one and these are `trusted`. The last criterion is the learned order.
        """
        queued = sight.queued
        scores = scores_in(sight, np.arange(len(queued.cpus)), before(sight), preference, limits)
        by_priority = trusted and bool(len(scores)) and bool(np.isfinite(queued.priority).all())
        tiers = np.zeros(len(scores), np.int64) if sight.rooms is None else sight.rooms.tiers
        keys = [-scores, *([-queued.priority] if by_priority else ()), *(() if sight.rooms is None else [-tiers])]
        order = np.lexsort(keys)  # the last key has precedence
        stand_for = sight.stands_for[order]
        work = _sums(queued.cpus[order] * queued.run_s[order] * stand_for)
        jobs = np.rint(_sums(stand_for)).astype(np.int64)
        priorities = queued.priority[order] if by_priority else None
        return cls(sight, preference, limits, order, scores[order], tiers[order], priorities, work, jobs)

    @cached_property
    def simulated(self) -> Ints:
        """The simulated jobs, as places in `sight.queued`; a job that represents others is repeated for each."""
        if self.sight.whole:
            return self.order[: self.most]
        return np.repeat(self.order, np.diff(np.minimum(self.jobs, self.most)))

    @property
    def most(self) -> int:
        """Maximum number of simulated jobs."""
        return MAX_SIMULATED if self.sight.whole else MAX_SIMULATED_OF_PART

    @cached_property
    def _schedule_result(self) -> tuple[Floats, bool]:
        return self._schedule(self.sight, self.simulated, self.limits)

    @property
    def starts_s(self) -> Floats:
        """Seconds until each of them starts, infinity for never; if it `is_gone`, until it would have started."""
        return self._schedule_result[0]

    @cached_property
    def is_gone(self) -> Flags:
        """Flags of the jobs that are withdrawn before they start."""
        if self.sight.rooms is not None:
            return np.zeros(len(self.simulated), np.bool_)
        return np.asarray(self.starts_s > self.sight.queued.stays_s[self.simulated])

    def starts(self) -> tuple[Ints, Floats]:
        """Return the simulated jobs' rows in the table, and the seconds until they start, or infinity.

        Each job is assumed to stay until then. Of the jobs that are expected to be withdrawn, only the first
        `MAX_ALONE` have a start.
        """
        simulated, first = np.unique(self.simulated, return_index=True)
        found = np.where(self.is_gone[first], np.inf, self.starts_s[first])
        gone = np.flatnonzero(self.is_gone[first])
        for nth in gone[np.argsort(first[gone], kind="stable")][:MAX_ALONE].tolist():
            stays_s = self.sight.queued.stays_s.copy()
            stays_s[simulated[nth]] = np.inf
            sight = self.sight._replace(queued=self.sight.queued._replace(stays_s=stays_s))
            found[nth] = self._schedule(sight, self.simulated, self.limits, int(first[nth]))[0][first[nth]]
        return self.sight.rows[simulated], found

    def due(self) -> Ints:
        """Return the jobs that could start now with only the reported limits, as places in `sight.queued`."""
        sight = self.sight
        if not len(self.order) or (sight.rooms is None and sight.queued.cpus.min() > sight.free):
            return self.order[:0]
        return self.simulated[np.isfinite(self._schedule(sight, self.simulated, Limits(), only_now=True)[0])]

    def ahead(self, with_job: SiteView) -> QueueAhead:
        """Return the queue ahead of the job that `with_job` has in addition; O(queued² + queued·running) at worst.

        In a queue longer than `most`, the rest counts as work, done at the current rate of the machine.
        """
        queued, last = with_job.queued, len(self.order)
        user = queued.user[last]
        earlier = (self.sight.stands_for * self.sight.tasks)[queued.user[:last] == user].sum() if user else 0.0
        score = scores_in(with_job, np.array([last]), np.array([earlier]), self.preference, self.limits)[0]
        tier = 0 if with_job.rooms is None else int(with_job.rooms.tiers[last])
        place = self._place(score, tier, self._priority(with_job))
        jobs, work = int(self.jobs[place]), float(self.work[place])
        if jobs >= self.most:
            start_s = float(self.starts_s[np.isfinite(self.starts_s) & ~self.is_gone].max(initial=0.0))
            busy = max(self.sight.cpus - self.sight.free, 1)
            return QueueAhead(start_s + (work - self._simulated_work) / busy, jobs, work, self._schedule_result[1])
        simulated = np.concatenate((self.simulated[:jobs], (last,), self.simulated[jobs:]))
        starts_s, cut_short = self._schedule(with_job, simulated, self.limits, jobs)
        return QueueAhead(float(starts_s[jobs]), jobs, work, cut_short)

    def _schedule(
        self, sight: SiteView, places: Ints, limits: Limits, only_job: int = -1, only_now: bool = False
    ) -> tuple[Floats, bool]:
        """Return the seconds until each job starts, in the order of `places` in `sight.queued`, as in `schedule`.

        The scheduler's own priorities are assumed to stay as they are, and so is the order of a deep queue.
        """
        queued, people = sight.queued, sight.people
        if sight.rooms is not None:
            rooms, places = (sight.rooms, places) if sight.whole else sight.rooms.repeated(places)
            return rooms.schedule(places, len(people.users), limits, only_job, only_now)
        line = line_of(queued, places)
        first_s = FIRST_S if sight.whole and self.priorities is None else np.inf
        limited = self.limits.several < np.inf
        aging = Aging(queued, places, people, sight.cpus, self.preference.weights, limited, first_s)
        starts_s, cut_short = schedule(sight.free, sight.running, line, aging, limits, only_job, only_now)
        return starts_s, cut_short

    @property
    def _simulated_work(self) -> float:
        if self.sight.whole:
            return float(self.work[self.most])
        queued = self.sight.queued
        return float((queued.cpus[self.simulated] * queued.run_s[self.simulated]).sum())

    @cached_property
    def _guessed(self) -> PriorityModel:
        sight = self.sight
        return PriorityModel.of(sight.queued, _kinds(sight), sight.people.users, sight.cpus)

    def _priority(self, with_job: SiteView) -> float:
        """Return the priority of the last job, NaN if it is missing; the order is that of priorities."""
        priority = float(with_job.queued.priority[-1])
        if self.priorities is None or not np.isnan(priority):
            return priority
        return self._guessed.priority(with_job.queued, _kinds(with_job, last=True)[0], with_job.people.users)

    def _place(self, score: float, tier: int, priority: float) -> int:
        """Return a job's place in the order: after the jobs of its tier and priority with the same score.

        A job without a priority gets the place where its score contradicts the order of the others least.
        """
        first, end = _range(self.tiers, tier, 0, len(self.tiers))
        if self.priorities is not None:
            if np.isnan(priority):
                return first + _least_wrong(self.scores[first:end] >= score)
            first, end = _range(self.priorities, priority, first, end)
        return first + int(np.searchsorted(-self.scores[first:end], -score, side="right"))


def _range(descending: Ints | Floats, value: float, first: int, end: int) -> tuple[int, int]:
    """Return the first and the end position of a value in a descending range, or the position where it would be."""
    left, right = (first + int(np.searchsorted(-descending[first:end], -value, side)) for side in ("left", "right"))
    return left, right


def _least_wrong(before: Flags) -> int:
    """Return the place with the fewest jobs on the wrong side; the last of equal ones.

    Args:
        before: whether each of the others should be before it.
    """
    gained = np.concatenate(([0], np.cumsum(np.where(before, 1, -1))))
    return len(gained) - 1 - int(np.argmax(gained[::-1]))


def _sums(values: Floats) -> Floats:
    """Return the sum of the values before each, and of all; (values + 1,)."""
    return np.concatenate(([0.0], np.cumsum(values)))


def before(sight: SiteView) -> Floats:
    """Return for each queued job the number of its user's queued jobs before it; each task of an array counts."""
    return np.asarray(before_each(sight.queued.user, len(sight.people.users), sight.stands_for * sight.tasks))


def _kinds(sight: SiteView, last: bool = False) -> list[Hashable]:
    """Return the queue and QOS of each queued job, or of the last one."""
    first = len(sight.queued.cpus) - 1 if last else 0
    queues: list[int] = sight.queued.queue[first:].tolist()
    if sight.rooms is None:
        return list(queues)
    rooms = sight.rooms
    numbers: list[int] = rooms.jobs.kind[len(rooms.placed.shares) + first :].tolist()
    requests = [rooms.requests[number] for number in numbers]
    return [(queue, request.qos) for queue, request in zip(queues, requests, strict=True)]


def scores_in(sight: SiteView, jobs: Ints, before: Floats, preference: Preference, limits: Limits) -> Floats:
    """Return the scores of some of the queued jobs; `before` as in `features_of`."""
    limited = limits.several < np.inf  # then a user's usage matters as time passes
    return np.asarray(scores_of(sight.queued, jobs, before, sight.people, sight.cpus, preference.weights, limited))
