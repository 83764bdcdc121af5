"""Where the topics of events no longer hold what the states of their sites go on from."""

import logging
from collections.abc import Iterable, Mapping
from functools import partial

from streams.worker.checkpoint.retries import Retries
from streams.worker.checkpoint.stored import Events, Log, Range, StoredState, encode_stored
from streams.worker.checkpoint.table import OwnedTable

log = logging.getLogger(__name__)


class LogGaps:
    """Compares what the logs hold with what the states count: events that were deleted unread, topics recreated."""

    def __init__(self, events: Events, retries: Retries, table: OwnedTable) -> None:
        self._events = events
        self._table = table
        self._until_done = retries.until_done

    async def look(self, partition: int, found: Mapping[str, StoredState]) -> set[Log]:
        """The logs of a partition of which events were deleted before they were read.

        Where a log ends before what the states count, their sites begin a new epoch.

        Parameters:
            found: the states that are stored, by site; their offsets and epochs are kept true.
        """
        last = {Log(None, partition): -1}
        for site, stored in found.items():
            place = log_of(site, stored)
            last[place] = max(stored.offset, last.get(place, -1))
        behind = set()
        for place, there in (await self._ranges(last)).items():
            if last[place] >= there.end:
                await self._begin_epochs(place, there.end, found)
            elif missing := there.missing(last[place]):
                behind.add(place)
                self._tell_lost(place, missing, there.first)
        return behind

    async def is_one(self, place: Log, expected: int, found: int) -> bool:
        """Whether events were deleted between an offset that was expected and the one that came.

        They were not where a source sends in transactions, whose ends take offsets too.
        """
        ranges = await self._ranges([place])
        missing = min(ranges[place].first, found) - expected if place in ranges else 0
        if missing > 0:
            self._tell_lost(place, missing, ranges[place].first)
        return missing > 0

    async def _ranges(self, logs: Iterable[Log]) -> Mapping[Log, Range]:
        return await self._until_done("kafka: the ends of partitions", partial(self._events.ranges, list(logs)))

    async def _begin_epochs(self, place: Log, end: int, found: Mapping[str, StoredState]) -> None:
        """Begin a new epoch of the sites whose states include offsets that the topic does not have.

        Their offsets have begun again. This is written at once: later the new offsets may have grown beyond the old.
        """
        log.error(
            "the events topic was recreated or cut short: it ends at %d here, the states go further; "
            "they go on with what it holds now",
            end,
            extra={"site": place.site, "partition": place.partition},
        )
        self._events.renewed(place.partition)
        theirs = {site: stored for site, stored in found.items() if log_of(site, stored) == place}
        for stored in theirs.values():
            stored.epoch, stored.offset = stored.epoch + 1, -1
        await self._table.put({site.encode(): encode_stored(stored) for site, stored in theirs.items()})

    def _tell_lost(self, place: Log, missing: int, first: int) -> None:
        """Count events that were deleted before they were read, and log it."""
        self._events.lost(place.partition, missing)
        log.error(
            "%d events were deleted before they were read: the topic begins at %d; "
            "were the workers away, or behind, for longer than `topics.events_hours`?",
            missing,
            first,
            extra={"site": place.site, "partition": place.partition},
        )


def log_of(site: str, stored: StoredState) -> Log:
    """Where the events of a stored site come."""
    return Log(site if stored.own else None, stored.partition)
