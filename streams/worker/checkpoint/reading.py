"""A stored state of a site, read: its head, its live jobs from their segments, and what is missing."""

import zlib
from collections.abc import Callable
from typing import NamedTuple

from models.engine.checkpoint import SavedState, read_jobs, read_saved
from streams.worker.checkpoint.job_log import JobLog, keys_of
from streams.worker.checkpoint.stored import StoredState, decode_segment


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
    saved = read_saved(zlib.decompress(stored.state))
    segments = (_segment(get(key)) for key in keys_of(site, stored.runs))
    found = JobLog.read(site, stored.runs, zlib.decompress(stored.tail), segments)
    first = saved.live.named - saved.live.names
    found.log.begin_names(first)
    # Each is freed when it is read: a million at once would hold the interpreter's lock for 0.4 s.
    jobs = read_jobs(found.jobs.pop(number) for number in sorted(found.jobs))
    names = [found.names[number] for number in sorted(found.names) if number >= first]
    return ReadState(saved, found.log, saved.live.take_in(jobs, names) or next(iter(found.faults), None))


def _segment(value: bytes | None) -> bytes | None:
    if value is None:
        return None
    try:
        return zlib.decompress(decode_segment(value).jobs)
    except (ValueError, zlib.error):  # msgspec's errors are such too
        return None
