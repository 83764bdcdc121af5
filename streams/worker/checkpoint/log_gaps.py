"""Where the topics of events no longer hold what the states of their sites go on from."""

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Any

from streams.worker.checkpoint.loader import SiteLoader
from streams.worker.checkpoint.retries import Retries
from streams.worker.checkpoint.stored import Events, Log, Range, StoredState, encode_stored

log = logging.getLogger(__name__)

Put = Callable[[Mapping[bytes, bytes | None], int], Awaitable[Any]]
"""Sets keys of the table, of one partition, at once."""


class LogGaps:
    """Compares what the logs hold with what the states count: events that were deleted unread, topics made anew."""

    def __init__(self, loader: SiteLoader, retries: Retries, put: Put) -> None:
        self._loader, self._put = loader, put
        self._until_done = retries.until_done

    async def look(self, partitions: Iterable[int], found: Mapping[bytes, StoredState]) -> set[Log]:
        """The logs of these partitions of which events were deleted before they were read.

        Where a log ends before what the states count, their sites begin a new epoch.

        Parameters:
            found: the states that are stored, by their keys; their offsets and epochs are kept true.
        """
        events = self._loader.events
        if events is None:
            return set()
        last = {Log(None, partition): -1 for partition in partitions}
        for key, stored in found.items():
            place = log_of(key, stored)
            last[place] = max(stored.offset, last.get(place, -1))
        behind = set()
        for place, there in (await self._ranges(events, last)).items():
            if last[place] >= there.end:
                await self._begin_epochs(events, place, there.end, found)
            elif missing := there.missing(last[place]):
                behind.add(place)
                _tell_lost(events, place, missing, there.first)
        return behind

    async def is_one(self, place: Log, expected: int, found: int) -> bool:
        """Whether events were deleted between an offset that was expected and the one that came.

        They were not where a source sends in transactions, whose ends take offsets too.
        """
        events = self._loader.events
        if events is None:
            return False
        ranges = await self._ranges(events, [place])
        missing = min(ranges[place].first, found) - expected if place in ranges else 0
        if missing > 0:
            _tell_lost(events, place, missing, ranges[place].first)
        return missing > 0

    async def _ranges(self, events: Events, logs: Iterable[Log]) -> Mapping[Log, Range]:
        return await self._until_done("kafka: the ends of partitions", partial(events.ranges, list(logs)))

    async def _begin_epochs(self, events: Events, place: Log, end: int, found: Mapping[bytes, StoredState]) -> None:
        """Begin a new epoch of the sites whose states include offsets that the topic does not have.

        Their offsets have begun again. This is written at once: later the new offsets may have grown beyond the old.
        """
        log.error(
            "the events topic was made anew or cut short: it ends at %d here, the states go further; "
            "they go on with what it holds now",
            end,
            extra={"site": place.site, "partition": place.partition},
        )
        events.renewed(place.partition)
        theirs = {key: stored for key, stored in found.items() if log_of(key, stored) == place}
        for stored in theirs.values():
            stored.epoch, stored.offset = stored.epoch + 1, -1
        await self._put({key: encode_stored(stored) for key, stored in theirs.items()}, place.partition)


def log_of(key: bytes, stored: StoredState) -> Log:
    """Where the events of a stored site come."""
    return Log(key.decode() if stored.own else None, stored.partition)


def _tell_lost(events: Events, place: Log, missing: int, first: int) -> None:
    """Count events that were deleted before they were read, and log it."""
    events.lost(place.partition, missing)
    log.error(
        "%d events were deleted before they were read: the topic begins at %d; "
        "were the workers away, or behind, for longer than `topics.events_hours`?",
        missing,
        first,
        extra={"site": place.site, "partition": place.partition},
    )
