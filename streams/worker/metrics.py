"""The worker's metrics for Prometheus.

What a site's engine counts is part of its state and is read from there at each scrape, so that it is right after a
crash and no event counts twice. Only what concerns this process (latency, lag, messages read) is counted here.
"""

import time
from collections.abc import Collection, Iterable, Iterator
from itertools import accumulate
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, PlatformCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from models.engine.asking.answers import live_state
from models.engine.asking.partitions import partition_states
from models.engine.engine import Engine
from models.measures import ERROR_BUCKETS, PPE_BUCKETS, Accuracy
from models.measures import Histogram as Counted
from models.site.features import FEATURES
from models.site.state import SITE, Phase
from streams.worker.freshness import Freshness
from streams.worker.health import Health
from streams.worker.ledger import Ledger
from streams.worker.standing import StandingEstimates
from streams.worker.stored import SiteHandle

MAX_SHOWN_PARTITIONS = 16
"""Partitions that a site may have for Prometheus to be shown them."""

LATENCY_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)


class Metrics:
    """The counters of this process and the collector of the engines' counters, in a registry of their own."""

    def __init__(self, ledger: Ledger, most_sites: int) -> None:
        self.registry = CollectorRegistry()
        self._most_sites = most_sites
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        self.registry.register(EngineCollector(ledger, most_sites))
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
            "Partitions of the events topic that had been made anew, or cut short, since their states were stored.",
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
        self._age = Gauge(
            "queuecast_checkpoint_age_seconds",
            "For how long the oldest event that is not durable yet has been waiting for that; 0 without one.",
            registry=self.registry,
        )
        self._offsets: dict[tuple[str, int], int] = {}

    def read(self, topic: str, partition: int, offset: int, timestamp: float) -> None:
        """A message was read; `timestamp` is when it arrived at the broker."""
        self._read.inc()
        self._event_time.set(timestamp)
        self._offsets[topic, partition] = offset

    def forget(self, partitions: Collection[int]) -> None:
        """These partitions are read by others: when they come back, what was read here says nothing."""
        self._offsets = {place: last for place, last in self._offsets.items() if place[1] not in partitions}

    def unknown_field(self, name: str) -> None:
        """An event had a field that no event has."""
        self._unknown_fields.labels(name).inc()

    def rejected(self, reason: str, held_apart: bool = False) -> None:
        """A message went to the dead letters; `held_apart`: as an event that is not believed."""
        self._rejected.labels(reason).inc()
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

    def show(self, standing: StandingEstimates, ledger: Ledger, freshness: Freshness) -> None:
        """Show the standing estimates too, and how fresh the sites are."""
        self.registry.register(StandingCollector(standing, self._most_sites))
        self.registry.register(FreshnessCollector(ledger, freshness, self._most_sites))

    def renewed(self, partition: int) -> None:
        """A partition of the events topic has been made anew."""
        self._renewed.labels(str(partition)).inc()

    def events_lost(self, partition: int, events: int) -> None:
        """Events of a partition were deleted before they were read."""
        self._lost.labels(str(partition)).inc(events)

    def checkpoint_age(self, age_s: float) -> None:
        """Update for how long the oldest event has been waiting to be durable."""
        self._age.set(age_s)

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


class EngineCollector:
    """Reads the engines at each scrape. Labels: the site (the first `most_sites`; of the rest it shows nothing but how
    many they are), the method, the feature, the phase, and whether the jobs measured started or were cancelled in the
    queue.
    """

    def __init__(self, handles: Iterable[SiteHandle], most_sites: int) -> None:
        self._handles = handles
        self._most_sites = most_sites

    def describe(self) -> Iterator[Metric]:
        """Nothing is known before there is a site."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """Every family, with a sample a site; O(sites · methods)."""
        handles = list(self._handles)
        engines = [handle.engine for handle in handles[: self._most_sites]]
        yield GaugeMetricFamily("queuecast_sites", "Sites that this worker serves.", value=len(handles))
        yield from _counts(engines)
        yield from _partitions(engines)
        yield from _accuracy(engines)
        yield _later_accuracy(engines)
        yield _rivals(engines)
        yield from _run_accuracy(engines)


class StandingCollector:
    """Reads what is kept of the standing estimates at each scrape: four shapes a site, for the first `most_sites`."""

    def __init__(self, standing: StandingEstimates, most_sites: int) -> None:
        self._standing = standing
        self._most_sites = most_sites

    def describe(self) -> Iterator[Metric]:
        """Nothing is known before there is a site."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """Every family, with a sample a site."""
        records = CounterMetricFamily(
            "queuecast_estimate_records",
            "Records sent to the topic of standing estimates.",
            value=self._standing.records,
        )
        waits = GaugeMetricFamily(
            "queuecast_estimated_wait_seconds",
            "What a job of this shape would wait if it came now.",
            labels=["site", "cpus", "walltime"],
        )
        made = GaugeMetricFamily(
            "queuecast_estimates_timestamp_seconds", "When a site's estimates were last made.", labels=["site"]
        )
        drain = GaugeMetricFamily(
            "queuecast_drain_seconds",
            "Work of the live jobs that is still to be done, by their predicted run times, over the processors.",
            labels=["site"],
        )
        for site, estimates in list(self._standing.estimates.items())[: self._most_sites]:
            made.add_metric([site], estimates.made)
            if estimates.drain_s is not None:
                drain.add_metric([site], estimates.drain_s)
            for shape, wait_s in self._standing.shown(estimates):
                if wait_s is not None:
                    waits.add_metric([site, str(shape.cpus), f"{shape.walltime:.0f}"], wait_s)
        yield from (records, waits, made, drain)


class FreshnessCollector:
    """Reads at each scrape how old what is known of each site is, for the first `most_sites`."""

    def __init__(self, handles: Iterable[SiteHandle], freshness: Freshness, most_sites: int) -> None:
        self._handles = handles
        self._freshness = freshness
        self._most_sites = most_sites

    def describe(self) -> Iterator[Metric]:
        """Nothing is known before there is a site."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """Both families, with a sample a site."""
        stale = GaugeMetricFamily(
            "queuecast_site_stale", "Whether what is known of a site is too old to go by.", labels=["site"]
        )
        age = GaugeMetricFamily(
            "queuecast_last_event_age_seconds",
            "How long ago a site's last event came to the broker.",
            labels=["site"],
        )
        for handle in list(self._handles)[: self._most_sites]:
            fresh = self._freshness.of(handle)
            stale.add_metric([handle.engine.site], float(fresh.stale is not None))
            if fresh.age_s is not None:
                age.add_metric([handle.engine.site], fresh.age_s)
        yield from (stale, age)


def _counts(engines: list[Engine]) -> Iterator[Metric]:
    events = CounterMetricFamily("queuecast_events", "Events applied.", labels=["site"])
    anomalies = CounterMetricFamily(
        "queuecast_anomalies", "Events that did not fit what was known, by reason.", labels=["site", "reason"]
    )
    live = GaugeMetricFamily("queuecast_live_jobs", "Jobs in the site's state.", labels=["site", "phase"])
    cpus = GaugeMetricFamily("queuecast_live_cpus", "Processors of those jobs.", labels=["site", "phase"])
    size = GaugeMetricFamily("queuecast_site_cpus", "Processors of the site.", labels=["site"])
    free = GaugeMetricFamily("queuecast_free_cpus", "Processors that no job has.", labels=["site"])
    history = GaugeMetricFamily("queuecast_history_jobs", "Jobs in the history.", labels=["site"])
    weights = GaugeMetricFamily(
        "queuecast_feature_weight", "Absolute rank correlation of a feature with the wait.", labels=["site", "feature"]
    )
    methods = GaugeMetricFamily(
        "queuecast_method_info", "Which method does what (its role); 1.", labels=["site", "method", "role"]
    )
    for engine in engines:
        site = engine.site
        for role, method in _roles(engine):
            methods.add_metric([site, method, role], 1)
        events.add_metric([site], engine.events)
        for reason, count in engine.anomalies.items():
            anomalies.add_metric([site, reason], count)
        for phase in (Phase.QUEUED, Phase.HELD, Phase.RUNNING, Phase.SUSPENDED):
            totals = engine.context.state.totals(SITE, phase)
            live.add_metric([site, phase], totals.count)
            cpus.add_metric([site, phase], totals.cpus)
        size.add_metric([site], engine.context.cpus)
        free.add_metric([site], live_state(engine).free_cpus)
        history.add_metric([site], len(engine.context.history))
        for feature, weight in zip(FEATURES, engine.context.history.window.weights, strict=True):
            weights.add_metric([site, feature], float(weight))
    yield from (events, anomalies, live, cpus, size, free, history, weights, methods)


def _partitions(engines: list[Engine]) -> Iterator[Metric]:
    """Of sites with few partitions how these are; O(live jobs of such a site), 5 µs each."""
    labels = ["site", "partition"]
    families = {
        "free_cpus": GaugeMetricFamily("queuecast_partition_free_cpus", "Processors that are free.", labels=labels),
        "free_gpus": GaugeMetricFamily("queuecast_partition_free_gpus", "GPUs that are free.", labels=labels),
        "queued_jobs": GaugeMetricFamily("queuecast_partition_queued_jobs", "Jobs that queue there.", labels=labels),
    }
    for engine in engines:
        areas = engine.context.areas
        if areas is None or len(areas.topology.partitions) > MAX_SHOWN_PARTITIONS:
            continue
        for one in partition_states(engine.context, engine.time):
            for field, family in families.items():
                if field != "free_gpus" or one.gpus:
                    family.add_metric([engine.site, one.name], getattr(one, field))
    yield from families.values()


def _roles(engine: Engine) -> Iterator[tuple[str, str]]:
    """The role and name of each method of a site."""
    settings = engine.settings
    yield "wait", settings.method
    yield "run", settings.runtimes
    yield "what_if", engine.methods.what_if_method.name
    if settings.bounds:
        yield "bounds", settings.bounds
    yield from (("shadow", name) for name in settings.shadows)
    yield from (("run_shadow", name) for name in settings.run_shadows)


def _accuracy(engines: list[Engine]) -> Iterator[Metric]:
    labels = ["site", "method", "jobs"]
    error = HistogramMetricFamily(
        "queuecast_wait_error_seconds",
        "Absolute error of the predicted wait; no estimate counts as 0 s.",
        labels=labels,
    )
    ppe = HistogramMetricFamily(
        "queuecast_wait_error_response_ratio", "That error as a share of the response time.", labels=labels
    )
    x2 = CounterMetricFamily("queuecast_within_factor_2_jobs", "Jobs predicted within a factor of 2.", labels=labels)
    withheld = CounterMetricFamily("queuecast_withheld_jobs", "Jobs that left without an estimate.", labels=labels)
    predictions = CounterMetricFamily("queuecast_predictions", "Predictions made.", labels=["site", "method"])
    degraded = CounterMetricFamily(
        "queuecast_degraded_predictions",
        "Predictions in a state unlike any that the method learnt from.",
        labels=["site", "method"],
    )
    held = CounterMetricFamily("queuecast_bound_held_jobs", "Jobs at or below a bound.", labels=[*labels, "bound"])
    bounded = CounterMetricFamily("queuecast_bound_jobs", "Jobs that had a bound.", labels=[*labels, "bound"])
    for engine in engines:
        for method, count in engine.scores.predictions.items():
            predictions.add_metric([engine.site, method], count)
            degraded.add_metric([engine.site, method], engine.scores.degraded[method])
        for jobs, measured in (("started", engine.scores.accuracy), ("cancelled", engine.scores.cancelled)):
            for method, accuracy in list(measured.items()):  # another thread may add a rival
                values = [engine.site, method, jobs]
                error.add_metric(values, _buckets(accuracy.error, ERROR_BUCKETS), accuracy.error.total)
                ppe.add_metric(values, _buckets(accuracy.ppe, PPE_BUCKETS), accuracy.ppe.total)
                x2.add_metric(values, accuracy.within_x2)
                withheld.add_metric(values, accuracy.missing)
                _add_bounds(held, bounded, values, accuracy)
    yield from (predictions, degraded, error, ppe, x2, withheld, held, bounded)


def _later_accuracy(engines: list[Engine]) -> Metric:
    """Of the jobs that were estimated anew while they queued: the errors of their first and of their last estimate."""
    error = HistogramMetricFamily(
        "queuecast_reestimated_wait_error_seconds",
        "Absolute error of jobs that were estimated anew while they queued: of their first and last estimate.",
        labels=["site", "method", "estimate"],
    )
    for engine in engines:
        scores, method = engine.scores, engine.settings.method
        for name, accuracy in (("first", scores.later_first), ("last", scores.later)):
            if accuracy.jobs:
                buckets = _buckets(accuracy.error, ERROR_BUCKETS)
                error.add_metric([engine.site, method, name], buckets, accuracy.error.total)
    return error


def _rivals(engines: list[Engine]) -> Metric:
    """Of the jobs of which somebody else expected a start: the errors of the site's own method."""
    error = HistogramMetricFamily(
        "queuecast_beside_rival_wait_error_seconds",
        "Absolute error of the site's method on the started jobs whose start somebody else expected too.",
        labels=["site", "method", "rival"],
    )
    for engine in engines:
        for rival, accuracy in list(engine.scores.rivals.items()):
            values = [engine.site, engine.settings.method, rival]
            error.add_metric(values, _buckets(accuracy.error, ERROR_BUCKETS), accuracy.error.total)
    return error


def _run_accuracy(engines: list[Engine]) -> Iterator[Metric]:
    labels = ["site", "method"]
    error = HistogramMetricFamily(
        "queuecast_run_error_seconds",
        "Absolute error of the predicted run time; no estimate counts as 0 s.",
        labels=labels,
    )
    run = CounterMetricFamily("queuecast_run_seconds", "Run times of those jobs, summed.", labels=labels)
    predictions = CounterMetricFamily("queuecast_run_predictions", "Run times predicted.", labels=labels)
    held = CounterMetricFamily(
        "queuecast_run_interval_held_jobs", "Jobs that ran within their interval.", labels=labels
    )
    given = CounterMetricFamily("queuecast_run_interval_jobs", "Jobs that had an interval.", labels=labels)
    for engine in engines:
        for method, accuracy in engine.scores.run_accuracy.items():
            values = [engine.site, method]
            error.add_metric(values, _buckets(accuracy.error, ERROR_BUCKETS), accuracy.error.total)
            run.add_metric(values, accuracy.run_s)
            predictions.add_metric(values, engine.scores.run_predictions[method])
            held.add_metric(values, accuracy.held)
            given.add_metric(values, accuracy.intervals)
    yield from (error, run, predictions, held, given)


def _add_bounds(held: CounterMetricFamily, bounded: CounterMetricFamily, labels: list[str], accuracy: Accuracy) -> None:
    for q, bound in accuracy.bounds.items():
        held.add_metric([*labels, q], bound.held)
        bounded.add_metric([*labels, q], bound.jobs)


def _buckets(counted: Counted, edges: tuple[float, ...]) -> list[tuple[str, float]]:
    names = [*map(str, edges), "+Inf"]
    return list(zip(names, accumulate(counted.counts), strict=True))
