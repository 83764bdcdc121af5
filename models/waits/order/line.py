"""The queue in its learnt order, and where in it a job comes that is only considered."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from models.waits.order.features import BEFORE, HELD, before_each, features_of
from models.waits.order.preference import Preference
from models.waits.order.schedule import Limits, Line, schedule
from models.waits.order.sight import Sight

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MAX_SIMULATED = 2000
"""Jobs of the queue that are simulated: the first in the order."""


class Ahead(NamedTuple):
    """What is ahead of a job: seconds from now until it starts (infinity: never), its place in the order of the queue
    (0 is the first), and the work of the queued jobs before it, in processor-seconds by their predicted run times.
    """

    start_s: float
    place: int
    work: float


class Ordered(NamedTuple):
    """A site and the order of its queue: `order` are places in `sight.queued`. By place, `tiers` descend, and within
    each `scores` do; `work` (one longer than the order) is that of the jobs before.
    """

    sight: Sight
    limits: Limits
    order: Ints
    scores: Floats
    tiers: Ints
    work: Floats

    @classmethod
    def of(cls, sight: Sight, preference: Preference, limits: Limits) -> "Ordered":
        """Put the queue in order, by the tiers of partitions first, where a site tells such; O(queued · log queued)."""
        queued = sight.queued
        scores = _scores(sight, np.arange(len(queued.cpus)), before(sight), preference, limits)
        tiers = np.zeros(len(scores), np.int64) if sight.rooms is None else sight.rooms.tiers
        order = np.lexsort((-scores, -tiers))
        work = np.concatenate(([0.0], np.cumsum(queued.cpus[order] * queued.run_s[order])))
        return cls(sight, limits, order, scores[order], tiers[order], work)

    def starts(self) -> tuple[Ints, Floats]:
        """Of the jobs that are simulated: their rows in the table, and in how many seconds they start, or infinity."""
        simulated = self.order[:MAX_SIMULATED]
        return self.sight.rows[simulated], _schedule(self.sight, simulated, self.limits)

    def due(self) -> Ints:
        """Which jobs could start now if there were no limits but those that were told, as places in `sight.queued`."""
        sight, simulated = self.sight, self.order[:MAX_SIMULATED]
        if not len(self.order) or (sight.rooms is None and sight.queued.cpus.min() > sight.free):
            return self.order[:0]
        return simulated[np.isfinite(_schedule(sight, simulated, Limits(), only_now=True))]

    def ahead(self, with_job: Sight, preference: Preference) -> Ahead:
        """What is ahead of the job that `with_job` has more than `sight`; O(queued² + queued·running) at worst.

        Of a longer queue than `MAX_SIMULATED`, what follows is reckoned as work, done at the rate at which the machine
        works now.
        """
        queued, last = with_job.queued, len(self.order)
        user = queued.user[last]
        earlier = np.count_nonzero(queued.user[:last] == user) if user else 0
        score = _scores(with_job, np.array([last]), np.array([earlier]), preference, self.limits)[0]
        place = self._place(score, 0 if with_job.rooms is None else int(with_job.rooms.tiers[last]))
        if place >= MAX_SIMULATED:
            begun_s = self.starts()[1]
            busy = max(self.sight.cpus - self.sight.free, 1)
            start_s = begun_s[np.isfinite(begun_s)].max(initial=0.0)
            return Ahead(start_s + float(self.work[place] - self.work[MAX_SIMULATED]) / busy, place, self.work[place])
        simulated = np.insert(self.order[:MAX_SIMULATED], place, last)
        start_s = _schedule(with_job, simulated, self.limits, place)[place]
        return Ahead(float(start_s), place, float(self.work[place]))

    def _place(self, score: float, tier: int) -> int:
        """Where in the order a job comes: behind those of its tier that have its score too."""
        first, end = (int(np.searchsorted(-self.tiers, -tier, side=side)) for side in ("left", "right"))
        return first + int(np.searchsorted(-self.scores[first:end], -score, side="right"))


def _schedule(sight: Sight, places: Ints, limits: Limits, asked: int = -1, only_now: bool = False) -> Floats:
    """Seconds until each job starts, in the order of `places` in `sight.queued`, as of `schedule`."""
    queued, users = sight.queued, len(sight.people.users)
    if sight.rooms is not None:
        return sight.rooms.schedule(places, users, limits, asked, only_now)
    line = Line(queued.cpus[places], queued.run_s[places], queued.planned_s[places], queued.user[places])
    return np.asarray(schedule(sight.free, sight.running, line, users, limits, asked, only_now))


def before(sight: Sight) -> Ints:
    """Of each queued job, how many of its user's queued jobs came before it."""
    return np.asarray(before_each(sight.queued.user, len(sight.people.users)))


def _scores(sight: Sight, jobs: Ints, before: Ints, preference: Preference, limits: Limits) -> Floats:
    features = features_of(sight.queued, jobs, before, sight.people, sight.cpus)
    if limits.several < np.inf:
        features[:, HELD:BEFORE] = 0.0  # what a user holds is looked at as time goes on
    return preference.scores(features, sight.queued.queue[jobs])
