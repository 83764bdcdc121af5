"""What the agent does with each message of the events topic."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Iterable
from contextlib import suppress
from typing import Any

import faust
import msgspec

from models.engine.outgoing import Anomaly, Record
from models.records import AnyEvent, AnyOperation, DeadLetter, Outcome, Prediction, Rebuild, Submit
from streams.settings import Settings
from streams.topics import LATE, Topics
from streams.worker.answers.freshness import Freshness
from streams.worker.answers.scores import AnswerScores
from streams.worker.checkpoint.pulse import Pulse, since_boot
from streams.worker.checkpoint.stored import AppliedEvent, Log, SiteHandle
from streams.worker.faust_compat import QueuecastApp
from streams.worker.intake.messages import Places, Unreadable, dead_letter, read_event
from streams.worker.intake.operations import change, note, read_operation, rebuilt_lately
from streams.worker.intake.unknown_fields import UnknownFields
from streams.worker.metrics.health import Health
from streams.worker.metrics.process import Metrics
from streams.worker.ownership.late import TakenAway
from streams.worker.ownership.ledger import Ledger
from streams.worker.ownership.parking import AnyFuture, Parking

log = logging.getLogger(__name__)

HAND_OVER_S = 5.0
"""Seconds that a last checkpoint may take when partitions are taken away."""

_encode = msgspec.json.Encoder().encode


class Processor:
    """Reads each message, applies it to its site's engine, sends what follows, and tells the ledger."""

    def __init__(
        self,
        app: QueuecastApp,
        settings: Settings,
        ledger: Ledger,
        metrics: Metrics,
        clock: Callable[[], float] = since_boot,
        places: Places | None = None,
        freshness: Freshness | None = None,
    ) -> None:
        self.unknown_fields = UnknownFields(metrics.unknown_field)
        self.answer_scores = AnswerScores()
        self._method = settings.engine.method
        self._freshness = freshness or Freshness()
        self._app = app
        self.health = Health(settings)
        self._topics = Topics(settings.kafka.prefix)
        self._ledger = ledger
        self._places = places or Places(settings, settings.topics.partitions)
        ledger.is_home, ledger.loader.replay = self._places.is_home, self.replay
        self._metrics = metrics
        self._partitions: frozenset[int] = frozenset()
        self._next: dict[tuple[str, int], int] = {}  # the offset of the next event, by topic and partition
        self._reading_back: asyncio.Future[None] | None = None  # the sites that are late
        self._revocations = 0  # how often partitions were taken away
        self.pulse = Pulse(settings.worker.session_seconds / 2, clock)
        self._late_s = settings.worker.late_seconds
        self._busy = asyncio.Lock()  # the agent, the checkpoint timer and a rebalance take turns
        self.parking = Parking(self._process, self._pending, self._supervised)

    @property
    def partitions(self) -> frozenset[int]:
        """The partitions whose events, and questions, are this worker's now."""
        return self._partitions

    async def take(self, message: faust.EventT) -> None:
        """Process one message from the events topic, or have it processed as soon as its site has a model for it."""
        await self.parking.take(message)

    def _pending(self, message: faust.EventT) -> AnyFuture | None:
        """What a message has to wait for before it can be processed."""
        site = (message.message.key or b"").decode(errors="replace")
        handle = self._ledger.handles.get(site)
        return self._ledger.late.begin(site) if handle is None else handle.engine.pending()

    async def _process(self, message: faust.EventT) -> None:
        async with self._busy:
            self.pulse.check()
            raw = message.message
            partition, offset = raw.partition, raw.offset
            if partition not in self._partitions:
                return  # taken away while this waited: its next owner sees it again
            await self._look_for_gap(raw)
            site: str | None = None
            applied: AppliedEvent | None = None
            sends: list[Awaitable[Any]] = []
            try:
                if (operation := read_operation(raw.key, raw.value)) is not None:
                    await self._operate(operation, message)
                    return
                event = read_event(raw.key, raw.value)
                own = self._places.check(raw.topic, partition, event.site)
                if self._ledger.late and not self._ledger.knows(event.site):
                    await self._ledger.late.get_all(partition)  # whether there is room is known with all of them
                if not self._ledger.admits(event.site, partition, own, raw.timestamp):
                    raise Unreadable("too_many_sites", "its partition has `worker.partition_sites` others already")
                handle = await self._ledger.handle(event.site, partition, own)
                if offset > handle.offset:  # else its state includes it already
                    self.unknown_fields.look(event, raw.value)
                    site, (applied, sends) = event.site, await self._apply(handle, event, raw)
                    handle = self._ledger.handles[site]  # made anew where the engine failed
                    handle.offset, handle.stamp = offset, max(raw.timestamp, handle.stamp)
                    handle.arrivals.add(raw.timestamp)
            except TakenAway:
                return  # its next owner sees it again
            except Unreadable as error:
                sends = [await self._reject(error.reason, error.detail, None, raw)]
            if partition not in self._partitions:  # taken away meanwhile
                self._ledger.drop([partition])
                return
            self._note_read(raw)
            self._ledger.record(partition, message, site, sends, applied)
            if self._ledger.full(partition):
                await self._ledger.begin_checkpoint(partition)

    async def _look_for_gap(self, raw: Any) -> None:
        """Notice offsets that were passed over: events may have been deleted while this worker was behind."""
        place = raw.topic, raw.partition
        expected = self._next.get(place, raw.offset)
        if raw.offset > expected:
            await self._ledger.notice_gap(Log(self._places.owner(raw.topic), raw.partition), expected, raw.offset)
        self._next[place] = raw.offset + 1

    async def _supervised(self, task: Awaitable[None]) -> None:
        async with self._app.stopping_on_error():
            await task

    async def _operate(self, operation: AnyOperation, message: faust.EventT) -> None:
        """Change a site as an operator says, and make that durable at once.

        Raises:
            Unreadable: there is no such site here, or it was rebuilt a short time ago.
        """
        raw, site = message.message, operation.site
        own = self._places.check(raw.topic, raw.partition, site)
        if not self._ledger.knows(site):
            raise Unreadable("unknown_site", "an operation for a site of which no event has come")
        handle = await self._ledger.handle(site, raw.partition, own)
        if raw.offset > handle.offset:
            if isinstance(operation, Rebuild) and rebuilt_lately(handle, raw.timestamp):
                raise Unreadable("rebuilt_lately", "the site was rebuilt less than ten minutes before")
            if isinstance(operation, Rebuild):
                handle, count = await self._ledger.begin_anew(handle, raw.offset)
                note(handle, operation, raw.timestamp, f"made anew from {count} messages", rebuilt=True)
            else:
                note(handle, operation, raw.timestamp, change(handle.engine, operation))
            handle.offset = raw.offset
        if raw.partition not in self._partitions:  # taken away meanwhile
            self._ledger.drop([raw.partition])
            return
        self._note_read(raw)
        self._ledger.record(raw.partition, message, site, [])
        await self._ledger.checkpoint(raw.partition)

    def _note_read(self, raw: Any) -> None:
        """A message is behind us, as the lag and the freshness of its sites count."""
        self._metrics.read(raw.topic, raw.partition, raw.offset, raw.timestamp)
        self._freshness.read((raw.topic, raw.partition), raw.offset, raw.timestamp)

    def replay(self, handle: SiteHandle, raw: Any) -> None:
        """Apply a message once more, as `take` did; nothing is sent, for all that follows from it was sent then.

        Raises:
            Exception: whatever the engine raises, whose state may then be half of what it should be.
        """
        with suppress(Unreadable):
            if (operation := read_operation(raw.key, raw.value)) is not None:
                change(handle.engine, operation)
                return
            event = read_event(raw.key, raw.value)
            self._places.check(raw.topic, raw.partition, event.site)
            handle.engine.apply(event, _arrived(raw))
            handle.arrivals.add(_arrived(raw) or 0.0)

    async def _apply(
        self, handle: SiteHandle, event: AnyEvent, raw: Any
    ) -> tuple[AppliedEvent | None, list[Awaitable[Any]]]:
        """Apply an event to its site's engine, as a whole or not at all.

        Returns what was applied, None where the engine failed; and the outputs, on their way to Kafka.
        """
        arrived = _arrived(raw)
        try:
            records = handle.engine.apply(event, arrived)
        except Exception as error:  # a fault of ours must neither stop the other sites nor stay unseen
            where = {"site": event.site, "partition": raw.partition, "offset": raw.offset}
            log.exception("the engine failed", extra=where)
            await self._ledger.rebuild(event.site, raw.partition)
            return None, [await self._reject("engine_failed", repr(error), event.site, raw)]
        key = raw.key
        sends = [await self._send(record, event.site, key, raw) for record in _outgoing(records)]
        if isinstance(event, Submit):
            self._metrics.predicted(raw.timestamp)
        self._score(event, records)
        return AppliedEvent(event, raw.offset, arrived), sends

    def _score(self, event: AnyEvent, records: Iterable[Record]) -> None:
        """Score what was told of jobs, by when they leave the queue."""
        if isinstance(event, Submit):
            if any(isinstance(record, Prediction) and record.job == event.job for record in records):
                self.answer_scores.came(event)
            return
        for record in records:
            if isinstance(record, Outcome) and record.method == self._method:
                self.answer_scores.left(record)

    async def _send(self, record: Record, site: str, key: bytes, raw: Any) -> Awaitable[Any]:
        if isinstance(record, Anomaly):
            return await self._reject(record.reason, record.detail, site, raw, record.quarantine)
        if isinstance(record, Prediction):
            headers = self._lateness(raw.timestamp)
            return await self._produce(self._topics.predictions, key, record, headers, raw.partition)
        return await self._produce(self._topics.outcomes, key, record, partition=raw.partition)

    def _lateness(self, arrived: float) -> list[tuple[str, bytes]]:
        """The header of a prediction that leaves late; not a field, so that a repeat has the same value."""
        seconds = time.time() - arrived
        if seconds <= self._late_s:
            return []
        self._metrics.late()
        return [(LATE, b"%d" % seconds)]

    async def _reject(
        self, reason: str, detail: str, site: str | None, raw: Any, quarantine: bool = False
    ) -> Awaitable[Any]:
        self._metrics.rejected(reason, quarantine)
        letter = dead_letter(reason, detail, site, raw.topic, raw.partition, raw.offset, raw.value, quarantine)
        return await self._produce(self._topics.dead_letters, raw.key, letter)

    async def _produce(
        self,
        topic: str,
        key: bytes | None,
        record: Prediction | Outcome | DeadLetter,
        headers: Iterable[tuple[str, bytes]] = (),
        partition: int | None = None,
    ) -> Awaitable[Any]:
        """Send a record: to the partition of its key, which is that of the site's events, where that is known."""
        value = _encode(record)
        sent: Awaitable[Any] = await self._app.producer.send(topic, key, value, partition, None, list(headers))
        return sent

    async def take_over(self, partitions: Iterable[int]) -> None:
        """Load the sites of partitions that have become this worker's."""
        owned, before = frozenset(partitions), self._revocations
        async with self._busy:
            self._next.clear()  # what was deleted up to now is found out in another way
            if self._revocations == before:
                with suppress(TakenAway):
                    await self._ledger.take_over(owned)
            if self._revocations == before:
                self._partitions = owned
            else:  # some were taken away meanwhile: what was read may be old, and the next assignment reads it again
                self._ledger.drop(owned)
        if self._ledger.late:
            self._reading_back = asyncio.ensure_future(self._supervised(self._ledger.late.get_all(at_a_time=1)))

    async def hindrance(self) -> str | None:
        """Why this worker can't process events now; None when it can."""
        if not self._partitions:
            return "no partitions: joining, reading back their states, or more workers than partitions"
        if self._ledger.trouble is not None:
            return self._ledger.trouble
        await self.health.look()
        return self.health.broker or self.health.store

    async def checkpoint_due(self) -> None:
        """Begin a checkpoint of each partition that is due and has none running."""
        async with self._busy:
            running = self._ledger.running_checkpoints()
            for partition in self._ledger.due():
                if partition not in running:
                    await self._ledger.begin_checkpoint(partition)

    async def hand_over(self, partitions: Collection[int]) -> None:
        """Make a last checkpoint of partitions that are being taken away, if there is time, and forget their sites."""
        self._revocations += 1
        self._partitions = self._partitions.difference(partitions)
        for partition in partitions:
            self.parking.drop(partition)
        try:
            async with asyncio.timeout(HAND_OVER_S), self._busy:
                for partition in partitions:
                    await self._ledger.checkpoint(partition)
        except TimeoutError:
            log.warning("no checkpoint within %.0f s; the next owner will see those events again", HAND_OVER_S)
        finally:
            self._ledger.drop(partitions)
            await self._ledger.late.no_longer_read()  # before the next owner claims its sites
            self._metrics.forget(partitions)
            self._freshness.forget(partitions)


def _arrived(raw: Any) -> float | None:
    """When a message arrived at the broker, Unix seconds; None where that is unknown."""
    return raw.timestamp if raw.timestamp > 0.0 else None


def _outgoing(records: Iterable[Record]) -> list[Record]:
    """The records that go out: all but the anomalies of events that were accepted."""
    return [record for record in records if not isinstance(record, Anomaly) or record.rejected]
