"""Rows of what Slurm prints as JSON: `squeue --json`, slurmrestd's `jobs`, `sacct --json`, from release 21.08 to 26.05.

Over the releases a number became an object that says whether it is set, and a state a list of words. One decoder takes
each shape, so the release need not be known.
"""

from collections.abc import Iterator

import msgspec

from streams.sources.contract import OnSkipped, Skipped
from streams.sources.slurm.rows import (
    ENDED,
    MIB,
    NO_RESOURCES,
    NO_TIME,
    QUEUED,
    REQUEUED,
    RUNNING,
    SUSPENDED,
    JobRow,
    Resources,
    array_of,
    count_of,
    end_of,
    gres_of,
    name_of,
    phase_of,
    queues_of,
    resources_from,
    resources_of,
    time_of,
)
from streams.sources.slurm.shapes import Number, Words, is_infinite, number_of, words_of


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
    nodes: str | None = None
    shared: Words = None
    exclusive: list[str] | bool | str | None = None
    licenses: str | None = None
    resv_name: str | None = None
    dependency: str | None = None
    priority: Number = None
    hold: bool | None = None
    state_reason: str | None = None


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


class _Resource(msgspec.Struct, gc=False):
    type: str = ""
    name: str | None = None
    count: float | None = None


class _Tres(msgspec.Struct, gc=False):
    requested: list[_Resource] | None = None
    allocated: list[_Resource] | None = None


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
    tres: _Tres | None = None
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


class _Document(msgspec.Struct, gc=False):
    jobs: list[msgspec.Raw]
    last_update: Number = None
    errors: list[msgspec.Raw] = []


class JobsDocument(msgspec.Struct):
    """The jobs of a document, and the scheduler's time of it where it says so."""

    rows: list[JobRow]
    last_update: float | None = None


def read_jobs(data: bytes, on_skipped: OnSkipped, source: str) -> JobsDocument:
    """The rows of a document; 8 µs a job of 6 KB. Which of the two kinds each job is, it tells by itself.

    Parameters:
        source: what `on_skipped` is told: a file, or what was called. The number of a "line" is the job's in it.

    Raises:
        ValueError: it is no such document, or Slurm's own errors are all that it has.
    """
    try:
        document = _DOCUMENT.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(str(error)) from None
    if document.errors and not document.jobs:
        raise ValueError(bytes(document.errors[0]).decode("utf-8", "replace"))
    rows = list(_rows(document.jobs, on_skipped, source))
    return JobsDocument(rows, time_of(number_of(document.last_update)))


_DOCUMENT = msgspec.json.Decoder(_Document)
_QUEUE_JOB = msgspec.json.Decoder(QueueJob, strict=False)
_ACCOUNTING_JOB = msgspec.json.Decoder(AccountingJob, strict=False)


def _rows(jobs: list[msgspec.Raw], on_skipped: OnSkipped, source: str) -> Iterator[JobRow]:
    for number, raw in enumerate(jobs, 1):
        try:
            row = _row(bytes(raw))
        except UnicodeDecodeError:  # a name that is no UTF-8 must not cost the job
            row = _row(bytes(raw).decode("utf-8", "replace").encode())
        except msgspec.DecodeError as error:
            on_skipped(Skipped(source, number, None, " ".join(str(error).split())[:200], "a job as JSON"))
            continue
        if isinstance(row, str):
            on_skipped(Skipped(source, number, row, "not there or not known", _EXPECTED[row]))
        elif row is not None:
            yield row


_EXPECTED = {
    "job_id": "the number of a job",
    "state": "a state of a job, such as PENDING or COMPLETED",
    "submit_time": "a time",
    "end_time": "a time after the submission, for a job that has ended",
}


def _row(raw: bytes) -> JobRow | str:
    if b'"job_state"' in raw:
        return row_of_queue(_QUEUE_JOB.decode(raw))
    return row_of_accounting(_ACCOUNTING_JOB.decode(raw))


def row_of_queue(job: QueueJob) -> JobRow | str:
    """The row of a job as squeue and slurmrestd tell it; the name of the field that is wrong."""
    number, found = count_of(number_of(job.job_id)), phase_of(words_of(job.job_state))
    submitted = time_of(number_of(job.submit_time))
    if number is None:
        return "job_id"
    if found is None:
        return "state"
    if submitted is None:
        return "submit_time"
    phase, state = found
    started = time_of(number_of(job.start_time))
    ended = end_of(phase, submitted, time_of(number_of(job.end_time)))
    if phase in (ENDED, REQUEUED) and ended is None:
        return "end_time"
    asked = resources_of(job.tres_req_str) if job.tres_req_str else NO_RESOURCES
    got = resources_of(job.tres_alloc_str) if job.tres_alloc_str else NO_RESOURCES
    ran = phase in (RUNNING, SUSPENDED, REQUEUED) or (
        phase == ENDED and started is not None and bool(started != ended or name_of(job.nodes) or got.cpus)
    )
    reason = job.state_reason or ""
    cpus, nodes = asked.cpus or count_of(number_of(job.cpus)), count_of(number_of(job.node_count))
    tasks = count_of(number_of(job.tasks))
    gpus, gpu_types = _gpus(job, asked, nodes or 1, tasks or 1)
    limit = number_of(job.time_limit)
    unlimited = is_infinite(job.time_limit)
    queue, partitions = queues_of(job.partition)
    identity, array, size = _identity(number, job.array_job_id, job.array_task_id, job.array_task_string)
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
        restarts=_restarts(job.restart_cnt),
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
        walltime=_walltime(limit),
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
        started_gpus=got.gpus if ran and got.cpus else None,
    )


def row_of_accounting(job: AccountingJob) -> JobRow | str:
    """The row of a job as sacct and slurmdbd tell it; the name of the field that is wrong."""
    number, found = count_of(number_of(job.job_id)), phase_of(words_of(job.state.current))
    submitted = time_of(number_of(job.time.submission))
    if number is None:
        return "job_id"
    if found is None:
        return "state"
    if submitted is None:
        return "submit_time"
    phase, state = found
    started = time_of(number_of(job.time.start))
    ended = end_of(phase, submitted, time_of(number_of(job.time.end)))
    if phase in (ENDED, REQUEUED) and ended is None:
        return "end_time"
    asked = _resources(job.tres.requested if job.tres else None)
    got = _resources(job.tres.allocated if job.tres else None)
    if phase == QUEUED or (started == ended and not (name_of(job.nodes) or got.cpus)):
        started = None
    reason = job.state.reason or ""
    array = job.array or _Array()
    identity, parent, size = _identity(number, array.job_id, array.task_id, array.task)
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
        restarts=_restarts(job.restart_cnt),
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
        walltime=_walltime(number_of(job.time.limit)),
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
        started_gpus=got.gpus if started is not None and got.cpus else None,
    )


def _identity(number: int, array: Number, task: Number, tasks: str | None) -> tuple[str, str | None, int | None]:
    """The job, the array whose task it is, and how many tasks are queued as this row."""
    parent, place = count_of(number_of(array)), number_of(task)
    if tasks:
        return str(parent or number), None, array_of(tasks)[0] or 1
    if parent is None or place is None or not 0 <= place < NO_TIME or place in (0xFFFF_FFFE, 0xFFFF_FFFF):
        return str(number), None, None
    return f"{parent}_{int(place)}", str(parent), None


def _restarts(value: Number) -> int | None:
    number = number_of(value)
    return None if number is None or not 0 <= number < 1e6 else int(number)


def _walltime(minutes: float | None) -> float | None:
    return minutes * 60.0 if minutes is not None and 0 < minutes < 1e8 else None


def _gpus(job: QueueJob, asked: Resources, nodes: int, tasks: int) -> tuple[int, dict[str, int] | None]:
    """GPUs of the whole job and their types: of the TRES, or where the site does not track them, as the job asked."""
    if asked.gpus:
        return asked.gpus, asked.gpu_types
    for text, times in ((job.tres_per_job, 1), (job.tres_per_node, nodes), (job.tres_per_task, tasks)):
        if text and "gpu" in text and (found := gres_of(text)):
            types = {kind: min(count * times, 1_000_000_000) for kind, count in found.items() if kind}
            return min(sum(found.values()) * times, 1_000_000_000), types or None
    return 0, None


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


def _resources(listed: list[_Resource] | None) -> Resources:
    """Resources from sacct's list; memory is in MiB there."""
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
