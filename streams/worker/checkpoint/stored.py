"""What a worker holds and stores of a site, and what it needs of Kafka and Faust."""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import msgspec

from models.engine.checkpoint import SavedState, read_jobs, read_saved
from models.engine.engine import Engine
from models.records import DoneOperation
from models.stored import decompress
from streams.worker.checkpoint.job_log import JobLog, SegmentRange, keys_of

MOST_FAILURES, ASIDE_S = 3, 3600.0
"""A site at whose events the engine failed so often within so many seconds is set aside for as long."""

MIN_STALE_S = 600.0  # no site is stale whose last event came less than this many seconds ago
MAX_STALE_S = 86_400.0  # a site whose last event came longer ago than this is stale, however rare its events are
USUAL_GAPS = 2.0  # a site is stale after this many times the longest time that usually passes between two of its events
WINDOW_EVENTS = 256  # the longest time between two events is that of the last 256 to 511 events


class Arrivals(msgspec.Struct, array_like=True):
    """When a site's events came to the broker (Unix seconds), as far as it tells how often they come.

    `longest_s` is the longest time between two of the last `count` events, `before_s` of the 256 before these.

    The median time between events is no measure of it: of 20 times the median, five workload traces would have made a
    site stale a hundred times a week. Of twice the longest of the last 256 it is two to five times a week.

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
        """An event came at `stamp` (0: unknown). A time without events that was itself too long counts as the bound."""
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
        """Seconds after its last event at which the site is stale."""
        return min(max(USUAL_GAPS * max(self.longest_s, self.before_s), MIN_STALE_S), MAX_STALE_S)


class StoredState(msgspec.Struct, array_like=True):
    """A site's state with the offset of the last event in it, as one value in the table.

    `v` is the version of this record. `state` is what is bounded; the live jobs are in the segments of the `runs` and
    in the `tail` (`JobLog`). State and tail are compressed with zlib. `epoch` counts how often the offsets that count
    for the site have begun again. `own` says whether they are those of the site's own topic. `generation` is that of
    its entries in Redis (`SiteStore`). `stamp` is the broker's time of its last event, Unix seconds. `arrivals` tell
    how often its events come, `operations` what operators did. `failures` are the broker's times of the latest events
    at which the engine failed. `begun` is 0, but where the message at `offset` is a bundle and some of its events are
    still to come: so many are included. `first` is the offset of its first event, at which a rebuild begins. `claim` is
    the number of the claim of the worker that wrote it (`Claims`).
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
    begun: int = 0
    first: int = 0
    claim: int = 0

    @property
    def position(self) -> tuple[int, int, bool, int]:
        """How far it goes; of two states by the same worker the one with the greater is the later."""
        return self.epoch, self.offset, not self.begun, self.begun

    @property
    def rank(self) -> tuple[int, tuple[int, int, bool, int]]:
        """Of two states of a site the one with the greater counts: a worker that has lost the partition may still write
        one, further than those of the worker that has claimed the site since.
        """
        return self.claim, self.position


IN_BOTH = (
    *("partition", "offset", "epoch", "own", "generation", "stamp", "arrivals", "operations", "failures", "begun"),
    *("first", "claim"),
)
"""The fields that a stored state and a handle have."""


class StoredSegment(msgspec.Struct, array_like=True):
    """A segment of a site's jobs as it is in the table: of which partition, and the segment, compressed with zlib."""

    v: int
    partition: int
    jobs: bytes


encode_stored = msgspec.msgpack.Encoder().encode
decode_stored = msgspec.msgpack.Decoder(StoredState).decode
decode_segment = msgspec.msgpack.Decoder(StoredSegment).decode


class Log(NamedTuple):
    """One partition of a topic of events: the site whose own topic it is, None for the shared one."""

    site: str | None
    partition: int


class Range(NamedTuple):
    """What there is of a log: the offsets of its first event and of its next one, and what the group has committed."""

    first: int
    end: int
    committed: int | None = None

    def missing(self, last: int) -> int:
        """How many events were deleted before they were read; `last` is the latest that any state counts.

        Where nothing is committed (0 is nothing too) and no state counts any, all that was deleted was never read.

        >>> Range(first=40, end=90, committed=30).missing(29), Range(40, 90, 0).missing(-1), Range(40, 90).missing(59)
        (10, 40, 0)
        """
        return max(self.first - (self.committed or last + 1), 0)


class Table(Protocol):
    """What a worker needs of the table of sites: Faust's, or a test's. `job_log` tells which keys there are."""

    def get(self, key: bytes) -> bytes | None:
        """The value of a key."""

    def keys(self) -> Iterable[bytes]:
        """The keys that have a value."""

    def take(self, key: bytes, value: bytes | None, partition: int) -> None:
        """Take what the changelog has of a key, unless what is there goes further."""

    def drop(self, keys: Iterable[bytes]) -> None:
        """Forget keys, in memory alone."""

    def put(self, key: bytes, value: bytes | None, partition: int) -> Awaitable[Any]:
        """Set a value, None to delete it; done when the changelog has it."""


@dataclass
class SiteHandle:
    """One site at this worker: its engine, its partition, and the last event in the engine (offset -1: none).

    The other fields are as in `StoredState`, but `first` is -1 before the first event; `jobs` is what is stored of the
    live jobs.
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
    begun: int = 0
    first: int = -1
    claim: int = 0
    jobs: JobLog = field(init=False)

    def __post_init__(self) -> None:
        self.jobs = JobLog(self.engine.site)

    @property
    def log(self) -> Log:
        """Where its events come."""
        return Log(self.engine.site if self.own else None, self.partition)

    def failed(self, stamp: float) -> None:
        """The engine failed at an event that came to the broker at `stamp`."""
        self.failures = [*self.failures, stamp][-MOST_FAILURES:]

    def is_set_aside(self, stamp: float) -> bool:
        """Whether an event that came to the broker at `stamp` is not applied: the engine has failed too often.

        That is so for `ASIDE_S` after the last of `MOST_FAILURES` failures within as much time. It follows from the
        site's events alone, so whoever sees them again decides the same.
        """
        if len(self.failures) < MOST_FAILURES:
            return False
        first, last = self.failures[0], self.failures[-1]
        return last - first < ASIDE_S and stamp - last < ASIDE_S

    def is_to_apply(self, offset: int) -> bool:
        """Whether a message has events, or may have, that are not in the state yet."""
        return offset > self.offset or (offset == self.offset and self.begun > 0)

    def next_part(self, offset: int) -> int:
        """The place, from 0, of the first event that is to be applied of a message that `is_to_apply`."""
        return self.begun if offset == self.offset else 0

    def passed(self, offset: int, stamp: float, begun: int = 0) -> None:
        """Its state includes the message at this offset, which came to the broker at `stamp` (0: unknown).

        Parameters:
            begun: so many of its events, where others are still to come; 0: all.
        """
        self.offset, self.begun, self.stamp = offset, begun, max(stamp, self.stamp)
        if self.first < 0:
            self.first = offset
        if not begun:
            self.arrivals.add(stamp)

    def begin_epoch(self, own: bool) -> None:
        """The offsets that count for it begin again."""
        self.own, self.epoch, self.offset, self.begun, self.first = own, self.epoch + 1, -1, 0, -1


class ReadState(NamedTuple):
    """A state as far as it is there. `fault` says what is wrong with it."""

    saved: SavedState
    jobs: JobLog
    fault: str | None = None


def read_state(site: str, stored: StoredState, get: Callable[[bytes], bytes | None]) -> ReadState:
    """Read a state; O(live jobs), 10 µs each, so not in the event loop.

    Parameters:
        get: gives the value of a segment by its key, None where it is not there.

    Raises:
        ValueError: it is of another version, or not such a state at all.
    """
    saved = read_saved(decompress(stored.state))
    segments = (_segment(get(key)) for key in keys_of(site, stored.runs))
    found = JobLog.read(site, stored.runs, decompress(stored.tail), segments)
    # Each is freed when it is read: a million at once would hold the interpreter's lock for 0.4 s.
    jobs = read_jobs(found.jobs.pop(number) for number in sorted(found.jobs))
    return ReadState(saved, found.log, saved.live.take_in(jobs) or next(iter(found.faults), None))


def _segment(value: bytes | None) -> bytes | None:
    if value is None:
        return None
    try:
        return decompress(decode_segment(value).jobs)
    except ValueError:  # msgspec's errors are such too
        return None
