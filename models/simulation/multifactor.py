"""Schedulers that sort the queue by a priority of several factors, cap what a user may hold, and backfill behind."""

from math import exp2, inf
from typing import Any, NamedTuple

import msgspec

from models.simulation.backfill import Easy
from models.simulation.scheduler import RunningJob
from models.simulation.workload import DAY, SimulatedJob


class Priorities(msgspec.Struct, frozen=True, kw_only=True):
    """Weights and limits of a multifactor scheduler.

    The priority of a queued job is the sum of three terms, in points. `age` grows linearly until `age_s` seconds in the
    queue. `fairshare` is multiplied by 2^(−used/`share`): `used` is the share of the machine that the job's user has
    held, as a mean whose weights halve every `half_life_s` seconds. `size` is multiplied by the share of the machine
    that the job requests.

    No user may hold more than the share `cap` of the machine (1: no cap). A user without running jobs may still start
    one job of any size.
    """

    age: float = 1.0
    age_s: float = 7 * DAY
    fairshare: float = 2.0
    half_life_s: float = 7 * DAY
    share: float = 0.05
    size: float = 0.5
    cap: float = 1.0


USUAL = Priorities(cap=0.4)


class Holding(NamedTuple):
    """A user's CPUs since the time `at`, and the mean share of the machine up to that time."""

    cpus: int = 0
    used: float = 0.0
    at: int = 0


class Multifactor(Easy):
    """Multifactor priority with fairshare and caps, and EASY backfilling behind the first job that may start.

    After Slurm's `priority/multifactor` (its classic fairshare is 2^(−usage/share), too) and the limits on what a user
    may hold. Whenever a job comes or ends, the queue is gone through in the order of priority, as `Easy` does. A job
    that a limit forbids is passed over and gets no reservation. O(queue · log queue) each time.
    """

    def _set_up(self, *, priorities: Priorities = USUAL, **rules: Any) -> None:
        super()._set_up(**rules)
        self.rules = priorities
        self._users: dict[str | None, Holding] = {}
        self._fixed: dict[str, float] = {}  # of queued jobs: the points that do not change with time
        self._cap = priorities.cap * self.cpus if priorities.cap < 1.0 else inf

    def priority(self, job: SimulatedJob) -> float:
        """The points of a queued job now."""
        return self._fixed[job.job] + self._aged(job) + self._fair(job.user)

    def used(self, user: str | None) -> float:
        """Return the share of the machine that a user has held, in the decayed mean."""
        holding = self._users.get(user)
        if holding is None:
            return 0.0
        kept = exp2((holding.at - self.now) / self.rules.half_life_s)
        return holding.used * kept + holding.cpus / self.cpus * (1.0 - kept)

    def _aged(self, job: SimulatedJob) -> float:
        return self.rules.age * min((self.now - job.submit) / self.rules.age_s, 1.0)

    def _fair(self, user: str | None) -> float:
        return self.rules.fairshare * exp2(-self.used(user) / self.rules.share)

    def _dispatch(self) -> None:
        if self.free:
            super()._dispatch()

    def _in_order(self) -> list[SimulatedJob]:
        fair = {user: self._fair(user) for user in {job.user for job in self.queue.values()}}
        points = {name: self._fixed[name] + self._aged(job) + fair[job.user] for name, job in self.queue.items()}
        return sorted(self.queue.values(), key=lambda job: -points[job.job])

    def _arrived(self, job: SimulatedJob) -> None:
        # A job that does not fit may still become the head, and with it get the reservation that blocked others.
        self._dispatch()

    def _forbidden(self, job: SimulatedJob) -> bool:
        mine = self._users.get(job.user, Holding()).cpus
        return mine > 0 and mine + job.cpus > self._cap

    def _plan(self, job: SimulatedJob) -> None:
        super()._plan(job)
        self._fixed[job.job] = self.rules.size * job.cpus / self.cpus

    def _leave(self, job: SimulatedJob) -> None:
        super()._leave(job)
        del self._fixed[job.job]

    def _place(self, running: RunningJob) -> None:
        super()._place(running)
        self._hold(running.job, running.job.cpus)

    def _lift(self, running: RunningJob) -> None:
        super()._lift(running)
        self._hold(running.job, -running.job.cpus)

    def _hold(self, job: SimulatedJob, cpus: int) -> None:
        """Add CPUs to a user, or remove them (less than 0)."""
        held = self._users.get(job.user, Holding())
        self._users[job.user] = Holding(held.cpus + cpus, self.used(job.user), self.now)
