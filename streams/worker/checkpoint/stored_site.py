"""State of a site in memory and in the table, and the worker's interface to Kafka and Faust."""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import msgspec

from models.engine.engine import Engine
from models.engine.saved_state import SavedState, read_jobs, read_saved
from models.records import DoneOperation
from models.stored_values import decompress
from streams.worker.checkpoint.job_log import JobLog, SegmentRange, keys_of

MOST_FAILURES, ASIDE_S = 3, 3600.0
"""A site is set aside after this number of engine failures within this time, for the same time."""

MIN_STALE_S = 600.0  # minimum age of the last event of a stale site
MAX_STALE_S = 86_400.0  # age of the last event from which any site is stale
USUAL_GAPS = 2.0  # a site is stale after this multiple of its usual longest gap
WINDOW_EVENTS = 256  # the longest gap is that of the last 256 to 511 events


class Arrivals(msgspec.Struct, array_like=True):
    """Arrival times of a site's events at the broker (Unix seconds), as a measure of their rate.

    `longest_s` is the longest gap between two of the last `count` events, `before_s` that of the 256 events before.

    The median gap is not suitable as a measure. With a bound of 20 times the median, sites of five workload traces
    would be stale a hundred times per week. With twice the longest of the last 256 gaps it is two to five times per
    week.

    >>> arrivals = Arrivals()
    >>> for stamp in (0.0, 400.0, 500.0):
    ...     arrivals.add(1e9 + stamp)
    >>> arrivals.bound_s
    800.0
    """

    last: float = 0.0
    longest_s: float = 0.0
    before_s: float = 0.0
    count: int = 0

    def add(self, stamp: float) -> None:
        """Add an event with the timestamp `stamp` (0: unknown). A gap longer than the bound counts as the bound."""
        if not stamp:
            return
        if self.last:
            self.longest_s = max(self.longest_s, min(stamp - self.last, self.bound_s))
        self.last = stamp
        self.count += 1
        if self.count == WINDOW_EVENTS:
            self.count, self.before_s, self.longest_s = 0, self.longest_s, 0.0

    @property
    def bound_s(self) -> float:
        """Time after the last event at which the site is stale, seconds."""
        return min(max(USUAL_GAPS * max(self.longest_s, self.before_s), MIN_STALE_S), MAX_STALE_S)


class StoredState(msgspec.Struct, array_like=True):
    """A site's state with the offset of its last event, as one value in the table.

    Attributes:
        v: Version of this record.
        partition: Partition of the site's events.
        offset: Offset of the last message in the state.
        state: The state without the live jobs, compressed with zlib.
        epoch: Number of times that the site's offsets have restarted.
        own: Whether the offsets are those of the site's dedicated topic.
        generation: Generation of its entries in Redis (`SiteStore`).
        stamp: Broker timestamp of its last event, Unix seconds.
        arrivals: Rate of its events.
        operations: Recent operator changes.
        runs: The segments with its live jobs (`JobLog`).
        tail: Live jobs that are not in a segment yet, compressed with zlib.
        failures: Broker timestamps of the latest events at which the engine failed.
        applied_parts: Number of applied events if the message at `offset` is a partly applied bundle; else 0.
        first: Offset of its first event, at which a rebuild begins.
        claim: Claim number of the worker that wrote it (`FencingLeases`).
    """

    v: int
    partition: int
    offset: int
    state: bytes
    epoch: int = 0
    own: bool = False
    generation: int = 0
    stamp: float = 0.0
    arrivals: Arrivals = msgspec.field(default_factory=Arrivals)
    operations: list[DoneOperation] = msgspec.field(default_factory=list)
    runs: list[SegmentRange] = []
    tail: bytes = b""
    failures: list[float] = []
    applied_parts: int = 0
    first: int = 0
    claim: int = 0

    @property
    def position(self) -> tuple[int, int, bool, int]:
        """Position in the log; of two states by one worker the greater one is later."""
        return self.epoch, self.offset, not self.applied_parts, self.applied_parts

    @property
    def rank(self) -> tuple[int, tuple[int, int, bool, int]]:
        """Precedence of a state: of two states of a site the greater one counts.

        A fenced worker may still write a state at a later position than the worker that has claimed the site.
        """
        return self.claim, self.position


IN_BOTH = (
    *("partition", "offset", "epoch", "own", "generation", "stamp", "arrivals", "operations", "failures"),
    *("applied_parts", "first", "claim"),
)
"""The fields that a stored state and a handle have."""


class StoredSegment(msgspec.Struct, array_like=True):
    """A job segment in the table: its partition, and the data compressed with zlib."""

    v: int
    partition: int
    jobs: bytes


encode_stored = msgspec.msgpack.Encoder().encode
decode_stored = msgspec.msgpack.Decoder(StoredState).decode
decode_segment = msgspec.msgpack.Decoder(StoredSegment).decode


class PartitionLog(NamedTuple):
    """One partition of an events topic: `site` is that of a dedicated topic, None for the shared topic."""

    site: str | None
    partition: int


class LogOffsets(NamedTuple):
    """Offsets of a partition log: the first event, the end, and the offset committed by the group."""

    first: int
    end: int
    committed: int | None = None

    def missing(self, last: int) -> int:
        """Return the number of events that were deleted before they were read; `last` is the latest offset in any
        state.

        If nothing is committed (None or 0) and no state contains an event, all deleted events count as unread.

        >>> LogOffsets(first=40, end=90, committed=30).missing(last=29)
        10
        >>> LogOffsets(40, 90, 0).missing(-1), LogOffsets(40, 90).missing(59)
        (40, 0)
        """
        return max(self.first - (self.committed or last + 1), 0)


class Table(Protocol):
    """Interface of the table of sites, for Faust's table and for tests. `job_log` describes the keys."""

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key."""

    def keys(self) -> Iterable[bytes]:
        """Return the keys that have a value."""

    def take(self, key: bytes, value: bytes | None, partition: int) -> None:
        """Apply a changelog record, unless the current value has a higher rank."""

    def drop(self, keys: Iterable[bytes]) -> None:
        """Remove keys in memory only."""

    def put(self, key: bytes, value: bytes | None, partition: int) -> Awaitable[Any]:
        """Set a value (None deletes it); the result is done when the changelog has it."""


@dataclass
class SiteHandle:
    """One site at this worker: its engine, its partition, and the offset of the last applied event (-1: none).

    The other fields are as in `StoredState`, but `first` is -1 before the first event. `jobs` is the log of its live
    jobs.
    """

    engine: Engine
    partition: int
    offset: int = -1
    epoch: int = 0
    own: bool = False
    generation: int = 0
    stamp: float = 0.0
    arrivals: Arrivals = field(default_factory=Arrivals)
    operations: list[DoneOperation] = field(default_factory=list)
    failures: list[float] = field(default_factory=list)
    applied_parts: int = 0
    first: int = -1
    claim: int = 0
    jobs: JobLog = field(init=False)

    def __post_init__(self) -> None:
        self.jobs = JobLog(self.engine.site)

    @property
    def log(self) -> PartitionLog:
        """The log of its events."""
        return PartitionLog(self.engine.site if self.own else None, self.partition)

    def failed(self, stamp: float) -> None:
        """Record that the engine failed at an event with the broker timestamp `stamp`."""
        self.failures = [*self.failures, stamp][-MOST_FAILURES:]

    def is_set_aside(self, stamp: float) -> bool:
        """Return whether an event with the broker timestamp `stamp` is skipped because the engine has failed too often.

        The site is set aside for `ASIDE_S` after the last of `MOST_FAILURES` failures within the same time. This
        depends only on the site's events, so a replay gives the same result.
        """
        if len(self.failures) < MOST_FAILURES:
            return False
        first, last = self.failures[0], self.failures[-1]
        return last - first < ASIDE_S and stamp - last < ASIDE_S

    def is_to_apply(self, offset: int) -> bool:
        """Return whether a message may have events that are not in the state yet."""
        return offset > self.offset or (offset == self.offset and self.applied_parts > 0)

    def next_part(self, offset: int) -> int:
        """Return the index, from 0, of the first event to apply of a message that `is_to_apply`."""
        return self.applied_parts if offset == self.offset else 0

    def passed(self, offset: int, stamp: float, applied_parts: int = 0) -> None:
        """Record that the state includes the message at this offset with the broker timestamp `stamp` (0: unknown).

        Args:
            applied_parts: Number of applied events of a partly applied bundle; 0 for all.
        """
        self.offset, self.applied_parts, self.stamp = offset, applied_parts, max(stamp, self.stamp)
        if self.first < 0:
            self.first = offset
        if not applied_parts:
            self.arrivals.add(stamp)

    def start_epoch(self, own: bool) -> None:
        """Restart the offsets of the site."""
        self.own, self.epoch, self.offset, self.applied_parts, self.first = own, self.epoch + 1, -1, 0, -1


def read_state(site: str, stored: StoredState, get: Callable[[bytes], bytes | None]) -> tuple[SavedState, JobLog]:
    """Decode a state and its live jobs, as far as its parts exist; O(live jobs), so not for the event loop.

    Args:
        get: Returns the value of a segment by key; None if it is missing.

    Raises:
        ValueError: The state has another version, or is not valid.
    """
    saved = read_saved(decompress(stored.state))
    segments = (_segment(get(key)) for key in keys_of(site, stored.runs))
    log, found = JobLog.read(site, stored.runs, decompress(stored.tail), segments)
    # Free each job as it is decoded: freeing a million at once would hold the GIL for long.
    jobs = read_jobs(found.pop(number) for number in sorted(found))
    log.fault = saved.live.take_in(jobs) or log.fault
    return saved, log


def _segment(value: bytes | None) -> bytes | None:
    if value is None:
        return None
    try:
        return decompress(decode_segment(value).jobs)
    except ValueError:  # includes msgspec's errors
        return None
