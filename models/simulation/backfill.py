"""Schedulers that start a later job early where, by the estimates, it delays no reservation of an earlier one."""

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from copy import copy
from typing import Self

import numpy as np
from numba import njit
from numpy.typing import NDArray

from models.simulation.estimates import Estimates
from models.simulation.scheduler import Running, Scheduler
from models.simulation.workload import SimulatedJob

Ints = NDArray[np.int64]


class Reservation:
    """When a blocked head of the queue can start at the latest, and what is free beside it then."""

    __slots__ = ("job", "spare", "time")

    def __init__(self, job: SimulatedJob, time: int, spare: int) -> None:
        self.job = job
        self.time = time
        self.spare = spare


class Backfilling(Scheduler):
    """Knows when each running job is planned to give back its processors.

    A job that outlives its estimate is estimated anew, given how long it has run.
    """

    def __init__(
        self, site: str, cpus: int, start_time: int = 0, estimates: Estimates | None = None, enforced: bool = True
    ) -> None:
        super().__init__(site, cpus, start_time, estimates, enforced)
        self._releases: list[tuple[int, int, int]] = []  # of running jobs, sorted: (limit, ordinal, cpus)

    def _limit(self, job: SimulatedJob) -> int:
        return self.now + self.planned[job.job]

    def _reserve(self, head: SimulatedJob) -> Reservation:
        """When a job that does not fit can start, if all that run do so for as long as is estimated."""
        free = self.free
        time = self.now
        for limit, _, cpus in self._releases:
            if free >= head.cpus and limit > time:
                break
            free += cpus
            time = limit
        return Reservation(head, time, free - head.cpus)

    def _place(self, running: Running) -> None:
        super()._place(running)
        insort(self._releases, _release(running))

    def _lift(self, running: Running) -> None:
        super()._lift(running)
        del self._releases[bisect_left(self._releases, _release(running))]

    def _expire(self, running: Running) -> None:
        self._lift(running)
        running.limit = running.since + self.estimates.of(running.job, self.now - running.since)
        self._place(running)


def _release(running: Running) -> tuple[int, int, int]:
    return running.limit, running.ordinal, running.job.cpus


class Easy(Backfilling):
    """EASY backfilling: a later job may start if, by the estimates, it does not delay the head of the queue.

    D. A. Lifka, "The ANL/IBM SP scheduling system", JSSPP 1995; A. W. Mu'alem, D. G. Feitelson, "Utilization,
    predictability, workloads, and user runtime estimates in scheduling the IBM SP2 with backfilling", IEEE TPDS 12(6),
    2001. The head's reservation (the "shadow time") is when enough running jobs have reached their estimates; a later
    job starts if it ends by then, or if it fits in the processors ("extra nodes") that the head leaves free.
    """

    def __init__(
        self, site: str, cpus: int, start_time: int = 0, estimates: Estimates | None = None, enforced: bool = True
    ) -> None:
        super().__init__(site, cpus, start_time, estimates, enforced)
        self.reservation: Reservation | None = None
        """That of the head of the queue; None while nothing queues."""

    def fork(self, lasts: Estimates | None = None) -> Self:
        """A copy, as of any scheduler."""
        other = super().fork(lasts)
        other.reservation = copy(self.reservation)
        return other

    def _dispatch(self) -> None:
        while (head := self._head()) is not None and head.cpus <= self.free:
            self._start(head)
        self.reservation = None if head is None else self._reserve(head)
        if self.reservation is not None and self.free:
            self._backfill(self.reservation, [job for job in self.queue.values() if job.cpus <= self.free])

    def _arrived(self, job: SimulatedJob) -> None:
        # Nothing else has changed: what could not be backfilled a while ago, with more time before the head's start,
        # cannot be now.
        if self.reservation is None:
            self._dispatch()
        else:
            self._backfill(self.reservation, [job])

    def _backfill(self, reservation: Reservation, jobs: Iterable[SimulatedJob]) -> None:
        for job in jobs:
            if job.cpus > self.free:
                continue
            if self.now + self.planned[job.job] <= reservation.time:
                self._start(job)
            elif job.cpus <= reservation.spare:
                reservation.spare -= job.cpus
                self._start(job)


class Conservative(Backfilling):
    """Conservative backfilling: a later job may start if, by the estimates, it delays no earlier one.

    Smith, Taylor and Foster 1999, section 2.1.4: whenever a job comes or ends, the queue is gone through in the order
    of arrival; what can run now is started, and for what cannot, processors are reserved at the earliest possible time,
    anew each time.
    """

    def _dispatch(self) -> None:
        if self.free and self.queue:
            jobs = list(self.queue.values())
            starts = self._schedule(jobs, whole=False)
            for place in np.flatnonzero(starts == self.now):
                if self._fits(jobs[place]):
                    self._start(jobs[place])

    def _fits(self, job: SimulatedJob) -> bool:
        """Whether a job that is planned to start now can do so."""
        return True

    def _earliest(self, job: SimulatedJob) -> int:
        """Before when no processors are reserved for a job: now, or the limit of a running job."""
        return self.now

    def reservations(self) -> dict[str, int]:
        """When each queued job starts, if nothing else comes and all estimates are true."""
        starts = self._schedule(list(self.queue.values()), whole=True)
        return {name: int(start) for name, start in zip(self.queue, starts, strict=True)}

    def _schedule(self, jobs: Sequence[SimulatedJob], whole: bool) -> Ints:
        releases = np.array([(limit, cpus) for limit, _, cpus in self._releases], dtype=np.int64).reshape(-1, 2)
        wanted = np.array([(job.cpus, self.planned[job.job], self._earliest(job)) for job in jobs], dtype=np.int64)
        return np.asarray(_reserve_all(self.now, self.free, releases, wanted.reshape(-1, 3), whole))


@njit(cache=True)
def _reserve_all(now: int, free: int, releases: Ints, wanted: Ints, whole: bool) -> Ints:
    """The earliest starts of jobs, (jobs,), each given those of the jobs before it; -1 where it was not asked.

    `releases` are (time, cpus) in the order of time, `wanted` (cpus, seconds, earliest), the last one now or the time
    of a release. Unless the `whole` schedule is asked for, it ends where no processor is free now.
    O(jobs · (jobs + releases)).
    """
    jobs = len(wanted)
    starts = np.full(jobs, -1)
    # What is free from times[k] until times[k + 1], for k < size.
    times = np.empty(1 + len(releases) + jobs, dtype=np.int64)
    frees = np.empty_like(times)
    times[0], frees[0], size = now, free, 1
    for time, cpus in releases:
        free += cpus
        if time > times[size - 1]:
            times[size] = time
            size += 1
        frees[size - 1] = free
    for job in range(jobs):
        if not whole and frees[0] == 0:
            break
        cpus, seconds, earliest = wanted[job]
        first = last = 0  # it holds its processors from times[first] until some time after times[last]
        while True:
            if frees[last] < cpus or times[first] < earliest:
                first = last + 1
            elif last + 1 == size or times[last + 1] >= times[first] + seconds:
                break
            last += 1
        starts[job] = times[first]
        end = times[first] + seconds
        if last + 1 == size or times[last + 1] > end:
            for k in range(size, last + 1, -1):
                times[k], frees[k] = times[k - 1], frees[k - 1]
            times[last + 1], frees[last + 1] = end, frees[last]
            size += 1
        for k in range(first, last + 1):
            frees[k] -= cpus
    return starts


class EasyKill(Conservative):
    """Gibbons' EASY (1997, sections 2.4 and 5.5): a job that exceeds its estimate is killed.

    "Jobs will only be backfilled if they do not delay a previously submitted job": any, not just the head of the queue,
    and all are scheduled anew whenever one ends (5.5.3), so this is conservative backfilling. With true run times it is
    his EASY-act. Of a killed job, estimates learn how long it has run, as the site's records have it.
    """

    def _expire(self, running: Running) -> None:
        self._end(running, "timeout")
