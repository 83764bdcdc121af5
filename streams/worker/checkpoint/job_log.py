"""Live jobs of a site, stored as a log, so that a checkpoint writes only the changes.

A site's state in the table is its *head*, under the site's name, and *segments* under separate keys. The head has a
bounded size. It contains the names of the valid segments and the *tail*: the jobs that have changed since the last
segment was written. When the tail reaches `TAIL_BYTES`, it becomes a segment. If a job is in several of these, the last
one counts.

Segments are durable before the head that names them, and are deleted after a head that does not. So every named segment
exists, and other segments are ignored: a checkpoint is one atomic write of the head.

As in log compaction, each checkpoint moves jobs from the oldest segments to the tail while the log is more than twice
as large as its live jobs. The number of moved jobs is about the number of changed jobs. So the log stays below about
three times the size of the live jobs.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple
from uuid import uuid4

import msgspec

from models.engine.engine import Engine
from models.engine.saved_state import EngineSnapshot

TAIL_BYTES = 48 << 10
"""Uncompressed size at which the tail becomes a segment."""

SEGMENT_BYTES = 512 << 10  # maximum size of a segment plus one job; a larger tail is split

MOST_GARBAGE, SLACK_BYTES = 2, 256 << 10
"""The log is compacted while it exceeds this multiple of the live data plus this number of bytes."""

MIN_MOVED_BYTES, MAX_SCANNED = 8 << 10, 20_000
"""Limits per checkpoint: bytes moved in addition to the changed bytes, and entries scanned."""

DEPARTED_BYTES = 5  # encoded size of a departed job
KEY_MARK = b"\xff"  # first byte of a segment's key; not valid in a UTF-8 site name
_WRITER = 8  # hexadecimal digits of a writer and of a number


class SegmentRange(msgspec.Struct, array_like=True, frozen=True):
    """Consecutive segments of one writer, from number `first` to `last`."""

    writer: str
    first: int
    last: int


class Segment(msgspec.Struct, array_like=True):
    """Contents of a segment or the tail: encoded jobs by number, and the numbers of departed jobs."""

    jobs: list[tuple[int, msgspec.Raw]] = []
    departed: list[int] = []


class JobLogWrites(NamedTuple):
    """Changes of a site's job log to store with a checkpoint, uncompressed.

    Attributes:
        tail: The encoded tail.
        segments: New segments with their keys.
        freed: Keys of segments to delete once the head is durable.
        runs: The segments that are valid then.
    """

    tail: bytes
    segments: list[tuple[bytes, bytes]]
    freed: list[bytes]
    runs: list[SegmentRange]


class _Tail:
    """Changes since the last segment was written."""

    def __init__(self) -> None:
        self.jobs: dict[int, bytes] = {}
        self.departed: list[int] = []
        self.bytes = 0

    @classmethod
    def of(cls, segment: Segment) -> "_Tail":
        """Create the tail from the decoded tail of a head."""
        tail = cls()
        for number, job in segment.jobs:
            tail.put(number, bytes(job))
        for number in segment.departed:
            tail.add_departed(number)
        return tail

    def put(self, number: int, encoded: bytes) -> None:
        """Insert or replace a live job."""
        self.drop(number)
        self.jobs[number] = encoded
        self.bytes += len(encoded)

    def drop(self, number: int) -> None:
        """Remove a job from the tail."""
        self.bytes -= len(self.jobs.pop(number, b""))

    def add_departed(self, number: int) -> None:
        """Record that a job in a segment has departed."""
        self.departed.append(number)
        self.bytes += DEPARTED_BYTES

    def encoded(self) -> bytes:
        """Encode the tail as in a head or a segment."""
        jobs = [(number, msgspec.Raw(job)) for number, job in self.jobs.items()]
        return _encode(Segment(jobs, self.departed))


class _Piece:
    """A valid segment and the numbers of its jobs, without those that were moved.

    `bytes` is its uncompressed size, and `jobs_in_all` its number of jobs including the moved ones.
    """

    __slots__ = ("bytes", "jobs", "jobs_in_all", "key", "place")

    def __init__(self, key: bytes, place: tuple[str, int], size: int, jobs: Iterable[int]) -> None:
        self.key, self.place, self.bytes = key, place, size
        self.jobs = list(jobs)[::-1]
        self.jobs_in_all = len(self.jobs)


def new_writer() -> str:
    """Return a unique name for a writer of segments."""
    return uuid4().hex[:_WRITER]


def segment_key(site: str, writer: str, number: int) -> bytes:
    """Return the key of a segment in the table; no two processes write the same key."""
    return KEY_MARK + writer.encode() + b"%08x" % number + site.encode()


def site_of(key: bytes) -> bytes:
    """Return the site key of a key of the table; the key of a head is the site key."""
    return key[1 + 2 * _WRITER :] if key.startswith(KEY_MARK) else key


def keys_of(site: str, runs: Iterable[SegmentRange]) -> Iterator[bytes]:
    """Return the keys of segments in order."""
    return (segment_key(site, *place) for place in _places(runs))


def _places(runs: Iterable[SegmentRange]) -> Iterator[tuple[str, int]]:
    return ((run.writer, number) for run in runs for number in range(run.first, run.last + 1))


class JobLog:
    """The stored jobs of one site, and the next changes to store. A site has one writing process at a time.

    A snapshot costs O(changes). The memory is O(live jobs). `fault` describes what is wrong with a restored log.
    """

    def __init__(self, site: str) -> None:
        self.fault: str | None = None
        self._site = site
        self._writer = new_writer()
        self._next = 0
        self._pieces: deque[_Piece] = deque()
        self._where: dict[int, _Piece] = {}  # the last segment that contains each live job
        self._bytes = self._entries = 0  # total size and number of entries of all segments
        self._tail = _Tail()
        self._unwritten: list[tuple[bytes, bytes]] = []
        self._freed: list[bytes] = []

    @classmethod
    def read(
        cls, site: str, runs: Iterable[SegmentRange], tail: bytes, segments: Iterable[bytes | None]
    ) -> tuple["JobLog", dict[int, bytes]]:
        """Restore the log of a head and its encoded jobs by number, as far as its segments exist; O(jobs).

        Args:
            segments: Encoded, uncompressed segments of the runs in order, as the tail is; None for a lost segment.
        """
        log, found = cls(site), dict[int, bytes]()
        for (writer, number), encoded in zip(_places(runs), segments, strict=True):
            if encoded is None:
                log.fault = log.fault or "a segment of live jobs is missing"
            elif (segment := log._apply(encoded, found)) is not None:
                jobs = [one for one, _ in segment.jobs]
                log._add(_Piece(segment_key(site, writer, number), (writer, number), len(encoded), jobs))
        last = log._apply(tail, found)
        if last is not None:
            log._tail = _Tail.of(last)
        return log, found

    def _apply(self, encoded: bytes, found: dict[int, bytes]) -> Segment | None:
        """Apply a segment to the jobs, and return it decoded; None if it cannot be decoded."""
        try:
            segment = _decode(encoded)
        except msgspec.MsgspecError as error:
            self.fault = self.fault or str(error)
            return None
        for number in segment.departed:
            found.pop(number, None)
            self._where.pop(number, None)
        found.update((number, bytes(job)) for number, job in segment.jobs)
        return segment

    @property
    def keys(self) -> list[bytes]:
        """Keys of the segments that are valid, or will be with the next head."""
        return [piece.key for piece in self._pieces]

    @property
    def all_keys(self) -> list[bytes]:
        """Keys of these segments, and of those that are about to be deleted."""
        return [*self._freed, *self.keys]

    def cut(self, engine: Engine) -> tuple[EngineSnapshot, JobLogWrites]:
        """Take a snapshot of an engine, and return it with the job data to write."""
        cut, before = engine.cut(), self._tail.bytes
        self._take_in(cut)
        self._clean(engine, max(self._tail.bytes - before, 0) + MIN_MOVED_BYTES)
        if self._tail.bytes >= TAIL_BYTES:
            self._flush()
        segments, self._unwritten = self._unwritten, []
        freed, self._freed = self._freed, []
        return cut, JobLogWrites(self._tail.encoded(), segments, freed, self._runs())

    def fill(self, engine: Engine, replaced: Iterable[bytes] = ()) -> None:
        """Make the next snapshot store everything of an engine, and invalidate all earlier segments.

        O(live jobs); call it in another thread if the event loop must not wait.

        Args:
            replaced: Keys of segments to delete.
        """
        self.free([*replaced, *self.keys])
        self._pieces.clear()
        self._where.clear()
        self._bytes, self._entries, self._tail, self._unwritten = 0, 0, _Tail(), []
        for number, encoded in engine.all_stored_jobs():
            self._tail.put(number, encoded)
            if self._tail.bytes >= SEGMENT_BYTES:
                self._flush()

    def free(self, keys: Iterable[bytes]) -> None:
        """Delete segments once the next head is durable."""
        self._freed.extend(keys)

    def free_others(self, keys: Iterable[bytes]) -> None:
        """Delete those of these segments that are not valid."""
        known = {*self.all_keys}
        self.free(key for key in keys if key not in known)

    def _take_in(self, cut: EngineSnapshot) -> None:
        for number in cut.departed:
            self._tail.drop(number)
            if self._where.pop(number, None) is not None:
                self._tail.add_departed(number)
        for number, encoded in cut.jobs.items():
            self._tail.put(number, encoded)

    def _clean(self, engine: Engine, most: int) -> None:
        """Move live jobs, at most `most` bytes, from the oldest segments to the tail, and drop empty segments."""
        moved, tail = 0, self._tail
        for _ in range(MAX_SCANNED):
            if not self._pieces or moved >= most or not self._is_large():
                return
            oldest = self._pieces[0]
            if oldest.jobs:
                number = oldest.jobs.pop()
                if self._where.get(number) is oldest and number not in tail.jobs:
                    tail.put(number, engine.encoded_job(number))
                    moved += len(tail.jobs[number])
            else:
                self._freed.append(self._pieces.popleft().key)
                self._bytes -= oldest.bytes
                self._entries -= oldest.jobs_in_all

    def _is_large(self) -> bool:
        """Return whether the log has too much garbage. All entries are assumed to have the average size."""
        live = self._bytes * len(self._where) / max(self._entries, 1)
        return self._bytes > MOST_GARBAGE * live + SLACK_BYTES

    def _flush(self) -> None:
        """Convert the tail to segments."""
        whole, self._tail = self._tail, _Tail()
        for part in _parts(whole):
            encoded = part.encoded()
            place = self._writer, self._next
            self._next += 1
            key = segment_key(self._site, *place)
            self._add(_Piece(key, place, len(encoded), part.jobs))
            self._unwritten.append((key, encoded))

    def _add(self, piece: _Piece) -> None:
        """Add a valid segment."""
        self._pieces.append(piece)
        self._bytes += piece.bytes
        self._entries += piece.jobs_in_all
        self._where.update(dict.fromkeys(piece.jobs, piece))

    def _runs(self) -> list[SegmentRange]:
        runs: list[SegmentRange] = []
        for piece in self._pieces:
            writer, number = piece.place
            if runs and (runs[-1].writer, runs[-1].last + 1) == piece.place:
                runs[-1] = SegmentRange(writer, runs[-1].first, number)
            else:
                runs.append(SegmentRange(writer, number, number))
        return runs


def _parts(tail: _Tail) -> Iterator[_Tail]:
    """Split a tail into parts of at most the size of a segment."""
    part = _Tail()
    part.departed = tail.departed
    for number, encoded in tail.jobs.items():
        part.put(number, encoded)
        if part.bytes >= SEGMENT_BYTES:
            yield part
            part = _Tail()
    if part.jobs or part.departed:
        yield part


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Segment).decode
