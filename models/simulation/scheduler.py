"""Event-driven schedulers of one site: first come first served, and EASY backfilling.

A scheduler is stepped from outside: `submit` a job at its time, `advance` the clock, `finish` what is left; each gives
the events that happened. Within one second they come as: ends, withdrawals, the starts that these allow; then each
submission followed by the starts that it allows.
"""

import heapq
from abc import ABC, abstractmethod
from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from itertools import count

from models.records import AnyEvent, Cancel, Capacity, End, Start
from models.simulation.workload import SimulatedJob


class Scheduler(ABC):
    """A queue and a machine of `cpus` processors. A policy says, as a subclass, which queued jobs start now.

    Jobs are killed at their walltime, and withdrawn when their patience ends while they queue. All times are whole
    Unix seconds.
    """

    def __init__(self, site: str, cpus: int, start_time: int = 0) -> None:
        self.site = site
        self.cpus = cpus
        self.free = cpus
        self.now = start_time
        self.queue: OrderedDict[str, SimulatedJob] = OrderedDict()
        self._releases: list[tuple[int, int, int]] = []  # of running jobs, sorted: (end by walltime, ordinal, cpus)
        self._ends: list[tuple[int, int, int, SimulatedJob]] = []  # heap: (end, ordinal, end by walltime, job)
        self._withdrawals: list[tuple[int, int, SimulatedJob]] = []  # heap: (time, ordinal, job), also of started jobs
        self._ordinals = count()
        self._events: list[AnyEvent] = []

    def capacity(self) -> Capacity:
        """The event that tells the size of the site, as of now."""
        return Capacity(site=self.site, time=float(self.now), cpus=self.cpus)

    def submit(self, job: SimulatedJob) -> list[AnyEvent]:
        """Advance to the job's submission and queue it; all that happened up to there.

        Raises ValueError for a job that was to be submitted in the past, is larger than the machine, or queued already.
        """
        if job.submit < self.now:
            raise ValueError(f"job {job.job} is submitted at {job.submit}, before now ({self.now})")
        if job.cpus > self.cpus:
            raise ValueError(f"job {job.job} wants {job.cpus} of {self.cpus} processors")
        if job.job in self.queue:
            raise ValueError(f"job {job.job} is queued already")
        self._advance(job.submit)
        self.queue[job.job] = job
        if job.patience is not None:
            heapq.heappush(self._withdrawals, (job.submit + job.patience, next(self._ordinals), job))
        self._events.append(job.submission(self.site))
        self._arrived(job)
        return self._take_events()

    def advance(self, until: int) -> list[AnyEvent]:
        """Move the clock, and give what happened up to and including that second."""
        self._advance(until)
        return self._take_events()

    def finish(self) -> list[AnyEvent]:
        """Move the clock to when nothing is left to happen, and give what happened."""
        while (time := self._next_time()) is not None:
            self._step(time)
        return self._take_events()

    @abstractmethod
    def _dispatch(self) -> None:
        """Start every queued job that the policy lets start now."""

    def _arrived(self, job: SimulatedJob) -> None:
        """A job joined the end of the queue: a policy may know that no other can start for that."""
        self._dispatch()

    def _head(self) -> SimulatedJob | None:
        """The job that has queued longest."""
        return next(iter(self.queue.values()), None)

    def _queues(self, job: SimulatedJob) -> bool:
        return self.queue.get(job.job) is job

    def _start(self, job: SimulatedJob) -> None:
        """Give a queued job its processors."""
        del self.queue[job.job]
        self.free -= job.cpus
        ordinal = next(self._ordinals)
        limit = self.now + job.walltime
        insort(self._releases, (limit, ordinal, job.cpus))
        heapq.heappush(self._ends, (self.now + job.seconds, ordinal, limit, job))
        self._events.append(Start(site=self.site, time=float(self.now), job=job.job, cpus=job.cpus))

    def _advance(self, until: int) -> None:
        while (time := self._next_time()) is not None and time <= until:
            self._step(time)
        self.now = max(self.now, until)

    def _next_time(self) -> int | None:
        """When the next job ends or is withdrawn."""
        withdrawals = self._withdrawals
        while withdrawals and not self._queues(withdrawals[0][2]):
            heapq.heappop(withdrawals)
        times = [heap[0][0] for heap in (self._ends, withdrawals) if heap]
        return min(times, default=None)

    def _step(self, time: int) -> None:
        """Let happen all that ends at this second, and what may start for it."""
        self.now = time
        while self._ends and self._ends[0][0] == time:
            self._end(*heapq.heappop(self._ends)[1:])
        while self._withdrawals and self._withdrawals[0][0] == time:
            self._withdraw(heapq.heappop(self._withdrawals)[2])
        self._dispatch()

    def _end(self, ordinal: int, limit: int, job: SimulatedJob) -> None:
        self.free += job.cpus
        del self._releases[bisect_left(self._releases, (limit, ordinal, job.cpus))]
        state = "timeout" if job.run > job.walltime else "completed"
        self._events.append(End(site=self.site, time=float(self.now), job=job.job, state=state))

    def _withdraw(self, job: SimulatedJob) -> None:
        if self._queues(job):
            del self.queue[job.job]
            self._events.append(Cancel(site=self.site, time=float(self.now), job=job.job))

    def _take_events(self) -> list[AnyEvent]:
        events, self._events = self._events, []
        return events


class Fcfs(Scheduler):
    """First come, first served: nothing starts before an earlier job.

    Under the published workload it fills no more than two thirds of a machine; a higher load queues without end.
    """

    def _dispatch(self) -> None:
        while (head := self._head()) is not None and head.cpus <= self.free:
            self._start(head)


class Reservation:
    """When a blocked head of the queue can start at the latest, and what is free beside it then."""

    __slots__ = ("job", "spare", "time")

    def __init__(self, job: SimulatedJob, time: int, spare: int) -> None:
        self.job = job
        self.time = time
        self.spare = spare


class Easy(Fcfs):
    """EASY backfilling: a later job may start if, by the walltimes, it does not delay the head of the queue.

    D. A. Lifka, "The ANL/IBM SP scheduling system", JSSPP 1995; A. W. Mu'alem, D. G. Feitelson, "Utilization,
    predictability, workloads, and user runtime estimates in scheduling the IBM SP2 with backfilling", IEEE TPDS 12(6),
    2001. The head's reservation (the "shadow time") is when enough running jobs have reached their walltimes; a later
    job starts if it ends by then, or if it fits in the processors ("extra nodes") that the head leaves free.
    """

    def __init__(self, site: str, cpus: int, start_time: int = 0) -> None:
        super().__init__(site, cpus, start_time)
        self.reservation: Reservation | None = None
        """That of the head of the queue; None while nothing queues."""

    def _dispatch(self) -> None:
        super()._dispatch()
        head = self._head()
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

    def _reserve(self, head: SimulatedJob) -> Reservation:
        free = self.free
        time = self.now
        for limit, _, cpus in self._releases:
            if free >= head.cpus and limit > time:
                break
            free += cpus
            time = limit
        return Reservation(head, time, free - head.cpus)

    def _backfill(self, reservation: Reservation, jobs: Iterable[SimulatedJob]) -> None:
        for job in jobs:
            if job.cpus > self.free:
                continue
            if self.now + job.walltime <= reservation.time:
                self._start(job)
            elif job.cpus <= reservation.spare:
                reservation.spare -= job.cpus
                self._start(job)


POLICIES: dict[str, type[Scheduler]] = {"fcfs": Fcfs, "easy": Easy}
"""The policies by name; a further one is a subclass of Scheduler and a line here."""


def run(jobs: Iterable[SimulatedJob], cpus: int, site: str, policy: str = "easy") -> Iterator[AnyEvent]:
    """The site's events in the order of time: its capacity at the first submission, then all that befalls the jobs.

    `jobs` come in the order of submission. Raises KeyError for an unknown policy, and ValueError as `submit` does.
    """
    scheduler: Scheduler | None = None
    for job in jobs:
        if scheduler is None:
            scheduler = POLICIES[policy](site, cpus, job.submit)
            yield scheduler.capacity()
        yield from scheduler.submit(job)
    if scheduler is not None:
        yield from scheduler.finish()
