"""The worker: one Faust agent that reads events, and what goes out because of them."""

from collections.abc import Awaitable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any
from urllib.parse import quote

import faust
from aiohttp.web import Response
from aiokafka.errors import KafkaError
from faust.exceptions import ConsumerNotStarted
from faust.types import TP, StreamT
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from streams.settings import KafkaSettings, Settings
from streams.topics import STATE_MESSAGE_BYTES, Topics, holder_of
from streams.worker.faust_compat import QueuecastApp, SiteTable
from streams.worker.ledger import Ledger
from streams.worker.metrics import Metrics
from streams.worker.processor import Worker
from streams.worker.questions import Questions
from streams.worker.standing import Standing
from streams.worker.store import SiteStore, connect

HEARTBEAT_S = 0.5
"""Between a worker's signs of life, by whose answers it hears that others join or leave."""


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
