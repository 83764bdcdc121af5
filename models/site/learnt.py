"""The departed jobs of a site, as fingerprints, so that redelivered events do not count a job twice."""

import math
from collections.abc import Iterable
from hashlib import blake2b

import msgspec
import numpy as np
import numpy.typing as npt

from models.records import JobKey
from models.site.rows import Row, Rows
from models.site.shapes import HOUR_S

CHUNK_JOBS = 128  # fingerprints per row
ROWS_PER_MERGE = 32  # rows between two merges into the sorted array: 4096 jobs

MAX_JOBS = 131_072
"""Approximate number of jobs remembered by their fingerprints: two weeks of 10,000 jobs a day, in 1 MB."""

LATE_S = 60.0
"""Events may be this late, and many times are whole seconds. After a loss of rows, an unknown job from the minute
before counts as new: few jobs leave within a minute, and a refused new job is missing for as long as it is pending."""

Fingerprints = npt.NDArray[np.uint64]


class LearntState(msgspec.Struct, array_like=True):
    """The stored state apart from the rows: the fingerprints after the last full row, and three Unix times."""

    tail: list[int] = msgspec.field(default_factory=list)
    tail_until: float = 0.0
    forgotten_until: float = 0.0
    lost_until: float = -math.inf

    def lose(self, now: float) -> None:
        """Record that rows are lost at this time: any older unknown job may have left."""
        self.lost_until = max(self.lost_until, now)


class _Chunk(msgspec.Struct, array_like=True):
    """A row: `CHUNK_JOBS` fingerprints, and the time of the last event of these jobs."""

    until: float
    jobs: bytes


def fingerprint(key: JobKey) -> int:
    """Return a 64-bit hash of a job's key. The probability of a collision among 131,072 jobs is 5e-10.

    >>> fingerprint(("1", 0)) == fingerprint(("1", 0)) != fingerprint(("1", 1))
    True
    """
    return int.from_bytes(blake2b(f"{key[1]} {key[0]}".encode(), digest_size=8).digest())


class LearntJobs:
    """The last `MAX_JOBS` departed jobs, and the time before which others may have been forgotten.

    `rows` are stored one by one, like those of a method.

    >>> learnt = LearntJobs()
    >>> learnt.add(("1", 0), 60.0)
    >>> ("1", 0) in learnt, ("1", 1) in learnt, learnt.may_have_departed(50.0, now=60.0)
    (True, False, False)
    """

    def __init__(self, most: int = MAX_JOBS) -> None:
        self._depth = max(most // CHUNK_JOBS // ROWS_PER_MERGE, 1) * ROWS_PER_MERGE
        self.rows = Rows(self._depth + ROWS_PER_MERGE)
        self.state = LearntState()
        self._merged: Fingerprints = np.empty(0, np.uint64)  # sorted
        self._recent: set[int] = set()

    def __contains__(self, key: JobKey) -> bool:
        found = fingerprint(key)
        if found in self._recent:
            return True
        place = int(self._merged.searchsorted(np.uint64(found)))
        return place < len(self._merged) and int(self._merged[place]) == found

    def may_have_departed(self, time: float, now: float) -> bool:
        """Return whether an unknown job with an event of this time may have left before.

        A job whose fingerprint was forgotten within the last hour counts as new, because at such a high throughput some
        events are late.
        """
        return time < self.state.lost_until - LATE_S or time <= min(self.state.forgotten_until, now - HOUR_S)

    def add(self, key: JobKey, at: float) -> None:
        """Add a job that left by an event at the time `at` (Unix seconds)."""
        state, job = self.state, fingerprint(key)
        state.tail.append(job)
        state.tail_until = max(state.tail_until, at)
        self._recent.add(job)
        if len(state.tail) == CHUNK_JOBS:
            jobs = np.array(state.tail, np.uint64).tobytes()
            self.rows.append(msgspec.msgpack.encode(_Chunk(state.tail_until, jobs)))
            state.tail, state.tail_until = [], 0.0
            if self.rows.count % ROWS_PER_MERGE == 0:
                self._forget()
                self._merge()

    def _forget(self) -> None:
        """Advance `forgotten_until` over the oldest rows, which the next merge drops."""
        first = self.rows.count - self._depth
        for row in self.rows.numbered:
            if first - ROWS_PER_MERGE <= row.number < first:
                self.state.forgotten_until = max(self.state.forgotten_until, _decode(row.value).until)

    def _merge(self) -> None:
        end = self.rows.count - self.rows.count % ROWS_PER_MERGE
        merged = [row for row in self.rows.numbered if end - self._depth <= row.number < end]
        self._merged = np.sort(np.concatenate([np.empty(0, np.uint64), *map(_jobs, merged)]))
        recent = (job for row in self.rows.numbered if row.number >= end for job in _jobs(row).tolist())
        self._recent = {*recent, *self.state.tail}

    def restore(self, state: LearntState, rows: Iterable[Row], count: int, oldest: int) -> None:
        """Restore the stored rows, in any order, from number `oldest` to before `count`.

        Raises:
            ValueError: rows are missing.
        """
        self.rows.restore(rows, count, oldest)
        self.state = state
        self._merge()


_decode = msgspec.msgpack.Decoder(_Chunk).decode


def _jobs(row: Row) -> Fingerprints:
    return np.frombuffer(_decode(row.value).jobs, np.uint64)
