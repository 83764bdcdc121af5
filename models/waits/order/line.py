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
    """A site and the order of its queue: `order` are places in `sight.queued`, `scores` descend, and `work` (one longer
    than the line) is that of the jobs before each place.
    """

    sight: Sight
    limits: Limits
    order: Ints
    scores: Floats
    line: Line
    work: Floats

    @classmethod
    def of(cls, sight: Sight, preference: Preference, limits: Limits) -> "Ordered":
        """Put the queue in order; O(queued · log queued)."""
        queued = sight.queued
        scores = _scores(sight, np.arange(len(queued.cpus)), before(sight), preference, limits)
        order = np.argsort(-scores, kind="stable")
        line = Line(queued.cpus[order], queued.run_s[order], queued.planned_s[order], queued.user[order])
        work = np.concatenate(([0.0], np.cumsum(line.cpus * line.run_s)))
        return cls(sight, limits, order, scores[order], line, work)

    def starts(self) -> tuple[Ints, Floats]:
        """Of the jobs that are simulated: their rows in the table, and in how many seconds they start, or infinity."""
        starts = self._schedule(self._simulated(), -1, False)
        return self.sight.rows[self.order[:MAX_SIMULATED]], starts

    def due(self) -> Ints:
        """Which jobs could start now if there were no limits, as places in `sight.queued`."""
        if not len(self.order) or self.line.cpus.min() > self.sight.free:
            return self.order[:0]
        starts = self._replace(limits=Limits())._schedule(self.line, -1, True)
        return self.order[np.isfinite(starts)]

    def ahead(self, with_job: Sight, preference: Preference) -> Ahead:
        """What is ahead of the job that `with_job` has more than `sight`; O(queued² + queued·running) at worst.

        Of a longer queue than `MAX_SIMULATED`, what follows is reckoned as work, done at the rate at which the machine
        works now.
        """
        queued, last = with_job.queued, len(self.order)
        user = queued.user[last]
        earlier = np.count_nonzero(queued.user[:last] == user) if user else 0
        score = _scores(with_job, np.array([last]), np.array([earlier]), preference, self.limits)[0]
        place = int(np.searchsorted(-self.scores, -score, side="right"))
        if place >= MAX_SIMULATED:
            begun_s = self.starts()[1]
            busy = max(self.sight.cpus - self.sight.free, 1)
            start_s = begun_s[np.isfinite(begun_s)].max(initial=0.0)
            return Ahead(start_s + float(self.work[place] - self.work[MAX_SIMULATED]) / busy, place, self.work[place])
        line = self._simulated()
        line = Line(
            np.insert(line.cpus, place, queued.cpus[last]),
            np.insert(line.run_s, place, queued.run_s[last]),
            np.insert(line.planned_s, place, queued.planned_s[last]),
            np.insert(line.user, place, user),
        )
        return Ahead(float(self._schedule(line, place, False)[place]), place, float(self.work[place]))

    def _simulated(self) -> Line:
        cpus, run_s, planned_s, user = self.line
        most = MAX_SIMULATED
        return Line(cpus[:most], run_s[:most], planned_s[:most], user[:most])

    def _schedule(self, line: Line, asked: int, only_now: bool) -> Floats:
        sight, users = self.sight, len(self.sight.people.users)
        return np.asarray(schedule(sight.free, sight.running, line, users, self.limits, asked, only_now))


def before(sight: Sight) -> Ints:
    """Of each queued job, how many of its user's queued jobs came before it."""
    return np.asarray(before_each(sight.queued.user, len(sight.people.users)))


def _scores(sight: Sight, jobs: Ints, before: Ints, preference: Preference, limits: Limits) -> Floats:
    features = features_of(sight.queued, jobs, before, sight.people, sight.cpus)
    if limits.several < np.inf:
        features[:, HELD:BEFORE] = 0.0  # what a user holds is looked at as time goes on
    return preference.scores(features, sight.queued.queue[jobs])
