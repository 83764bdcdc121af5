"""What a site's partitions mean for a job that is only considered, and how they are now."""

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from models.engine.engine import Engine
from models.method import SiteContext
from models.records import PartitionState, WaitQuestion
from models.site.areas import Areas
from models.site.extras import EXTRAS, Extras
from models.site.state import REQUEST, Job, Phase
from models.site.topology import Ask, Topology, ask_of, cannot_run
from models.waits.order.pooled import occupied


def considered(question: WaitQuestion, now: float) -> Job:
    """The job that a question is about, as if it came now."""
    rare = {name: getattr(question, name) for name in Extras.__struct_fields__ if hasattr(question, name)}
    extras = Extras(**rare)
    request = {name: getattr(question, name) for name in REQUEST}
    return Job("", 0, now, extras=EXTRAS if extras == EXTRAS else extras, **request)


def never(engine: Engine, job: Job) -> str | None:
    """Why a job can never run at the site; None where it can, and where the site has no topology."""
    topology = Topology.of(engine.context.capacity)
    return None if topology is None else cannot_run(topology, job)


def left_out(engine: Engine, job: Job) -> dict[str, str]:
    """Of the partitions that a job names, those where it can never run, and why."""
    topology = Topology.of(engine.context.capacity)
    found: dict[str, str] = {}
    if topology is None:
        return found
    for name in job.extras.partitions or ():
        alone = Job("", 0, job.submit, **{**job.request, "extras": job.extras.but(partitions=[name])})
        reason = cannot_run(topology, alone) if name in topology.partitions else "there is no such partition"
        if reason is not None:
            found[name] = reason
    return found


def partition_states(context: SiteContext, now: float) -> list[PartitionState]:
    """Each partition as it is `now` (Unix seconds); none where the site has no topology. O(live jobs), 5 µs each."""
    areas = context.areas
    if areas is None:
        return []
    topology = areas.topology
    queued: Counter[str] = Counter()
    running: Counter[str] = Counter()
    asks: list[list[Ask]] = [[] for _ in topology.areas]
    for job in context.state.jobs.values():
        if job.phase is Phase.QUEUED:
            queued.update(topology.named(ask_of(job)))
        elif job.phase is Phase.RUNNING:
            ask = ask_of(job, job.progress.partition, job.counted_cpus)
            running[topology.named(ask)[0]] += 1
            asks[areas.area_of(job).number].append(ask)
    free = {pool: room for number in range(len(asks)) for pool, room in _free(areas, number, asks[number], now).items()}
    found = []
    for name, partition in topology.partitions.items():
        places = topology.pools_of(name)
        pools = [topology.pools[place] for place in places]
        left = [free.get(place, (0, 0)) for place in places]
        found.append(
            PartitionState(
                name=name,
                up=partition.up,
                queued_jobs=queued[name],
                running_jobs=running[name],
                cpus=sum(pool.nodes * pool.cpus for pool in pools),
                free_cpus=sum(cpus for cpus, _ in left),
                gpus=sum(pool.nodes * sum(pool.gpus.values()) for pool in pools),
                free_gpus=sum(gpus for _, gpus in left),
            )
        )
    return found


def _free(areas: Areas, number: int, asks: list[Ask], now: float) -> dict[int, tuple[int, int]]:
    """The processors and GPUs that are free in each pool of an area, by its place, if jobs run that ask for these."""
    layout = areas.layouts[number]
    holds: NDArray[np.float64] = layout.timeline(now).holds[0]
    if asks:
        kinds = {ask: code for code, ask in enumerate(dict.fromkeys(asks))}
        demand = np.array([layout.kind(ask).running for ask in kinds])
        codes = np.array([kinds[ask] for ask in asks], np.int64)
        holds = holds - np.asarray(occupied(layout.wholly(), demand, codes, len(asks))).sum(axis=0)
    left = np.maximum(np.rint(holds[:, :2]), 0.0).astype(int)
    return {
        room.pool: (int(cpus), int(gpus))
        for room, (cpus, gpus) in zip(layout.rooms, left, strict=True)
        if room.reservation is None
    }
