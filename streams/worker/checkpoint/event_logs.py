"""The topics of events and the changelog: what they hold, and where they no longer hold what states go on from."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, NamedTuple

import faust
from aiokafka import TopicPartition
from aiokafka.errors import KafkaError
from faust.exceptions import ConsumerNotStarted
from faust.types import TP
from prometheus_client import Counter

from streams.broker.consumer import Consumer
from streams.broker.fetched import Fetched
from streams.broker.standstill import batches_to
from streams.broker.topics import Topics
from streams.errors import Unreachable
from streams.settings import Settings
from streams.worker.checkpoint.job_log import site_of
from streams.worker.checkpoint.stored import Log, Range, SiteHandle, StoredState, encode_stored
from streams.worker.checkpoint.table import OwnedTable, Retries

log = logging.getLogger(__name__)
BATCH_MESSAGES = 500  # messages that are read before other tasks get their turn: some milliseconds


@contextmanager
def _as_os_errors() -> Iterator[None]:
    """Errors of Kafka that pass become `OSError`, so that they are waited out."""
    try:
        yield
    except (KafkaError, Unreachable) as error:
        raise ConnectionError(f"{error!r}") from error


class SomeMessages(NamedTuple):
    """Messages that were read, the offset from which others follow, and whether some had been deleted before that."""

    messages: list[Fetched]
    next: int
    lost: bool


class LateStates(NamedTuple):
    """Keys and values that came late into a partition of the changelog, and the offset of the last one."""

    found: list[tuple[bytes, bytes | None]]
    last: int


class EventLogs:
    """What the topics of events hold, and the states that the changelog holds.

    Parameters:
        renewed, lost: count, by partition, that it was recreated, and events that were deleted unread.
    """

    def __init__(self, app: faust.App, settings: Settings, renewed: Counter, lost: Counter) -> None:
        self._app = app
        self._kafka = settings.kafka
        self._topics = Topics(settings.kafka.prefix)
        self._renewed, self._lost = renewed, lost

    def place(self, handle: SiteHandle) -> TP:
        """Where a site's events come."""
        return self._place(handle.log)

    def end(self, place: tuple[str, int]) -> int | None:
        """The offset that the next event there will have, as far as this worker's consumer knows."""
        with suppress(ConsumerNotStarted):
            if (tp := TP(*place)) in self._app.consumer.assignment():
                end: int | None = self._app.consumer.highwater(tp)
                return end
        return None

    def _place(self, log_of: Log) -> TP:
        topic = self._topics.events if log_of.site is None else self._topics.own_events(log_of.site)
        return TP(topic, log_of.partition)

    async def ranges(self, logs: Iterable[Log]) -> Mapping[Log, Range]:
        """What each log holds, and what the group has committed.

        A log of a topic that is no longer read (a site's own, before) is left out.

        Raises:
            OSError: the broker does not answer.
        """
        consumer, assigned = self._app.consumer, self._app.consumer.assignment()
        places = {one: tp for one in logs if (tp := self._place(one)) in assigned}
        with _as_os_errors():
            ends = await consumer.highwaters(*places.values())
            firsts = await consumer.earliest_offsets(*places.values())
            committed = await consumer.committed(*places.values())
        for place in places:  # that nothing was lost is shown too
            self.lost(place.partition, 0)
        return {one: Range(firsts[tp], ends[tp], committed[tp]) for one, tp in places.items()}

    def renewed(self, partition: int) -> None:
        """Count a partition that was recreated, or cut short, since its states were stored."""
        self._renewed.labels(str(partition)).inc()

    def lost(self, partition: int, events: int) -> None:
        """Count events that were deleted before they were read."""
        self._lost.labels(str(partition)).inc(events)

    async def read(self, log_of: Log, first: int, last: int, key: bytes) -> list[Fetched]:
        """Read the messages with this key from offset `first` to `last`. Raises OSError: the broker does not answer."""
        found = await self._read(self._place(log_of), first, last + 1, lambda message: message.key == key)
        return [Fetched.of_record(record) for record in found]

    async def read_some(self, place: TP, key: bytes, first: int, last: int, most: int) -> SomeMessages:
        """Read the first messages with this key from offset `first` to `last`: about as many as are wanted, or all.

        Raises:
            OSError: the broker does not answer.
        """
        found: list[Any] = []
        with _as_os_errors():
            async with self._reading(place, first, last + 1) as (begin, batches):
                upto = max(first, begin)
                async for records in batches:
                    upto = max((record.offset + 1 for record in records), default=upto)
                    found.extend(record for record in records if record.key == key and record.offset <= last)
                    if len(found) >= most:
                        return SomeMessages([Fetched.of_record(record) for record in found], upto, begin > first)
        return SomeMessages([Fetched.of_record(record) for record in found], last + 1, begin > first)

    async def late_states(self, partition: int, after: int | None = None) -> LateStates:
        """Read what came into a partition of the changelog after an offset, by default after the table was read back.

        Raises:
            OSError: the broker does not answer.
        """
        place = TP(self._topics.state, partition)
        last: int = self._app.tables.recovery.active_offsets.get(place, -1) if after is None else after
        with _as_os_errors():
            end = (await self._app.consumer.highwaters(place))[place]
        if end is None or end <= last + 1:
            return LateStates([], last)
        found = await self._read(place, last + 1, None, lambda _: True)
        return LateStates([(one.key, one.value) for one in found], max((one.offset for one in found), default=end - 1))

    async def earlier_states(self, partition: int, key: bytes, most: int | None = None) -> list[tuple[bytes, bytes]]:
        """The keys and values of a site that its changelog still has, the latest first.

        Parameters:
            most: of so many offsets at the changelog's end alone; None: of all, which may be many.

        Raises:
            OSError: the broker does not answer.
        """
        place, first = TP(self._topics.state, partition), 0 if most is None else -most
        found = await self._read(place, first, None, lambda one: one.value and site_of(one.key) == key)
        return [(message.key, message.value) for message in reversed(found)]

    async def _read(self, tp: TP, first: int, end: int | None, matches: Callable[[Any], Any]) -> list[Any]:
        """The messages that match, by a consumer of its own; a negative `first` counts from the end, as in a slice."""
        found: list[Any] = []
        with _as_os_errors():
            async with self._reading(tp, first, end) as (_, batches):
                async for records in batches:
                    found.extend(one for one in records if matches(one))
        return found

    @asynccontextmanager
    async def _reading(
        self, tp: TP, first: int, end: int | None
    ) -> AsyncIterator[tuple[int, AsyncIterator[Sequence[Any]]]]:
        """Give where a partition begins, and its records from `first` to before `end`, in batches."""
        place = TopicPartition(*tp)
        consumer = Consumer(enable_auto_commit=False, **self._kafka.async_options())
        await consumer.start()
        try:
            consumer.assign([place])
            begin = (await consumer.beginning_offsets([place]))[place]
            stop = min((await consumer.end_offsets([place]))[place], 1 << 62 if end is None else end)
            consumer.seek(place, max(first if first >= 0 else stop + first, begin))

            async def batches() -> AsyncIterator[Sequence[Any]]:
                async for found in batches_to(consumer, {place: stop}, BATCH_MESSAGES):
                    yield [one for one in found.get(place, ()) if one.offset < stop]
                    await asyncio.sleep(0)

            yield begin, batches()
        finally:
            await consumer.stop()


class LogGaps:
    """Compares what the logs hold with what the states count: events that were deleted unread, topics recreated."""

    def __init__(self, events: EventLogs, retries: Retries, table: OwnedTable) -> None:
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
        return await self._until_done("kafka: the ends of partitions", None, self._events.ranges, list(logs))

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
            stored.epoch, stored.offset, stored.begun, stored.first = stored.epoch + 1, -1, 0, -1
        await self._table.put({site.encode(): encode_stored(stored) for site, stored in theirs.items()})

    def _tell_lost(self, place: Log, missing: int, first: int) -> None:
        """Count events that were deleted before they were read, and log it."""
        self._events.lost(place.partition, missing)
        log.error(
            "%d events were deleted before they were read: the topic begins at %d; "
            "were the workers away, or behind, for longer than `topics.events_retention_hours`?",
            missing,
            first,
            extra={"site": place.site, "partition": place.partition},
        )


def log_of(site: str, stored: StoredState) -> Log:
    """Where the events of a stored site come."""
    return Log(site if stored.own else None, stored.partition)
