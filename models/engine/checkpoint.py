"""An engine's state as it is stored: what it holds, how it is encoded, and how it is read back."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec
import numpy as np

from models.engine.past import SavedPast
from models.engine.queues import QueueSeen
from models.engine.scores import Week
from models.measures import Accuracy, RunAccuracy
from models.method import SiteContext
from models.records import Capacity, JobKey
from models.site.clock import SiteClock
from models.site.features import COUNT
from models.site.history import Started
from models.site.job import Job, Shared
from models.site.learnt import LearntState
from models.site.rows import Row, Rows
from models.site.runs import Run
from models.site.size import SizeSeen

MIN_JOBS_TO_RECOVER = 1000
"""Jobs that must start after histories or events were lost before predictions are no longer called degraded."""

STATE_VERSION = 4
"""Version of what `encode` writes. Those before it are read too: what they lack has its default."""

NUMBERED_JOBS_VERSION = 4
"""The first version in which the live jobs, and the names that are remembered, have numbers."""


class Changes(msgspec.Struct):
    """What was learnt since the stores were last written: rows that are new, and entries that fell out.

    `rows` are the methods' own, by their key (`SiteMethods.rows`); `oldest` says which of each are kept.
    """

    started: list[Started] = msgspec.field(default_factory=list)
    runs: list[Run] = msgspec.field(default_factory=list)
    forgotten_runs: list[Run] = msgspec.field(default_factory=list)
    rows: dict[str, list[Row]] = msgspec.field(default_factory=dict)
    oldest: dict[str, int] = msgspec.field(default_factory=dict)


class RowRange(msgspec.Struct, array_like=True, frozen=True):
    """Which rows of a method a state includes: those from number `oldest`, and before number `count`."""

    count: int
    oldest: int


class StoredJob(msgspec.Struct, array_like=True, gc=False):
    """A live job with its number, and with what methods keep of it, by their keys."""

    number: int
    job: Job
    kept: dict[str, bytes] | None = None


class Cut(NamedTuple):
    """What is to be stored of an engine between two events, where what was stored before is still there.

    `state` is what is bounded, encoded: a `SavedState` without live jobs and names. `jobs` are the live jobs that may
    have changed, each an encoded `StoredJob` by its number, and `left` the numbers of those that have left. `names` are
    new among those that are remembered, which are those from number `first_name` on.
    """

    state: bytes
    jobs: dict[int, bytes]
    left: list[int]
    names: dict[int, JobKey]
    first_name: int
    changes: Changes


class SavedState(msgspec.Struct):
    """An engine's state but for the history's rows and the runs, of which it holds the counts.

    The live jobs are in the order in which they came. `numbers` are theirs and `entered` is that of the next one;
    `kept` is what methods keep of them, by number and key; `named` counts all names that were ever remembered. In a
    `Cut` the jobs and the names are not here, but `live` and `names` say how many there are.

    `forgotten` are the numbers of the runs that fell out since the state before: the stores delete them only once this
    state is durable, so whoever reads it may still find them.

    Until `gap_until` jobs have started, the histories have a gap; until `missed_until`, events are missing (0: none).
    """

    v: int
    site: str
    jobs: list[Job]
    remembered: list[JobKey]
    times: list[float]
    capacity: Capacity | None
    started: int
    first: int
    history: int
    runs: int
    runs_kept: int
    forgotten: list[int]
    events: int
    anomalies: dict[str, int]
    predictions: dict[str, int]
    lost: bool
    accuracy: dict[str, Accuracy]
    cancelled: dict[str, Accuracy]
    methods: dict[str, bytes]
    run_accuracy: dict[str, RunAccuracy] = {}
    run_predictions: dict[str, int] = {}
    run_methods: dict[str, bytes] = {}
    rows: dict[str, RowRange] = {}
    most_cpus: int = 0
    weeks: list[Week] = []
    queues: dict[str, QueueSeen] = {}
    gap_until: int = 0
    missed_until: int = 0
    clock: SiteClock | None = None
    size: SizeSeen | None = None
    learnt: LearntState | None = None
    later: Accuracy | None = None
    later_first: Accuracy | None = None
    early_tasks: dict[str, int] = {}
    rivals: dict[str, Accuracy] = {}
    degraded: dict[str, int] = {}
    numbers: list[int] = []
    kept: dict[int, dict[str, bytes]] = {}
    entered: int = 0
    named: int = 0
    live: int = 0
    names: int = 0
    past: SavedPast | None = None
    looked: tuple[float, JobKey] | None = None

    def take_in(self, jobs: Iterable[StoredJob], names: Iterable[JobKey]) -> str | None:
        """Have the live jobs and the names that are stored apart, in the order of their numbers.

        Returns:
            What is missing, if anything is.
        """
        self.jobs, self.numbers, self.kept = [], [], {}
        for one in jobs:  # of which none stays: to free a million at once would stop all other threads
            self.jobs.append(one.job)
            self.numbers.append(one.number)
            if one.kept is not None:
                self.kept[one.number] = one.kept
        self.remembered = list(names)
        if (len(self.jobs), len(self.remembered)) == (self.live, self.names):
            return None
        return f"{len(self.jobs)} of {self.live} live jobs, {len(self.remembered)} of {self.names} names"


class _SavedVersion(msgspec.Struct):
    """The one field of a saved state that every version has."""

    v: int


class _EncodedJobs(SavedState):
    """A saved state whose jobs are still to be decoded: one at a time they take half as much memory."""

    jobs: list[msgspec.Raw]  # type: ignore[assignment]


def encode(state: SavedState) -> bytes:
    """The state as MessagePack."""
    return msgspec.msgpack.encode(state, enc_hook=encode_array)


def read_saved(saved: bytes) -> SavedState:
    """The inverse of `encode`, of this version or an earlier one.

    Raises:
        ValueError: it is of a later version, or not such a state at all.
    """
    try:
        version = msgspec.msgpack.decode(saved, type=_SavedVersion).v
        if version > STATE_VERSION:
            raise ValueError(f"state of version {version}, of a later queuecast; this one reads up to {STATE_VERSION}")
        raw = msgspec.msgpack.decode(saved, type=_EncodedJobs, dec_hook=decode_array)
        shared = Shared()
        jobs = [shared.settle(_decode_job(job)) for job in raw.jobs]
        found = SavedState(**{**msgspec.structs.asdict(raw), "jobs": jobs})
    except msgspec.MsgspecError as error:
        raise ValueError(f"not a saved state: {error}") from error
    if found.v < NUMBERED_JOBS_VERSION:
        found.entered = found.live = len(jobs)
        found.numbers = list(range(len(jobs)))
        found.named = found.names = len(found.remembered)
    return found


def read_jobs(encoded: Iterable[bytes]) -> Iterator[StoredJob]:
    """The inverse of `encode_job`, of many; 8 µs each.

    Raises:
        ValueError: one is no such job.
    """
    shared = Shared()
    try:
        for one in encoded:
            stored = _decode_stored_job(one)
            shared.settle(stored.job)
            yield stored
    except msgspec.MsgspecError as error:
        raise ValueError(f"not a stored job: {error}") from error


def restore_histories(state: SavedState, context: SiteContext, started: list[Started], runs: list[Run]) -> list[Run]:
    """Give a site's new context the stored histories; returns the runs of categories that no method reads any longer.

    Raises:
        ValueError: rows of the history, or runs, are missing.
    """
    context.history.restore(started, state.started, state.first, state.history)
    kept = kept_runs(state, runs)
    if len(kept) != state.runs_kept:
        raise ValueError(f"history of run times has {len(kept)} of {state.runs_kept} entries")
    read: list[Run] = []
    dropped: list[Run] = []
    for run in kept:
        (read if run.category[0] in context.runs.templates else dropped).append(run)
    context.runs.restore(read, state.runs)
    return dropped


def restore_rows(state: SavedState, own: Mapping[str, Rows], rows: Mapping[str, Iterable[Row]]) -> None:
    """Give the methods their stored rows back.

    Raises:
        ValueError: rows are missing.
    """
    for name, kept in own.items():
        included = state.rows.get(name)
        if included is not None:
            kept.restore(rows.get(name, ()), included.count, included.oldest)


def kept_runs(state: SavedState, runs: Iterable[Run]) -> list[Run]:
    """Those of the stored runs that the state includes."""
    forgotten = set(state.forgotten)
    return [run for run in runs if run.number <= state.runs and run.number not in forgotten]


def encode_array(value: Any) -> Any:
    """Arrays of features as bytes, for msgspec."""
    if isinstance(value, np.ndarray):
        return value.tobytes()
    raise TypeError(f"cannot store {type(value).__name__}")


def decode_array(kind: type, value: Any) -> Any:
    """The inverse of `encode_array`."""
    if kind is np.ndarray:
        features = np.frombuffer(value, dtype=np.float64).copy()
        if len(features) != COUNT:
            raise ValueError(f"{len(features)} features; expected {COUNT}")
        return features
    raise TypeError(f"cannot read {kind.__name__}")


_decode_job = msgspec.msgpack.Decoder(Job, dec_hook=decode_array).decode
_decode_stored_job = msgspec.msgpack.Decoder(StoredJob, dec_hook=decode_array).decode
encode_job = msgspec.msgpack.Encoder(enc_hook=encode_array).encode
