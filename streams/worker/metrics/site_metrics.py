"""Metrics of the sites, read at each scrape: the counts of their engines, grid estimates and answer scores."""

from collections.abc import Iterator, Sequence

from models.durations import duration
from models.engine.asking.accuracy import acted_on
from models.engine.asking.engine_answers import count_overdue, live_state
from models.engine.asking.partitions import partition_states
from models.engine.engine import Engine
from models.measures import ERROR_BUCKETS, PPE_BUCKETS, Accuracy, Histogram
from models.site.history import FEATURES
from models.site.job import Phase
from models.site.state import SITE
from models.waiting_accuracy import WAITING_AGES_S
from streams.process.scraping import Families
from streams.worker.answers.answer_scores import QUERY, AnswerScores
from streams.worker.answers.estimate_grid import EstimateGrids
from streams.worker.answers.freshness import Freshness
from streams.worker.checkpoint.stored_site import SiteHandle

MAX_SHOWN_PARTITIONS = 16  # maximum number of partitions of a site with partition metrics

MOST_LONG_WAITS = 1000
"""Number of longest-waiting jobs per site that are checked for unusually long waits."""

FAMILIES = """
counter events site: Events applied.
counter anomalies site,reason: Events that did not fit the site's state, by reason.
gauge live_jobs site,phase: Jobs in the site's state.
gauge live_cpus site,phase: CPUs of those jobs.
gauge site_cpus site: CPUs of the site.
gauge free_cpus site: Free CPUs.
gauge history_jobs site: Jobs in the history.
gauge feature_weight site,feature: Absolute rank correlation of a feature with the wait.
gauge order_fit_share site,order: Share of recent pairs of jobs that started in the order of the simulated schedule.
gauge method_info site,method,role: Role of a method; the value is 1.
histogram wait_seconds site,queue: Waits of started jobs, by queue or partition.
histogram account_wait_seconds site,account: Waits of started jobs, by account.
histogram ineligible_seconds site: Time before jobs became eligible (dependency, begin time, hold); no part of waits.
gauge unusually_long_waits site: Jobs beyond their bound of at least 0.9, of the 1000 that have waited longest.
gauge partition_free_cpus site,partition: Free CPUs.
gauge partition_free_gpus site,partition: Free GPUs.
gauge partition_queued_jobs site,partition: Pending jobs.
counter predictions site,method: Predictions made.
counter degraded_predictions site,method: Predictions out of the range of the method's training data.
histogram wait_error_seconds site,method,jobs: Absolute error of the predicted wait; no estimate counts as 0 s.
histogram wait_error_response_ratio site,method,jobs: Absolute error of the predicted wait over the response time.
counter within_factor_2_jobs site,method,jobs: Jobs predicted within a factor of 2.
counter jobs_without_estimate site,method,jobs: Jobs that left without an estimate.
counter bound_covered_jobs site,method,jobs,bound: Jobs at or below an upper bound.
counter bound_scored_jobs site,method,jobs,bound: Jobs that had an upper bound.
histogram reestimated_wait_error_seconds site,method,estimate: Absolute error of the first and last estimate of a job.
counter waiting_jobs site,age: Jobs that were pending at an age and have left the queue since.
counter waiting_error_seconds site,age,estimate: Sum of absolute errors of the remaining wait, by estimate.
counter waiting_bound_scored_jobs site,age: Jobs whose estimate in force at an age had upper bounds.
counter waiting_bound_covered_jobs site,age,bound: Jobs that started within the upper bound in force at an age.
counter waiting_bound_expired_jobs site,age: Jobs whose upper bound of 0.9 in force at an age was in the past.
histogram wait_error_vs_scheduler_seconds site,method,external: Absolute wait error on jobs with a scheduler's estimate.
histogram run_error_seconds site,method: Absolute error of the predicted run time; no estimate counts as 0 s.
counter run_seconds site,method: Sum of the run times of those jobs.
counter run_predictions site,method: Run times predicted.
counter run_interval_covered_jobs site,method: Jobs that ran within their interval.
counter run_interval_scored_jobs site,method: Jobs that had an interval.
histogram answer_error_seconds site,kind: Absolute error of answers and of the estimate grid.
counter answer_within_factor_2_jobs site,kind: Answers right within a factor of 2.
counter answer_bound_covered_jobs site,kind,bound: Jobs at or below an answer's upper bound.
counter answer_bound_scored_jobs site,kind,bound: Jobs with an answer's upper bound.
gauge answer_regret_seconds site: Mean wait beyond the shortest wait predicted at another site of the same request.
gauge site_stale site: 1 if the site's state is too old to rely on, else 0.
gauge last_event_age_seconds site: Time since a site's last event reached the broker.
counter estimate_records: Records published on the topic of the estimate grid.
gauge estimated_wait_seconds site,cpus,walltime: Estimated wait of a job of this shape submitted now.
gauge estimates_timestamp_seconds site: Time of the last refresh of a site's estimate grid.
gauge remaining_work_seconds site: Remaining work of live jobs, by predicted run times, divided by the CPUs.
"""


class SiteFamilies(Families):
    """Metric families of all sites, filled site by site."""

    def __init__(self) -> None:
        super().__init__("queuecast", FAMILIES)

    def add_site(self, handle: SiteHandle, freshness: Freshness, scores: AnswerScores) -> None:
        """Add a site; O(methods), and O(live jobs) if it has few partitions."""
        self.add_engine(handle.engine)
        self.add_answers(handle.engine, scores)
        site, fresh = handle.engine.site, freshness.of(handle)
        self.add("site_stale", [site], float(fresh.stale is not None))
        if fresh.age_s is not None:
            self.add("last_event_age_seconds", [site], fresh.age_s)

    def add_engine(self, engine: Engine) -> None:
        """Add the counts of an engine."""
        self._add_counts(engine)
        self._add_actual_waits(engine)
        self._add_partitions(engine)
        self._add_waits(engine)
        self._add_while_waiting(engine)
        self._add_runs(engine)

    def add_answers(self, engine: Engine, scores: AnswerScores) -> None:
        """Add the accuracy of answers and grid estimates."""
        site, kinds = engine.site, scores.sites.get(engine.site, {})
        if (answered := kinds.get(QUERY)) is not None and answered.mean_regret_s is not None:
            self.add("answer_regret_seconds", [site], answered.mean_regret_s)
        known = {kind: accuracy for kind, (accuracy, _) in acted_on(engine).items()}
        for kind, accuracy in ({kind: one.published for kind, one in kinds.items()} | known).items():
            self._add_histogram("answer_error_seconds", [site, kind], accuracy.error)
            self.add("answer_within_factor_2_jobs", [site, kind], accuracy.within_x2)
            self._add_bounds("answer_bound", [site, kind], accuracy)

    def add_grids(self, grids: EstimateGrids, most_sites: int) -> None:
        """Add the grid estimates: four shapes per site, for the first `most_sites`."""
        self.add("estimate_records", [], grids.records)
        for site, estimates in list(grids.estimates.items())[:most_sites]:
            self.add("estimates_timestamp_seconds", [site], estimates.made)
            if estimates.remaining_work_s is not None:
                self.add("remaining_work_seconds", [site], estimates.remaining_work_s)
            for shape, wait_s in grids.shown(estimates):
                if wait_s is not None:
                    labels = [site, str(shape.cpus), f"{shape.walltime:.0f}"]
                    self.add("estimated_wait_seconds", labels, wait_s)

    def _add_histogram(
        self, name: str, labels: Sequence[str], seen: Histogram, buckets: tuple[float, ...] = ERROR_BUCKETS
    ) -> None:
        self.add(name, labels, seen.cumulated(buckets), seen.total)

    def _add_bounds(self, name: str, labels: Sequence[str], accuracy: Accuracy) -> None:
        for q, bound in accuracy.bounds.items():
            self.add(f"{name}_covered_jobs", [*labels, q], bound.held)
            self.add(f"{name}_scored_jobs", [*labels, q], bound.jobs)

    def _add_counts(self, engine: Engine) -> None:
        site, context = engine.site, engine.context
        for role, method in _roles(engine):
            self.add("method_info", [site, method, role], 1)
        self.add("events", [site], engine.events)
        for reason, count in engine.anomalies.items():
            self.add("anomalies", [site, reason], count)
        for phase in (Phase.QUEUED, Phase.HELD, Phase.RUNNING, Phase.SUSPENDED):
            totals = context.state.totals(SITE, phase)
            self.add("live_jobs", [site, phase], totals.count)
            self.add("live_cpus", [site, phase], totals.cpus)
        self.add("site_cpus", [site], context.cpus)
        self.add("free_cpus", [site], live_state(engine).free_cpus)
        self.add("history_jobs", [site], len(context.history))
        for feature, weight in zip(FEATURES, context.history.window.weights, strict=True):
            self.add("feature_weight", [site, feature], float(weight))
        if (fit := engine.methods.counting.order_fit) is not None:
            self.add("order_fit_share", [site, fit.order], fit.share)

    def _add_actual_waits(self, engine: Engine) -> None:
        found, site = engine.scores.waits, engine.site
        for queue, waits in found.queues.items():
            self._add_histogram("wait_seconds", [site, queue], waits)
        for account, waits in found.accounts.items():
            self._add_histogram("account_wait_seconds", [site, account], waits)
        if any(found.before.counts):
            self._add_histogram("ineligible_seconds", [site], found.before)
        self.add("unusually_long_waits", [site], count_overdue(engine, MOST_LONG_WAITS))

    def _add_partitions(self, engine: Engine) -> None:
        areas = engine.context.areas
        if areas is None or len(areas.topology.partitions) > MAX_SHOWN_PARTITIONS:
            return
        for one in partition_states(engine.context, engine.time):
            for field in ("free_cpus", "queued_jobs", *(["free_gpus"] if one.gpus else [])):
                self.add(f"partition_{field}", [engine.site, one.name], getattr(one, field))

    def _add_waits(self, engine: Engine) -> None:
        """Add the accuracy of predicted waits: of all jobs, of re-estimated jobs, and compared with the scheduler's
        estimates.
        """
        site, scores, ours = engine.site, engine.scores, engine.settings.method
        for method, count in scores.predictions.items():
            self.add("predictions", [site, method], count)
            self.add("degraded_predictions", [site, method], scores.degraded[method])
        for jobs, measured in (("started", scores.accuracy), ("cancelled", scores.cancelled)):
            for method, accuracy in measured.items():
                labels = [site, method, jobs]
                self._add_histogram("wait_error_seconds", labels, accuracy.error)
                self._add_histogram("wait_error_response_ratio", labels, accuracy.ppe, PPE_BUCKETS)
                self.add("within_factor_2_jobs", labels, accuracy.within_x2)
                self.add("jobs_without_estimate", labels, accuracy.missing)
                self._add_bounds("bound", labels, accuracy)
        for estimate, accuracy in (("first", scores.later_first), ("last", scores.later)):
            if accuracy.jobs:
                self._add_histogram("reestimated_wait_error_seconds", [site, ours, estimate], accuracy.error)
        for rival, accuracy in scores.rivals.items():
            self._add_histogram("wait_error_vs_scheduler_seconds", [site, ours, rival], accuracy.error)

    def _add_while_waiting(self, engine: Engine) -> None:
        """Add the accuracy of the estimates in force at fixed ages, with the first ones and two baselines."""
        for age_s, one in zip(WAITING_AGES_S, engine.scores.waiting.ages, strict=True):
            if not one.jobs:
                continue
            labels = [engine.site, duration(age_s)]
            self.add("waiting_jobs", labels, one.jobs)
            for estimate in ("in_force", "first", "now", "recent"):
                self.add("waiting_error_seconds", [*labels, estimate], getattr(one, f"{estimate}_s"))
            if one.bounded:
                self.add("waiting_bound_scored_jobs", labels, one.bounded)
                self.add("waiting_bound_expired_jobs", labels, one.passed)
            for bound, held in one.held.items():
                self.add("waiting_bound_covered_jobs", [*labels, bound], held)

    def _add_runs(self, engine: Engine) -> None:
        for method, accuracy in engine.scores.run_accuracy.items():
            labels = [engine.site, method]
            self._add_histogram("run_error_seconds", labels, accuracy.error)
            self.add("run_seconds", labels, accuracy.run_s)
            self.add("run_predictions", labels, engine.scores.run_predictions[method])
            self.add("run_interval_covered_jobs", labels, accuracy.held)
            self.add("run_interval_scored_jobs", labels, accuracy.intervals)


def _roles(engine: Engine) -> Iterator[tuple[str, str]]:
    """Yield the role and the name of each method of a site."""
    settings = engine.settings
    yield "wait", settings.method
    yield "run", settings.runtimes
    yield "what_if", engine.methods.what_if_method.name
    if settings.bounds:
        yield "bounds", settings.bounds
    yield from (("shadow", name) for name in settings.shadows)
    yield from (("run_shadow", name) for name in settings.run_shadows)
