"""What the engines count: events, live jobs, and how right the predictions were; read at each scrape."""

from collections.abc import Iterable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from models.engine.asking.answers import live_state, waits_unusually
from models.engine.asking.partitions import partition_states
from models.engine.engine import Engine
from models.measures import ERROR_BUCKETS, PPE_BUCKETS, Accuracy
from models.site.features import FEATURES
from models.site.job import Phase
from models.site.state import SITE
from streams.worker.checkpoint.stored import SiteHandle

MAX_SHOWN_PARTITIONS = 16
"""Partitions that a site may have for Prometheus to be shown them."""


MOST_LONG_WAITS = 1000
"""Of so many jobs of a site, those that have queued longest, it is looked whether they wait unusually long."""


class EngineCollector(Collector):
    """Reads engines. Labels: the site, the method, the feature, the phase, and whether the jobs started."""

    def __init__(self, handles: Iterable[SiteHandle]) -> None:
        self._handles = handles

    def collect(self) -> Iterator[Metric]:
        """Every family, with a sample a site; O(sites · methods)."""
        engines = [handle.engine for handle in self._handles]
        yield from _counts(engines)
        yield from _waits(engines)
        yield from _partitions(engines)
        yield from _accuracy(engines)
        yield _later_accuracy(engines)
        yield _rivals(engines)
        yield from _run_accuracy(engines)


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


def _waits(engines: list[Engine]) -> Iterator[Metric]:
    queues = HistogramMetricFamily(
        "queuecast_wait_seconds", "Waits of the jobs that started, by queue or partition.", labels=["site", "queue"]
    )
    accounts = HistogramMetricFamily(
        "queuecast_account_wait_seconds", "The same by account.", labels=["site", "account"]
    )
    before = HistogramMetricFamily(
        "queuecast_before_eligible_seconds",
        "For how long jobs that started could not, by a dependency, begin time or hold; no part of the wait.",
        labels=["site"],
    )
    unusual = GaugeMetricFamily(
        "queuecast_unusually_long_waits",
        f"Of the {MOST_LONG_WAITS} jobs that have queued longest, those beyond a bound of 0.9 or more of submission.",
        labels=["site"],
    )
    for engine in engines:
        found, site = engine.parts.waits.save(), engine.site
        for family, by_name in ((queues, found.queues), (accounts, found.accounts)):
            for name, waits in list(by_name.items()):
                family.add_metric([site, name], waits.cumulated(ERROR_BUCKETS), waits.total)
        if any(found.before.counts):
            before.add_metric([site], found.before.cumulated(ERROR_BUCKETS), found.before.total)
        unusual.add_metric([site], waits_unusually(engine, MOST_LONG_WAITS))
    yield from (queues, accounts, before, unusual)


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
                error.add_metric(values, accuracy.error.cumulated(ERROR_BUCKETS), accuracy.error.total)
                ppe.add_metric(values, accuracy.ppe.cumulated(PPE_BUCKETS), accuracy.ppe.total)
                x2.add_metric(values, accuracy.within_x2)
                withheld.add_metric(values, accuracy.missing)
                _add_bounds(held, bounded, values, accuracy)
    yield from (predictions, degraded, error, ppe, x2, withheld, held, bounded)


def _later_accuracy(engines: list[Engine]) -> Metric:
    """Of the jobs that were estimated again while they queued: the errors of their first and of their last estimate."""
    error = HistogramMetricFamily(
        "queuecast_reestimated_wait_error_seconds",
        "Absolute error of jobs that were estimated again while they queued: of their first and last estimate.",
        labels=["site", "method", "estimate"],
    )
    for engine in engines:
        scores, method = engine.scores, engine.settings.method
        for name, accuracy in (("first", scores.later_first), ("last", scores.later)):
            if accuracy.jobs:
                buckets = accuracy.error.cumulated(ERROR_BUCKETS)
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
            error.add_metric(values, accuracy.error.cumulated(ERROR_BUCKETS), accuracy.error.total)
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
            error.add_metric(values, accuracy.error.cumulated(ERROR_BUCKETS), accuracy.error.total)
            run.add_metric(values, accuracy.run_s)
            predictions.add_metric(values, engine.scores.run_predictions[method])
            held.add_metric(values, accuracy.held)
            given.add_metric(values, accuracy.intervals)
    yield from (error, run, predictions, held, given)


def _add_bounds(held: CounterMetricFamily, bounded: CounterMetricFamily, labels: list[str], accuracy: Accuracy) -> None:
    for q, bound in accuracy.bounds.items():
        held.add_metric([*labels, q], bound.held)
        bounded.add_metric([*labels, q], bound.jobs)
