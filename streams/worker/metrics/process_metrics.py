"""Metrics of this process (messages, latency, consumer lag, health of servers) and the registry of all metrics."""

import asyncio
import time
from collections.abc import Callable, Iterable

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)

from streams.broker.consumer import broker_answers
from streams.settings import Settings
from streams.worker.answers.answer_scores import AnswerScores
from streams.worker.answers.estimate_grid import EstimateGrids
from streams.worker.answers.freshness import Freshness, TopicPartition
from streams.worker.checkpoint.redis_client import AWAY, connect
from streams.worker.checkpoint.stored_site import SiteHandle
from streams.worker.metrics.site_metrics import SiteFamilies

LATENCY_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)
SITES_PER_TURN = 5  # sites per turn, between which other tasks run


class Metrics:
    """Metrics of this process, in a separate registry, with those of its sites.

    The attributes are metrics of prometheus_client. Counters of sites are part of the sites' state instead
    (`SiteFamilies`).
    """

    def __init__(self, most_sites: int) -> None:
        self.registry = CollectorRegistry()
        self._most_sites = most_sites
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"queuecast_{name}", text, labels, registry=self.registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"queuecast_{name}", text, labels, registry=self.registry)

        def latency(name: str, text: str) -> Histogram:
            return Histogram(f"queuecast_{name}", text, buckets=LATENCY_BUCKETS, registry=self.registry)

        self._read = counter("messages_read", "Messages read from the events topic.")
        self._rejected = counter("events_rejected", "Messages sent to the dead-letter topic, by reason.", "reason")
        self._implausible = counter("events_implausible", "Events rejected as implausible, by reason.", "reason")
        self.unknown_fields = counter("unknown_fields", "Ignored fields that no event has, by field.", "field")
        self._latency = latency(
            "prediction_latency_seconds", "Latency from a submit event's broker timestamp to its prediction."
        )
        self._event_time = gauge("last_message_timestamp_seconds", "Broker timestamp of the last message read.")
        self._lag = gauge("consumer_lag_messages", "Messages of the events topic not read yet.", "partition")
        self.late = counter("late_predictions", "Predictions sent over worker.late_after_seconds after their event.")
        self.renewed = counter("topic_recreations", "Recreations or truncations of the events topic.", "partition")
        self.lost = counter("events_lost", "Events deleted before they were read.", "partition")
        self.questions = counter("questions", "Questions received, by outcome.", "status")
        self.answers = latency("answer_latency_seconds", "Latency from a question's broker timestamp to its answer.")
        self.broker = gauge("broker_up", "1 if a broker can be reached, else 0.")
        self.store = gauge("redis_up", "1 if Redis accepts writes within a second, else 0.")
        self.trainings = gauge("trainings_waiting", "Trainings waiting for the current one.")
        self.training_s = gauge("training_seconds", "Elapsed time of the current training.")
        self._training_cpu = counter("training_cpu_seconds", "CPU time of trainings and their processes.")
        self._restarts = counter("training_restarts", "Training processes replaced after a crash or a stall.")
        self._trained = dict.fromkeys((self._training_cpu, self._restarts), 0.0)
        self.age = gauge("checkpoint_age_seconds", "Age of the oldest event that is not durable yet.")
        self._sites = gauge("sites", "Sites that this worker serves.")
        self._shown: tuple[Iterable[SiteHandle], EstimateGrids, Freshness, AnswerScores] | None = None
        self.rejections: dict[str, int] = {}  # number of dead letters by reason

    def read(self, timestamp: float) -> None:
        """Count a message; `timestamp` is its broker timestamp."""
        self._read.inc()
        self._event_time.set(timestamp)

    def rejected(self, reason: str, held_apart: bool = False) -> None:
        """Count a message sent to the dead letters; `held_apart` marks an implausible event."""
        self._rejected.labels(reason).inc()
        self.rejections[reason] = self.rejections.get(reason, 0) + 1
        if held_apart:
            self._implausible.labels(reason).inc()

    def trained(self, cpu_s: float, restarts: int) -> None:
        """Set the totals so far: CPU time of trainings, and replaced training processes."""
        for metric, total in ((self._training_cpu, cpu_s), (self._restarts, restarts)):
            metric.inc(total - self._trained[metric])
            self._trained[metric] = total

    def predicted(self, arrived: float) -> None:
        """Observe the latency of the predictions of a submit event with the broker timestamp `arrived`."""
        self._latency.observe(max(time.time() - arrived, 0.0))

    def show(
        self,
        handles: Iterable[SiteHandle],
        grids: EstimateGrids,
        freshness: Freshness,
        answer_scores: AnswerScores,
    ) -> None:
        """Set the sources of the site metrics: engines, grid estimates, freshness and answer scores."""
        self._shown = handles, grids, freshness, answer_scores

    async def page(self) -> bytes:
        """Return the metrics page.

        The sites are read a few at a time, with other tasks in between, and another thread formats the text. So a
        worker with hundreds of sites stays responsive.
        """
        found = SiteFamilies()
        if self._shown is not None:
            handles, grids, freshness, scores = self._shown
            served = list(handles)
            self._sites.set(len(served))
            for number, handle in enumerate(served[: self._most_sites], 1):
                found.add_site(handle, freshness, scores)
                if number % SITES_PER_TURN == 0:
                    await asyncio.sleep(0)
            found.add_grids(grids, self._most_sites)
        return generate_latest(self.registry) + await asyncio.to_thread(generate_latest, found)

    def lag(self, freshness: Freshness, places: Iterable[TopicPartition]) -> None:
        """Update the consumer lag of these partitions."""
        self._lag.clear()
        for place in places:
            if (unread := freshness.unread(place)) is not None:
                self._lag.labels(str(place[1])).inc(unread)


PATIENCE_S = 1.0  # timeout of a check, seconds
FRESH_S = 1.0  # lifetime of a cached result, seconds


class Health:
    """Check the broker and Redis over separate connections, which no other work can block."""

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        self.broker: str | None = None  # the broker's problem at the last check; None without one
        self.store: str | None = None  # the same for Redis
        self._kafka = settings.kafka
        self._tls = settings.kafka.tls_context()
        self._redis = connect(settings.redis, PATIENCE_S)
        self._key = f"{settings.redis.prefix}:health"
        self._clock = clock
        self._checked: float | None = None
        self._checking = asyncio.Lock()

    async def look(self) -> None:
        """Check both servers within `PATIENCE_S`, unless the last check is recent."""
        async with self._checking:
            if self._checked is None or self._clock() - self._checked > FRESH_S:
                broker = broker_answers(self._kafka.bootstrap, self._tls, PATIENCE_S)
                answers, self.store = await asyncio.gather(broker, self._store())
                self.broker = None if answers else f"no broker answers at {self._kafka.bootstrap}"
                self._checked = self._clock()

    async def _store(self) -> str | None:
        try:
            async with asyncio.timeout(PATIENCE_S):
                await self._redis.hset(self._key, "last", b"1")  # PING succeeds even without memory, or on a replica
        except TimeoutError:
            return f"redis: no answer within {PATIENCE_S:g} s"
        except AWAY as error:
            return f"redis: {error}"
        return None
