"""Which jobs have left, as fingerprints: a job is learnt once, whenever its events come again."""

import math
from collections.abc import Iterable
from hashlib import blake2b

import msgspec
import numpy as np
import numpy.typing as npt

from models.records import JobKey
from models.site.rows import Row, Rows
from models.site.shapes import HOUR_S

CHUNK_JOBS = 128  # fingerprints in a row
ROWS_PER_MERGE = 32  # rows between two merges into the sorted array: 4096 jobs

MAX_JOBS = 131_072
"""Jobs that are known by their fingerprints, give or take a merge: two weeks of 10,000 a day, in 1 MB."""

LATE_S = 60.0
"""Events come so late, and many times are whole seconds. Where it is lost which jobs have left, an unknown one of the
minute before is new: few left within a minute, and a new one that is refused is missing for as long as it queues."""

Fingerprints = npt.NDArray[np.uint64]


class LearntState(msgspec.Struct, array_like=True):
    """What is stored of it beside its rows: the fingerprints that fill no row yet, and three times in Unix seconds."""

    tail: list[int] = msgspec.field(default_factory=list)
    tail_until: float = 0.0
    forgotten_until: float = 0.0
    lost_until: float = -math.inf

    def lose(self, now: float) -> None:
        """Rows are lost at this time: any older job that is unknown may have left."""
        self.lost_until = max(self.lost_until, now)


class _Chunk(msgspec.Struct, array_like=True):
    """A row: `CHUNK_JOBS` fingerprints, and the time of the last event of these jobs."""

    until: float
    jobs: bytes


def fingerprint(key: JobKey) -> int:
    """64 bits of a job's identity; two of 131,072 jobs are alike with a probability of 5e-10. 1 µs.

    >>> fingerprint(("1", 0)) == fingerprint(("1", 0)) != fingerprint(("1", 1))
    True
    """
    return int.from_bytes(blake2b(f"{key[1]} {key[0]}".encode(), digest_size=8).digest())


class LearntJobs:
    """The last `MAX_JOBS` jobs that left, and the time before which all others may have been forgotten.

    `rows` are stored one by one, as a method's are. Looking a job up takes 3 µs, adding it 2 µs, on average.

    >>> learnt = LearntJobs()
    >>> learnt.add(("1", 0), 60.0)
    >>> ("1", 0) in learnt, ("1", 1) in learnt, learnt.may_have_left(50.0, now=60.0)
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

    def may_have_left(self, time: float, now: float) -> bool:
        """Whether a job that is unknown, with an event of this time, may have left before.

        What was forgotten in the last hour is taken for new: so many jobs then come and go that some are late.
        """
        return time < self.state.lost_until - LATE_S or time <= min(self.state.forgotten_until, now - HOUR_S)

    def add(self, key: JobKey, at: float) -> None:
        """A job has left by an event of the time `at` (Unix seconds)."""
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
        """Forget the oldest rows, as many as came since this was last done, where there are more than enough."""
        first = self.rows.count - self._depth
        for row in self.rows.kept:
            if first - ROWS_PER_MERGE <= row.number < first:
                self.state.forgotten_until = max(self.state.forgotten_until, _decode(row.value).until)

    def _merge(self) -> None:
        end = self.rows.count - self.rows.count % ROWS_PER_MERGE
        merged = [row for row in self.rows.kept if end - self._depth <= row.number < end]
        self._merged = np.sort(np.concatenate([np.empty(0, np.uint64), *map(_jobs, merged)]))
        recent = (job for row in self.rows.kept if row.number >= end for job in _jobs(row).tolist())
        self._recent = {*recent, *self.state.tail}

    def restore(self, state: LearntState, rows: Iterable[Row], count: int, oldest: int) -> None:
        """Take back the stored rows, in any order, from number `oldest` and before `count`; ValueError where some are
        missing.
        """
        self.rows.restore(rows, count, oldest)
        self.state = state
        self._merge()


_decode = msgspec.msgpack.Decoder(_Chunk).decode


def _jobs(row: Row) -> Fingerprints:
    return np.frombuffer(_decode(row.value).jobs, np.uint64)
