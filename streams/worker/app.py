"""Build the worker's Faust app: one agent that processes events, and background tasks."""

import asyncio
from collections.abc import Awaitable, Collection, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import faust
from aiohttp.web import Response
from faust.exceptions import ConsumerNotStarted
from faust.types import StreamT
from prometheus_client import CONTENT_TYPE_LATEST

from models.records import WorkerState
from streams.broker.admin import holder_of
from streams.broker.topics import STATE_MESSAGE_BYTES, Topics, event_topics, more_partitions
from streams.errors import UserError
from streams.settings import KafkaSettings, Settings
from streams.training.processes import processes
from streams.worker.answers.answer_scores import AnswerScores
from streams.worker.answers.answering import Answering
from streams.worker.answers.background_answers import Questions
from streams.worker.answers.estimate_grid import EstimateGrids
from streams.worker.answers.freshness import Freshness
from streams.worker.answers.time_slicer import TimeSlicer
from streams.worker.checkpoint.event_logs import EventLogs
from streams.worker.checkpoint.redis_client import connect
from streams.worker.checkpoint.store import SiteStore
from streams.worker.checkpoint.watchdog import Watchdog
from streams.worker.faust_compat import QueuecastApp, SiteTable, TableManager
from streams.worker.intake.intake import EventPlaces, Intake
from streams.worker.metrics.process_metrics import Health, Metrics
from streams.worker.ownership.outbox import Outbox
from streams.worker.ownership.owner import CHECKPOINT_TURNS, Owner
from streams.worker.ownership.partition import SharedContext

HEARTBEAT_S = 0.5  # heartbeat interval, seconds; the responses notify a worker of rebalances

FETCHED_MESSAGES = 1000
"""Maximum number of fetched messages that are not queued yet (at most 64 MB); then Faust stops fetching."""


def build_app(
    settings: Settings, directory: str, partitions: int | None = None, socket: Path | None = None
) -> QueuecastApp:
    """Build the app: topics, table, the agent that processes events, checkpoints, rebalances and web pages.

    Args:
        directory: Directory for Faust's files.
        partitions: Number of partitions of the topics; by default the configured number.
        socket: Unix socket for the web pages, instead of the web port.
    """
    partitions = partitions or settings.topics.partitions
    topics = Topics(settings.kafka.prefix)
    pulse, holder = Watchdog(settings.worker.session_timeout_seconds / 2), partial(holder_of, settings)
    options = _options(settings, partitions) | ({} if socket is None else {"web_transport": f"unix://{socket}"})
    app = QueuecastApp(topics.group, pulse=pulse, holder_of=holder, datadir=directory, **options)
    names = list(event_topics(settings))
    events = app.topic(*names, key_type=bytes, value_type=bytes, key_serializer="raw", value_serializer="raw")
    # States are large, so recovery buffers only a few of them.
    table = app.Table("sites", partitions=partitions, key_type=bytes, value_type=bytes, recovery_buffer_size=4)
    metrics, scores = Metrics(settings.worker.max_site_labels), AnswerScores()
    logs = EventLogs(app, settings, metrics.renewed, metrics.lost)
    freshness = Freshness(logs.place, logs.end)
    intake = Intake(EventPlaces(settings, partitions), lambda name: metrics.unknown_fields.labels(name).inc())
    redis = connect(settings.redis)
    context = SharedContext(
        settings,
        table,
        lambda token: SiteStore(redis, settings.redis.prefix, token.check),
        logs,
        intake,
        Outbox(partial(_send, app), settings, metrics, scores, freshness),
        pulse.check,
        app.supervised,
        confirm=lambda: app.consumer.confirm(),
        acknowledge=lambda place, offset: app.consumer.acknowledge(place, offset),
    )
    owner = Owner(context, freshness)
    app.restore_crash_mark = owner.restore_crash_mark  # type: ignore[method-assign]
    inbox: list[asyncio.Queue[Any]] = []  # Faust's queue of fetched messages; empty until the agent starts
    turns = TimeSlicer(lambda: owner.is_busy or any(not queue.empty() for queue in inbox), doing=owner.doing)

    @app.agent(events, concurrency=1, name="process_events")
    async def process_events(stream: StreamT[bytes]) -> None:
        """Give every event to its partition, in order; acknowledging them is the checkpoints'."""
        async with app.stopping_on_error():
            inbox[:] = [stream.channel.queue]
            async for message in app.fetched(stream):
                await owner.take(message)

    @app.timer(settings.worker.checkpoint_seconds / CHECKPOINT_TURNS)
    async def checkpoint() -> None:
        """Begin the checkpoints that are due, also when no further event comes."""
        async with app.stopping_on_error():
            owner.checkpoint_due()

    _follow_partitions(app, owner, table, names, partitions)
    _add_estimates_and_answers(app, settings, owner, intake, metrics, freshness, scores, turns)
    _add_pages(app, owner, Health(settings), metrics, freshness, names)
    return app


def _follow_partitions(
    app: QueuecastApp, owner: Owner, table: SiteTable, events: Collection[str], partitions: int
) -> None:
    """Load the sites of assigned partitions, and hand over those of revoked partitions."""

    @table.on_recover
    async def take_over() -> None:
        # Stop until Faust has reset the offsets: it has dropped some of the messages fetched before.
        app.consumer.stop_flow()
        async with app.stopping_on_error():  # Faust would ignore the error
            for topic in events:
                if (found := app.consumer.partitions_of(topic)) not in (0, partitions):
                    raise UserError(more_partitions(topic, found, partitions))
            await owner.take_over({tp.partition for tp in app.consumer.assignment() if tp.topic in events})

    @app.on_partitions_revoked.connect(weak=False)
    async def hand_over(_: faust.App, revoked: set[Any], **__: Any) -> None:
        await owner.hand_over({tp.partition for tp in revoked if tp.topic in events})

    @app.on_before_shutdown.connect(weak=False)
    async def hand_over_all(*_: Any, **__: Any) -> None:
        if app.failed is None:
            await owner.hand_over(owner.partitions)


def _add_estimates_and_answers(
    app: QueuecastApp,
    settings: Settings,
    owner: Owner,
    intake: Intake,
    metrics: Metrics,
    freshness: Freshness,
    scores: AnswerScores,
    turns: TimeSlicer,
) -> None:
    """Add the tasks that refresh the grid estimates and answer questions."""
    send = partial(_send, app, Topics(settings.kafka.prefix).estimates)
    grids = EstimateGrids(
        owner,
        settings.estimates,
        send,
        freshness=freshness,
        scores=scores,
        turns=turns,
        is_restoring=owner.is_restoring,
    )
    metrics.show(owner.values(), grids, freshness, scores)
    answering = Answering(
        owner,
        freshness,
        grids,
        intake.unknown_fields.of,
        scores,
        owner.is_restoring,
        worker=lambda: WorkerState(
            name=settings.worker.name,
            undurable_s=owner.age_s,
            checkpoint=owner.checkpointed,
            rejected=dict(metrics.rejections),
        ),
    )
    questions = Questions(
        settings.kafka,
        settings.questions,
        lambda: owner.partitions,
        metrics.questions,
        metrics.answers,
        answering,
        turns,
    )
    app.task(grids.run)
    app.task(questions.run)


def _add_pages(
    app: QueuecastApp, owner: Owner, health: Health, metrics: Metrics, freshness: Freshness, events: Collection[str]
) -> None:
    """Add the metrics page and the health checks."""

    @app.page("/metrics")
    async def show_metrics(*_: Any) -> Response:
        with suppress(ConsumerNotStarted):
            metrics.lag(freshness, [tp for tp in app.consumer.assignment() if tp.topic in events])
        await health.look()
        metrics.broker.set(health.broker is None)
        metrics.store.set(health.store is None)
        metrics.trainings.set(processes().waiting)
        metrics.training_s.set(processes().running_s)
        metrics.trained(processes().cpu_s, processes().restarts)
        metrics.age.set(owner.age_s)
        return Response(body=await metrics.page(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    @app.page("/healthz")
    async def show_health(*_: Any) -> Response:
        return Response(text="ok\n") if app.failed is None else Response(status=500, text=f"{app.failed!r}\n")

    @app.page("/readyz")
    async def show_readiness(*_: Any) -> Response:
        obstacle = await _obstacle(owner, health)
        return Response(text="ready\n") if obstacle is None else Response(status=503, text=f"{obstacle}\n")


async def _obstacle(owner: Owner, health: Health) -> str | None:
    """Return the reason why this worker cannot process events now; None if it can."""
    if not owner.partitions:
        return "no partitions: joining, reading back their states, or more workers than partitions"
    await health.look()
    return health.broker or owner.obstacle or health.store  # a request that fails without a broker is not the cause


async def _send(
    app: QueuecastApp,
    topic: str,
    key: bytes | None,
    value: bytes | None,
    partition: int | None,
    headers: Sequence[tuple[str, bytes]] = (),
) -> Awaitable[Any]:
    sent: Awaitable[Any] = await app.producer.deliver(topic, key, value, partition, list(headers))
    return sent


def _options(settings: Settings, partitions: int) -> dict[str, Any]:
    kafka, worker = settings.kafka, settings.worker
    return {
        "broker": ";".join(f"kafka://{address}" for address in kafka.bootstrap.split(",")),
        "broker_credentials": _credentials(kafka),
        "Table": SiteTable,
        "TableManager": TableManager,
        "store": "memory://",
        "topic_partitions": partitions,
        "topic_allow_declare": False,  # `queuecast topics create` creates and configures them
        "topic_disable_leader": True,
        "web_host": worker.web_host,
        "web_bind": worker.web_host,
        "web_port": worker.web_port,
        "web_cors_options": None,
        "consumer_auto_offset_reset": "earliest",
        # While a broker starts, the group leader may have no metadata of the topics, and assign no partitions.
        "consumer_metadata_max_age_ms": 10_000,
        "consumer_group_instance_id": worker.name,
        # A static member gets its partitions back after a restart, and must then have the same URL.
        "canonical_url": f"http://worker/{quote(worker.name, safe='')}",
        "broker_session_timeout": worker.session_timeout_seconds,
        "broker_heartbeat_interval": HEARTBEAT_S,
        "table_standby_replicas": 0,  # Faust reads the changelog again anyway when a standby takes over
        "stream_buffer_maxsize": FETCHED_MESSAGES,
        "stream_wait_empty": False,  # unacknowledged messages are redelivered; waiting for them would never end
        "broker_commit_livelock_soft_timeout": float("inf"),  # consumer lag alone is no error; the metrics show it
        "producer_acks": -1,
        "producer_linger": 0.005,
        "producer_max_batch_size": 65_536,
        "producer_max_request_size": STATE_MESSAGE_BYTES,
        "producer_compression_type": None,  # compression reduces throughput; states are compressed already
        "reply_create_topic": False,
    }


def _credentials(kafka: KafkaSettings) -> Any:
    context = kafka.tls_context()
    if kafka.sasl:
        return faust.SASLCredentials(
            username=kafka.username, password=kafka.password, mechanism=kafka.mechanism, ssl_context=context
        )
    return faust.SSLCredentials(context) if context else None
