"""Request and allocation of a PBS or Torque job, from the attributes of its accounting records."""

import re
from contextlib import suppress
from functools import lru_cache
from typing import Any

from models.site.node_features import MAX_ALTERNATIVES, MAX_FEATURES
from streams.sources.logs.fields import (
    MAX_BYTES,
    MAX_COUNT,
    MAX_NAME,
    bytes_of,
    count_of,
    known,
    name_of,
    seconds_of,
    tasks_of,
    text_of,
)

LIST = "Resource_List."
_LISTED = "select nodes nodect ncpus procs mppwidth ngpus gpus gpu mem pmem place walltime qos advres"
_REQUESTED = (*(f"{LIST}{name}" for name in _LISTED.split()), "Resource_Request_2.0", "resvID", "depend")

NO_PROJECT = "_pbs_project_default"

KEYS = (
    r"(?:Resource_List|resources_used|resource_assigned)\.[\w-]+|Resource_Request_2\.0|user|group|account|owner"
    r"|project|accounting_id|jobname|queue|resvname|resvID|[cqe]time|start|start_count|exec_host|exec_vnode|session|end"
    r"|Exit_status|run_count|eligible_time|depend|array_indices|total_execution_slots|unique_node_count|requestor"
    r"|destination"
)
"""A pattern of the names of attributes; a value may have blanks and equals signs."""

_KEYS = re.compile(rf"(?:^| )({KEYS})=")
_CHUNK_CPUS = re.compile(r":ncpus=(\d{1,9})")
_CHUNK_GPUS = re.compile(r":ngpus=(\d{1,9})")
_TASK = re.compile(r"(\d+)\[\d+\]", re.ASCII)
MAX_PARTS = 10_000  # parts of an array's indices that are counted


class Fields(dict[str, str]):
    """The attributes of a record by name; a missing one is ""."""

    def __missing__(self, name: str) -> str:
        return ""


def fields_of(text: str) -> Fields:
    """The attributes of `KEY=VALUE …`; a value may hold blanks."""
    if "Resource_Request_2.0" not in text:
        with suppress(ValueError):
            return Fields([token.split("=", 1) for token in text.split()])
    parts = _KEYS.split(text)
    return Fields(zip(parts[1::2], map(str.strip, parts[2::2]), strict=True))


def request(fields: Fields) -> dict[str, Any]:
    """Return the job's request as fields of a `submit` or an `alter`; missing values are omitted."""
    return _request(*map(fields.get, _REQUESTED))


@lru_cache(4096)
def _request(*values: str | None) -> dict[str, Any]:
    """Return the request from the attributes in `_REQUESTED`; cached, because many jobs have the same."""
    of = {name: value or "" for name, value in zip(_REQUESTED, values, strict=True)}
    select, nodes, nodect, ncpus, procs, width, ngpus, gpus, gpu, mem, pmem, place, walltime, qos, advres = (
        of[f"{LIST}{name}"] for name in _LISTED.split()
    )
    later = of["Resource_Request_2.0"]
    chunks = _chunks(select, nodes or nodect)
    cpus = max(*(count_of(count) or 0 for count in (ncpus, procs, width)), chunks.cpus, _tasks(later, "lprocs"))
    all_gpus = max(*(count_of(count) or 0 for count in (ngpus, gpus, gpu)), chunks.gpus)
    memory = bytes_of(mem) or chunks.memory or _tasks(later, "memory")
    if not memory and (per_process := bytes_of(pmem)):
        memory = per_process * max(cpus, 1)
    return known(
        cpus=min(cpus, MAX_COUNT) or None,
        nodes=count_of(nodect) or chunks.nodes,
        gpus=min(all_gpus, MAX_COUNT) or None,
        memory=min(memory, MAX_BYTES) or None,
        walltime=seconds_of(walltime),
        exclusive="excl" in place or None,
        node_features=[*map(list, sorted(chunks.features)[:MAX_ALTERNATIVES])] if any(chunks.features) else None,
        qos=name_of(qos),
        reservation=name_of(of["resvID"] or advres),
        dependency=text_of(of["depend"]),
    )


class SelectTotals:
    """The sums over the parts of a `select=` or `nodes=`."""

    __slots__ = ("cpus", "features", "gpus", "memory", "nodes")

    def __init__(self) -> None:
        self.cpus = self.gpus = self.memory = 0
        self.nodes: int | None = None
        self.features: set[tuple[str, ...]] = set()  # of each kind of part


@lru_cache(4096)
def _chunks(select: str, nodes: str) -> SelectTotals:
    """Parse `5:ncpus=13:mem=4gb+1:ngpus=2`, or Torque's `4:ppn=8:gpus=1:feature` and `node01:ppn=2+node02`."""
    chunks = SelectTotals()
    for chunk in (select or nodes).split("+"):
        first, *parts = chunk.split(":")
        named = dict(part.split("=", 1) for part in parts if "=" in part)
        features = [part for part in parts if "=" not in part or bytes_of(part.partition("=")[2]) is None]
        times = count_of(first)
        if times is None:  # the name of a node, or a chunk of one: `ncpus=4`
            times = 1
            if "=" in first:
                name, _, value = first.partition("=")
                named[name] = value
            else:
                features.append(first)
        if not chunk:
            continue
        chunks.features.add(tuple(sorted(part[:MAX_NAME] for part in features if part)[:MAX_FEATURES]))
        chunks.cpus += times * (count_of(named.get("ncpus") or named.get("ppn")) or 1)
        chunks.gpus += times * (count_of(named.get("ngpus") or named.get("gpus") or named.get("gpu")) or 0)
        chunks.memory += times * (bytes_of(named.get("mem")) or 0)
        if nodes:
            chunks.nodes = (chunks.nodes or 0) + times
    return chunks


def _tasks(text: str, what: str) -> int:
    """The sum over `-L tasks=2:lprocs=4:memory=1gb` of tasks times `what` (Torque 6)."""
    total = 0
    for part in text.split("-L ")[1:]:
        named = dict(piece.split("=", 1) for piece in part.strip().split(":") if "=" in piece)
        value = bytes_of(named.get(what)) if what == "memory" else count_of(named.get(what))
        total += (count_of(named.get("tasks")) or 1) * (value or 0)
    return total


def allocation(fields: Fields) -> dict[str, Any]:
    """Return the job's allocation as fields of a `start`; missing values are omitted."""
    vnodes, hosts = fields["exec_vnode"], fields["exec_host"]
    slots, nodes = _slots(hosts) if hosts else (0, 0)
    found = {
        "cpus": sum(map(int, _CHUNK_CPUS.findall(vnodes))) or slots,
        "gpus": sum(map(int, _CHUNK_GPUS.findall(vnodes))),
        "nodes": nodes,
    }
    return {name: value for name, value in found.items() if 0 < value <= MAX_COUNT}


@lru_cache(4096)  # a job's end repeats its allocation
def _slots(hosts: str) -> tuple[int, int]:
    """Processors and nodes of `c1/0*13+c2/0*13` (PBS), `n1/7+n1/6` or `n1/0-19,24+n2/0-19` (Torque)."""
    slots, names = 0, set()
    for part in hosts.split("+"):
        name, _, indices = part.partition("/")
        names.add(name)
        if "*" in indices:
            slots += count_of(indices.partition("*")[2]) or 0
        elif "-" in indices or "," in indices:
            slots += sum(tasks_of([part]) or 1 for part in indices.split(","))
        else:
            slots += 1
    return slots, len(names)


def array_size(text: str | None) -> tuple[int | None, int | None]:
    """Return the number of tasks of `1-100:2,105%5`, and how many may run at the same time.

    >>> array_size("1-100:2,105%5"), array_size("all")
    ((51, 5), (None, None))
    """
    indices, _, limit = (text or "").partition("%")
    size = tasks_of(indices.split(",")[:MAX_PARTS])
    return (size, count_of(limit)) if size is not None else (None, None)


def array_of(job: str) -> str | None:
    """The array that a task belongs to: `12[].srv` for `12[3].srv`; None for another job, and the array itself.

    >>> array_of("12[3].srv"), array_of("12.srv"), array_of("12[].srv")
    ('12[].srv', None, None)
    """
    found = _TASK.match(job)
    return f"{found[1]}[]{job[found.end() :]}" if found is not None else None
