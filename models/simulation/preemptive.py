"""Schedulers that suspend running jobs: to resume, a job needs the same CPUs as before.

Gibbons 1997, section 5.4: there is no migration. A new job does not get the CPUs that the next suspended job needs, if
there are others (5.4 and 5.7, the heuristic that he found the better one and used). Suspending and resuming take no
time here; on his system resuming took up to 30 seconds.
"""

from collections import Counter
from collections.abc import Iterable
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.arrays import Flags, Ints
from models.simulation.backfill import Conservative
from models.simulation.scheduler import OrderedScheduler, RunningJob, Scheduler, shortest
from models.simulation.workload import SimulatedJob

Numbers = NDArray[np.intp]


class Preemptive(Scheduler):
    """A scheduler that tracks the CPUs of each job, and the run times of suspended jobs, which queue again."""

    def _set_up(self, **rules: Any) -> None:
        super()._set_up(**rules)
        self.suspended: dict[str, RunningJob] = {}  # the suspended jobs, which queue, with their last run
        self.suspensions: Counter[str] = Counter()  # how often each job was suspended
        self.processors: dict[str, Numbers] = {}  # CPUs of running and suspended jobs
        self._idle = np.ones(self.cpus, dtype=np.bool_)

    def _waits(self, job: SimulatedJob) -> bool:
        return super()._waits(job) and job.job not in self.suspended

    def _start(self, job: SimulatedJob) -> None:
        """Start or resume a queued job on its CPUs, which are idle."""
        before = self.suspended.pop(job.job, None)
        if before is None:
            super()._start(job)
        else:
            self._run(job, before.done)

    def _place(self, running: RunningJob) -> None:
        super()._place(running)
        self._idle[self.processors[running.job.job]] = False

    def _lift(self, running: RunningJob) -> None:
        super()._lift(running)
        self._idle[self.processors[running.job.job]] = True

    def _suspend(self, running: RunningJob) -> None:
        self._lift(running)
        running.done += self.now - running.since
        self.suspended[running.job.job] = running
        self.suspensions[running.job.job] += 1
        self._enter(running.job)

    def _end(self, running: RunningJob, state: str) -> None:
        super()._end(running, state)
        del self.processors[running.job.job]

    def _reluctance(self, queue: Iterable[SimulatedJob]) -> Ints:
        """Return 1 for the CPUs of the first suspended job in the queue, which a new job should avoid, and 0 for
        others.
        """
        reluctance = np.zeros(self.cpus, dtype=np.int64)
        following = next((job for job in queue if job.job in self.processors), None)
        if following is not None:
            reluctance[self.processors[following.job]] = 1
        return reluctance

    @staticmethod
    def _pick(cpus: int, free: Flags, reluctance: Ints) -> Numbers:
        """Return `cpus` free CPUs, those with the least reluctance."""
        numbers = np.flatnonzero(free)
        return numbers[np.argsort(reluctance[numbers], kind="stable")[:cpus]]


class Lerwf(Preemptive, OrderedScheduler):
    """Least estimated remaining work first (Gibbons 1997, sections 5.1 and 5.4; work as in `shortest`).

    Whenever a job is submitted or ends, all jobs, running or not, are sorted by their estimated remaining work. They
    get CPUs in this order until there are too few for the next one. Running jobs that got none are suspended. A
    suspended job whose CPUs another job uses waits for them, and so do all jobs behind it that do not run. Where many
    jobs are suspended, most of a large machine may therefore be idle. With `filling`, the jobs behind it need not wait:
    they run wherever they fit (section 5.4, the example of table 5.2).
    """

    def _set_up(self, **rules: Any) -> None:
        super()._set_up(rank=shortest, **rules)

    def _estimate(self, job: SimulatedJob) -> int:
        before = self.suspended.get(job.job)
        return self.estimates.of(job) if before is None else self._remaining(job, before.done)

    def _remaining(self, job: SimulatedJob, done: int) -> int:
        return self.estimates.of(job, done) - done

    def _arrived(self, job: SimulatedJob) -> None:
        self._dispatch()

    def _dispatch(self) -> None:
        chosen = self._choice()
        for running in [running for name, running in self.running.items() if name not in chosen]:
            self._suspend(running)
        for name, job in chosen.items():
            if name not in self.running:
                self._start(job)

    def _choice(self) -> dict[str, SimulatedJob]:
        """Return the jobs that are to run now, by name; new ones get their CPUs."""
        running = sorted(
            (self._remaining(each.job, each.done + self.now - each.since), self._arrivals[name], each.job)
            for name, each in self.running.items()
        )
        every = sorted(self._ranked() + running)
        likely = self._walk(every, None)
        pending = (job for _, _, job in running if job.job not in likely)
        queued = (job for _, _, job in every if job.job in self.queue) if self.suspended else ()
        reluctance = self._reluctance(chain(pending, queued))
        for place, (_, _, job) in enumerate(reversed(running), 2):
            if job.job in likely:
                reluctance[self.processors[job.job]] = place
        return self._walk(every, reluctance)

    def _walk(self, every: list[tuple[int, int, SimulatedJob]], reluctance: Ints | None) -> dict[str, SimulatedJob]:
        """Assign CPUs to all jobs, in order; while `reluctance` is None those of new ones are only counted."""
        chosen: dict[str, SimulatedJob] = {}
        free = np.ones(self.cpus, dtype=np.bool_)
        free_cpus, blocked = self.cpus, False
        for _, _, job in every:
            if not free_cpus or (job.cpus > free_cpus and not self.filling):
                break
            if job.cpus > free_cpus or (blocked and job.job not in self.running):
                continue
            its = self.processors.get(job.job)
            if its is None and reluctance is not None:
                its = self.processors[job.job] = self._pick(job.cpus, free, reluctance)
            elif its is not None and not free[its].all():
                blocked = not self.filling
                continue
            if its is not None:
                free[its] = False
            free_cpus -= job.cpus
            chosen[job.job] = job
        return chosen


class EasyPreemptive(Preemptive, Conservative):
    """Gibbons' EASY (as `EasyKill`), but a job that exceeds its estimate is suspended (1997, section 5.6).

    The job goes to the back of the queue "just as if it had been resubmitted", with its original estimate. It resumes
    at its planned start, but not before the planned end of the jobs that use its CPUs. If one of them runs longer, it
    continues to wait.
    """

    def _set_up(self, **rules: Any) -> None:
        super()._set_up(**rules)
        self._taken_until = np.zeros(self.cpus, dtype=np.int64)

    def _estimate(self, job: SimulatedJob) -> int:
        before = self.suspended.get(job.job)
        return super()._estimate(job) if before is None else before.limit - before.since

    def _expire(self, running: RunningJob) -> None:
        self._suspend(running)

    def _place(self, running: RunningJob) -> None:
        super()._place(running)
        self._taken_until[self.processors[running.job.job]] = running.limit

    def _lift(self, running: RunningJob) -> None:
        super()._lift(running)
        self._taken_until[self.processors[running.job.job]] = 0

    def _earliest(self, job: SimulatedJob) -> int:
        its = self.processors.get(job.job)
        return self.now if its is None else max(self.now, int(self._taken_until[its].max()))

    def _fits(self, job: SimulatedJob) -> bool:
        its = self.processors.get(job.job)
        return job.cpus <= self.free if its is None else bool(self._idle[its].all())

    def _start(self, job: SimulatedJob) -> None:
        if job.job not in self.processors:
            queue = self.queue.values() if self.suspended else ()
            self.processors[job.job] = self._pick(job.cpus, self._idle, self._reluctance(queue))
        super()._start(job)
