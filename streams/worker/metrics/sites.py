"""What is read of the sites at each scrape: what their engines count, and what is told of them beside."""

from collections.abc import Iterator, Sequence
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from models.engine.asking.answers import acted_on, live_state, waits_unusually
from models.engine.asking.partitions import partition_states
from models.engine.engine import Engine
from models.measures import ERROR_BUCKETS, PPE_BUCKETS, Accuracy, Histogram
from models.site.features import FEATURES
from models.site.job import Phase
from models.site.state import SITE
from streams.worker.answers.freshness import Freshness
from streams.worker.answers.scores import ASKED, AnswerScores
from streams.worker.answers.standing import StandingEstimates
from streams.worker.checkpoint.stored import SiteHandle

MAX_SHOWN_PARTITIONS = 16
"""Partitions that a site may have for Prometheus to be shown them."""

MONTH_WEEKS = 4
"""Over so many weeks coverage is also shown: it may be off for a day and right in the end."""

MOST_LONG_WAITS = 1000
"""Of so many jobs of a site, those that have queued longest, it is looked whether they wait unusually long."""

_COUNTER, _GAUGE, _HISTOGRAM = CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

_FAMILIES = (
    (_COUNTER, "events", "Events applied.", "site"),
    (_COUNTER, "anomalies", "Events that did not fit what was known, by reason.", "site reason"),
    (_GAUGE, "live_jobs", "Jobs in the site's state.", "site phase"),
    (_GAUGE, "live_cpus", "Processors of those jobs.", "site phase"),
    (_GAUGE, "site_cpus", "Processors of the site.", "site"),
    (_GAUGE, "free_cpus", "Processors that no job has.", "site"),
    (_GAUGE, "history_jobs", "Jobs in the history.", "site"),
    (_GAUGE, "feature_weight", "Absolute rank correlation of a feature with the wait.", "site feature"),
    (_GAUGE, "method_info", "Which method does what (its role); 1.", "site method role"),
    (_HISTOGRAM, "wait_seconds", "Waits of the jobs that started, by queue or partition.", "site queue"),
    (_HISTOGRAM, "account_wait_seconds", "The same by account.", "site account"),
    (
        _HISTOGRAM,
        "before_eligible_seconds",
        "For how long jobs that started could not, by a dependency, begin time or hold; no part of the wait.",
        "site",
    ),
    (
        _GAUGE,
        "unusually_long_waits",
        f"Of the {MOST_LONG_WAITS} jobs that have queued longest, those beyond a bound of 0.9 or more of submission.",
        "site",
    ),
    (_GAUGE, "partition_free_cpus", "Processors that are free.", "site partition"),
    (_GAUGE, "partition_free_gpus", "GPUs that are free.", "site partition"),
    (_GAUGE, "partition_queued_jobs", "Jobs that queue there.", "site partition"),
    (_COUNTER, "predictions", "Predictions made.", "site method"),
    (
        _COUNTER,
        "degraded_predictions",
        "Predictions in a state unlike any that the method learnt from.",
        "site method",
    ),
    (
        _HISTOGRAM,
        "wait_error_seconds",
        "Absolute error of the predicted wait; no estimate counts as 0 s.",
        "site method jobs",
    ),
    (_HISTOGRAM, "wait_error_response_ratio", "That error as a share of the response time.", "site method jobs"),
    (_COUNTER, "within_factor_2_jobs", "Jobs predicted within a factor of 2.", "site method jobs"),
    (_COUNTER, "withheld_jobs", "Jobs that left without an estimate.", "site method jobs"),
    (_COUNTER, "bound_held_jobs", "Jobs at or below a bound.", "site method jobs bound"),
    (_COUNTER, "bound_jobs", "Jobs that had a bound.", "site method jobs bound"),
    (
        _COUNTER,
        "bound_burst_held_jobs",
        "Jobs at or below a bound, each as 1/(1+n) of one, where n of its user queued when it came.",
        "site method bound",
    ),
    (_COUNTER, "bound_burst_jobs", "Jobs that had a bound, counted so.", "site method bound"),
    (
        _GAUGE,
        "bound_held_month_ratio",
        "Share of jobs at or below a bound, of those that left in this week and the three before it.",
        "site method bound",
    ),
    (
        _HISTOGRAM,
        "reestimated_wait_error_seconds",
        "Absolute error of jobs that were estimated again while they queued: of their first and last estimate.",
        "site method estimate",
    ),
    (
        _HISTOGRAM,
        "beside_rival_wait_error_seconds",
        "Absolute error of the site's method on the started jobs whose start somebody else expected too.",
        "site method rival",
    ),
    (
        _HISTOGRAM,
        "run_error_seconds",
        "Absolute error of the predicted run time; no estimate counts as 0 s.",
        "site method",
    ),
    (_COUNTER, "run_seconds", "Run times of those jobs, summed.", "site method"),
    (_COUNTER, "run_predictions", "Run times predicted.", "site method"),
    (_COUNTER, "run_interval_held_jobs", "Jobs that ran within their interval.", "site method"),
    (_COUNTER, "run_interval_jobs", "Jobs that had an interval.", "site method"),
    (
        _HISTOGRAM,
        "answer_error_seconds",
        "Absolute error of what people act on: standing estimates, answers, expected starts, and what-if waits.",
        "site kind",
    ),
    (_COUNTER, "answer_within_factor_2_jobs", "Right within a factor of 2.", "site kind"),
    (_COUNTER, "answer_bound_held_jobs", "Jobs at or below its bound.", "site kind bound"),
    (_COUNTER, "answer_bound_jobs", "Jobs that had such a bound.", "site kind bound"),
    (
        _GAUGE,
        "answer_regret_seconds",
        "By how much longer jobs waited than the least that was told of another site asked about them; their mean.",
        "site",
    ),
    (_GAUGE, "site_stale", "Whether what is known of a site is too old to go by.", "site"),
    (_GAUGE, "last_event_age_seconds", "How long ago a site's last event came to the broker.", "site"),
    (_COUNTER, "estimate_records", "Records sent to the topic of standing estimates.", ""),
    (_GAUGE, "estimated_wait_seconds", "What a job of this shape would wait if it came now.", "site cpus walltime"),
    (_GAUGE, "estimates_timestamp_seconds", "When a site's estimates were last made.", "site"),
    (
        _GAUGE,
        "drain_seconds",
        "Work of the live jobs that is still to be done, by their predicted run times, over the processors.",
        "site",
    ),
)
"""Each family: its kind, its name without `queuecast_`, what it is, and its labels."""


class SiteFamilies(Collector):
    """The families of all sites, filled site by site."""

    def __init__(self) -> None:
        self._found: dict[str, Any] = {
            name: kind(f"queuecast_{name}", text, labels=labels.split()) for kind, name, text, labels in _FAMILIES
        }

    def collect(self) -> Iterator[Metric]:
        """What was read."""
        yield from self._found.values()

    def add(self, handle: SiteHandle, freshness: Freshness, scores: AnswerScores) -> None:
        """Read a site; O(methods), and where it has few partitions O(live jobs), 5 µs each."""
        self.add_engine(handle.engine)
        self.add_answers(handle.engine, scores)
        site, fresh = handle.engine.site, freshness.of(handle)
        self._add("site_stale", [site], float(fresh.stale is not None))
        if fresh.age_s is not None:
            self._add("last_event_age_seconds", [site], fresh.age_s)

    def add_engine(self, engine: Engine) -> None:
        """What an engine counts."""
        self._add_counts(engine)
        self._add_actual_waits(engine)
        self._add_partitions(engine)
        self._add_waits(engine)
        self._add_runs(engine)

    def add_answers(self, engine: Engine, scores: AnswerScores) -> None:
        """How right was what people act on."""
        site, told = engine.site, scores.sites.get(engine.site, {})
        if (asked := told.get(ASKED)) is not None and asked.mean_regret_s is not None:
            self._add("answer_regret_seconds", [site], asked.mean_regret_s)
        for kind, accuracy in {**{kind: one.told for kind, one in told.items()}, **acted_on(engine)}.items():
            self._add_histogram("answer_error_seconds", [site, kind], accuracy.error)
            self._add("answer_within_factor_2_jobs", [site, kind], accuracy.within_x2)
            self._add_bounds("answer_bound", [site, kind], accuracy)

    def add_standing(self, standing: StandingEstimates, most_sites: int) -> None:
        """What is kept of the standing estimates: four shapes a site, of the first `most_sites`."""
        self._add("estimate_records", [], standing.records)
        for site, estimates in list(standing.estimates.items())[:most_sites]:
            self._add("estimates_timestamp_seconds", [site], estimates.made)
            if estimates.drain_s is not None:
                self._add("drain_seconds", [site], estimates.drain_s)
            for shape, wait_s in standing.shown(estimates):
                if wait_s is not None:
                    labels = [site, str(shape.cpus), f"{shape.walltime:.0f}"]
                    self._add("estimated_wait_seconds", labels, wait_s)

    def _add(self, name: str, labels: Sequence[str], value: float) -> None:
        self._found[name].add_metric(labels, value)

    def _add_histogram(
        self, name: str, labels: Sequence[str], seen: Histogram, buckets: tuple[float, ...] = ERROR_BUCKETS
    ) -> None:
        self._found[name].add_metric(labels, seen.cumulated(buckets), seen.total)

    def _add_bounds(self, name: str, labels: Sequence[str], accuracy: Accuracy) -> None:
        for q, bound in accuracy.bounds.items():
            self._add(f"{name}_held_jobs", [*labels, q], bound.held)
            self._add(f"{name}_jobs", [*labels, q], bound.jobs)

    def _add_counts(self, engine: Engine) -> None:
        site, context = engine.site, engine.context
        for role, method in _roles(engine):
            self._add("method_info", [site, method, role], 1)
        self._add("events", [site], engine.events)
        for reason, count in engine.anomalies.items():
            self._add("anomalies", [site, reason], count)
        for phase in (Phase.QUEUED, Phase.HELD, Phase.RUNNING, Phase.SUSPENDED):
            totals = context.state.totals(SITE, phase)
            self._add("live_jobs", [site, phase], totals.count)
            self._add("live_cpus", [site, phase], totals.cpus)
        self._add("site_cpus", [site], context.cpus)
        self._add("free_cpus", [site], live_state(engine).free_cpus)
        self._add("history_jobs", [site], len(context.history))
        for feature, weight in zip(FEATURES, context.history.window.weights, strict=True):
            self._add("feature_weight", [site, feature], float(weight))

    def _add_actual_waits(self, engine: Engine) -> None:
        found, site = engine.parts.waits, engine.site
        for queue, waits in found.queues.items():
            self._add_histogram("wait_seconds", [site, queue], waits)
        for account, waits in found.accounts.items():
            self._add_histogram("account_wait_seconds", [site, account], waits)
        if any(found.before.counts):
            self._add_histogram("before_eligible_seconds", [site], found.before)
        self._add("unusually_long_waits", [site], waits_unusually(engine, MOST_LONG_WAITS))

    def _add_partitions(self, engine: Engine) -> None:
        areas = engine.context.areas
        if areas is None or len(areas.topology.partitions) > MAX_SHOWN_PARTITIONS:
            return
        for one in partition_states(engine.context, engine.time):
            for field in ("free_cpus", "queued_jobs", *(["free_gpus"] if one.gpus else [])):
                self._add(f"partition_{field}", [engine.site, one.name], getattr(one, field))

    def _add_waits(self, engine: Engine) -> None:
        """How right the predicted waits were: of all jobs, of those that were estimated again, and beside rivals."""
        site, scores, ours = engine.site, engine.scores, engine.settings.method
        for method, count in scores.predictions.items():
            self._add("predictions", [site, method], count)
            self._add("degraded_predictions", [site, method], scores.degraded[method])
        for jobs, measured in (("started", scores.accuracy), ("cancelled", scores.cancelled)):
            for method, accuracy in measured.items():
                labels = [site, method, jobs]
                self._add_histogram("wait_error_seconds", labels, accuracy.error)
                self._add_histogram("wait_error_response_ratio", labels, accuracy.ppe, PPE_BUCKETS)
                self._add("within_factor_2_jobs", labels, accuracy.within_x2)
                self._add("withheld_jobs", labels, accuracy.missing)
                self._add_bounds("bound", labels, accuracy)
        for estimate, accuracy in (("first", scores.later_first), ("last", scores.later)):
            if accuracy.jobs:
                self._add_histogram("reestimated_wait_error_seconds", [site, ours, estimate], accuracy.error)
        for q, (weighed, weighed_held) in scores.bursts.items():
            self._add("bound_burst_held_jobs", [site, ours, q], weighed_held)
            self._add("bound_burst_jobs", [site, ours, q], weighed)
        for q, (jobs_with, held) in scores.lately(MONTH_WEEKS).bounds.items():
            if jobs_with:
                self._add("bound_held_month_ratio", [site, ours, q], held / jobs_with)
        for rival, accuracy in scores.rivals.items():
            self._add_histogram("beside_rival_wait_error_seconds", [site, ours, rival], accuracy.error)

    def _add_runs(self, engine: Engine) -> None:
        for method, accuracy in engine.scores.run_accuracy.items():
            labels = [engine.site, method]
            self._add_histogram("run_error_seconds", labels, accuracy.error)
            self._add("run_seconds", labels, accuracy.run_s)
            self._add("run_predictions", labels, engine.scores.run_predictions[method])
            self._add("run_interval_held_jobs", labels, accuracy.held)
            self._add("run_interval_jobs", labels, accuracy.intervals)


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
