"""The worker: one Faust agent that reads events, and what goes out because of them."""

import asyncio
import logging
import sys
import tempfile
import time
from collections.abc import Awaitable, Container, Iterable
from typing import Any

import faust
import msgspec
from aiohttp.web import Response
from faust.transport.drivers import aiokafka
from faust.types import StreamT
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from models.engine import Anomaly, Record, warm_up
from models.records import AnyEvent, DeadLetter, Outcome, Prediction, Submit
from streams.intake import Unreadable, dead_letter, read_event
from streams.ledger import Ledger, Slot
from streams.metrics import Metrics
from streams.settings import KafkaSettings, Settings
from streams.store import SiteStore, check_redis, connect
from streams.topics import STATE_MESSAGE_BYTES, Topics, check_topics

log = logging.getLogger(__name__)

SETTLE_S = 10.0
"""Seconds that a worker takes at most to settle what is open when its partitions are taken from it."""

_encode = msgspec.json.Encoder().encode


class SiteTable(faust.Table):  # type: ignore[misc]  # faust's classes are untyped
    """The table of sites, which is written from outside of the stream's loop too, each site to its own partition."""

    def put(self, key: bytes, value: bytes, partition: int) -> Awaitable[Any]:
        """Set a value; done when the changelog has it."""
        self.data[key] = value
        sent: Awaitable[Any] = self.send_changelog(partition, key, value)
        return sent


class Consumer(aiokafka.Consumer):  # type: ignore[misc]  # faust's classes are untyped
    """The consumer, which goes back to the beginning of partitions of which nothing is committed yet.

    While Faust reads the table it fetches events too, and drops them: afterwards it seeks back, but only in partitions
    that have a committed offset.
    """

    async def perform_seek(self) -> None:
        """Seek to where the events go on."""
        await super().perform_seek()
        new = [tp for tp in self.assignment() if self._committed_offset[tp] is None and not self._is_changelog_tp(tp)]
        if new:
            await self._thread.seek_to_beginning(*(self._new_topicpartition(*tp) for tp in new))


class Transport(aiokafka.Transport):  # type: ignore[misc]  # faust's classes are untyped
    """Faust's way to Kafka, with our consumer."""

    Consumer = Consumer


class Worker:
    """What the agent does with each message: read it, apply it, send what follows, and tell the ledger."""

    def __init__(self, app: "QueuecastApp", settings: Settings, ledger: Ledger, metrics: Metrics) -> None:
        self._app = app
        self._topics = Topics(settings.kafka.prefix)
        self._ledger = ledger
        self._metrics = metrics
        self._busy = asyncio.Lock()  # the agent, the timer and a rebalance take turns

    async def take(self, message: faust.EventT) -> None:
        """Process one message from the events topic."""
        async with self._busy:
            raw = message.message
            partition, offset = raw.partition, raw.offset
            site, sends = None, []
            try:
                event = read_event(raw.key, raw.value)
                slot = await self._ledger.slot(event.site, partition)
                if offset > slot.offset:  # else its state includes it already
                    site, sends = event.site, await self._apply(slot, event, raw)
                    slot.offset = offset
            except Unreadable as error:
                sends = [await self._reject(error.reason, error.detail, None, raw)]
            self._metrics.read(partition, offset, raw.timestamp)
            self._ledger.record(partition, message, site, sends)
            if self._ledger.full(partition):
                await self._ledger.settle(partition)

    async def _apply(self, slot: Slot, event: AnyEvent, raw: Any) -> list[Awaitable[Any]]:
        """An event through its site's engine; gives the outputs on their way."""
        try:
            records = slot.engine.apply(event)
        except Exception as error:  # a flaw of ours must not stop the other sites, nor hide
            log.exception("site %s, offset %d: the engine failed", event.site, raw.offset)
            return [await self._reject("engine_failed", repr(error), event.site, raw)]
        key = raw.key
        sends = [await self._send(record, event.site, key, raw) for record in _outgoing(records)]
        if isinstance(event, Submit):
            self._metrics.predicted(raw.timestamp)
        return sends

    async def _send(self, record: Record, site: str, key: bytes, raw: Any) -> Awaitable[Any]:
        if isinstance(record, Anomaly):
            return await self._reject(record.reason, record.detail, site, raw)
        topic = self._topics.predictions if isinstance(record, Prediction) else self._topics.outcomes
        return await self._produce(topic, key, record)

    async def _reject(self, reason: str, detail: str, site: str | None, raw: Any) -> Awaitable[Any]:
        self._metrics.rejected(reason)
        letter = dead_letter(reason, detail, site, raw.topic, raw.partition, raw.offset, raw.value)
        return await self._produce(self._topics.dead_letters, raw.key, letter)

    async def _produce(
        self, topic: str, key: bytes | None, record: Prediction | Outcome | DeadLetter
    ) -> Awaitable[Any]:
        sent: Awaitable[Any] = await self._app.producer.send(topic, key, _encode(record), None, None, None)
        return sent

    async def take_over(self, partitions: Container[int]) -> None:
        """Load the sites of partitions that have become this worker's."""
        async with self._busy:
            await self._ledger.take_over(partitions)

    async def settle_due(self) -> None:
        """Settle what has been open for long enough."""
        async with self._busy:
            for partition in self._ledger.due():
                await self._ledger.settle(partition)

    async def hand_over(self, partitions: Iterable[int]) -> None:
        """Settle partitions that are being taken away, if there is time, and forget their sites."""
        try:
            async with asyncio.timeout(SETTLE_S), self._busy:
                for partition in partitions:
                    await self._ledger.settle(partition)
        except TimeoutError:
            log.warning("could not settle within %.0f s; the next owner will see those events again", SETTLE_S)
        finally:
            self._ledger.drop(partitions)


def _outgoing(records: Iterable[Record]) -> list[Record]:
    """The records that go out: all but the anomalies that were taken in stride."""
    return [record for record in records if not isinstance(record, Anomaly) or record.rejected]


class QueuecastApp(faust.App):  # type: ignore[misc]  # faust's classes are untyped
    """The Faust app, which ends the process when the agent fails, so that whoever watches it starts it anew.

    A fresh start reads the last consistent state; going on from a state that is half done would not be safe.
    """

    failed: BaseException | None = None

    def _new_transport(self) -> Transport:
        return Transport(self.conf.broker_consumer, self)

    async def give_up(self, error: BaseException) -> None:
        """Stop the worker because of an error."""
        log.error("the worker stops: %r", error, exc_info=error)
        self.failed = error
        await self.crash(error)


def build_app(settings: Settings, directory: str) -> QueuecastApp:
    """The app with its topics, table, agent, timer and web pages; Faust may use `directory`."""
    topics = Topics(settings.kafka.prefix)
    app = QueuecastApp(topics.group, datadir=directory, **_options(settings))
    events = app.topic(topics.events, key_type=bytes, value_type=bytes, key_serializer="raw", value_serializer="raw")
    table = app.Table("sites", key_type=bytes, value_type=bytes, partitions=settings.topics.partitions)
    store = SiteStore(connect(settings.redis), settings.redis.prefix)
    ledger = Ledger(table, store, settings.engine, settings.worker)
    metrics = Metrics(ledger, settings.worker.metric_sites)
    worker = Worker(app, settings, ledger, metrics)

    @app.agent(events, concurrency=1, name="forecast")
    async def forecast(stream: StreamT[bytes]) -> None:
        """Every event of every site here: apply it, and send out what follows."""
        try:
            async for message in stream.noack().events():
                await worker.take(message)
        except Exception as error:
            await app.give_up(error)
            raise

    @app.timer(min(settings.worker.checkpoint_seconds / 2, 1.0))
    async def settle() -> None:
        """What has been open for long is settled, also when no further event comes."""
        try:
            await worker.settle_due()
        except Exception as error:
            await app.give_up(error)
            raise

    @table.on_recover
    async def recovered() -> None:
        await worker.take_over({tp.partition for tp in app.consumer.assignment() if tp.topic == topics.events})

    @app.on_partitions_revoked.connect(weak=False)
    async def revoked(_: faust.App, revoked: set[Any], **__: Any) -> None:
        await worker.hand_over({tp.partition for tp in revoked if tp.topic == topics.events})

    @app.on_before_shutdown.connect(weak=False)
    async def leaving(*_: Any, **__: Any) -> None:
        if app.failed is None:
            await worker.hand_over({slot.partition for slot in ledger})

    @app.page("/metrics")
    async def show_metrics(*_: Any) -> Response:
        metrics.lag(app.consumer, topics.events)
        return Response(body=generate_latest(metrics.registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    return app


def _options(settings: Settings) -> dict[str, Any]:
    kafka, worker = settings.kafka, settings.worker
    return {
        "broker": ";".join(f"kafka://{address}" for address in kafka.bootstrap.split(",")),
        "broker_credentials": _credentials(kafka),
        "Table": SiteTable,
        "store": "memory://",
        "topic_partitions": settings.topics.partitions,
        "topic_allow_declare": False,  # `queuecast topics` makes them, with what each needs
        "topic_disable_leader": True,
        "web_host": worker.web_host,
        "web_bind": worker.web_host,
        "web_port": worker.web_port,
        "web_cors_options": None,
        "consumer_auto_offset_reset": "earliest",
        "consumer_group_instance_id": worker.name,
        "stream_wait_empty": False,  # what is not acknowledged yet comes again; waiting for it would never end
        "broker_commit_livelock_soft_timeout": 0.0,
        "producer_acks": -1,
        "producer_linger": 0.005,
        "producer_max_batch_size": 65_536,
        "producer_max_request_size": STATE_MESSAGE_BYTES,
        "producer_compression_type": "gzip",
        "reply_create_topic": False,
    }


def _credentials(kafka: KafkaSettings) -> Any:
    context = kafka.tls_context()
    if kafka.sasl:
        return faust.SASLCredentials(
            username=kafka.username, password=kafka.password, mechanism=kafka.mechanism, ssl_context=context
        )
    return faust.SSLCredentials(context) if context else None


def run_worker(settings: Settings) -> None:
    """Run a worker until it is told to stop (SIGTERM, SIGINT), after making sure that all it needs is there.

    Raises:
        UserError: Kafka, its topics, Redis or the web port are not as they must be.
    """
    check_topics(settings)
    asyncio.run(check_redis(settings.redis))
    started = time.perf_counter()
    warm_up(settings.engine)
    log.info("compiled in %.1f s", time.perf_counter() - started)
    with tempfile.TemporaryDirectory(prefix="queuecast-") as directory:
        app = build_app(settings, directory)
        worker = faust.Worker(app, loglevel=settings.worker.log_level, redirect_stdouts=False, quiet=True)
        try:
            worker.execute_from_commandline()
        finally:
            sys.exit(1 if app.failed else 0)
