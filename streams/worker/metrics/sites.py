"""What is read of the sites at each scrape: what their engines count, and what is told of them beside."""

from collections.abc import Iterator, Sequence

from models.durations import duration
from models.engine.asking.answers import acted_on, live_state, waits_unusually
from models.engine.asking.partitions import partition_states
from models.engine.engine import Engine
from models.measures import ERROR_BUCKETS, PPE_BUCKETS, Accuracy, Histogram
from models.site.history import FEATURES
from models.site.job import Phase
from models.site.state import SITE
from models.waiting_accuracy import WAITING_AGES_S
from streams.process.scraping import Families
from streams.worker.answers.freshness import Freshness
from streams.worker.answers.scores import ASKED, AnswerScores
from streams.worker.answers.standing import StandingEstimates
from streams.worker.checkpoint.stored import SiteHandle

MAX_SHOWN_PARTITIONS = 16  # partitions that a site may have for Prometheus to be shown them

MOST_LONG_WAITS = 1000
"""Of so many jobs of a site, those that have queued longest, it is looked whether they wait unusually long."""

FAMILIES = """
counter events site: Events applied.
counter anomalies site,reason: Events that did not fit what was known, by reason.
gauge live_jobs site,phase: Jobs in the site's state.
gauge live_cpus site,phase: Processors of those jobs.
gauge site_cpus site: Processors of the site.
gauge free_cpus site: Processors that no job has.
gauge history_jobs site: Jobs in the history.
gauge feature_weight site,feature: Absolute rank correlation of a feature with the wait.
gauge method_info site,method,role: Which method does what (its role); 1.
histogram wait_seconds site,queue: Waits of the jobs that started, by queue or partition.
histogram account_wait_seconds site,account: The same by account.
histogram before_eligible_seconds site: How long jobs could not start (dependency, begin time, hold), no part of waits.
gauge unusually_long_waits site: Jobs beyond a bound of 0.9 or more of submission, of the 1000 that queued longest.
gauge partition_free_cpus site,partition: Processors that are free.
gauge partition_free_gpus site,partition: GPUs that are free.
gauge partition_queued_jobs site,partition: Jobs that queue there.
counter predictions site,method: Predictions made.
counter degraded_predictions site,method: Predictions in a state unlike any that the method learnt from.
histogram wait_error_seconds site,method,jobs: Absolute error of the predicted wait; no estimate counts as 0 s.
histogram wait_error_response_ratio site,method,jobs: That error as a share of the response time.
counter within_factor_2_jobs site,method,jobs: Jobs predicted within a factor of 2.
counter jobs_without_estimate site,method,jobs: Jobs that left without an estimate.
counter bound_held_jobs site,method,jobs,bound: Jobs at or below a bound.
counter bound_jobs site,method,jobs,bound: Jobs that had a bound.
histogram reestimated_wait_error_seconds site,method,estimate: Absolute error of the first and last estimate of a job.
counter waiting_jobs site,age: Jobs that still waited at an age, whose waits are known by now.
counter waiting_error_seconds site,age,estimate: Their absolute errors of what was left to wait, summed, by estimate.
counter waiting_bound_jobs site,age: Jobs whose estimate in force at an age had bounds.
counter waiting_bound_held_jobs site,age,bound: Jobs that started within the bound in force at an age.
counter waiting_bound_passed_jobs site,age: Jobs whose bound of 0.9 in force at an age had passed.
histogram beside_rival_wait_error_seconds site,method,rival: Absolute error where somebody else expected a start too.
histogram run_error_seconds site,method: Absolute error of the predicted run time; no estimate counts as 0 s.
counter run_seconds site,method: Run times of those jobs, summed.
counter run_predictions site,method: Run times predicted.
counter run_interval_held_jobs site,method: Jobs that ran within their interval.
counter run_interval_jobs site,method: Jobs that had an interval.
histogram answer_error_seconds site,kind: Absolute error of what people act on, such as standing estimates and answers.
counter answer_within_factor_2_jobs site,kind: Right within a factor of 2.
counter answer_bound_held_jobs site,kind,bound: Jobs at or below its bound.
counter answer_bound_jobs site,kind,bound: Jobs that had such a bound.
gauge answer_regret_seconds site: Mean of how much longer jobs waited than another site, asked too, had told.
gauge site_stale site: Whether what is known of a site is too old to go by.
gauge last_event_age_seconds site: How long ago a site's last event came to the broker.
counter estimate_records: Records sent to the topic of standing estimates.
gauge estimated_wait_seconds site,cpus,walltime: What a job of this shape would wait if it came now.
gauge estimates_timestamp_seconds site: When a site's estimates were last made.
gauge work_left_seconds site: Work of the live jobs still to be done, by predicted run times, over the processors.
"""


class SiteFamilies(Families):
    """The families of all sites, filled site by site."""

    def __init__(self) -> None:
        super().__init__("queuecast", FAMILIES)

    def add_site(self, handle: SiteHandle, freshness: Freshness, scores: AnswerScores) -> None:
        """Read a site; O(methods), and where it has few partitions O(live jobs), 5 µs each."""
        self.add_engine(handle.engine)
        self.add_answers(handle.engine, scores)
        site, fresh = handle.engine.site, freshness.of(handle)
        self.add("site_stale", [site], float(fresh.stale is not None))
        if fresh.age_s is not None:
            self.add("last_event_age_seconds", [site], fresh.age_s)

    def add_engine(self, engine: Engine) -> None:
        """What an engine counts."""
        self._add_counts(engine)
        self._add_actual_waits(engine)
        self._add_partitions(engine)
        self._add_waits(engine)
        self._add_while_waiting(engine)
        self._add_runs(engine)

    def add_answers(self, engine: Engine, scores: AnswerScores) -> None:
        """How right was what people act on."""
        site, told = engine.site, scores.sites.get(engine.site, {})
        if (asked := told.get(ASKED)) is not None and asked.mean_regret_s is not None:
            self.add("answer_regret_seconds", [site], asked.mean_regret_s)
        known = {kind: accuracy for kind, (accuracy, _) in acted_on(engine).items()}
        for kind, accuracy in ({kind: one.told for kind, one in told.items()} | known).items():
            self._add_histogram("answer_error_seconds", [site, kind], accuracy.error)
            self.add("answer_within_factor_2_jobs", [site, kind], accuracy.within_x2)
            self._add_bounds("answer_bound", [site, kind], accuracy)

    def add_standing(self, standing: StandingEstimates, most_sites: int) -> None:
        """What is kept of the standing estimates: four shapes a site, of the first `most_sites`."""
        self.add("estimate_records", [], standing.records)
        for site, estimates in list(standing.estimates.items())[:most_sites]:
            self.add("estimates_timestamp_seconds", [site], estimates.made)
            if estimates.work_left_s is not None:
                self.add("work_left_seconds", [site], estimates.work_left_s)
            for shape, wait_s in standing.shown(estimates):
                if wait_s is not None:
                    labels = [site, str(shape.cpus), f"{shape.walltime:.0f}"]
                    self.add("estimated_wait_seconds", labels, wait_s)

    def _add_histogram(
        self, name: str, labels: Sequence[str], seen: Histogram, buckets: tuple[float, ...] = ERROR_BUCKETS
    ) -> None:
        self.add(name, labels, seen.cumulated(buckets), seen.total)

    def _add_bounds(self, name: str, labels: Sequence[str], accuracy: Accuracy) -> None:
        for q, bound in accuracy.bounds.items():
            self.add(f"{name}_held_jobs", [*labels, q], bound.held)
            self.add(f"{name}_jobs", [*labels, q], bound.jobs)

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

    def _add_actual_waits(self, engine: Engine) -> None:
        found, site = engine.scores.waits, engine.site
        for queue, waits in found.queues.items():
            self._add_histogram("wait_seconds", [site, queue], waits)
        for account, waits in found.accounts.items():
            self._add_histogram("account_wait_seconds", [site, account], waits)
        if any(found.before.counts):
            self._add_histogram("before_eligible_seconds", [site], found.before)
        self.add("unusually_long_waits", [site], waits_unusually(engine, MOST_LONG_WAITS))

    def _add_partitions(self, engine: Engine) -> None:
        areas = engine.context.areas
        if areas is None or len(areas.topology.partitions) > MAX_SHOWN_PARTITIONS:
            return
        for one in partition_states(engine.context, engine.time):
            for field in ("free_cpus", "queued_jobs", *(["free_gpus"] if one.gpus else [])):
                self.add(f"partition_{field}", [engine.site, one.name], getattr(one, field))

    def _add_waits(self, engine: Engine) -> None:
        """How right the predicted waits were: of all jobs, of those that were estimated again, and beside rivals."""
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
            self._add_histogram("beside_rival_wait_error_seconds", [site, ours, rival], accuracy.error)

    def _add_while_waiting(self, engine: Engine) -> None:
        """How right the estimates in force were at fixed ages, beside the first ones and two baselines."""
        for age_s, one in zip(WAITING_AGES_S, engine.scores.waiting.ages, strict=True):
            if not one.jobs:
                continue
            labels = [engine.site, duration(age_s)]
            self.add("waiting_jobs", labels, one.jobs)
            for estimate in ("in_force", "first", "now", "recent"):
                self.add("waiting_error_seconds", [*labels, estimate], getattr(one, f"{estimate}_s"))
            if one.bounded:
                self.add("waiting_bound_jobs", labels, one.bounded)
                self.add("waiting_bound_passed_jobs", labels, one.passed)
            for bound, held in one.held.items():
                self.add("waiting_bound_held_jobs", [*labels, bound], held)

    def _add_runs(self, engine: Engine) -> None:
        for method, accuracy in engine.scores.run_accuracy.items():
            labels = [engine.site, method]
            self._add_histogram("run_error_seconds", labels, accuracy.error)
            self.add("run_seconds", labels, accuracy.run_s)
            self.add("run_predictions", labels, engine.scores.run_predictions[method])
            self.add("run_interval_held_jobs", labels, accuracy.held)
            self.add("run_interval_jobs", labels, accuracy.intervals)


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
