"""A job as squeue and slurmrestd tell it."""

import msgspec

from streams.sources.slurm.json_jobs.told import told_of
from streams.sources.slurm.rows import (
    ENDED,
    MIB,
    NO_RESOURCES,
    QUEUED,
    REQUEUED,
    RUNNING,
    SUSPENDED,
    JobRow,
    Resources,
    count_of,
    gres_of,
    identity_of,
    name_of,
    never_ran,
    queues_of,
    resources_of,
    time_of,
)
from streams.sources.slurm.shapes import Number, Words, is_infinite, limit_of, number_of, restarts_of, words_of


class QueueJob(msgspec.Struct, gc=False):
    """What is taken of a job as squeue and slurmrestd tell it."""

    job_id: Number
    job_state: Words
    submit_time: Number = None
    eligible_time: Number = None
    start_time: Number = None
    end_time: Number = None
    suspend_time: Number = None
    time_limit: Number = None
    restart_cnt: Number = None
    array_job_id: Number = None
    array_task_id: Number = None
    array_max_tasks: Number = None
    array_task_string: str | None = None
    het_job_id: Number = None
    cluster: str | None = None
    user_name: str | None = None
    user_id: Number = None
    group_name: str | None = None
    account: str | None = None
    partition: str | None = None
    qos: str | None = None
    name: str | None = None
    cpus: Number = None
    node_count: Number = None
    tasks: Number = None
    memory_per_node: Number = None
    memory_per_cpu: Number = None
    tres_req_str: str | None = None
    tres_alloc_str: str | None = None
    tres_per_node: str | None = None
    tres_per_job: str | None = None
    tres_per_task: str | None = None
    tres_per_socket: str | None = None
    sockets_per_node: Number = None
    gres_detail: list[str] | None = None
    nodes: str | None = None
    shared: Words = None
    exclusive: list[str] | bool | str | None = None
    licenses: str | None = None
    resv_name: str | None = None
    dependency: str | None = None
    priority: Number = None
    hold: bool | None = None
    state_reason: str | None = None


def row_of_queue(job: QueueJob) -> JobRow | str:
    """The row of a job as squeue and slurmrestd tell it; the name of the field that is wrong."""
    told = told_of(job.job_id, job.job_state, job.submit_time, job.end_time)
    if isinstance(told, str):
        return told
    number, phase, state, submitted, ended = told
    started = time_of(number_of(job.start_time))
    asked = resources_of(job.tres_req_str) if job.tres_req_str else NO_RESOURCES
    got = resources_of(job.tres_alloc_str) if job.tres_alloc_str else NO_RESOURCES
    ran = phase in (RUNNING, SUSPENDED, REQUEUED) or (
        phase == ENDED and started is not None and (started != ended or not never_ran(state, job.nodes, got.cpus))
    )
    reason = job.state_reason or ""
    cpus, nodes = asked.cpus or count_of(number_of(job.cpus)), count_of(number_of(job.node_count))
    tasks = count_of(number_of(job.tasks))
    gpus, gpu_types = _gpus(job, asked, nodes or 1, tasks or 1)
    unlimited = is_infinite(job.time_limit)
    queue, partitions = queues_of(job.partition)
    identity, array, size = identity_of(
        number, count_of(number_of(job.array_job_id)), number_of(job.array_task_id), job.array_task_string
    )
    if phase == QUEUED and array == str(number):  # the last task of an array is what is left of its row
        identity, array, size = array, None, 1
    het = count_of(number_of(job.het_job_id))
    return JobRow(
        job=identity,
        phase=phase,
        state=state,
        submit=submitted,
        eligible=time_of(number_of(job.eligible_time)),
        start=started if ran else None,
        end=ended,
        expected=started if phase == QUEUED and reason != "BeginTime" else None,
        still_since=time_of(number_of(job.suspend_time)),
        restarts=restarts_of(job.restart_cnt),
        cluster=name_of(job.cluster),
        user=name_of(job.user_name) or (f"{int(uid)}" if (uid := number_of(job.user_id)) is not None else None),
        group=name_of(job.group_name),
        account=name_of(job.account),
        queue=queue,
        partitions=partitions,
        partition=queue if ran else None,
        qos=name_of(job.qos),
        name=name_of(job.name),
        cpus=cpus,
        nodes=nodes,
        tasks=tasks,
        gpus=gpus,
        gpu_types=gpu_types,
        memory=asked.memory or _memory(job, cpus or 1, nodes or 1),
        walltime=limit_of(job.time_limit),
        unlimited=unlimited,
        exclusive=_exclusive(job),
        reservation=name_of(job.resv_name),
        licences=_licences(job.licenses) or asked.licences,
        dependency=name_of(job.dependency, 1024) if phase == QUEUED else None,
        array=array,
        array_size=size,
        array_limit=count_of(number_of(job.array_max_tasks)) if size else None,
        het_group=None if het is None else str(het),
        priority=(number_of(job.priority) or None) if phase == QUEUED else None,
        reason=name_of(reason) if phase == QUEUED else None,
        held=phase == QUEUED and (reason.startswith("JobHeld") or bool(job.hold)),
        started_cpus=(got.cpus or count_of(number_of(job.cpus))) if ran else None,
        started_nodes=(got.nodes or nodes) if ran else None,
        started_gpus=_started_gpus(job, got, gpus) if ran else None,
    )


def _gpus(job: QueueJob, asked: Resources, nodes: int, tasks: int) -> tuple[int, dict[str, int] | None]:
    """GPUs of the whole job and their types: of the TRES, or where the site does not track them, as the job asked."""
    if asked.gpus:
        return asked.gpus, asked.gpu_types
    sockets = nodes * (count_of(number_of(job.sockets_per_node)) or 1)
    each = (job.tres_per_job, 1), (job.tres_per_node, nodes), (job.tres_per_task, tasks), (job.tres_per_socket, sockets)
    for text, times in each:
        if text and "gpu" in text and (found := gres_of(text)):
            types = {kind: min(count * times, 1_000_000_000) for kind, count in found.items() if kind}
            return min(sum(found.values()) * times, 1_000_000_000), types or None
    return 0, None


def _started_gpus(job: QueueJob, got: Resources, asked: int) -> int | None:
    """GPUs that it has: of the TRES, or node by node, where the site does not track them; None where nothing says."""
    detailed = sum(sum(gres_of(node).values()) for node in job.gres_detail or ())
    return got.gpus or detailed or (0 if got.cpus and not asked else None)


def _memory(job: QueueJob, cpus: int, nodes: int) -> int | None:
    """Bytes of the whole job, where its TRES do not say."""
    for value, times in ((job.memory_per_node, nodes), (job.memory_per_cpu, cpus)):
        number = number_of(value)
        if number is not None and 0 < number < 1 << 40:
            return min(int(number) * MIB * times, 1 << 60)
    return None


def _exclusive(job: QueueJob) -> bool:
    exclusive = job.exclusive if isinstance(job.exclusive, list) else [str(job.exclusive)]
    return "NONE" in words_of(job.shared) or "true" in (word.lower() for word in exclusive)


def _licences(text: str | None) -> dict[str, int] | None:
    """Licences from `matlab@server:2,abaqus`."""
    found: dict[str, int] = {}
    for part in (text or "").split(","):
        name, _, count = part.strip().partition(":")
        if name:
            found[name[:256]] = (count_of(float(count)) or 1) if count.isdecimal() else 1
    return dict(list(found.items())[:64]) or None
