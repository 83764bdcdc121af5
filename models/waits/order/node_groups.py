"""An area's rooms and the jobs in them as arrays, for the simulation over rooms."""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from models.arrays import Flags, Floats, Ints
from models.site.job import Job
from models.site.table import LiveTable
from models.site.topology import ResourceRequest, request_of
from models.site.topology.layout import Layout, Nodes, RequestKind
from models.waits.order.order_features import QueuedJobs, RunningJobs
from models.waits.order.placement import distinct, in_parts, place_running_jobs, stacked
from models.waits.order.pooled import Jobs, PoolTimeline, ReportedLimits, may_start, schedule_rooms
from models.waits.order.room_kernels import PlacedJobs
from models.waits.order.schedule import Limits

Counts = dict[tuple[int, str | None], int]
"""Places of the counts of limits: by the limit's number, and the user or account whose jobs are counted together."""


class NodeGroups(NamedTuple):
    """The rooms of an area at a moment, and its live jobs, the running ones first; `requests` are the kinds of them.

    The rooms are those of its layout, or its `nodes`. `tiers` are those of the queued jobs' partitions, `counts` the
    places of the limits that count them.
    """

    layout: Layout
    nodes: Nodes | None
    requests: list[ResourceRequest]
    world: PoolTimeline
    jobs: Jobs
    placed: PlacedJobs
    declared: ReportedLimits
    counts: Counts
    tiers: Ints

    def schedule(self, line: Ints, users: int, limits: Limits, only_job: int, only_now: bool) -> tuple[Floats, bool]:
        """Simulate as `schedule_rooms`; the places of the `line` are among the queued."""
        first = len(self.placed.shares)
        starts_s, cut_short = schedule_rooms(
            self.world, self.jobs, self.placed, first + line, users, limits, self.declared, only_job, only_now
        )
        return starts_s, cut_short

    def repeated(self, line: Ints) -> tuple["NodeGroups", Ints]:
        """Return a copy with a separate job for each place of the line, and these; a place may occur several times."""
        first = len(self.placed.shares)
        which = np.concatenate((np.arange(first), first + line))
        jobs = Jobs._make(column[which] for column in self.jobs)
        return self._replace(jobs=jobs, tiers=self.tiers[line]), np.arange(len(line))

    def contenders(self, started: int) -> Flags:
        """Return the queued jobs of the same partitions that fit, and so could have started instead of this one."""
        group = self.world.group[self.jobs.kind[len(self.placed.shares) :]]
        could = np.asarray(may_start(self.world, self.jobs, self.placed, self.declared))
        return np.asarray(could & (group == group[started]))


def see_rooms(
    layout: Layout,
    nodes: Nodes | None,
    table: LiveTable,
    on: Ints,
    rows: Ints,
    running: RunningJobs,
    queued: QueuedJobs,
    now: float,
) -> NodeGroups:
    """Take a snapshot of the jobs in these rows of an area's table, running and queued; O(live jobs).

    Args:
        nodes: the nodes on which the jobs are placed one by one; None: they are placed in pools.
    """
    columns, live = table.columns(), np.concatenate((on, rows))
    codes, kind = distinct(columns.request[live], len(table.requests))
    requests: list[ResourceRequest] = [table.requests[code] for code in codes.tolist()]
    kinds = [layout.kind(request) for request in requests]
    users, accounts = table.names("user"), table.names("account")
    shape = len(kinds), len(users) + 1, len(accounts) + 1
    people = np.ravel_multi_index((kind, columns.user[live] + 1, columns.account[live] + 1), shape)
    found, which = distinct(people, math.prod(shape))
    alike = np.stack(np.unravel_index(found, shape), axis=1).tolist()
    limited = [layout.limits(requests[k], _name(users, u - 1), _name(accounts, a - 1)) for k, u, a in alike]
    counts: Counts = {}
    counted = _places(limited, counts)[which]
    longest_s = np.array([one.longest_s for one in kinds])[kind]
    run_s = np.concatenate((running.remaining_s, np.minimum(queued.run_s, longest_s[len(on) :])))
    # A job without a walltime is planned with the longest one that its partition allows.
    elapsed_s = np.concatenate((np.maximum(now - columns.start[on], 0.0), np.zeros(len(rows))))
    open_ended = (columns.walltime[live] <= 0.0) & np.isfinite(longest_s)
    planned_s = np.concatenate((running.planned_s, queued.planned_s))
    planned_s = np.maximum(np.where(open_ended, longest_s - elapsed_s, planned_s), run_s)
    jobs = Jobs(
        kind,
        np.concatenate((running.cpus, queued.cpus)),
        run_s,
        planned_s,
        np.concatenate((running.user, queued.user)),
        counted,
    )
    world = _world(layout, nodes, kinds, now)
    taken = place_running_jobs(layout, nodes, kinds, kind, columns.start[on], world.holds[0])
    declared = _declared(layout, kinds, counts, counted[: len(on)], kind[: len(on)])
    tiers = np.array([one.tier for one in kinds], np.int64)[kind[len(on) :]]
    return NodeGroups(layout, nodes, requests, world, jobs, taken, declared, counts, tiers)


def with_queued(rooms: NodeGroups, job: Job, queued: QueuedJobs) -> NodeGroups:
    """Return a copy with one more job, the last of these queued ones; O(live jobs)."""
    layout, nodes, request, counts = rooms.layout, rooms.nodes, request_of(job), dict(rooms.counts)
    requests = rooms.requests if request in rooms.requests else [*rooms.requests, request]
    number, one = requests.index(request), layout.kind(request)
    counted = _places([layout.limits(request, job.user, job.account)], counts)[0]
    wide = max(len(counted), rooms.jobs.counts.shape[1])
    run_s = min(float(queued.run_s[-1]), one.longest_s)
    planned_s = float(queued.planned_s[-1]) if job.walltime or np.isinf(one.longest_s) else one.longest_s
    jobs = Jobs(
        np.append(rooms.jobs.kind, number),
        np.append(rooms.jobs.cpus, queued.cpus[-1]),
        np.append(rooms.jobs.run_s, run_s),
        np.append(rooms.jobs.planned_s, max(planned_s, run_s)),
        np.append(rooms.jobs.user, queued.user[-1]),
        np.concatenate((_wider(rooms.jobs.counts, wide), _wider(counted[None], wide))),
    )
    world, declared = rooms.world, rooms.declared
    if len(requests) > len(rooms.requests):
        groups = [layout.kind(known).partitions for known in requests]
        world = world._replace(
            demand=np.concatenate((world.demand, stacked(layout, nodes, [one.demand]))),
            parts=np.concatenate((world.parts, in_parts(layout, nodes, [one]))),
            group=np.append(world.group, _group(groups)),
        )
        declared = declared._replace(take=np.concatenate((declared.take, one.counted[None])))
    if len(counts) > len(rooms.counts):
        most = _count_limits(layout, counts)
        held = np.zeros(most.shape)
        held[: len(declared.held)] = declared.held
        declared = declared._replace(most=most, held=held)
    tiers = np.append(rooms.tiers, one.tier)
    return rooms._replace(requests=requests, world=world, jobs=jobs, declared=declared, counts=counts, tiers=tiers)


def _name(names: Sequence[str], code: int) -> str | None:
    return names[code] if code >= 0 else None


def _places(limited: Sequence[Iterable[tuple[int, str | None]]], counts: Counts) -> Ints:
    """Return the places of each job's limits in the counts, (jobs, limits of one), padded with -1; extends `counts`."""
    rows = [[counts.setdefault(one, len(counts)) for one in found] for found in limited]
    places = np.full((len(rows), max(map(len, rows), default=0)), -1, np.int64)
    for row, found in zip(places, rows, strict=True):
        row[: len(found)] = found
    return places


def _wider(counts: Ints, wide: int) -> Ints:
    return np.pad(counts, ((0, 0), (0, wide - counts.shape[1])), constant_values=-1)


def _group(partitions: Sequence[tuple[str, ...]]) -> int:
    """Return the group of the last one's partitions: the place of the first with the same partitions."""
    return partitions.index(partitions[-1])


def _world(layout: Layout, nodes: Nodes | None, kinds: Sequence[RequestKind], now: float) -> PoolTimeline:
    groups = [one.partitions for one in kinds]
    numbers = np.array([groups.index(partitions) for partitions in groups], np.int64)
    begins, holds = layout.timeline(now, by_node=nodes is not None)
    demand = stacked(layout, nodes, [one.demand for one in kinds])
    return PoolTimeline(begins, holds, demand, in_parts(layout, nodes, kinds), numbers)


def _count_limits(layout: Layout, counts: Counts) -> Floats:
    """Return the maximum of each count, (counts, 5)."""
    found = np.full((len(counts), 5), np.inf)
    for (number, _), place in counts.items():
        limit = layout.topology.limits[number]
        amounts = (limit.cpus, limit.gpus, limit.nodes, limit.memory, limit.jobs)
        found[place] = [np.inf if most is None else most for most in amounts]
    return found


def _declared(
    layout: Layout, kinds: Sequence[RequestKind], counts: Counts, counted: Ints, kind: Ints
) -> ReportedLimits:
    """Return the limits, and the running jobs' usage of them."""
    take = np.array([one.counted for one in kinds], np.float64).reshape(-1, 5)
    held = np.zeros((len(counts), 5))
    for column in counted.T:
        counts_here = column >= 0
        np.add.at(held, column[counts_here], take[kind[counts_here]])
    return ReportedLimits(_count_limits(layout, counts), held, take)
