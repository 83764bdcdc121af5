"""Fields of a job attempt from any Slurm input, under the names in squeue's JSON; and its row."""

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from models.site.node_features import alternatives
from streams.sources.logs.fields import MAX_NAME, known
from streams.sources.slurm.any_release import Number, Words, count, is_infinite, json_time, number_of, words_of
from streams.sources.slurm.attempt_rows import (
    ENDED,
    MIB,
    NO_TIME,
    QUEUED,
    REQUEUED,
    JobRow,
    Resources,
    array_of,
    count_of,
    end_of,
    gres_of,
    memory_of,
    name_of,
    phase_of,
    queues_of,
    resources_of,
)

EXPECTED = {
    "job_id": "the number of a job",
    "job_state": "a state of a job, such as PENDING or COMPLETED",
    "submit_time": "a time; without it an attempt at a job cannot be distinguished from another",
    "start_time": "a time, in the record of a start",
    "end_time": "a time after the submission, for a job that has ended",
}
"""Expected values of the fields of `AttemptFields` that can be wrong."""


class AttemptFields(msgspec.Struct, gc=False):
    """The fields that are read of an attempt; an input with other names maps them to these.

    `time_limit` is in minutes, `walltime` the same in seconds. `required_cpus` is the request, `cpus` may be the
    allocation. `requested_memory` is in sacct's notation. `nodes` are the names of the allocated nodes, None if
    missing. Each attempt, and each size of one, has an SLUID of its own; the original one is that of the attempt's
    first size.
    """

    job_id: Number = None
    job_state: Words = None
    submit_time: Number = None
    eligible_time: Number = None
    start_time: Number = None
    end_time: Number = None
    suspend_time: Number = None
    elapsed: Number = None
    time_limit: Number = None
    walltime: Number = None
    unlimited: bool = False
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
    required_cpus: Number = None
    cpus: Number = None
    node_count: Number = None
    tasks: Number = None
    memory_per_node: Number = None
    memory_per_cpu: Number = None
    requested_memory: str | None = None
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
    features: str | None = None
    required_nodes: str | None = None
    excluded_nodes: str | None = None
    licenses: str | None = None
    resv_name: str | None = None
    dependency: str | None = None
    priority: Number = None
    hold: bool | None = None
    state_reason: str | None = None
    sluid: str | None = None
    original_sluid: str | None = None


class RequestFields(NamedTuple):
    """Request of an attempt, and its allocation if it ran, as fields of its row; many attempts share them."""

    request: dict[str, Any]
    row: dict[str, Any]
    allocation: dict[str, Any]
    has_cpus: bool  # the number of allocated CPUs is given


def request_fields_of(attempt: AttemptFields) -> RequestFields:
    """Return the request and the allocation of an attempt."""
    requested, allocated = resources_of(attempt.tres_req_str or ""), resources_of(attempt.tres_alloc_str or "")
    cpus = requested.cpus or count(attempt.required_cpus) or count(attempt.cpus)
    nodes = requested.nodes if (requested.nodes or 0) > 1 else count(attempt.node_count) or requested.nodes
    gpus, gpu_types = _gpus(attempt, requested, allocated, nodes or 1)
    queue, partitions = queues_of(attempt.partition)
    seconds, minutes = number_of(attempt.walltime), number_of(attempt.time_limit)
    seconds = minutes * 60.0 if seconds is None and minutes is not None else seconds
    request = {
        "user": name_of(attempt.user_name)
        or (f"{int(uid)}" if (uid := number_of(attempt.user_id)) is not None else None),
        "group": name_of(attempt.group_name),
        "account": name_of(attempt.account),
        "queue": queue,
        "partitions": partitions,
        "qos": name_of(attempt.qos),
        "cpus": cpus,
        "nodes": nodes,
        "tasks": count(attempt.tasks),
        "gpus": gpus,
        "gpu_types": gpu_types,
        "memory": requested.memory or _memory(attempt, cpus or 1, nodes or 1),
        "walltime": seconds if seconds is not None and 0 < seconds < 1e10 else None,
        "exclusive": _exclusive(attempt),
        "node_features": _node_features(attempt),
        "reservation": name_of(attempt.resv_name),
        "licences": _licences(attempt.licenses) or requested.licences,
    }
    allocation = {
        "partition": None if partitions else queue,
        "started_cpus": allocated.cpus or count(attempt.cpus),
        "started_nodes": allocated.nodes or count(attempt.node_count),
        "started_gpus": _started_gpus(attempt, allocated, gpus),
    }
    row = {"cluster": name_of(attempt.cluster), "unlimited": attempt.unlimited or is_infinite(attempt.time_limit)}
    return RequestFields(known(**request), row, allocation, bool(allocated.cpus))


def row_of(
    attempt: AttemptFields,
    time: Callable[[Any], float | None] = json_time,
    queue: bool = False,
    request: RequestFields | None = None,
) -> JobRow | str:
    """Return the row of an attempt, or the name of the wrong field.

    Args:
        attempt: the fields.
        time: parses its times.
        queue: True if the fields come from the queue, where the start of a pending job is the scheduler's
            estimate.
        request: the result of `request_fields_of`, if it is at hand.
    """
    number, found, submitted = (
        number_of(attempt.job_id),
        phase_of(words_of(attempt.job_state)),
        time(attempt.submit_time),
    )
    if number is None or not 0 <= number < NO_TIME:
        return "job_id"
    if found is None:
        return "job_state"
    if submitted is None:
        return "submit_time"
    request = request or request_fields_of(attempt)
    phase, state = found
    ended = end_of(phase, submitted, time(attempt.end_time))
    if phase in (ENDED, REQUEUED) and ended is None:
        return "end_time"
    expected, started = None, time(attempt.start_time)
    held, het = False, count(attempt.het_job_id)
    own: dict[str, Any] = {"executable": name_of(attempt.name), "het_group": None if het is None else str(het)}
    if phase == QUEUED:
        reason = attempt.state_reason or ""
        expected, started = started if queue and reason != "BeginTime" else None, None
        own |= {
            "dependency": name_of(attempt.dependency, 1024),
            "priority": number_of(attempt.priority) or None,
            "pending_reason": name_of(reason),
        }
        held = _is_held(attempt, reason)
    elif started == ended and not (queue and phase == REQUEUED) and _left_queue(attempt, state, request.has_cpus):
        started = None
    ran = started is not None
    job, array, size = _identity(attempt, int(number), ran)
    if size:
        own["array_limit"] = array_of(attempt.array_task_string or "")[1] or count(attempt.array_max_tasks)
    restarts = number_of(attempt.restart_cnt)
    return JobRow(
        job=job,
        phase=phase,
        state=state,
        submit=submitted,
        eligible=time(attempt.eligible_time),
        start=started,
        end=ended,
        expected=expected,
        still_since=time(attempt.suspend_time),
        restarts=None if restarts is None or not 0 <= restarts < 1e6 else int(restarts),
        array=array,
        array_size=size,
        held=held,
        resized=bool(attempt.sluid and attempt.original_sluid and attempt.sluid != attempt.original_sluid),
        request=request.request | known(**own),
        **request.row,
        **(request.allocation if ran else {}),
    )


def _is_held(attempt: AttemptFields, reason: str) -> bool:
    """Check if a pending attempt is held, by its reason, state or priority."""
    if attempt.hold or reason.startswith("JobHeld") or not _HELD_STATES.isdisjoint(words_of(attempt.job_state)):
        return True
    return number_of(attempt.priority) == 0 or "held" in reason.lower().replace(" ", "_").split("_")


_HELD_STATES = frozenset({"REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD"})
_RAN = frozenset({"completed", "timeout", "out_of_memory", "preempted", "node_fail"})
"""States of jobs that began, however short they were."""

_NO_NODES = frozenset({"", "None assigned", "(null)"})


def _left_queue(attempt: AttemptFields, state: str, has_cpus: bool) -> bool:
    """Check if an attempt with equal start and end left the queue without running.

    Older releases list the CPUs that it would have got. If the nodes are missing, a cancelled attempt left the queue
    regardless of these, and a failed one ran.
    """
    nodes = attempt.nodes
    if state in _RAN or number_of(attempt.elapsed) or (nodes is None and state == "failed"):
        return False
    if has_cpus and not nodes:
        return nodes is None and state == "cancelled"
    return (nodes or "") in _NO_NODES


def _identity(attempt: AttemptFields, number: int, ran: bool) -> tuple[str, str | None, int | None]:
    """Return the job, its array if it is a task, and the number of tasks that are pending as this row."""
    array, task, tasks = count(attempt.array_job_id), number_of(attempt.array_task_id), attempt.array_task_string
    if tasks and ran:  # tasks that ran, in one row
        return f"{array or number}_{tasks}"[:256], str(array or number), None
    if tasks:
        return str(array or number), None, array_of(tasks)[0] or 1
    if array is None or task is None or not 0 <= task < NO_TIME:
        return str(number), None, None
    return f"{array}_{int(task)}", str(array), None


def _gpus(
    attempt: AttemptFields, requested: Resources, allocated: Resources, nodes: int
) -> tuple[int, dict[str, int] | None]:
    """Return the job's total GPUs and their types, from TRES or, if the site does not track GPUs, from the request."""
    if requested.gpus:
        return requested.gpus, requested.gpu_types
    for text, times in (
        (attempt.tres_per_job, 1),
        (attempt.tres_per_node, nodes),
        (attempt.tres_per_task, count(attempt.tasks) or 1),
        (attempt.tres_per_socket, nodes * (count(attempt.sockets_per_node) or 1)),
    ):
        if text and "gpu" in text and (found := gres_of(text)):
            types = {kind: min(many * times, 1_000_000_000) for kind, many in found.items() if kind}
            return min(sum(found.values()) * times, 1_000_000_000), types or None
    return (0 if requested.cpus else allocated.gpus), None


def _started_gpus(attempt: AttemptFields, got: Resources, asked: int) -> int | None:
    """Return the allocated GPUs, from TRES or, if the site does not track GPUs, by node; None if unavailable."""
    detailed = sum(sum(gres_of(node).values()) for node in attempt.gres_detail or ())
    return got.gpus or detailed or (0 if got.cpus and not asked else None)


def _memory(attempt: AttemptFields, cpus: int, nodes: int) -> int | None:
    """Return the job's total memory in bytes if its TRES lack it; sacct writes `3000Mc` (per CPU) or `31000Mn` (per
    node).
    """
    for value, times in ((attempt.memory_per_node, nodes), (attempt.memory_per_cpu, cpus)):
        number = number_of(value)
        if number is not None and 0 < number < 1 << 40:
            return min(int(number) * MIB * times, 1 << 60)
    text = attempt.requested_memory or ""
    size = memory_of(text.rstrip("cn"))
    if size is None or size > 1 << 50:  # more than a PiB a processor is the mark of a broken release
        return None
    return min(size * {"c": cpus, "n": nodes}.get(text[-1], 1), 1 << 60)


def _exclusive(attempt: AttemptFields) -> bool:
    if attempt.exclusive is None and attempt.shared is None:
        return False
    exclusive = attempt.exclusive if isinstance(attempt.exclusive, list) else [str(attempt.exclusive)]
    return "NONE" in words_of(attempt.shared) or "true" in (word.lower() for word in exclusive)


def _node_features(attempt: AttemptFields) -> list[list[str]] | None:
    """Return the required node features, as alternatives.

    Lists of required or excluded nodes are one more feature in each alternative.
    """
    if not (attempt.features or attempt.required_nodes or attempt.excluded_nodes):
        return None
    found = alternatives(attempt.features) if name_of(attempt.features) and attempt.features else None
    listed = [
        f"{sign}{name}"[:MAX_NAME]
        for sign, text in (("", attempt.required_nodes), ("not ", attempt.excluded_nodes))
        if (name := name_of(text))
    ]
    return [[*one, *listed] for one in found or [[]]] if listed else found


def _licences(text: str | None) -> dict[str, int] | None:
    """Licences from `matlab@server:2,abaqus`."""
    found: dict[str, int] = {}
    for part in text.split(",") if text else ():
        name, _, many = part.strip().partition(":")
        if name:
            found[name[:256]] = (count_of(float(many)) or 1) if many.isdecimal() else 1
    return dict(list(found.items())[:64]) or None
