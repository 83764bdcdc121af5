"""The events topics and the changelog: their contents, and gaps between them and the stored states."""

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
from streams.worker.checkpoint.owned_table import OwnedTable, Retries
from streams.worker.checkpoint.stored_site import LogOffsets, PartitionLog, SiteHandle, StoredState, encode_stored

log = logging.getLogger(__name__)
BATCH_MESSAGES = 500  # messages per batch, between which other tasks run


@contextmanager
def as_os_errors() -> Iterator[None]:
    """Convert transient Kafka errors to `OSError`, so that they are retried."""
    try:
        yield
    except (KafkaError, Unreachable) as error:
        raise ConnectionError(f"{error!r}") from error


class MessageBatch(NamedTuple):
    """Consecutive messages of a key, the offset to continue from, and whether earlier ones had been deleted."""

    messages: list[Fetched]
    next: int
    lost: bool


class ChangelogRecords(NamedTuple):
    """Last keys and values in a partition of the changelog, and the offset of the last one."""

    records: list[tuple[bytes, bytes | None]]
    last: int


class EventLogs:
    """Read the events topics, and the states in the changelog.

    Args:
        renewed: Counts recreations of a partition.
        lost: Counts unread events that were deleted, by partition.
    """

    def __init__(self, app: faust.App, settings: Settings, renewed: Counter, lost: Counter) -> None:
        self._app = app
        self._kafka = settings.kafka
        self._topics = Topics(settings.kafka.prefix)
        self._renewed, self._lost = renewed, lost

    def place(self, handle: SiteHandle) -> TP:
        """Return the topic and partition of a site's events."""
        return self._place(handle.log)

    def end(self, place: tuple[str, int]) -> int | None:
        """Return the end offset of a topic and partition, as far as this worker's consumer has received it."""
        with suppress(ConsumerNotStarted):
            if (tp := TP(*place)) in self._app.consumer.assignment():
                end: int | None = self._app.consumer.highwater(tp)
                return end
        return None

    def _place(self, log_of: PartitionLog) -> TP:
        topic = self._topics.events if log_of.site is None else self._topics.own_events(log_of.site)
        return TP(topic, log_of.partition)

    async def ranges(self, logs: Iterable[PartitionLog]) -> Mapping[PartitionLog, LogOffsets]:
        """Return the offsets of each log, and the committed offset of the group.

        Logs of topics that are no longer read (a former dedicated topic) are omitted.

        Raises:
            OSError: The broker does not respond.
        """
        consumer, assigned = self._app.consumer, self._app.consumer.assignment()
        places = {one: tp for one in logs if (tp := self._place(one)) in assigned}
        with as_os_errors():
            ends = await consumer.highwaters(*places.values())
            firsts = await consumer.earliest_offsets(*places.values())
            committed = await consumer.committed(*places.values())
        for place in places:  # export 0 as well
            self.lost(place.partition, 0)
        return {one: LogOffsets(firsts[tp], ends[tp], committed[tp]) for one, tp in places.items()}

    def renewed(self, partition: int) -> None:
        """Count a partition that was recreated or truncated after its states were stored."""
        self._renewed.labels(str(partition)).inc()

    def lost(self, partition: int, events: int) -> None:
        """Count events that were deleted before they were read."""
        self._lost.labels(str(partition)).inc(events)

    async def read(self, log_of: PartitionLog, first: int, last: int, key: bytes) -> list[Fetched]:
        """Read the messages with this key from offset `first` to `last`.

        Raises:
            OSError: The broker does not respond.
        """
        found = await self._read(self._place(log_of), first, last + 1, lambda message: message.key == key)
        return [Fetched.of_record(record) for record in found]

    async def read_some(self, place: TP, key: bytes, first: int, last: int, most: int) -> MessageBatch:
        """Read messages with this key from offset `first` to `last`, until about `most` are found.

        Raises:
            OSError: The broker does not respond.
        """
        found: list[Any] = []
        with as_os_errors():
            async with self._reading(place, first, last + 1) as (begin, batches):
                upto = max(first, begin)
                async for records in batches:
                    upto = max((record.offset + 1 for record in records), default=upto)
                    found.extend(record for record in records if record.key == key and record.offset <= last)
                    if len(found) >= most:
                        return MessageBatch([Fetched.of_record(record) for record in found], upto, begin > first)
        return MessageBatch([Fetched.of_record(record) for record in found], last + 1, begin > first)

    async def late_states(self, partition: int, after: int | None = None) -> ChangelogRecords:
        """Read what was written to a partition of the changelog after an offset; by default after the table was
        restored.

        Raises:
            OSError: The broker does not respond.
        """
        place = TP(self._topics.state, partition)
        last: int = self._app.tables.recovery.active_offsets.get(place, -1) if after is None else after
        with as_os_errors():
            end = (await self._app.consumer.highwaters(place))[place]
        if end is None or end <= last + 1:
            return ChangelogRecords([], last)
        found = await self._read(place, last + 1, None, lambda _: True)
        return ChangelogRecords(
            [(one.key, one.value) for one in found], max((one.offset for one in found), default=end - 1)
        )

    async def earlier_states(self, partition: int, key: bytes, most: int | None = None) -> list[tuple[bytes, bytes]]:
        """Return the keys and values of a site that are still in its changelog, the latest first.

        Args:
            most: Number of offsets to read at the end of the changelog; None reads all, which may be many.

        Raises:
            OSError: The broker does not respond.
        """
        place, first = TP(self._topics.state, partition), 0 if most is None else -most
        found = await self._read(place, first, None, lambda one: one.value and site_of(one.key) == key)
        return [(message.key, message.value) for message in reversed(found)]

    async def _read(self, tp: TP, first: int, end: int | None, matches: Callable[[Any], Any]) -> list[Any]:
        """Read the matching messages with a separate consumer; a negative `first` counts from the end."""
        found: list[Any] = []
        with as_os_errors():
            async with self._reading(tp, first, end) as (_, batches):
                async for records in batches:
                    found.extend(one for one in records if matches(one))
        return found

    @asynccontextmanager
    async def _reading(
        self, tp: TP, first: int, end: int | None
    ) -> AsyncIterator[tuple[int, AsyncIterator[Sequence[Any]]]]:
        """Provide the beginning offset of a partition, and its records from `first` to before `end` in batches."""
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
    """Compare the logs with the stored states: detect unread events that were deleted, and recreated topics."""

    def __init__(self, events: EventLogs, retries: Retries, table: OwnedTable) -> None:
        self._events = events
        self._table = table
        self._until_done = retries.until_done

    async def look(self, partition: int, found: Mapping[str, StoredState]) -> set[PartitionLog]:
        """Return the logs of a partition with events that were deleted before they were read.

        If a log ends before the offset of the states, their sites begin a new epoch.

        Args:
            found: The stored states by site; their offsets and epochs are updated.
        """
        last = {PartitionLog(None, partition): -1}
        for site, stored in found.items():
            place = log_of(site, stored)
            last[place] = max(stored.offset, last.get(place, -1))
        behind = set()
        for place, there in (await self._ranges(last)).items():
            if last[place] >= there.end:
                await self._start_epochs(place, there.end, found)
            elif missing := there.missing(last[place]):
                behind.add(place)
                self._report_lost(place, missing, there.first)
        return behind

    async def is_one(self, place: PartitionLog, expected: int, found: int) -> bool:
        """Return whether events were deleted between the expected offset and the one that arrived.

        A gap is normal if a source uses transactions, because their markers have offsets too.
        """
        ranges = await self._ranges([place])
        missing = min(ranges[place].first, found) - expected if place in ranges else 0
        if missing > 0:
            self._report_lost(place, missing, ranges[place].first)
        return missing > 0

    async def _ranges(self, logs: Iterable[PartitionLog]) -> Mapping[PartitionLog, LogOffsets]:
        return await self._until_done("kafka: the ends of partitions", None, self._events.ranges, list(logs))

    async def _start_epochs(self, place: PartitionLog, end: int, found: Mapping[str, StoredState]) -> None:
        """Begin a new epoch for the sites whose offsets are beyond the end of the topic.

        This is written immediately: later the new offsets may exceed the old ones.
        """
        log.error(
            "the events topic was recreated or cut short: it ends at %d here, the states go further; "
            "processing continues from its beginning",
            end,
            extra={"site": place.site, "partition": place.partition},
        )
        self._events.renewed(place.partition)
        theirs = {site: stored for site, stored in found.items() if log_of(site, stored) == place}
        for stored in theirs.values():
            stored.epoch, stored.offset, stored.applied_parts, stored.first = stored.epoch + 1, -1, 0, -1
        await self._table.put({site.encode(): encode_stored(stored) for site, stored in theirs.items()})

    def _report_lost(self, place: PartitionLog, missing: int, first: int) -> None:
        """Count and log events that were deleted before they were read."""
        self._events.lost(place.partition, missing)
        log.error(
            "%d events were deleted before they were read: the topic begins at %d; "
            "were the workers away, or behind, for longer than `topics.events_retention_hours`?",
            missing,
            first,
            extra={"site": place.site, "partition": place.partition},
        )


def log_of(site: str, stored: StoredState) -> PartitionLog:
    """Return the log of a stored site's events."""
    return PartitionLog(site if stored.own else None, stored.partition)
