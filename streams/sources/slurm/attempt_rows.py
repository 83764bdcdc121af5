"""One attempt of a job in a common format for all Slurm inputs, and the events of such rows."""

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import product
from types import MappingProxyType
from typing import Any
from zlib import crc32

import msgspec

from models.records import Alter, JobEvent, Submit
from streams.sources.logs.fields import MAX_BYTES, MAX_COUNT, MAX_NAME, by_name, in_turn, numbers_in

QUEUED, RUNNING, SUSPENDED, REQUEUED, ENDED, UNCLEAR = "queued", "running", "suspended", "requeued", "ended", "unclear"
"""The phases of a row. `requeued`: this attempt is over and another one follows. `unclear`: the next poll decides."""

MIB = 1 << 20
NO_TIME = 0xFFFF_FFF0  # numbers from here to 2^32 are Slurm's words for "not set" and "infinite"


class JobRow(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
    """One attempt of a job at the time of a poll. None means missing; times are Unix seconds.

    `job` is `4711`, or `4711_3` for a task of the array `4711`; the tasks of an array that are pending as one row are
    the job `4711` with an `array_size`. `submit` is this attempt's own: a requeue gives a job another one. `start` is
    None if it never ran, `expected` is the scheduler's own estimate of it. `state` is that of an end, as in `End`.
    `request` has the names of `Submit`; `unlimited` means that there is no walltime. `partition` is where it ran,
    `started_…` is the allocation. `still_since` is when it was last suspended or resumed.

    `began` is the start if it lies before the submission: for a job resized while it ran, the accounting has a row for
    each size, submitted at the resize. `resized` marks such a row.
    """

    job: str
    phase: str
    submit: float
    state: str = ""
    eligible: float | None = None
    start: float | None = None
    end: float | None = None
    expected: float | None = None
    still_since: float | None = None
    restarts: int | None = None
    cluster: str | None = None
    partition: str | None = None
    request: dict[str, Any] = {}
    unlimited: bool = False
    array: str | None = None
    array_size: int | None = None
    held: bool = False
    started_cpus: int | None = None
    started_nodes: int | None = None
    started_gpus: int | None = None
    began: float | None = None
    resized: bool = False

    def __post_init__(self) -> None:
        """Correct small clock differences. A larger difference is kept: such a job is not scored."""
        if self.start is not None and self.start < self.submit:
            self.began, self.start = self.start, self.submit
        if self.end is not None:
            self.end = in_turn(self.end, self.submit if self.start is None else self.start)


def submit_of(row: JobRow, site: str, attempt: int = 0, late: bool = False) -> Submit:
    """The event of a row's submission; `late` as there."""
    cpus = row.request.get("cpus") or row.started_cpus or 1  # what it got, where that is all one knows
    eligible = row.eligible if row.eligible is not None and row.eligible > row.submit else None
    own = {"job": row.job, "array": row.array, "array_size": row.array_size, "eligible": eligible, "cpus": cpus}
    own["unlimited"] = row.unlimited
    return Submit(site=site, time=row.submit, attempt=attempt, late=late, **(row.request | own))


_ENDS = by_name(
    "COMPLETED:completed FAILED:failed CANCELLED:cancelled TIMEOUT:timeout DEADLINE:deadline NODE_FAIL:node_fail"
    " BOOT_FAIL:node_fail PREEMPTED:preempted OUT_OF_MEMORY:out_of_memory REVOKED:revoked"
)
_QUEUED_FLAGS = frozenset({"REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD"})
_RUNNING_FLAGS = frozenset({"CONFIGURING", "RESIZING", "SIGNALING", "STOPPED", "STAGE_OUT", "POWER_UP_NODE"})


@lru_cache(1024)
def phase_of(words: tuple[str, ...]) -> tuple[str, str] | None:
    """Return the phase, and the final state, from Slurm's job state: a base state and flags, or one of them.

    Several releases print only a flag (`COMPLETING`), which hides the base: such a row is unclear. None for an invalid
    state.
    """
    known = set(words)
    for word, state in _ENDS.items():
        if word in known:
            return ENDED, state
    if "SUSPENDED" in known:
        return SUSPENDED, ""
    if "RUNNING" in known or (known & _RUNNING_FLAGS and "PENDING" not in known):
        return RUNNING, ""
    if "PENDING" in known or known & _QUEUED_FLAGS:
        return QUEUED, ""
    if "REQUEUED" in known:
        return REQUEUED, "requeued"
    return (UNCLEAR, "") if "COMPLETING" in known or "UPDATE_DB" in known else None


_CONTROL = re.compile(r"[\x00-\x1f\x7f]+")
_NOTHING = frozenset({"", "(null)", "None", "N/A", "Unknown", "None assigned", "none"})


@lru_cache(16384)
def name_of(text: str | None, most: int = MAX_NAME) -> str | None:
    """Return a name as events can carry it: one line, truncated; None if it is Slurm's keyword for none."""
    if text is None or text in _NOTHING:
        return None
    if not text.isprintable():
        text = _CONTROL.sub(" ", text)
    return text.strip()[:most] or None


@lru_cache(4096)
def queues_of(partition: str | None) -> tuple[str | None, list[str] | None]:
    """Return the queue, and all partitions, from a job's partition: `a,b` is the queue `a` and both partitions.

    The result is cached and shared: do not modify it.
    """
    if not partition or "," not in partition:
        return name_of(partition), None
    names = [name for part in partition.split(",") if (name := name_of(part)) is not None][:256]
    return (names[0], names) if names else (None, None)


def count_of(number: float | None) -> int | None:
    """Return a count; None if it is invalid or Slurm's value for "not set"."""
    if number is None or not 0 < number <= MAX_COUNT:
        return None
    return int(number)


def time_of(number: float | None) -> float | None:
    """Return a time; None if it is zero or Slurm's value for "not set"."""
    if number is None or not 0 < number < NO_TIME:
        return None
    return float(number)


_UNITS = MappingProxyType({"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "P": 1 << 50, "E": 1 << 60})


def memory_of(text: str) -> int | None:
    """Bytes of `64000M`, `62.50G`, or `4000` (MiB); None where it is none of these, zero, or too large to be true."""
    unit = _UNITS.get(text[-1:].upper())
    try:
        size = float(text[:-1]) * unit if unit else float(text) * MIB
    except ValueError:
        return None
    return int(size) if 0 < size < MAX_BYTES else None


class Resources(msgspec.Struct, kw_only=True, gc=False, frozen=True):
    """Parsed list of trackable resources (TRES); memory in bytes."""

    cpus: int | None = None
    nodes: int | None = None
    memory: int | None = None
    gpus: int = 0
    gpu_types: dict[str, int] | None = None
    licences: dict[str, int] | None = None


NO_RESOURCES = Resources()


def end_of(phase: str, submit: float, end: float | None) -> float | None:
    """Return the end of an attempt; None if it has not ended, or if the end is implausibly before its submission.

    An hour of difference is tolerated, because a change of daylight saving time in local times can appear so.
    """
    return end if phase in (ENDED, REQUEUED) and end is not None and end >= submit - 3600 else None


@lru_cache(4096)
def resources_of(text: str) -> Resources:
    """Resources from `cpu=64,mem=32G,node=1,billing=64,gres/gpu=4,gres/gpu:a100=4,license/matlab=2`.

    What is not understood is left out. It is shared by all who ask the same: do not change what is in it.
    """
    words = dict[str, str]()
    for part in text.split(","):
        key, equal, value = part.strip().partition("=")
        if equal:
            words[key] = value
    counts = {key: count for key, value in words.items() if (count := count_in(value)) is not None}
    types: dict[str, int] = {}
    licences: dict[str, int] = {}
    for key, count in counts.items():
        kind, _, name = key.partition("/")
        if kind == "gres" and name.startswith("gpu:"):
            types[name[4:][:MAX_NAME] or "gpu"] = count
        elif kind == "license" and name:
            licences[name[:MAX_NAME]] = count
    gpus = max(counts.get("gres/gpu", 0), sum(types.values()))
    return Resources(
        cpus=counts.get("cpu"),
        nodes=counts.get("node"),
        memory=memory_of(words["mem"]) if "mem" in words else None,
        gpus=min(gpus, MAX_COUNT),
        gpu_types=types or None,
        licences=dict(list(licences.items())[:64]) or None,
    )


def gres_of(text: str) -> dict[str, int]:
    """GPUs by type ("" for those without one) from `gpu:a100:4(S:0-1),gpu:2`, `gres/gpu:4`, `gres:gpu:a100:2`."""
    found: dict[str, int] = {}
    for part in text.split(","):
        words = (
            re.sub(r"\(.*", "", part.strip()).replace("=", ":").removeprefix("gres/").removeprefix("gres:").split(":")
        )
        if words[0] != "gpu":
            continue
        count = count_in(words[-1]) if len(words) > 1 else 1
        kind = words[1] if len(words) > 2 or (count is None and len(words) == 2) else ""
        found[kind[:MAX_NAME]] = found.get(kind[:MAX_NAME], 0) + (1 if count is None else count)
    return found


NO_LIMIT = frozenset({"UNLIMITED", "INFINITE", "4294967295", "-1"})
"""Values that mean no time limit, in capitals."""


@lru_cache(4096)
def walltime_of(text: str) -> tuple[float | None, bool]:
    """Parse `D-HH:MM:SS`, `HH:MM:SS`, `MM:SS` or whole minutes as seconds; the second value is True if unlimited."""
    if text.upper() in NO_LIMIT:
        return None, True
    days, dash, rest = text.partition("-")
    try:
        numbers = [float(word) for word in (rest if dash else text).split(":")]
        if dash:
            numbers += [0.0] * (3 - len(numbers))
            seconds = float(days) * 86400 + numbers[0] * 3600 + numbers[1] * 60 + numbers[2]
        elif len(numbers) == 1:
            seconds = numbers[0] * 60
        else:
            hours, minutes, last = [0.0] * (3 - len(numbers)) + numbers
            seconds = hours * 3600 + minutes * 60 + last
    except (ValueError, IndexError):
        return None, False
    return (seconds, False) if 0 < seconds < 1e10 else (None, False)


def array_of(text: str) -> tuple[int | None, int | None]:
    """Return the number of tasks of `1-10:2,15%4` and how many may run at the same time; None if missing.

    Slurm truncates long lists with `...`: then the remaining tasks count.
    """
    tasks, _, limit = text.strip("[]").partition("%")
    return count_of(numbers_in(tasks)), count_in(limit.rstrip("]"))


def count_in(text: str | None) -> int | None:
    """Parse a count; None if it is invalid."""
    return count_of(_number(text or ""))


def _number(text: str) -> float | None:
    """Parse a number, optionally with a unit of thousands (`2K`); None if it is invalid."""
    unit = {"K": 1e3, "M": 1e6, "G": 1e9}.get(text[-1:].upper())
    try:
        number = float(text[:-1]) * unit if unit else float(text)
    except ValueError:
        return None
    return number if number == number else None


_ORDINARY = frozenset({None, "Priority", "Resources", "Cleaning", "WaitingForScheduling", "BeginTime"})

_ALTERED = by_name(
    "account queue partitions cpus gpus gpu_types node_features memory walltime unlimited eligible qos reservation"
    " array_limit"
)


def fingerprint(request: dict[str, Any]) -> int:
    """Return a hash to compare requests."""
    return crc32(msgspec.json.encode(list(request.values()))) or 1


def reason_of(row: JobRow) -> str:
    """Return the pending reason if it is not a usual one; a hold is reported as such."""
    return "" if row.held or (why := row.request.get("pending_reason")) in _ORDINARY else str(why)[:80]


def priority_of(row: JobRow) -> int:
    """Its priority; 0 where it is unknown, or is that of a hold."""
    return 0 if row.held else int(row.request.get("priority", 0))


def request_of(row: JobRow) -> dict[str, Any]:
    """Return the fields that an alteration of a pending job can change; empty ones were removed."""
    request = dict.fromkeys(_ALTERED) | {"gpus": 0, "dependency": "", "node_features": []} | row.request
    request |= {"unlimited": row.unlimited, "eligible": row.eligible}
    return {name: request[name] for name in (*_ALTERED, "dependency")}


def eligible_again(site: str, row: JobRow, attempt: int) -> Iterator[JobEvent]:
    """A requeued job may have to wait for a while before it may start again."""
    if row.eligible is not None and row.eligible > row.submit:
        yield Alter(site=site, time=row.submit, job=row.job, attempt=attempt, eligible=row.eligible)


_HOSTS = re.compile(r"[^,\[]+(?:\[[^\]]*\][^,\[]*)*")
_MAX_HOSTS = 100_000


def hosts(text: str | None) -> list[str]:
    """Expand a host list such as `n[1-3,7],rack[01-02]-g[1-4]`; an invalid part counts as one name."""
    found: list[str] = []
    for part in _HOSTS.findall(text or ""):
        pieces = [_numbers(piece) if place % 2 else [piece] for place, piece in enumerate(re.split(r"[\[\]]", part))]
        for combined in product(*pieces):
            found.append("".join(combined))
            if len(found) >= _MAX_HOSTS:
                return found
    return [] if text in (None, "(null)") else found


def _numbers(text: str) -> list[str]:
    """The numbers of `01-03,7`, with their leading zeros."""
    found: list[str] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if dash and first.isdecimal() and last.isdecimal() and int(last) - int(first) < _MAX_HOSTS:
            found += [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]
        else:
            found.append(part)
    return found
