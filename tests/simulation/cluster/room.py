"""Find nodes and start times for jobs. Arrays of nodes are (nodes, 3): CPUs, GPUs, bytes of memory."""

from typing import NamedTuple

import numpy as np
from numba import njit

from models.arrays import Ints
from tests.simulation.cluster.machine import ClusterJob, Mask


class Claims(NamedTuple):
    """Reserved resources `uses`, (claims, nodes, 3), each from `begins` to `ends` (Unix seconds)."""

    begins: Ints
    ends: Ints
    uses: Ints

    @classmethod
    def none(cls, nodes: int) -> "Claims":
        """Return no claims."""
        return cls(*(np.zeros(shape, dtype=np.int64) for shape in ((0,), (0,), (0, nodes, 3))))

    def and_also(self, begin: int, end: int, use: Ints) -> "Claims":
        """Add a claim of (nodes, 3)."""
        return Claims(np.append(self.begins, begin), np.append(self.ends, end), np.concatenate([self.uses, use[None]]))


@njit(cache=True)
def room_for(
    begin: int, end: int, free: Ints, releases: Ints, where: Ints, uses: Ints, begins: Ints, ends: Ints, claims: Ints
) -> Ints:
    """Return the minimum of free resources on each node from `begin` to `end`, (nodes, 3).

    Free resources shrink only when claims begin, so only `begin` and these times are inspected. Each part of a running
    job on a node has its planned end in `releases`, its node in `where` and its resources in `uses` (parts, 3).
    O(claims · (parts + claims · nodes)).
    """
    least = np.empty_like(free)
    first = True
    for look in range(-1, len(begins)):
        time = begin if look < 0 else begins[look]
        if look >= 0 and not begin < time < end:
            continue
        there = free.copy()
        for part in range(len(releases)):
            if releases[part] <= time:
                there[where[part]] += uses[part]
        for claim in range(len(begins)):
            if begins[claim] <= time < ends[claim]:
                there -= claims[claim]
        least = there if first else np.minimum(least, there)
        first = False
    return least


@njit(cache=True)
def placed(room: Ints, size: Ints, allowed: Mask, task: Ints, tasks: int, spread: bool, exclusive: bool) -> Ints:
    """Return the number of tasks on each node, (nodes,); the sum is less than `tasks` if they do not fit.

    If all tasks fit on one node, the fullest such node gets them; else the emptiest nodes are filled first. O(nodes ·
    log nodes).
    """
    nodes = len(room)
    holds = np.zeros(nodes, dtype=np.int64)
    for node in range(nodes):
        if not allowed[node]:
            continue
        if exclusive:
            holds[node] = 1 if np.all(room[node] >= size[node]) and np.all(size[node] >= task) else 0
            continue
        most = 1 if spread else tasks
        for kind in range(3):
            if task[kind] > 0:
                most = min(most, room[node, kind] // task[kind])
        holds[node] = max(most, 0)
    counts = np.zeros(nodes, dtype=np.int64)
    best = -1
    for node in range(nodes):
        if holds[node] >= tasks and (best < 0 or room[node, 0] < room[best, 0]):
            best = node
    if best >= 0:
        counts[best] = tasks
        return counts
    left = tasks
    for node in np.argsort(-holds, kind="mergesort"):
        counts[node] = min(holds[node], left)
        left -= counts[node]
        if left == 0:
            break
    return counts


@njit(cache=True)
def earliest(
    times: Ints,
    seconds: int,
    free: Ints,
    releases: Ints,
    where: Ints,
    uses: Ints,
    begins: Ints,
    ends: Ints,
    claims: Ints,
    size: Ints,
    allowed: Mask,
    task: Ints,
    tasks: int,
    spread: bool,
    exclusive: bool,
) -> tuple[int, Ints]:
    """Return the first of `times` (ascending) at which the tasks fit for `seconds`, and their nodes; -1 for none."""
    for time in times:
        room = room_for(time, time + seconds, free, releases, where, uses, begins, ends, claims)
        counts = placed(room, size, allowed, task, tasks, spread, exclusive)
        if counts.sum() == tasks:
            return time, counts
    return -1, np.zeros(len(free), dtype=np.int64)


class Wanted(NamedTuple):
    """Requested tasks: resources of a task, number of tasks, and True for separate nodes and for whole nodes."""

    task: Ints
    tasks: int
    spread: bool
    exclusive: bool

    @classmethod
    def of(cls, job: ClusterJob) -> "Wanted":
        """Return the request of a job."""
        return cls(job.task, job.tasks, job.spread, job.exclusive)


class Nodes:
    """The nodes, and the jobs on them with their planned ends.

    Parameters:
        size: resources of each node, (nodes, 3).
    """

    def __init__(self, size: Ints) -> None:
        self.size = size
        self.free = size.copy()
        self._parts: dict[str, tuple[int, Ints, Ints]] = {}  # by job: planned end, nodes, resources there
        self._stale = True
        self._releases = self._where = np.zeros(0, dtype=np.int64)
        self._uses = np.zeros((0, 3), dtype=np.int64)

    def take(self, job: str, until: int, use: Ints) -> None:
        """Allocate resources (nodes, 3) to a job until its planned end."""
        nodes = np.flatnonzero(use.any(axis=1))
        self._parts[job] = until, nodes, use[nodes]
        self.free -= use
        self._stale = True

    def give_back(self, job: str) -> None:
        """Release the resources of a job."""
        _, nodes, uses = self._parts.pop(job)
        self.free[nodes] += uses
        self._stale = True

    def fit(self, now: int, seconds: int, claims: Claims, allowed: Mask, wanted: Wanted) -> Ints | None:
        """Return the tasks per node for a start now, as in `placed`; None if they do not fit beside the claims."""
        room = room_for(now, now + seconds, self.free, *self._planned(), *claims)
        counts: Ints = placed(room, self.size, allowed, *wanted)
        return counts if counts.sum() == wanted.tasks else None

    def first(self, now: int, seconds: int, claims: Claims, allowed: Mask, wanted: Wanted) -> tuple[int, Ints] | None:
        """Return the earliest start and the tasks per node if all jobs run for their walltimes; None for never."""
        releases, where, uses = self._planned()
        times = np.unique(np.concatenate([[now], releases, claims.ends]))
        times = times[times >= now]
        time, counts = earliest(times, seconds, self.free, releases, where, uses, *claims, self.size, allowed, *wanted)
        return None if time < 0 else (int(time), counts)

    def use_of(self, wanted: Wanted, counts: Ints) -> Ints:
        """Return the resources used by these tasks on each node, (nodes, 3)."""
        if wanted.exclusive:
            return np.where(counts[:, None] > 0, self.size, 0)
        return counts[:, None] * wanted.task

    def _planned(self) -> tuple[Ints, Ints, Ints]:
        if self._stale:
            parts = list(self._parts.values())
            lengths = [len(nodes) for _, nodes, _ in parts]
            self._releases = np.repeat(np.array([until for until, _, _ in parts], dtype=np.int64), lengths)
            self._where = np.concatenate([np.zeros(0, dtype=np.int64), *(nodes for _, nodes, _ in parts)])
            self._uses = np.concatenate([np.zeros((0, 3), dtype=np.int64), *(uses for _, _, uses in parts)])
            self._stale = False
        return self._releases, self._where, self._uses
