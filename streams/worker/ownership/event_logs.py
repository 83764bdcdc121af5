"""The topics of events, and the changelog, as the owner of a partition needs them."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from aiokafka import TopicPartition
from aiokafka.errors import KafkaError
from faust.exceptions import ConsumerNotStarted
from faust.types import TP

from streams.broker.consumer import Consumer
from streams.broker.topics import Topics
from streams.settings import Settings
from streams.worker.checkpoint.job_log import site_of
from streams.worker.checkpoint.stored import Log, Range, SiteHandle
from streams.worker.faust_compat import QueuecastApp
from streams.worker.metrics.process import Metrics

log = logging.getLogger(__name__)

POLL_MS = 1000
"""Milliseconds that one read from a topic may wait for messages."""


@contextmanager
def _as_os_errors() -> Iterator[None]:
    """Errors of Kafka that pass become `OSError`, so that they are waited out."""
    try:
        yield
    except KafkaError as error:
        raise ConnectionError(f"{error!r}") from error


class EventLogs:
    """What the topics of events hold, and the states that the changelog holds."""

    def __init__(self, app: QueuecastApp, settings: Settings, metrics: Metrics) -> None:
        self._app = app
        self._kafka = settings.kafka
        self._topics = Topics(settings.kafka.prefix)
        self._metrics = metrics

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
        self._metrics.renewed.labels(str(partition)).inc()

    def lost(self, partition: int, events: int) -> None:
        """Count events that were deleted before they were read."""
        self._metrics.lost.labels(str(partition)).inc(events)

    async def read(self, log_of: Log, first: int, last: int, key: bytes) -> list[Any]:
        """The messages with this key from offset `first` to `last`.

        Raises:
            OSError: the broker does not answer.
        """
        return await self._read(self._place(log_of), first, last + 1, lambda message: message.key == key)

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
        place = TopicPartition(*tp)
        with _as_os_errors():
            consumer = Consumer(enable_auto_commit=False, **self._kafka.async_options())
            await consumer.start()
            try:
                consumer.assign([place])
                begin = (await consumer.beginning_offsets([place]))[place]
                stop = min((await consumer.end_offsets([place]))[place], 1 << 62 if end is None else end)
                consumer.seek(place, max(first if first >= 0 else stop + first, begin))
                found: list[Any] = []
                while await consumer.position(place) < stop:
                    messages = (await consumer.getmany(place, timeout_ms=POLL_MS)).get(place, ())
                    found.extend(one for one in messages if one.offset < stop and matches(one))
                return found
            finally:
                await consumer.stop()
