"""A scheduler over nodes: partitions of several tiers, multifactor priority, limits, backfilling, maintenance windows.

After Slurm's `select/cons_tres`, `priority/multifactor` and `sched/backfill`. It is stepped from outside as the other
simulated schedulers are: `submit` a job at its time, `advance` the clock, `finish` what is left; each gives the events
that happened. Within one second they come as: ends, withdrawals, what is announced, the starts that these allow; then
each submission followed by the starts that it allows.
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
"""What an alarm is for, in the order in which those of one second are taken."""


class _Held(NamedTuple):
    """The share of the cluster that a user holds since `at`, and has held in the mean up to there."""

    share: float = 0.0
    used: float = 0.0
    at: int = 0


class ClusterScheduler:
    """The queue and the nodes of a cluster.

    Whenever something has changed, the queue is gone through by tier, then priority, once for each partition that a job
    may start in. A job that a limit forbids is passed over. The first other one of each partition that has no room gets
    a reservation: the nodes on which it can start first, by the walltimes of those that run. Every later job may start
    that leaves these alone (EASY backfilling, by partition). Nothing starts on a node that would run into a window that
    is announced. O(queue · (nodes + running)) each time, in compiled code.

    Parameters:
        site: its name, for the events.
        start_time: when the clock begins, in whole Unix seconds, as all times here.
        tells_reasons: whether it tells of jobs that wait for a limit, in Slurm's words, and when they do no more.
    """

    def __init__(self, site: str, cluster: Cluster, start_time: int = 0, reports_reasons: bool = False) -> None:
        self.site = site
        self.cluster = cluster
        self.now = start_time
        self.queue: dict[str, ClusterJob] = {}
        self.running: dict[str, tuple[ClusterJob, str]] = {}
        """The running jobs by name, each with its partition."""
        self.nodes = Nodes(cluster.sizes())
        self._partitions = {partition.name: partition for partition in cluster.partitions}
        self._allowed: dict[tuple[str, str | None], Mask] = {}
        self._whole = np.maximum(self.nodes.size.sum(axis=0), 1)
        self._windows: list[Window] = []
        self._claims = Claims.none(len(self.nodes.size))
        self._renew_windows()
        self._places: dict[str, list[Partition]] = {}  # of queued jobs: the partitions where they can run
        self._users: dict[str | None, _Held] = {}
        self._limited: dict[tuple[int, str | None], Ints] = {}  # by limit and whose: what running jobs of theirs hold
        self._alarms: list[tuple[int, int, int, str]] = []
        self._ordinal = 0  # of the alarms: a count, which can be copied
        self._reports_reasons = reports_reasons
        self._reported: dict[str, str] = {}  # of queued jobs: the limit that was told last
        self._events: list[AnyEvent] = []
        for window in cluster.windows:
            for time in (window.announced, int(window.reservation.end)):
                if time > start_time:
                    self._watch(time, WINDOW, window.reservation.name)

    def capacity(self) -> Capacity:
        """The event that tells what the cluster is, as of now."""
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
        """Advance to the job's submission and queue it; all that happened up to there.

        Raises ValueError for a job that was to be submitted in the past, or can run in none of its partitions.
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
        """Move the clock, and give what happened up to and including that second."""
        self._advance(until)
        return self._take_events()

    def finish(self) -> list[AnyEvent]:
        """Move the clock to when nothing is left to happen, and give what happened."""
        while self._alarms:
            self._step(self._alarms[0][0])
        return self._take_events()

    def fork(self) -> Self:
        """A copy that goes its own way: what happens in it changes nothing here."""
        return deepcopy(self)

    def start_of(self, job: str) -> int | None:
        """Move the clock until this job starts; when that is, or None where it never does."""
        while job in self.queue and self._alarms:
            self._step(self._alarms[0][0])
        return None if job in self.queue else self.now

    # Which job may start where.

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
            failed.add(alike)  # what is free only shrinks from here on
            if partition.name in blocked:
                continue
            blocked.add(partition.name)
            first = self.nodes.first(self.now, job.walltime, claims, allowed, wanted)
            if first is not None:
                time, counts = first
                claims = claims.and_also(time, time + job.walltime, self.nodes.use_of(wanted, counts))

    def _in_order(self) -> list[tuple[ClusterJob, Partition]]:
        """The queue by tier, then priority, then submission; a job once for each partition where it can run."""
        priorities = self.priorities()
        places = [
            (-partition.tier, -priorities[job.job], number, job, partition)
            for number, job in enumerate(self.queue.values())
            for partition in self._places[job.job]
        ]
        return [(job, partition) for *_, job, partition in sorted(places, key=lambda place: place[:3])]

    def priorities(self) -> dict[str, float]:
        """The priority of each job that waits, now, in points."""
        fair = {user: self._fair(user) for user in {job.user for job in self.queue.values()}}
        return {name: self._points(job) + fair[job.user] for name, job in self.queue.items()}

    def _points(self, job: ClusterJob) -> float:
        factors = self.cluster.factors
        aged = factors.age * min((self.now - job.submit) / factors.age_s, 1.0)
        tier = factors.qos.get(job.qos, 0.0) if job.qos is not None else 0.0
        return aged + factors.size * self._share(job) + tier

    def _share(self, job: ClusterJob) -> float:
        """The largest share that it asks for of any resource of the cluster."""
        return float((job.tasks * job.task / self._whole).max())

    def _fair(self, user: str | None) -> float:
        return self.cluster.factors.fairshare * exp2(-self.used(user) / self.cluster.factors.share)

    def used(self, user: str | None) -> float:
        """The share of the cluster that a user has held, in the mean that fades."""
        held = self._users.get(user)
        if held is None:
            return 0.0
        kept = exp2((held.at - self.now) / self.cluster.factors.half_life_s)
        return held.used * kept + held.share * (1.0 - kept)

    def _nodes_for(self, partition: str, gpu_type: str | None) -> Mask:
        """The nodes of a partition that may be used and have GPUs of a type, where one is named."""
        known = self._allowed.get((partition, gpu_type))
        if known is None:
            pools = self._partitions[partition].pools
            fits = [
                pool.name in pools and (gpu_type is None or gpu_type in pool.gpus) for pool in self.cluster.pool_of()
            ]
            known = self._allowed[partition, gpu_type] = np.array(fits, dtype=np.bool_) & self.cluster.usable()
        return known

    def _can_run(self, job: ClusterJob, partition: Partition) -> bool:
        """Whether it would start there if nothing else ran and no limit counted what others hold."""
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
        """The limits that hold for a job in a partition, and whose jobs each counts together with it."""
        for number, limit in enumerate(self.cluster.limits):
            whose = None if limit.per == "all" else getattr(job, limit.per)
            if (
                limit.partition in (None, partition)
                and limit.qos in (None, job.qos)
                and (limit.name is None or limit.name == whose)
            ):
                yield number, limit, whose

    def _report_reasons(self) -> None:
        """Tell of each queued job whose reason has changed which limit keeps it back, or that none does."""
        if not self._reports_reasons:
            return
        self._reported = {name: reason for name, reason in self._reported.items() if name in self.queue}
        for name, job in self.queue.items():
            reason = self._reason(job)
            if reason != self._reported.get(name, ""):
                self._reported[name] = reason
                self._events.append(Alter(site=self.site, time=float(self.now), job=name, pending_reason=reason))

    def _reason(self, job: ClusterJob) -> str:
        """The word for the limit that keeps a job from starting anywhere; empty where none does."""
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
        """Whether a limit keeps it from starting now."""
        needs = _needs(job)
        return any(
            (number, whose) in self._limited and _beyond(limit, self._limited[number, whose] + needs)
            for number, limit, whose in self._limits_on(job, partition)
        )

    # What happens.

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
        """What a job has counts for its user and for the limits (1), or does no more (-1)."""
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
        """Go by the windows that are announced and not over."""
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
        """Take all that happens in this second, and start the jobs that it makes room for."""
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
    """What of limits it takes: CPUs, GPUs, nodes, bytes of memory, jobs."""
    each = (job.tasks * job.cpus, job.tasks * job.gpus, job.nodes or 1, job.tasks * job.memory, 1)
    return np.array(each, dtype=np.int64)


def _beyond(limit: Limit, held: Ints) -> bool:
    caps = (limit.cpus, limit.gpus, limit.nodes, limit.memory, limit.jobs)
    return any(cap is not None and has > cap for cap, has in zip(caps, held, strict=True))


def _exceeded(limit: Limit, held: Ints) -> str:
    """Slurm's word for the first of what a limit counts of which this is too much."""
    caps = (limit.cpus, limit.gpus, limit.nodes, limit.memory, limit.jobs)
    words = ("Cpu", "Gres", "Node", "Memory", "Jobs")
    return next(word for word, cap, has in zip(words, caps, held, strict=True) if cap is not None and has > cap)


def run_cluster(
    jobs: Iterable[ClusterJob], cluster: Cluster, site: str, reports_reasons: bool = False
) -> Iterator[AnyEvent]:
    """The site's events in the order of time: its capacity at the first submission, then all others.

    `jobs` come in the order of submission. Raises ValueError as `submit` does.
    """
    scheduler: ClusterScheduler | None = None
    for job in jobs:
        if scheduler is None:
            scheduler = ClusterScheduler(site, cluster, job.submit, reports_reasons)
            yield scheduler.capacity()
        yield from scheduler.submit(job)
    if scheduler is not None:
        yield from scheduler.finish()
