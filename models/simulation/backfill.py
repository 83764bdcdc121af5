"""Schedulers that start a later job early where, by the estimates, it delays no reservation of an earlier one."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from models.arrays import Floats
from models.simulation.scheduler import RunningJob, Scheduler
from models.simulation.workload import SimulatedJob
from models.waits.schedules import plan


@dataclass(slots=True)
class Shadow:
    """The latest start of a blocked job, and the number of CPUs that stay free beside it then."""

    job: SimulatedJob
    time: int
    spare: int


class Backfilling(Scheduler):
    """A scheduler with a planned end of each running job.

    A job that exceeds its estimate is estimated again, given the time it has run.
    """

    def _limit(self, job: SimulatedJob) -> int:
        return self.now + self.planned[job.job]

    def _releases(self) -> list[tuple[int, int]]:
        """Planned end of each running job and the CPUs that it frees, in ascending order of time."""
        return sorted((running.limit, running.job.cpus) for running in self.running.values())

    def _reserve(self, head: SimulatedJob) -> Shadow:
        """Return the reservation of a job that does not fit now, if all running jobs use their whole estimates."""
        free = self.free
        time = self.now
        for limit, cpus in self._releases():
            if free >= head.cpus and limit > time:
                break
            free += cpus
            time = limit
        return Shadow(head, time, free - head.cpus)

    def _expire(self, running: RunningJob) -> None:
        running.limit = running.since + self.estimates.of(running.job, self.now - running.since)
        self._watch(running)


class Easy(Backfilling):
    """EASY backfilling: a later job may start if, by the estimates, it does not delay the head of the queue.

    D. A. Lifka, "The ANL/IBM SP scheduling system", JSSPP 1995; A. W. Mu'alem, D. G. Feitelson, "Utilization,
    predictability, workloads, and user runtime estimates in scheduling the IBM SP2 with backfilling", IEEE TPDS 12(6),
    2001. The head's reservation (the "shadow time") is when enough running jobs have reached their estimates. A later
    job starts if it ends by then, or if it fits in the CPUs ("extra nodes") that the head leaves free.
    """

    def _set_up(self, **rules: Any) -> None:
        super()._set_up(**rules)
        self.reservation: Shadow | None = None  # reservation of the head of the queue; None while the queue is empty

    def _in_order(self) -> list[SimulatedJob]:
        return list(self.queue.values())

    def _forbidden(self, job: SimulatedJob) -> bool:
        """Return True if a rule keeps this job from starting now, so that it is passed over."""
        return False

    def _dispatch(self) -> None:
        self.reservation = None
        for job in self._in_order():
            if self.reservation is not None and not self.free:
                return
            if (self.reservation is None or job.cpus <= self.free) and not self._forbidden(job):
                self._consider(job)

    def _arrived(self, job: SimulatedJob) -> None:
        # Nothing else has changed: what could not be backfilled a while ago, with more time before the head's start,
        # cannot be now.
        if self.reservation is None:
            self._dispatch()
        elif job.cpus <= self.free:
            self._consider(job)

    def _consider(self, job: SimulatedJob) -> None:
        """Start a job, or reserve CPUs for it, as its place in the queue allows."""
        head = self.reservation
        if head is None:
            if job.cpus > self.free:
                self.reservation = self._reserve(job)
                return
        elif self.now + self.planned[job.job] > head.time:
            if job.cpus > head.spare:
                return
            head.spare -= job.cpus
        self._start(job)


class Conservative(Backfilling):
    """Conservative backfilling: a later job may start if, by the estimates, it delays no earlier one.

    Smith, Taylor and Foster 1999, section 2.1.4: whenever a job is submitted or ends, the scheduler processes the queue
    in the order of arrival. Jobs that can run now start; the others get a reservation at the earliest possible time,
    which is computed again each time.
    """

    def _dispatch(self) -> None:
        if self.free and self.queue:
            jobs = list(self.queue.values())
            starts = self._schedule(jobs, whole=False)
            for place in np.flatnonzero(starts == self.now):
                if self._fits(jobs[place]):
                    self._start(jobs[place])

    def _fits(self, job: SimulatedJob) -> bool:
        """Return True if a job that is planned to start now can do so."""
        return True

    def _earliest(self, job: SimulatedJob) -> int:
        """Return the time before which no CPUs are reserved for a job: now, or the limit of a running job."""
        return self.now

    def _schedule(self, jobs: Sequence[SimulatedJob], whole: bool) -> Floats:
        releases = self._releases()
        starts: Floats = plan(
            float(self.now),
            self.free,
            np.array([limit for limit, _ in releases], np.float64),
            np.array([cpus for _, cpus in releases], np.int64),
            np.array([job.cpus for job in jobs], np.int64),
            np.array([self.planned[job.job] for job in jobs], np.float64),
            np.array([self._earliest(job) for job in jobs], np.float64),
            whole,
        )[0]
        return starts


class EasyKill(Conservative):
    """Gibbons' EASY (1997, sections 2.4 and 5.5): a job that exceeds its estimate is killed.

    "Jobs will only be backfilled if they do not delay a previously submitted job": any, not just the head of the queue,
    and all are scheduled again whenever one ends (5.5.3), so this is conservative backfilling. With true run times it
    is his EASY-act. From a killed job, estimates learn the time that it has run, as the site's accounting log has it.
    """

    def _expire(self, running: RunningJob) -> None:
        self._end(running, "timeout")
