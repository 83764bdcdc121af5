"""Where on the nodes a job has room, and when. Arrays of nodes are (nodes, 3): CPUs, GPUs, bytes of memory."""

from typing import NamedTuple

import numpy as np
from numba import njit

from models.arrays import Ints
from tests.simulation.cluster.machine import ClusterJob, Mask


class Claims(NamedTuple):
    """What is set aside from `begins` to `ends` (Unix seconds, one a claim): `uses`, (claims, nodes, 3)."""

    begins: Ints
    ends: Ints
    uses: Ints

    @classmethod
    def none(cls, nodes: int) -> "Claims":
        """Nothing is set aside."""
        return cls(*(np.zeros(shape, dtype=np.int64) for shape in ((0,), (0,), (0, nodes, 3))))

    def and_also(self, begin: int, end: int, use: Ints) -> "Claims":
        """One more, of (nodes, 3)."""
        return Claims(np.append(self.begins, begin), np.append(self.ends, end), np.concatenate([self.uses, use[None]]))


@njit(cache=True)
def room_for(
    begin: int, end: int, free: Ints, releases: Ints, where: Ints, uses: Ints, begins: Ints, ends: Ints, claims: Ints
) -> Ints:
    """The least that is free on each node at any time from `begin` to `end`, (nodes, 3).

    What is free only grows but for claims, so it is enough to look at `begin` and where claims begin.
    `releases` says until when the running jobs' parts are planned to run, `where` on which node, `uses` (parts, 3) with
    what. O(claims · (parts + claims · nodes)).
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
    """How many tasks each node gets, (nodes,); the sum is less than `tasks` where they have no room.

    All go to one node where they fit there, the fullest such; else the emptiest nodes are filled first. O(nodes ·
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
    """The first of `times` (ascending) at which tasks have room for so many seconds, and where; -1 for none."""
    for time in times:
        room = room_for(time, time + seconds, free, releases, where, uses, begins, ends, claims)
        counts = placed(room, size, allowed, task, tasks, spread, exclusive)
        if counts.sum() == tasks:
            return time, counts
    return -1, np.zeros(len(free), dtype=np.int64)


class Wanted(NamedTuple):
    """Tasks that need room: what one needs, how many, whether each on a node of its own, and whether whole nodes."""

    task: Ints
    tasks: int
    spread: bool
    exclusive: bool

    @classmethod
    def of(cls, job: ClusterJob) -> "Wanted":
        """Those of a job."""
        return cls(job.task, job.tasks, job.spread, job.exclusive)


class Nodes:
    """The nodes, and what runs on them until when, by plan.

    Parameters:
        size: what each node has, (nodes, 3).
    """

    def __init__(self, size: Ints) -> None:
        self.size = size
        self.free = size.copy()
        self._parts: dict[str, tuple[int, Ints, Ints]] = {}  # by job: planned end, nodes, what it has there
        self._stale = True
        self._releases = self._where = np.zeros(0, dtype=np.int64)
        self._uses = np.zeros((0, 3), dtype=np.int64)

    def take(self, job: str, until: int, use: Ints) -> None:
        """A job gets its part of the nodes, (nodes, 3), until a time by plan."""
        nodes = np.flatnonzero(use.any(axis=1))
        self._parts[job] = until, nodes, use[nodes]
        self.free -= use
        self._stale = True

    def give_back(self, job: str) -> None:
        """A job gives back what it has."""
        _, nodes, uses = self._parts.pop(job)
        self.free[nodes] += uses
        self._stale = True

    def fit(self, now: int, seconds: int, claims: Claims, allowed: Mask, wanted: Wanted) -> Ints | None:
        """Where tasks could start now, as in `placed`; None where they have no room for so long beside the claims."""
        room = room_for(now, now + seconds, self.free, *self._planned(), *claims)
        counts: Ints = placed(room, self.size, allowed, *wanted)
        return counts if counts.sum() == wanted.tasks else None

    def first(self, now: int, seconds: int, claims: Claims, allowed: Mask, wanted: Wanted) -> tuple[int, Ints] | None:
        """When tasks can start at the latest, if jobs run for their walltimes, and where; None for never."""
        releases, where, uses = self._planned()
        times = np.unique(np.concatenate([[now], releases, claims.ends]))
        times = times[times >= now]
        time, counts = earliest(times, seconds, self.free, releases, where, uses, *claims, self.size, allowed, *wanted)
        return None if time < 0 else (int(time), counts)

    def use_of(self, wanted: Wanted, counts: Ints) -> Ints:
        """What so many tasks take of each node, (nodes, 3)."""
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
