"""A job as sacct and slurmdbd tell it."""

import msgspec

from streams.sources.slurm.json_jobs.told import told_of
from streams.sources.slurm.rows import (
    MIB,
    NO_RESOURCES,
    QUEUED,
    JobRow,
    Resources,
    array_of,
    count_of,
    identity_of,
    name_of,
    never_ran,
    queues_of,
    resources_from,
    time_of,
)
from streams.sources.slurm.shapes import Number, Words, is_infinite, limit_of, number_of, restarts_of


class _Array(msgspec.Struct, gc=False):
    job_id: Number = None
    task_id: Number = None
    task: str | None = None


class _Times(msgspec.Struct, gc=False):
    submission: Number = None
    eligible: Number = None
    start: Number = None
    end: Number = None
    elapsed: Number = None
    limit: Number = None


class _State(msgspec.Struct, gc=False):
    current: Words = None
    reason: str | None = None


class Tres(msgspec.Struct, gc=False):
    """So many of a trackable resource."""

    type: str = ""
    name: str | None = None
    count: float | None = None


class _JobTres(msgspec.Struct, gc=False):
    requested: list[Tres] | None = None
    allocated: list[Tres] | None = None


class _Het(msgspec.Struct, gc=False):
    job_id: Number = None


class _Required(msgspec.Struct, gc=False):
    cpus: Number = msgspec.field(name="CPUs", default=None)


class _Reservation(msgspec.Struct, gc=False):
    name: str | int | None = None


class AccountingJob(msgspec.Struct, gc=False):
    """What is taken of a job as sacct and slurmdbd tell it."""

    job_id: Number
    time: _Times
    state: _State
    array: _Array | None = None
    tres: _JobTres | None = None
    het: _Het | None = None
    required: _Required | None = None
    reservation: _Reservation | None = None
    restart_cnt: Number = None
    cluster: str | None = None
    user: str | None = None
    group: str | None = None
    account: str | None = None
    partition: str | None = None
    qos: str | None = None
    name: str | None = None
    nodes: str | None = None
    allocation_nodes: Number = None
    priority: Number = None
    hold: bool | None = None


def row_of_accounting(job: AccountingJob) -> JobRow | str:
    """The row of a job as sacct and slurmdbd tell it; the name of the field that is wrong."""
    told = told_of(job.job_id, job.state.current, job.time.submission, job.time.end)
    if isinstance(told, str):
        return told
    number, phase, state, submitted, ended = told
    started = time_of(number_of(job.time.start))
    asked = resources_of_list(job.tres.requested if job.tres else None)
    got = resources_of_list(job.tres.allocated if job.tres else None)
    if phase == QUEUED or (started == ended and never_ran(state, job.nodes, got.cpus)):
        started = None
    reason = job.state.reason or ""
    array = job.array or _Array()
    identity, parent, size = identity_of(
        number, count_of(number_of(array.job_id)), number_of(array.task_id), array.task
    )
    het = count_of(number_of(job.het.job_id)) if job.het else None
    required = count_of(number_of(job.required.cpus)) if job.required else None
    allocated = count_of(number_of(job.allocation_nodes)) if started is not None else None
    queue, partitions = queues_of(job.partition)
    reservation = job.reservation.name if job.reservation else None
    return JobRow(
        job=identity,
        phase=phase,
        state=state,
        submit=submitted,
        eligible=time_of(number_of(job.time.eligible)),
        start=started,
        end=ended,
        restarts=restarts_of(job.restart_cnt),
        cluster=name_of(job.cluster),
        user=name_of(job.user),
        group=name_of(job.group),
        account=name_of(job.account),
        queue=queue,
        partitions=partitions,
        partition=queue if started is not None else None,
        qos=name_of(job.qos),
        name=name_of(job.name),
        cpus=asked.cpus or required,
        nodes=asked.nodes if (asked.nodes or 0) > 1 else allocated or asked.nodes,
        gpus=asked.gpus,
        gpu_types=asked.gpu_types,
        memory=asked.memory,
        walltime=limit_of(job.time.limit),
        unlimited=is_infinite(job.time.limit),
        reservation=name_of(reservation) if isinstance(reservation, str) else None,
        licences=asked.licences,
        array=parent,
        array_size=size,
        array_limit=array_of(array.task or "")[1] if size else None,
        het_group=None if het is None else str(het),
        priority=number_of(job.priority) if phase == QUEUED else None,
        reason=name_of(reason) if phase == QUEUED else None,
        held=phase == QUEUED and (reason.startswith("JobHeld") or bool(job.hold)),
        started_cpus=got.cpus if started is not None else None,
        started_nodes=(got.nodes or allocated) if started is not None else None,
        started_gpus=_started_gpus(asked, got) if started is not None else None,
    )


def _started_gpus(asked: Resources, got: Resources) -> int | None:
    """GPUs that it had; None where it asked for some and the site does not track them."""
    return got.gpus or (0 if got.cpus and not asked.gpus else None)


def resources_of_list(listed: list[Tres] | None) -> Resources:
    """Resources from a list of accounting's JSON; memory is in MiB there."""
    if not listed:
        return NO_RESOURCES
    counts: dict[str, float] = {}
    memory = 0.0
    for resource in listed:
        if resource.type == "mem":
            memory = resource.count or 0.0
        elif resource.count is not None:
            counts[f"{resource.type}/{resource.name}" if resource.name else resource.type] = resource.count
    return resources_from(counts, int(memory) * MIB if 0 < memory < 1 << 40 else None)
