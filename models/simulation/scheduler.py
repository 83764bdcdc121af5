"""Event-driven schedulers of one site: their common base, and those that process the queue in a fixed order.

A scheduler is stepped from outside: `submit` a job at its time, `advance` the clock, `finish` the rest; each returns
the events that happened. Within one second they come as: ends, withdrawals, the starts that these allow; then each
submission followed by the starts that it allows.
"""

import heapq
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any

from models.records import AnyEvent, Cancel, Capacity, End, Start
from models.simulation.assumed_run_times import Estimates
from models.simulation.workload import SimulatedJob

NEVER = 1 << 62  # a time in seconds that is never reached


@dataclass(slots=True, eq=False)
class RunningJob:
    """A job on the machine: its start, its end, and its planned end.

    `done` is the time that it had run before a suspension.
    """

    job: SimulatedJob
    since: int
    end: int
    limit: int
    ordinal: int
    done: int


class Scheduler(ABC):
    """A queue and a machine of `cpus` CPUs; a subclass is the policy that chooses the queued jobs to start.

    Jobs are withdrawn when their patience ends while they queue. All times are whole Unix seconds.

    Args:
        site: its name, for the events.
        cpus: the machine's CPUs.
        start_time: the first time of the clock.
        estimates: the run times to plan with; by default the walltimes. A queued job is estimated at its submission,
            and again when a job of its user has ended, if estimates learn from that.
        enforced: whether jobs are killed at their walltimes.
        rules: parameters of the policy.
    """

    def __init__(
        self,
        site: str,
        cpus: int,
        start_time: int = 0,
        estimates: Estimates | None = None,
        enforced: bool = True,
        **rules: Any,
    ) -> None:
        self.site = site
        self.cpus = cpus
        self.free = cpus
        self.now = start_time
        self.estimates = Estimates() if estimates is None else estimates
        self.enforced = enforced
        self.queue: OrderedDict[str, SimulatedJob] = OrderedDict()
        self.plans = True  # whether the policy uses estimates
        self.planned: dict[str, int] = {}
        """Planned run time of each queued job, in seconds."""
        self.running: dict[str, RunningJob] = {}
        self._alarms: list[tuple[int, int, RunningJob]] = []  # heap: (end or limit, ordinal, job), suspended ones too
        self._withdrawals: list[tuple[int, int, SimulatedJob]] = []  # heap: (time, ordinal, job), also of started jobs
        self._ordinals = count()
        self._events: list[AnyEvent] = []
        self._set_up(**rules)

    def capacity(self) -> Capacity:
        """Return the event that reports the size of the site, as of now."""
        return Capacity(site=self.site, time=float(self.now), cpus=self.cpus)

    def submit(self, job: SimulatedJob) -> list[AnyEvent]:
        """Advance to the job's submission and queue it; return the events up to there.

        Raises:
            ValueError: the job's submission is in the past, it is larger than the machine, or it is queued already.
        """
        if job.submit < self.now:
            raise ValueError(f"job {job.job} is submitted at {job.submit}, before now ({self.now})")
        if job.cpus > self.cpus:
            raise ValueError(f"job {job.job} requests {job.cpus} of {self.cpus} CPUs")
        if job.job in self.queue:
            raise ValueError(f"job {job.job} is queued already")
        self._advance(job.submit)
        self._enter(job)
        if job.patience is not None:
            self.withdraw(job, job.submit + job.patience)
        self._events.append(job.submission(self.site))
        self._arrived(job)
        return self._take_events()

    def withdraw(self, job: SimulatedJob, time: int) -> None:
        """Schedule the withdrawal of a job, if it still queues then; the time must not be in the past."""
        heapq.heappush(self._withdrawals, (time, next(self._ordinals), job))

    def advance(self, until: int) -> list[AnyEvent]:
        """Advance the clock, and return the events up to and including that second."""
        self._advance(until)
        return self._take_events()

    def finish(self) -> list[AnyEvent]:
        """Advance the clock until no event remains; return the events."""
        while (time := self._next_time()) is not None:
            self._step(time)
        return self._take_events()

    # The interface of a policy.

    def _set_up(self, **rules: Any) -> None:
        if rules:
            raise TypeError(f"{type(self).__name__} has no parameters {', '.join(rules)}")

    @abstractmethod
    def _dispatch(self) -> None:
        """Start every queued job that the policy lets start now."""

    def _arrived(self, job: SimulatedJob) -> None:
        """Process a submission. If the job does not fit, nothing starts: all jobs that could had started before."""
        if job.cpus <= self.free:
            self._dispatch()

    def _estimate(self, job: SimulatedJob) -> int:
        """Return the planned run time of a queued job, in seconds."""
        return self.estimates.of(job)

    def _limit(self, job: SimulatedJob) -> int:
        """Return the time at which a job that starts now reaches its limit, if it does not end before."""
        return NEVER

    def _expire(self, running: RunningJob) -> None:
        """Process a running job that has reached its limit before its end."""
        raise NotImplementedError

    # The queue.

    def _head(self) -> SimulatedJob | None:
        return next(iter(self.queue.values()), None)

    def _waits(self, job: SimulatedJob) -> bool:
        """Return True if a job is still in the queue."""
        return self.queue.get(job.job) is job

    def _enter(self, job: SimulatedJob) -> None:
        self.queue[job.job] = job
        self._plan(job)

    def _plan(self, job: SimulatedJob) -> None:
        if self.plans:
            self.planned[job.job] = self._estimate(job)

    def _leave(self, job: SimulatedJob) -> None:
        del self.queue[job.job]
        self.planned.pop(job.job, None)

    def _learn(self, job: SimulatedJob, run: int) -> None:
        self.estimates.learn(job, run)
        if self.plans and self.estimates.learns:
            for other in self.queue.values():
                if other.user == job.user:
                    self._plan(other)

    # The machine.

    def _start(self, job: SimulatedJob) -> None:
        self._events.append(Start(site=self.site, time=float(self.now), job=job.job, cpus=job.cpus))
        self._run(job, done=0)

    def _run(self, job: SimulatedJob, done: int) -> None:
        """Start a queued job, or resume it after `done` seconds."""
        end = self.now + self._seconds(job) - done
        running = RunningJob(job, self.now, end, self._limit(job), next(self._ordinals), done)
        self._leave(job)
        self._place(running)

    def _seconds(self, job: SimulatedJob) -> int:
        return job.seconds if self.enforced else job.run

    def _place(self, running: RunningJob) -> None:
        self.free -= running.job.cpus
        self.running[running.job.job] = running
        self._watch(running)

    def _lift(self, running: RunningJob) -> None:
        self.free += running.job.cpus
        del self.running[running.job.job]

    def _watch(self, running: RunningJob) -> None:
        heapq.heappush(self._alarms, (min(running.end, running.limit), running.ordinal, running))

    def _finish(self, running: RunningJob) -> None:
        cut = self.enforced and running.job.run > running.job.seconds
        self._end(running, "timeout" if cut else "completed")

    def _end(self, running: RunningJob, state: str) -> None:
        job = running.job
        self._lift(running)
        self._events.append(End(site=self.site, time=float(self.now), job=job.job, state=state))
        self._learn(job, running.done + self.now - running.since)

    # The clock.

    def _advance(self, until: int) -> None:
        while (time := self._next_time()) is not None and time <= until:
            self._step(time)
        self.now = max(self.now, until)

    def _next_time(self) -> int | None:
        alarms, withdrawals = self._alarms, self._withdrawals
        while alarms and not self._runs(alarms[0][2]):
            heapq.heappop(alarms)
        while withdrawals and not self._waits(withdrawals[0][2]):
            heapq.heappop(withdrawals)
        times = [heap[0][0] for heap in (alarms, withdrawals) if heap]
        return min(times, default=None)

    def _runs(self, running: RunningJob) -> bool:
        return self.running.get(running.job.job) is running

    def _step(self, time: int) -> None:
        """Process all ends of this second, and start the jobs that fit then."""
        self.now = time
        outlived = []
        while self._alarms and self._alarms[0][0] == time:
            running = heapq.heappop(self._alarms)[2]
            if not self._runs(running):
                continue
            if running.end == time:
                self._finish(running)
            else:
                outlived.append(running)
        for running in outlived:
            self._expire(running)
        while self._withdrawals and self._withdrawals[0][0] == time:
            self._withdraw(heapq.heappop(self._withdrawals)[2])
        self._dispatch()

    def _withdraw(self, job: SimulatedJob) -> None:
        if self._waits(job):
            self._leave(job)
            self._events.append(Cancel(site=self.site, time=float(self.now), job=job.job))

    def _take_events(self) -> list[AnyEvent]:
        events, self._events = self._events, []
        return events


Rank = Callable[[SimulatedJob, int], int]
"""Sort key of a queue, least first: a number for a job and its planned run time, in seconds."""


def shortest(job: SimulatedJob, planned_s: int) -> int:
    """Least estimated work first, where Gibbons' work is the execution time (1997, section 5.3)."""
    return planned_s


def least_work(job: SimulatedJob, planned_s: int) -> int:
    """Least work first: CPUs times execution time (Smith, Taylor and Foster 1999, section 2.1.4)."""
    return job.cpus * planned_s


class OrderedScheduler(Scheduler):
    """A scheduler that starts jobs in an order: the general algorithm of Gibbons 1997, section 5.1 (figure 5.1).

    Without a rank it is first come, first served (section 5.2). Under the published workload that fills no more than
    two thirds of a machine; at a higher load the queue grows without limit.

    Args:
        rank: the key by which the queue is sorted; jobs of one rank start in the order of submission.
        filling: whether later jobs start wherever they fit, even if this delays others; else the first that does not
            fit blocks those behind it.
    """

    def _set_up(self, *, rank: Rank | None = None, filling: bool = False, **rules: Any) -> None:
        super()._set_up(**rules)
        self.plans, self.filling = rank is not None, filling
        self._rank = rank
        self._arrivals: dict[str, int] = {}  # of queued and running jobs

    def _dispatch(self) -> None:
        for _, _, job in self._ranked():
            if not self.free:
                return
            if job.cpus <= self.free:
                self._start(job)
            elif not self.filling:
                return

    def _ranked(self) -> list[tuple[int, int, SimulatedJob]]:
        rank, planned, arrivals = self._rank, self.planned, self._arrivals
        if rank is None:
            return [(0, arrivals[name], job) for name, job in self.queue.items()]
        return sorted((rank(job, planned[name]), arrivals[name], job) for name, job in self.queue.items())

    def _enter(self, job: SimulatedJob) -> None:
        self._arrivals.setdefault(job.job, next(self._ordinals))
        super()._enter(job)

    def _end(self, running: RunningJob, state: str) -> None:
        super()._end(running, state)
        del self._arrivals[running.job.job]

    def _withdraw(self, job: SimulatedJob) -> None:
        if self._waits(job):
            del self._arrivals[job.job]
        super()._withdraw(job)
