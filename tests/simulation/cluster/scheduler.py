"""A scheduler of nodes: partitions of several tiers, multifactor priority, limits, backfill, maintenance windows.

It follows Slurm's `select/cons_tres`, `priority/multifactor` and `sched/backfill`. The caller drives it like the other
simulated schedulers: `submit` a job at its time, `advance` the clock, `finish` the remaining jobs; each call returns
the new events. The order within a second is: ends, cancellations, announcements, the resulting starts; then each
submission, followed by the resulting starts.
"""

import heapq
from collections.abc import Iterable, Iterator
from copy import deepcopy
from math import exp2
from typing import NamedTuple, Self

import numpy as np

from models.arrays import Ints
from models.records import Alter, AnyEvent, Cancel, Capacity, End, Limit, Partition, Start
from tests.simulation.cluster.machine import CPUS, GPUS, Cluster, ClusterJob, Mask, Window
from tests.simulation.cluster.room import Claims, Nodes, Wanted

ENDS, WITHDRAWN, WINDOW = range(3)
"""Kinds of alarms, in the order of processing within a second."""


class _Held(NamedTuple):
    """The share of the cluster that a user holds since `at`, and the mean share before."""

    share: float = 0.0
    used: float = 0.0
    at: int = 0


class ClusterScheduler:
    """The queue and the nodes of a cluster.

    After each change, the scheduler visits the queue by tier, then priority, once for each possible partition of a job.
    It skips jobs blocked by a limit. The first job of each partition that does not fit gets a reservation: the nodes of
    its earliest start by the walltimes of running jobs. Later jobs may start if they do not delay it (EASY backfill, by
    partition). No job starts that would overlap with an announced window. O(queue · (nodes + running)) per visit, in
    compiled code.

    Parameters:
        site: name in the events.
        start_time: begin of the clock; all times are whole Unix seconds.
        reports_reasons: True to report when a limit begins or ceases to block a job, with Slurm's reason.
    """

    def __init__(self, site: str, cluster: Cluster, start_time: int = 0, reports_reasons: bool = False) -> None:
        self.site = site
        self.cluster = cluster
        self.now = start_time
        self.queue: dict[str, ClusterJob] = {}
        self.running: dict[str, tuple[ClusterJob, str]] = {}
        """Running jobs by name, each with its partition."""
        self.nodes = Nodes(cluster.sizes())
        self._partitions = {partition.name: partition for partition in cluster.partitions}
        self._allowed: dict[tuple[str, str | None], Mask] = {}
        self._whole = np.maximum(self.nodes.size.sum(axis=0), 1)
        self._windows: list[Window] = []
        self._claims = Claims.none(len(self.nodes.size))
        self._renew_windows()
        self._places: dict[str, list[Partition]] = {}  # of pending jobs: possible partitions
        self._users: dict[str | None, _Held] = {}
        self._limited: dict[tuple[int, str | None], Ints] = {}  # by limit and owner: resources of running jobs
        self._alarms: list[tuple[int, int, int, str]] = []
        self._ordinal = 0  # of the alarms: an integer, which can be copied
        self._reports_reasons = reports_reasons
        self._reported: dict[str, str] = {}  # of pending jobs: the last reported reason
        self._events: list[AnyEvent] = []
        for window in cluster.windows:
            for time in (window.announced, int(window.reservation.end)):
                if time > start_time:
                    self._watch(time, WINDOW, window.reservation.name)

    def capacity(self) -> Capacity:
        """Return the present capacity event."""
        cluster = self.cluster
        return Capacity(
            site=self.site,
            time=float(self.now),
            cpus=cluster.cpus,
            nodes=len(self.nodes.size),
            down_nodes=sum(pool.down_nodes for pool in cluster.pools),
            pools=list(cluster.pools),
            partitions=list(cluster.partitions),
            limits=list(cluster.limits),
            reservations=[window.reservation for window in self._windows],
        )

    def submit(self, job: ClusterJob) -> list[AnyEvent]:
        """Advance to the job's submission and queue it; return the events up to then.

        Raises:
            ValueError: the submission is in the past, or the job can run in none of its partitions.
        """
        if job.submit < self.now:
            raise ValueError(f"job {job.job} is submitted at {job.submit}, before now ({self.now})")
        named = [self._partitions[name] for name in job.partitions]
        places = [partition for partition in named if partition.up and self._can_run(job, partition)]
        if not places:
            raise ValueError(f"job {job.job} can run in none of {job.partitions}")
        self._advance(job.submit)
        self.queue[job.job], self._places[job.job] = job, places
        if job.patience is not None:
            self._watch(job.submit + job.patience, WITHDRAWN, job.job)
        self._events.append(job.submission(self.site))
        self._dispatch()
        self._report_reasons()
        return self._take_events()

    def advance(self, until: int) -> list[AnyEvent]:
        """Move the clock; return the events up to and including that second."""
        self._advance(until)
        return self._take_events()

    def finish(self) -> list[AnyEvent]:
        """Move the clock until no event is left; return the events."""
        while self._alarms:
            self._step(self._alarms[0][0])
        return self._take_events()

    def fork(self) -> Self:
        """Return an independent copy."""
        return deepcopy(self)

    def start_of(self, job: str) -> int | None:
        """Move the clock until this job starts; return the time, or None if it never starts."""
        while job in self.queue and self._alarms:
            self._step(self._alarms[0][0])
        return None if job in self.queue else self.now

    # Order and placement.

    def _dispatch(self) -> None:
        claims, blocked, failed = self._claims, set(), set()
        for job, partition in self._in_order():
            wanted = Wanted.of(job)
            if job.job not in self.queue or self._forbidden(job, partition.name):
                continue
            alike = (partition.name, job.gpu_type, *job.task.tolist(), *wanted[1:], job.walltime)
            if alike in failed:
                continue
            allowed = self._nodes_for(partition.name, job.gpu_type)
            counts = self.nodes.fit(self.now, job.walltime, claims, allowed, wanted)
            if counts is not None:
                self._start(job, partition.name, counts)
                continue
            failed.add(alike)  # free resources only shrink in the rest of the loop
            if partition.name in blocked:
                continue
            blocked.add(partition.name)
            first = self.nodes.first(self.now, job.walltime, claims, allowed, wanted)
            if first is not None:
                time, counts = first
                claims = claims.and_also(time, time + job.walltime, self.nodes.use_of(wanted, counts))

    def _in_order(self) -> list[tuple[ClusterJob, Partition]]:
        """Return the queue by tier, priority and submission; a job appears once for each possible partition."""
        priorities = self.priorities()
        places = [
            (-partition.tier, -priorities[job.job], number, job, partition)
            for number, job in enumerate(self.queue.values())
            for partition in self._places[job.job]
        ]
        return [(job, partition) for *_, job, partition in sorted(places, key=lambda place: place[:3])]

    def priorities(self) -> dict[str, float]:
        """Return the present priority of each pending job, in points."""
        fair = {user: self._fair(user) for user in {job.user for job in self.queue.values()}}
        return {name: self._points(job) + fair[job.user] for name, job in self.queue.items()}

    def _points(self, job: ClusterJob) -> float:
        factors = self.cluster.factors
        aged = factors.age * min((self.now - job.submit) / factors.age_s, 1.0)
        tier = factors.qos.get(job.qos, 0.0) if job.qos is not None else 0.0
        return aged + factors.size * self._share(job) + tier

    def _share(self, job: ClusterJob) -> float:
        """Return the largest requested share of a resource of the cluster."""
        return float((job.tasks * job.task / self._whole).max())

    def _fair(self, user: str | None) -> float:
        return self.cluster.factors.fairshare * exp2(-self.used(user) / self.cluster.factors.share)

    def used(self, user: str | None) -> float:
        """Return the decayed mean share of the cluster that a user has held."""
        held = self._users.get(user)
        if held is None:
            return 0.0
        kept = exp2((held.at - self.now) / self.cluster.factors.half_life_s)
        return held.used * kept + held.share * (1.0 - kept)

    def _nodes_for(self, partition: str, gpu_type: str | None) -> Mask:
        """Return a mask of the usable nodes of a partition, with GPUs of the type if one is given."""
        known = self._allowed.get((partition, gpu_type))
        if known is None:
            pools = self._partitions[partition].pools
            fits = [
                pool.name in pools and (gpu_type is None or gpu_type in pool.gpus) for pool in self.cluster.pool_of()
            ]
            known = self._allowed[partition, gpu_type] = np.array(fits, dtype=np.bool_) & self.cluster.usable()
        return known

    def _can_run(self, job: ClusterJob, partition: Partition) -> bool:
        """Return True if the job would start on the empty cluster."""
        rules = (
            (partition.users, job.user), (partition.groups, job.group),
            (partition.accounts, job.account), (partition.qos, job.qos),
        )  # fmt: skip
        if any(names is not None and name not in names for names, name in rules):
            return False
        if partition.max_walltime is not None and job.walltime > partition.max_walltime:
            return False
        if partition.max_nodes is not None and (job.nodes or 1) > partition.max_nodes:
            return False
        if any(_beyond(limit, _needs(job)) for _, limit, _ in self._limits_on(job, partition.name)):
            return False
        allowed = self._nodes_for(partition.name, job.gpu_type)
        empty = Nodes(self.nodes.size)
        wanted = Wanted.of(job)
        return empty.fit(0, job.walltime, Claims.none(len(allowed)), allowed, wanted) is not None

    # Limits.

    def _limits_on(self, job: ClusterJob, partition: str) -> Iterator[tuple[int, Limit, str | None]]:
        """Yield the limits of a job in a partition, each with its index and the owner whose jobs it counts."""
        for number, limit in enumerate(self.cluster.limits):
            whose = None if limit.per == "all" else getattr(job, limit.per)
            if (
                limit.partition in (None, partition)
                and limit.qos in (None, job.qos)
                and (limit.name is None or limit.name == whose)
            ):
                yield number, limit, whose

    def _report_reasons(self) -> None:
        """Report each changed reason of a pending job; the reason is empty if no limit blocks the job."""
        if not self._reports_reasons:
            return
        self._reported = {name: reason for name, reason in self._reported.items() if name in self.queue}
        for name, job in self.queue.items():
            reason = self._reason(job)
            if reason != self._reported.get(name, ""):
                self._reported[name] = reason
                self._events.append(Alter(site=self.site, time=float(self.now), job=name, pending_reason=reason))

    def _reason(self, job: ClusterJob) -> str:
        """Return the reason if limits block a job in all its partitions, else an empty text."""
        words = [self._word(job, partition.name) for partition in self._places[job.job]]
        return words[0] if all(words) else ""

    def _word(self, job: ClusterJob, partition: str) -> str:
        needs = _needs(job)
        for number, limit, whose in self._limits_on(job, partition):
            held = self._limited.get((number, whose))
            if held is not None and _beyond(limit, held + needs):
                what = _exceeded(limit, held + needs)
                if limit.per == "all":
                    return f"QOSGrp{what}"
                return f"QOSMax{what}Per{'User' if limit.per == 'user' else 'Account'}"
        return ""

    def _forbidden(self, job: ClusterJob, partition: str) -> bool:
        """Return True if a limit blocks the job now."""
        needs = _needs(job)
        return any(
            (number, whose) in self._limited and _beyond(limit, self._limited[number, whose] + needs)
            for number, limit, whose in self._limits_on(job, partition)
        )

    # Events.

    def _start(self, job: ClusterJob, partition: str, counts: Ints) -> None:
        use = self.nodes.use_of(Wanted.of(job), counts)
        self.nodes.take(job.job, self.now + job.walltime, use)
        self._leave(job.job)
        self.running[job.job] = job, partition
        self._hold(job, partition, 1)
        self._watch(self.now + job.seconds, ENDS, job.job)
        total = use.sum(axis=0)
        self._events.append(
            Start(
                site=self.site,
                time=float(self.now),
                job=job.job,
                cpus=int(total[CPUS]),
                nodes=int((counts > 0).sum()),
                gpus=int(total[GPUS]),
                partition=partition,
            )
        )

    def _end(self, name: str) -> None:
        job, partition = self.running.pop(name)
        self.nodes.give_back(name)
        self._hold(job, partition, -1)
        state = "timeout" if job.run > job.walltime else "completed"
        self._events.append(End(site=self.site, time=float(self.now), job=name, state=state))

    def _hold(self, job: ClusterJob, partition: str, sign: int) -> None:
        """Add (1) or subtract (-1) the resources of a job for its user and for the limits."""
        held = self._users.get(job.user, _Held())
        self._users[job.user] = _Held(held.share + sign * self._share(job), self.used(job.user), self.now)
        for number, _, whose in self._limits_on(job, partition):
            known = self._limited.get((number, whose), np.zeros(5, dtype=np.int64))
            self._limited[number, whose] = known + sign * _needs(job)

    def _withdraw(self, name: str) -> None:
        if name in self.queue:
            self._leave(name)
            self._events.append(Cancel(site=self.site, time=float(self.now), job=name))

    def _leave(self, name: str) -> None:
        del self.queue[name], self._places[name]

    def _renew_windows(self) -> None:
        """Update the claims to the announced windows that are not over."""
        self._windows = [
            window for window in self.cluster.windows if window.announced <= self.now < window.reservation.end
        ]
        self._claims = Claims.none(len(self.nodes.size))
        for reservation in (window.reservation for window in self._windows):
            use = np.where(self.cluster.reserved(reservation)[:, None], self.nodes.size, 0)
            self._claims = self._claims.and_also(int(reservation.start), int(reservation.end), use)

    # The clock.

    def _watch(self, time: int, kind: int, name: str) -> None:
        heapq.heappush(self._alarms, (time, kind, self._ordinal, name))
        self._ordinal += 1

    def _advance(self, until: int) -> None:
        while self._alarms and self._alarms[0][0] <= until:
            self._step(self._alarms[0][0])
        self.now = max(self.now, until)

    def _step(self, time: int) -> None:
        """Process the alarms of this second, and start jobs."""
        self.now = time
        while self._alarms and self._alarms[0][0] == time:
            _, kind, _, name = heapq.heappop(self._alarms)
            if kind == ENDS:
                self._end(name)
            elif kind == WITHDRAWN:
                self._withdraw(name)
            else:
                self._renew_windows()
                self._events.append(self.capacity())
        self._dispatch()
        self._report_reasons()

    def _take_events(self) -> list[AnyEvent]:
        events, self._events = self._events, []
        return events


def _needs(job: ClusterJob) -> Ints:
    """Return the counted resources of a job: CPUs, GPUs, nodes, bytes of memory, jobs."""
    each = (job.tasks * job.cpus, job.tasks * job.gpus, job.nodes or 1, job.tasks * job.memory, 1)
    return np.array(each, dtype=np.int64)


def _beyond(limit: Limit, held: Ints) -> bool:
    caps = (limit.cpus, limit.gpus, limit.nodes, limit.memory, limit.jobs)
    return any(cap is not None and has > cap for cap, has in zip(caps, held, strict=True))


def _exceeded(limit: Limit, held: Ints) -> str:
    """Return Slurm's name of the first exceeded resource of a limit."""
    caps = (limit.cpus, limit.gpus, limit.nodes, limit.memory, limit.jobs)
    words = ("Cpu", "Gres", "Node", "Memory", "Jobs")
    return next(word for word, cap, has in zip(words, caps, held, strict=True) if cap is not None and has > cap)


def run_cluster(
    jobs: Iterable[ClusterJob], cluster: Cluster, site: str, reports_reasons: bool = False
) -> Iterator[AnyEvent]:
    """Yield the events of the site by time: its capacity at the first submission, then all others.

    Args:
        jobs: in the order of submission.

    Raises:
        ValueError: as `submit`.
    """
    scheduler: ClusterScheduler | None = None
    for job in jobs:
        if scheduler is None:
            scheduler = ClusterScheduler(site, cluster, job.submit, reports_reasons)
            yield scheduler.capacity()
        yield from scheduler.submit(job)
    if scheduler is not None:
        yield from scheduler.finish()
