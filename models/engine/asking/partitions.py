"""Partitions of a site: their current state, and whether a considered job can run in them."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from models.arrays import Floats
from models.engine.engine import Engine
from models.method import SiteContext
from models.records import PartitionState, WaitQuestion
from models.site.areas import Areas
from models.site.job import EXTRAS, NO_LIMIT_S, REQUEST, Extras, Job, Phase
from models.site.table import QUEUED, RUNNING
from models.site.topology import ResourceRequest, Topology, cannot_run
from models.spelling import nearest_name
from models.waits.order.placement import place_running_jobs
from models.waits.order.room_kernels import in_use

MAX_NAMED = 8
"""Maximum number of names of queues or partitions in an answer about an unknown one."""


def considered(question: WaitQuestion, now: float) -> Job:
    """Return the job of a question as if it were submitted now."""
    rare = {name: getattr(question, name) for name in Extras.__struct_fields__ if hasattr(question, name)}
    extras = Extras(**rare)
    request = {name: getattr(question, name) for name in REQUEST}
    if question.unlimited:
        request["walltime"] = NO_LIMIT_S
    return Job("", 0, now, extras=EXTRAS if extras == EXTRAS else extras, **request)


def never_runs_reason(engine: Engine, job: Job) -> str | None:
    """Explain why a job can never run at the site; None if it can, as far as known."""
    named = job.extras.partitions or ()
    if named and all(_is_missing(engine, name) for name in named):
        return f"there is no partition {' or '.join(named)}: {_listed('partition', registered(engine), named)}"
    topology = Topology.of(engine.context.capacity)
    return None if topology is None else cannot_run(topology, job)


def left_out(engine: Engine, job: Job) -> dict[str, str]:
    """Return the requested partitions where a job can never run, with the reasons."""
    topology = Topology.of(engine.context.capacity)
    found: dict[str, str | None] = {}
    for name in job.extras.partitions or ():
        alone = Job("", 0, job.submit, **{**job.request, "extras": job.extras.replaced(partitions=[name])})
        if _is_missing(engine, name):
            found[name] = f"there is no such partition{_suggestion(registered(engine), [name])}"
        elif topology is not None:
            found[name] = cannot_run(topology, alone)
    return {name: reason for name, reason in found.items() if reason is not None}


def unknown_queue(engine: Engine, job: Job) -> str | None:
    """Explain that no partition or queue of the site has the requested name, as far as known; None if one has."""
    partitions = job.extras.partitions or ()
    queues = () if job.queue is None or job.queue in partitions else (job.queue,)
    for kind, named in (("partition", partitions), ("queue", queues)):
        if named and not any(_is_known(engine, name) for name in named):
            return f"unknown {kind} {' or '.join(map(repr, named))}: {_listed(kind, queue_names(engine), named)}"
    return None


def registered(engine: Engine) -> list[str]:
    """Return the names of the partitions that the last capacity event contains."""
    capacity = engine.context.capacity
    return [] if capacity is None else [one.name for one in capacity.partitions]


def queue_names(engine: Engine) -> list[str]:
    """Return the names of the registered partitions, then of other queues to which jobs were submitted."""
    return list(dict.fromkeys([*registered(engine), *sorted(engine.queues.seen)]))


def _is_missing(engine: Engine, name: str) -> bool:
    """Return whether the site registers partitions, but not this one, and no job was submitted to it."""
    return bool(registered(engine)) and not _is_known(engine, name)


def _is_known(engine: Engine, name: str) -> bool:
    """Return whether the site registers this partition, or a job was submitted to it."""
    return name in engine.queues.seen or name in registered(engine)


def _listed(kind: str, names: Sequence[str], named: Sequence[str]) -> str:
    """List the names at the site, and suggest the nearest one to those that a question names."""
    if not names:
        return "no job has named any"
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return f"its {kind}s are {', '.join(names[:MAX_NAMED])}{more}{_suggestion(names, named)}"


def _suggestion(names: Sequence[str], named: Sequence[str]) -> str:
    """Suggest the nearest name to those that a question names, ignoring case; empty if none is near."""
    near = next(filter(None, (nearest_name(name, names) for name in named)), None)
    return f"; did you mean {near!r}?" if near else ""


def partition_states(context: SiteContext, now: float) -> list[PartitionState]:
    """Return the state of each partition at `now` (Unix seconds); empty without a topology. O(live jobs)."""
    areas = context.areas
    if areas is None:
        return []
    topology = areas.topology
    queued: Counter[str] = Counter()
    running: Counter[str] = Counter()
    free: dict[int, tuple[int, int]] = {}
    for number, state in enumerate(areas.states):
        table, phase = state.table, state.table.columns().phase
        wait, run = (table.columns().request[phase == code] for code in (QUEUED, RUNNING))
        for request, jobs in zip(
            table.requests, np.bincount(wait, minlength=len(table.requests)).tolist(), strict=True
        ):
            queued.update(dict.fromkeys(topology.named(request), jobs) if jobs else {})
        requests: list[ResourceRequest] = [table.requests[code] for code in run.tolist()]
        running.update(topology.named(request)[0] for request in requests)
        free |= _free(areas, number, requests, now)
    found = []
    for name, partition in topology.partitions.items():
        places = topology.pools_of(name)
        pools = [topology.pools[place] for place in places]
        free_there = [free.get(place, (0, 0)) for place in places]
        found.append(
            PartitionState(
                name=name,
                up=partition.up,
                queued_jobs=queued[name],
                running_jobs=running[name],
                cpus=sum(pool.nodes * pool.cpus for pool in pools),
                free_cpus=sum(cpus for cpus, _ in free_there),
                gpus=sum(pool.nodes * sum(pool.gpus.values()) for pool in pools),
                free_gpus=sum(gpus for _, gpus in free_there),
            )
        )
    return found


def gpus_of(context: SiteContext) -> tuple[int, int] | None:
    """Return the GPUs of nodes that are not down, and how many of them are free; None if the site reports none.

    O(running jobs).
    """
    topology = Topology.of(context.capacity)
    if topology is None:
        return None
    gpus = sum((pool.nodes - pool.down_nodes) * sum(pool.gpus.values()) for pool in topology.pools)
    if not gpus:
        return None
    running = context.state.in_phase(Phase.RUNNING)
    used = sum(job.gpus if job.progress.gpus is None else job.progress.gpus for job in running)
    return gpus, max(gpus - used, 0)


def _free(areas: Areas, number: int, requests: list[ResourceRequest], now: float) -> dict[int, tuple[int, int]]:
    """Return the free CPUs and GPUs of each pool of an area, by pool index, while jobs with these requests run."""
    layout = areas.layouts[number]
    holds: Floats = layout.timeline(now).holds[0]
    known = {request: code for code, request in enumerate(dict.fromkeys(requests))}
    kinds, kind = (
        [layout.kind(request) for request in known],
        np.array([known[request] for request in requests], np.int64),
    )
    free = holds - in_use(place_running_jobs(layout, None, kinds, kind, np.zeros(len(requests)), holds))
    free_there = np.maximum(np.rint(free[:, :2]), 0.0).astype(int)
    return {
        room.pool: (int(cpus), int(gpus))
        for room, (cpus, gpus) in zip(layout.rooms, free_there, strict=True)
        if room.reservation is None
    }
