"""What concerns this process: messages read, latency, lag; and the registry in which all metrics are."""

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from streams.training.processes import Processes
from streams.worker.answers.freshness import Freshness
from streams.worker.answers.scores import AnswerScores
from streams.worker.answers.standing import StandingEstimates
from streams.worker.checkpoint.stored import SiteHandle
from streams.worker.metrics.engines import EngineCollector
from streams.worker.metrics.health import Health
from streams.worker.metrics.sites import AnswersCollector, FreshnessCollector, StandingCollector

LATENCY_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)

SITES_PER_TURN = 5
"""Sites that are read for Prometheus before other tasks get their turn."""


class _Read(CollectorRegistry):
    """A registry, and families that were read from elsewhere."""

    def __init__(self, registry: CollectorRegistry, families: Iterable[Metric]) -> None:
        super().__init__()
        self._parts = registry, families

    def collect(self) -> Iterator[Metric]:
        """All of them."""
        registry, families = self._parts
        return chain(registry.collect(), families)


class Metrics:
    """The counters of this process, in a registry of their own, and what its sites count."""

    def __init__(self, most_sites: int) -> None:
        self.registry = CollectorRegistry()
        self._most_sites = most_sites
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        self._read = Counter("queuecast_messages_read", "Messages read from the events topic.", registry=self.registry)
        self._rejected = Counter(
            "queuecast_rejects", "Messages sent to the dead letters, by reason.", ["reason"], registry=self.registry
        )
        self._held_apart = Counter(
            "queuecast_quarantined",
            "Events held apart: well formed, but their time, size or number is not believed; by reason.",
            ["reason"],
            registry=self.registry,
        )
        self._unknown_fields = Counter(
            "queuecast_unknown_fields",
            "Fields of events that no event has, by name; they are ignored.",
            ["field"],
            registry=self.registry,
        )
        self._latency = Histogram(
            "queuecast_prediction_latency_seconds",
            "From a submit event's arrival at the broker to its predictions leaving the worker.",
            buckets=LATENCY_BUCKETS,
            registry=self.registry,
        )
        self._event_time = Gauge(
            "queuecast_last_message_timestamp_seconds",
            "When the last message read had arrived at the broker.",
            registry=self.registry,
        )
        self._lag = Gauge(
            "queuecast_event_lag",
            "Messages of the events topic that this worker has still to read, by partition.",
            ["partition"],
            registry=self.registry,
        )
        self._late = Counter(
            "queuecast_late_predictions",
            "Predictions that left more than worker.late_seconds after their event's arrival at the broker.",
            registry=self.registry,
        )
        self._renewed = Counter(
            "queuecast_events_topic_renewals",
            "Partitions of the events topic that had been recreated, or cut short, since their states were stored.",
            ["partition"],
            registry=self.registry,
        )
        self._lost = Counter(
            "queuecast_events_lost",
            "Events that were deleted from their topic before they were read, by partition.",
            ["partition"],
            registry=self.registry,
        )
        self._questions = Counter(
            "queuecast_questions", "Questions taken, by what became of them.", ["status"], registry=self.registry
        )
        self._answers = Histogram(
            "queuecast_answer_latency_seconds",
            "From a question's arrival at the broker to its answer leaving the worker.",
            buckets=LATENCY_BUCKETS,
            registry=self.registry,
        )
        self._broker = Gauge("queuecast_broker_up", "Whether a broker can be reached.", registry=self.registry)
        self._store = Gauge("queuecast_store_up", "Whether Redis takes writes within a second.", registry=self.registry)
        self._trainings = Gauge(
            "queuecast_trainings_waiting", "Trainings that wait for the one under way.", registry=self.registry
        )
        self._training_s = Gauge(
            "queuecast_training_seconds", "For how long the training under way has been.", registry=self.registry
        )
        self._restarts = Gauge(
            "queuecast_training_restarts",
            "Processes for training that were replaced, since they had died or hung.",
            registry=self.registry,
        )
        self._age = Gauge(
            "queuecast_checkpoint_age_seconds",
            "For how long the oldest event that is not durable yet has been waiting for that; 0 without one.",
            registry=self.registry,
        )
        self._sites = Gauge("queuecast_sites", "Sites that this worker serves.", registry=self.registry)
        self._handles: Iterable[SiteHandle] = ()
        self._of_sites: Callable[[Sequence[SiteHandle]], Iterable[Collector]] = lambda _: ()
        self._offsets: dict[tuple[str, int], int] = {}
        self.rejections: dict[str, int] = {}
        """How many messages went to the dead letters, by reason."""

    def read(self, topic: str, partition: int, offset: int, timestamp: float) -> None:
        """A message was read; `timestamp` is when it arrived at the broker."""
        self._read.inc()
        self._event_time.set(timestamp)
        place = topic, partition
        self._offsets[place] = max(offset, self._offsets.get(place, offset))  # one that waited is passed by others

    def forget(self, partitions: Collection[int]) -> None:
        """These partitions are read by others: when they come back, what was read here says nothing."""
        self._offsets = {place: last for place, last in self._offsets.items() if place[1] not in partitions}

    def unknown_field(self, name: str) -> None:
        """An event had a field that no event has."""
        self._unknown_fields.labels(name).inc()

    def rejected(self, reason: str, held_apart: bool = False) -> None:
        """A message went to the dead letters; `held_apart`: as an event that is not believed."""
        self._rejected.labels(reason).inc()
        self.rejections[reason] = self.rejections.get(reason, 0) + 1
        if held_apart:
            self._held_apart.labels(reason).inc()

    def predicted(self, arrived: float) -> None:
        """The predictions of a submit event have left, which had arrived at the broker at `arrived`."""
        self._latency.observe(max(time.time() - arrived, 0.0))

    def late(self) -> None:
        """A prediction has left late."""
        self._late.inc()

    def asked(self, status: str) -> None:
        """A question was taken: it is answered, or why not."""
        self._questions.labels(status).inc()

    def answered(self, seconds: float) -> None:
        """The answer to a question has come to the broker, so long (s) after the question had."""
        self._answers.observe(max(seconds, 0.0))

    def show(
        self,
        handles: Iterable[SiteHandle],
        standing: StandingEstimates,
        freshness: Freshness,
        answer_scores: AnswerScores,
    ) -> None:
        """Show the sites: what their engines count, standing estimates, freshness, and how right what is told is."""
        self._handles = handles
        self.registry.register(StandingCollector(standing, self._most_sites))
        self._of_sites = lambda some: (
            EngineCollector(some),
            AnswersCollector(some, answer_scores),
            FreshnessCollector(some, freshness),
        )

    async def page(self) -> bytes:
        """What Prometheus reads.

        A few sites at a time are read, between which other tasks get their turn, and another thread makes the text. So
        a worker of hundreds of sites answers meanwhile; 3 ms a site in all.
        """
        handles, families = list(self._handles), dict[str, Metric]()
        self._sites.set(len(handles))
        shown = handles[: self._most_sites]
        for first in range(0, len(shown), SITES_PER_TURN):
            collectors = self._of_sites(shown[first : first + SITES_PER_TURN])
            for family in chain.from_iterable(one.collect() for one in collectors):
                if family.name in families:
                    families[family.name].samples += family.samples
                else:
                    families[family.name] = family
            await asyncio.sleep(0)
        return await asyncio.to_thread(generate_latest, _Read(self.registry, families.values()))

    def renewed(self, partition: int) -> None:
        """A partition of the events topic has been recreated."""
        self._renewed.labels(str(partition)).inc()

    def events_lost(self, partition: int, events: int) -> None:
        """Events of a partition were deleted before they were read."""
        self._lost.labels(str(partition)).inc(events)

    def checkpoint_age(self, age_s: float) -> None:
        """Update for how long the oldest event has been waiting to be durable."""
        self._age.set(age_s)

    def trainings(self, processes: Processes) -> None:
        """Update how trainings go on."""
        self._trainings.set(processes.waiting)
        self._training_s.set(processes.running_s)
        self._restarts.set(processes.restarts)

    def servers(self, health: Health) -> None:
        """Update which servers answer."""
        self._broker.set(health.broker is None)
        self._store.set(health.store is None)

    def lag(self, consumer: Any, topics: Collection[str]) -> None:
        """Update the lag, from what the consumer knows of the ends of the topics' partitions."""
        self._lag.clear()
        for tp in (tp for tp in consumer.assignment() if tp.topic in topics):
            end = consumer.highwater(tp)
            read = self._offsets.get((tp.topic, tp.partition))
            if end is not None and read is not None:
                self._lag.labels(str(tp.partition)).inc(max(end - read - 1, 0))
