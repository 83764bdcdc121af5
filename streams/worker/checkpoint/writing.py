"""What a checkpoint writes of a site: taken between two events, and compressed beside them."""

import zlib
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from streams.worker.checkpoint.histories import SiteChanges
from streams.worker.checkpoint.job_log import Written
from streams.worker.checkpoint.stored import IN_BOTH, SiteHandle, StoredSegment, StoredState, encode_stored

HEAD_VERSION = 2
"""Version of a stored head."""


class SiteCut(NamedTuple):
    """What is to be stored of a site as it was between two events: its head, not compressed yet, what is to be written
    of its jobs beside, and its changes for Redis."""

    head: StoredState
    jobs: Written
    changes: SiteChanges

    @classmethod
    def of(cls, handle: SiteHandle) -> "SiteCut":
        """A site as it is now; O(what has changed since this was last called)."""
        cut, jobs = handle.jobs.cut(handle.engine)
        kept = {name: getattr(handle, name) for name in IN_BOTH} | {
            "arrivals": msgspec.structs.replace(handle.arrivals)
        }
        head = StoredState(v=HEAD_VERSION, state=cut.state, runs=jobs.runs, tail=jobs.tail, **kept)
        oldest = handle.engine.context.history.oldest
        return cls(head, jobs, SiteChanges(handle.engine.site, cut.changes, oldest, handle.generation))


def compressed(states: Iterable[SiteCut], partition: int) -> tuple[dict[bytes, bytes], dict[bytes, bytes]]:
    """The heads and the segments as they are put into the table. zlib lets other threads run."""
    heads, segments = {}, {}
    for one in states:
        state, tail = zlib.compress(one.head.state, 1), zlib.compress(one.head.tail, 1)
        heads[one.changes.site.encode()] = encode_stored(msgspec.structs.replace(one.head, state=state, tail=tail))
        for key, jobs in one.jobs.segments:
            segments[key] = encode_stored(StoredSegment(1, partition, zlib.compress(jobs, 1)))
    return heads, segments
