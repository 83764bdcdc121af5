"""The worker: one Faust agent that reads events, and what goes out because of them."""

import asyncio
import ctypes
import logging
import os
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from itertools import chain, repeat
from typing import Any
from urllib.parse import quote

import faust
import msgspec
from aiohttp.web import Response
from aiokafka.errors import KafkaError
from faust.exceptions import ConsumerNotStarted
from faust.transport.drivers import aiokafka
from faust.types import TP, StreamT
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from models.engine.engine import Anomaly, Record, warm_up
from models.records import AnyEvent, DeadLetter, Outcome, Prediction, Submit
from streams import logs
from streams.errors import Unreachable, UserError
from streams.settings import KafkaSettings, Settings, WorkerSettings
from streams.topics import LATE, STATE_MESSAGE_BYTES, Topics, check_group, check_topics, holder_of
from streams.worker.group import ConsumerThread
from streams.worker.health import Health
from streams.worker.intake import Unreadable, dead_letter, read_event
from streams.worker.ledger import Ledger, Slot, offset_of
from streams.worker.metrics import Metrics
from streams.worker.questions import Questions
from streams.worker.standing import Standing
from streams.worker.store import SiteStore, check_redis, connect

log = logging.getLogger(__name__)

SETTLE_S = 5.0
"""Seconds that a worker takes at most to settle what is open when its partitions are taken from it."""

STOP_S = 9.0
"""Seconds within which a worker that was told to stop has ended, whatever it still waits for."""

HEARTBEAT_S = 0.5
"""Between a worker's signs of life, by whose answers it hears that others join or leave."""

WAITS_S = (1.0, 2.0, 5.0, 10.0)
"""Between looks at servers that cannot be reached when a worker starts; the last one is repeated."""

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

_encode = msgspec.json.Encoder().encode


class SiteTable(faust.Table):  # type: ignore[misc]  # faust's classes are untyped
    """The table of sites, which is written from outside of the stream's loop too, each site to its own partition.

    Where the changelog holds several states of a site the one of the latest event counts, even if an earlier one comes
    after it: that was written by a worker which did not know yet that it had lost the partition.
    """

    def apply_changelog_batch(self, batch: Iterable[Any]) -> None:
        """Take in what the changelog holds."""
        for event in batch:
            key, value = event.key, event.value
            before = self.data.get(key)
            if value and (before is None or offset_of(value) >= offset_of(before)):
                self.data[key] = value

    def put(self, key: bytes, value: bytes, partition: int) -> Awaitable[Any]:
        """Set a value; done when the changelog has it."""
        self.data[key] = value
        sent: Awaitable[Any] = self.send_changelog(partition, key, value)
        return sent


class Consumer(aiokafka.Consumer):  # type: ignore[misc]  # faust's classes are untyped
    """The consumer, which begins at the beginning of partitions of which nothing is committed yet.

    While Faust reads the table it fetches events too, and drops them. Afterwards it seeks back, but by itself only in
    partitions that have a committed offset. One beyond the partition's end is none: the topic was made anew.
    """

    def _new_consumer_thread(self) -> ConsumerThread:
        thread = ConsumerThread(self, loop=self.loop, beacon=self.beacon)
        thread.holder_of = self.app.holder_of
        return thread

    async def on_stop(self) -> None:
        """Commit and leave the group, so that others have the partitions at once.

        By itself a member with a lasting name stays until its session has expired, as one that has failed does here:
        it comes back.
        """
        await super().on_stop()
        if self.app.failed is None:
            self._thread.leave()

    async def perform_seek(self) -> None:
        """Seek to where the events go on."""
        await super().perform_seek()
        for tp, end in (await self.highwaters(*self.assignment())).items():
            if (self._committed_offset[tp] or 0) > end:
                self._committed_offset[tp] = self._read_offset[tp] = None
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
        self.health = Health(settings)
        self._topics = Topics(settings.kafka.prefix)
        self._ledger = ledger
        self._metrics = metrics
        self._partitions: frozenset[int] = frozenset()
        self._turn = 0  # counts how often partitions were taken away
        self._session = settings.worker.session_seconds
        self._late_s = settings.worker.late_seconds
        self._alive: float | None = None  # when that was last looked at
        self._overslept: RuntimeError | None = None
        self._busy = asyncio.Lock()  # the agent, the timer and a rebalance take turns

    @property
    def partitions(self) -> frozenset[int]:
        """The partitions whose events, and questions, are this worker's now."""
        return self._partitions

    async def take(self, message: faust.EventT) -> None:
        """Process one message from the events topic."""
        async with self._busy:
            self.check_alive()
            raw = message.message
            partition, offset = raw.partition, raw.offset
            if partition not in self._partitions:
                return  # taken away while this waited: its next owner sees it again
            site, sends = None, []
            try:
                event = read_event(raw.key, raw.value)
                if not self._ledger.admits(event.site, partition):
                    raise Unreadable("too_many_sites", "its partition has `worker.partition_sites` others already")
                slot = await self._ledger.slot(event.site, partition)
                if offset > slot.offset:  # else its state includes it already
                    site, sends = event.site, await self._apply(slot, event, raw)
                    slot.offset = offset
            except Unreadable as error:
                sends = [await self._reject(error.reason, error.detail, None, raw)]
            if partition not in self._partitions:  # taken away meanwhile
                self._ledger.drop([partition])
                return
            self._metrics.read(partition, offset, raw.timestamp)
            self._ledger.record(partition, message, site, sends)
            if self._ledger.full(partition):
                await self._ledger.begin(partition)

    async def _apply(self, slot: Slot, event: AnyEvent, raw: Any) -> list[Awaitable[Any]]:
        """An event through its site's engine; gives the outputs on their way."""
        try:
            records = slot.engine.apply(event)
        except Exception as error:  # a flaw of ours must not stop the other sites, nor hide
            where = {"site": event.site, "partition": raw.partition, "offset": raw.offset}
            log.exception("the engine failed", extra=where)
            return [await self._reject("engine_failed", repr(error), event.site, raw)]
        key = raw.key
        sends = [await self._send(record, event.site, key, raw) for record in _outgoing(records)]
        if isinstance(event, Submit):
            self._metrics.predicted(raw.timestamp)
        return sends

    async def _send(self, record: Record, site: str, key: bytes, raw: Any) -> Awaitable[Any]:
        if isinstance(record, Anomaly):
            return await self._reject(record.reason, record.detail, site, raw)
        if isinstance(record, Prediction):
            return await self._produce(self._topics.predictions, key, record, self._lateness(raw.timestamp))
        return await self._produce(self._topics.outcomes, key, record)

    def _lateness(self, arrived: float) -> list[tuple[str, bytes]]:
        """The mark of a prediction that leaves late; a header, for the value stays the same when it is repeated."""
        seconds = time.time() - arrived
        if seconds <= self._late_s:
            return []
        self._metrics.late()
        return [(LATE, b"%d" % seconds)]

    async def _reject(self, reason: str, detail: str, site: str | None, raw: Any) -> Awaitable[Any]:
        self._metrics.rejected(reason)
        letter = dead_letter(reason, detail, site, raw.topic, raw.partition, raw.offset, raw.value)
        return await self._produce(self._topics.dead_letters, raw.key, letter)

    async def _produce(
        self,
        topic: str,
        key: bytes | None,
        record: Prediction | Outcome | DeadLetter,
        headers: Iterable[tuple[str, bytes]] = (),
    ) -> Awaitable[Any]:
        sent: Awaitable[Any] = await self._app.producer.send(topic, key, _encode(record), None, None, list(headers))
        return sent

    async def take_over(self, partitions: Iterable[int]) -> None:
        """Load the sites of partitions that have become this worker's."""
        owned, turn = frozenset(partitions), self._turn
        async with self._busy:
            if turn == self._turn:
                await self._ledger.take_over(owned)
            if turn == self._turn:
                self._partitions = owned
            else:  # some were taken away meanwhile, and what has been read may be old: the next turn begins anew
                self._ledger.drop(owned)

    async def hindrance(self) -> str | None:
        """Why this worker can't process events just now; None where it can."""
        if not self._partitions:
            return "no partitions: joining, reading back their states, or more workers than partitions"
        if self._ledger.trouble is not None:
            return self._ledger.trouble
        await self.health.look()
        return self.health.broker or self.health.store

    def check_alive(self) -> None:
        """Make sure that this process was not asleep for so long that its partitions may be another's.

        Raises:
            RuntimeError: it was; what it has in hand must not be written.
        """
        now = since_boot()
        asleep, self._alive = now - (self._alive or now), now
        if asleep > self._session / 2 and self._overslept is None:
            self._overslept = RuntimeError(
                f"this process stood still for {asleep:.0f} s; its partitions may have a new owner"
            )
        if self._overslept is not None:
            raise self._overslept

    async def settle_due(self) -> None:
        """Settle what has been open for long enough."""
        async with self._busy:
            under_way = self._ledger.settling()
            for partition in self._ledger.due():
                if partition not in under_way:
                    await self._ledger.begin(partition)

    async def hand_over(self, partitions: Iterable[int]) -> None:
        """Settle partitions that are being taken away, if there is time, and forget their sites."""
        self._turn += 1
        self._partitions = self._partitions.difference(partitions)
        try:
            async with asyncio.timeout(SETTLE_S), self._busy:
                for partition in partitions:
                    await self._ledger.settle(partition)
        except TimeoutError:
            log.warning("could not settle within %.0f s; the next owner will see those events again", SETTLE_S)
        finally:
            self._ledger.drop(partitions)


def since_boot() -> float:
    """Seconds since some moment; while the machine is suspended they count too, where the system tells."""
    return time.clock_gettime(_CLOCK)


def _outgoing(records: Iterable[Record]) -> list[Record]:
    """The records that go out: all but the anomalies that were taken in stride."""
    return [record for record in records if not isinstance(record, Anomaly) or record.rejected]


class QueuecastApp(faust.App):  # type: ignore[misc]  # faust's classes are untyped
    """The Faust app, which ends the process when the agent fails, so that whoever watches it starts it anew.

    A fresh start reads the last consistent state; going on from a state that is half done would not be safe.
    """

    failed: BaseException | None = None
    check_alive: Callable[[], None]
    holder_of: Callable[[str], str | None]

    def _new_transport(self) -> Transport:
        return Transport(self.conf.broker_consumer, self)

    @faust.Service.task
    async def _live(self) -> None:
        # Not a timer of Faust's: those begin only when the tables have been read for the first time.
        while not self.should_stop:
            try:
                self.check_alive()
                if lost := self.consumer._thread.lost():
                    raise lost
            except (RuntimeError, UserError) as error:
                await self.give_up(error)
                raise
            await self.sleep(1.0)

    async def give_up(self, error: BaseException) -> None:
        """Stop the worker because of an error."""
        if isinstance(error, UserError):
            log.error("the worker stops: %s", error)
        else:
            log.error("the worker stops: %r", error, exc_info=error)
        self.failed = error
        await self.crash(error)

    async def stop(self) -> None:
        """Stop, or end within `STOP_S` though what is being waited for (a broker that is away) has not come.

        Nothing is lost by that: what is not durable is not committed either, and its events are seen again.
        """
        timer = threading.Timer(STOP_S, self._end)
        timer.daemon = True
        timer.start()
        await super().stop()

    def _end(self) -> None:
        log.warning("not stopped within %.0f s, so ended; what was open will be seen again", STOP_S)
        shutil.rmtree(self.conf.datadir, ignore_errors=True)
        logging.shutdown()
        os._exit(1 if self.failed else 0)


class EventsTopic:
    """What the ledger asks of the events topic, and tells about it."""

    def __init__(self, app: QueuecastApp, name: str, metrics: Metrics) -> None:
        self._app = app
        self._name = name
        self._metrics = metrics

    async def ends(self, partitions: Iterable[int]) -> Mapping[int, int]:
        """Each partition's end: the offset that its next event will have.

        Raises:
            OSError: the broker does not answer.
        """
        try:
            found = await self._app.consumer.highwaters(*(TP(self._name, partition) for partition in partitions))
        except KafkaError as error:
            raise ConnectionError(f"{error!r}") from error
        return {tp.partition: end for tp, end in found.items()}

    def renewed(self, partition: int) -> None:
        """A partition has been made anew, or cut short, since its states were stored."""
        self._metrics.renewed(partition)


def build_app(settings: Settings, directory: str) -> QueuecastApp:
    """The app with its topics, table, agent, timer and web pages; Faust may use `directory`."""
    topics = Topics(settings.kafka.prefix)
    app = QueuecastApp(topics.group, datadir=directory, **_options(settings))
    events = app.topic(topics.events, key_type=bytes, value_type=bytes, key_serializer="raw", value_serializer="raw")
    # States are large: a few at a time are enough to be held while the changelog is read.
    columns = {"key_type": bytes, "value_type": bytes, "recovery_buffer_size": 4}
    table = app.Table("sites", partitions=settings.topics.partitions, **columns)
    store = SiteStore(connect(settings.redis), settings.redis.prefix)
    ledger = Ledger(table, store, settings.engine, settings.worker)
    metrics = Metrics(ledger, settings.worker.metric_sites)
    ledger.events = EventsTopic(app, topics.events, metrics)
    worker = Worker(app, settings, ledger, metrics)
    app.holder_of = partial(holder_of, settings)
    app.check_alive = ledger.before_write = worker.check_alive
    standing = Standing(ledger.slots, settings.estimates, partial(_send, app, topics.estimates))
    metrics.show(standing)
    questions = Questions(settings.kafka, ledger.slots, lambda: worker.partitions, metrics)
    app.task(standing.run)
    app.task(questions.run)

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
        app.consumer.stop_flow()  # until Faust has sought back: what it delivers before leaves out what it dropped
        try:
            await worker.take_over({tp.partition for tp in app.consumer.assignment() if tp.topic == topics.events})
        except Exception as error:  # which Faust would let pass
            await app.give_up(error)
            raise

    @app.on_partitions_revoked.connect(weak=False)
    async def revoked(_: faust.App, revoked: set[Any], **__: Any) -> None:
        await worker.hand_over({tp.partition for tp in revoked if tp.topic == topics.events})

    @app.on_before_shutdown.connect(weak=False)
    async def leaving(*_: Any, **__: Any) -> None:
        if app.failed is None:
            await worker.hand_over({slot.partition for slot in ledger})

    @app.page("/metrics")
    async def show_metrics(*_: Any) -> Response:
        with suppress(ConsumerNotStarted):
            metrics.lag(app.consumer, topics.events)
        await worker.health.look()
        metrics.servers(worker.health)
        return Response(body=generate_latest(metrics.registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    @app.page("/healthz")
    async def show_health(*_: Any) -> Response:
        return Response(text="ok\n") if app.failed is None else Response(status=500, text=f"{app.failed!r}\n")

    @app.page("/readyz")
    async def show_readiness(*_: Any) -> Response:
        hindrance = await worker.hindrance()
        return Response(text="ready\n") if hindrance is None else Response(status=503, text=f"{hindrance}\n")

    return app


async def _send(app: QueuecastApp, topic: str, key: bytes, value: bytes | None, partition: int) -> Awaitable[Any]:
    sent: Awaitable[Any] = await app.producer.send(topic, key, value, partition, None, [])
    return sent


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
        # Who leads the group while a broker comes up may not see the topics yet, and so give nobody any partition.
        "consumer_metadata_max_age_ms": 10_000,
        "consumer_group_instance_id": worker.name,
        # Who comes back under its name is handed what it had, and must then be at the URL at which it had it.
        "canonical_url": f"http://worker/{quote(worker.name, safe='')}",
        "broker_session_timeout": worker.session_seconds,
        "broker_heartbeat_interval": HEARTBEAT_S,
        "table_standby_replicas": 0,  # what they keep in memory Faust reads anew all the same when they take over
        "stream_wait_empty": False,  # what is not acknowledged yet comes again; waiting for it would never end
        "broker_commit_livelock_soft_timeout": float("inf"),  # a lag alone is no error; the metrics tell it
        "producer_acks": -1,
        "producer_linger": 0.005,
        "producer_max_batch_size": 65_536,
        "producer_max_request_size": STATE_MESSAGE_BYTES,
        "producer_compression_type": None,  # which would cost a tenth of the rate; states are compressed already
        "reply_create_topic": False,
    }


def _credentials(kafka: KafkaSettings) -> Any:
    context = kafka.tls_context()
    if kafka.sasl:
        return faust.SASLCredentials(
            username=kafka.username, password=kafka.password, mechanism=kafka.mechanism, ssl_context=context
        )
    return faust.SSLCredentials(context) if context else None


def check_port(settings: WorkerSettings) -> None:
    """Make sure that the web port is free.

    Raises:
        UserError: it is not, or is none of this machine's.
    """
    host, port = settings.web_host, settings.web_port
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        raise UserError(f"web port {port} of {host}: {error.strerror}; choose another with --web-port") from None


def await_servers(settings: Settings, sleep: Callable[[float], None] = time.sleep) -> None:
    """Make sure that Kafka, its topics and Redis are as they must be; wait a while for what cannot be reached.

    Raises:
        UserError: something is not so, or was not reached within `worker.start_seconds`.
    """
    deadline = time.monotonic() + settings.worker.start_seconds
    for pause in chain(WAITS_S, repeat(WAITS_S[-1])):
        try:
            check_topics(settings, Topics(settings.kafka.prefix).uses)
            check_group(settings)
            asyncio.run(check_redis(settings.redis))
            return
        except Unreachable as error:
            left = deadline - time.monotonic()
            if left <= 0:
                raise
            pause = min(pause, left)
            log.warning("not yet: %s (next look in %.0f s, the last one in %.0f s)", error, pause, left)
        sleep(pause)


def _give_memory_back() -> None:
    """Have glibc return large blocks when they are freed, such as a state on its way to the changelog."""
    mmap_threshold, arena_max = -3, -8
    with suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(mmap_threshold, 1 << 17)
        libc.mallopt(arena_max, 2)


def run_worker(settings: Settings) -> None:
    """Run a worker until it is told to stop (SIGTERM, SIGINT), after making sure that all it needs is there.

    Raises:
        UserError: Kafka, its topics, Redis or the web port are not as they must be.
        SystemExit: the same, which the log has told where it is in JSON.
    """
    logging_config = logs.configure(settings.worker)
    try:
        await_servers(settings)
        check_port(settings.worker)
        _run(settings, logging_config)
    except UserError as error:
        if settings.worker.log_format == "text":
            raise
        log.critical("%s", error)
        raise SystemExit(1) from None


def _run(settings: Settings, logging_config: dict[str, Any]) -> None:
    _give_memory_back()
    started = time.perf_counter()
    warm_up(settings.engine)
    log.info("compiled in %.1f s", time.perf_counter() - started)
    with tempfile.TemporaryDirectory(prefix="queuecast-") as directory:
        app = build_app(settings, directory)
        worker = faust.Worker(
            app,
            loglevel=settings.worker.log_level,
            redirect_stdouts=False,
            quiet=True,
            logging_config=logging_config,
        )
        try:
            with suppress(SystemExit):
                worker.execute_from_commandline()
        except Exception as error:
            app.failed = app.failed or error
        app.failed = app.failed or worker.crash_reason
    if isinstance(app.failed, UserError):
        raise app.failed
    if app.failed is not None:
        raise UserError(f"the worker stopped: {app.failed!r}; its log says more")
