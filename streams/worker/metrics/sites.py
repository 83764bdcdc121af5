"""What is told of the sites now: standing estimates, how right what was told is, and how old what is known."""

from collections.abc import Iterable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from models.engine.asking.answers import acted_on
from models.measures import ERROR_BUCKETS
from streams.worker.answers.freshness import Freshness
from streams.worker.answers.scores import ASKED, AnswerScores
from streams.worker.answers.standing import StandingEstimates
from streams.worker.checkpoint.stored import SiteHandle


class StandingCollector(Collector):
    """Reads what is kept of the standing estimates at each scrape: four shapes a site, for the first `most_sites`."""

    def __init__(self, standing: StandingEstimates, most_sites: int) -> None:
        self._most_sites = most_sites
        self._standing = standing

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


class FreshnessCollector(Collector):
    """Reads how old what is known of each site is."""

    def __init__(self, handles: Iterable[SiteHandle], freshness: Freshness) -> None:
        self._handles = handles
        self._freshness = freshness

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
        for handle in self._handles:
            fresh = self._freshness.of(handle)
            stale.add_metric([handle.engine.site], float(fresh.stale is not None))
            if fresh.age_s is not None:
                age.add_metric([handle.engine.site], fresh.age_s)
        yield from (stale, age)


class AnswersCollector(Collector):
    """Reads how right was what people act on."""

    def __init__(self, handles: Iterable[SiteHandle], scores: AnswerScores) -> None:
        self._handles = handles
        self._scores = scores

    def collect(self) -> Iterator[Metric]:
        """Every family, with a sample a site and kind."""
        labels = ["site", "kind"]
        error = HistogramMetricFamily(
            "queuecast_answer_error_seconds",
            "Absolute error of what people act on: standing estimates, answers, expected starts, and what-if waits.",
            labels=labels,
        )
        x2 = CounterMetricFamily("queuecast_answer_within_factor_2_jobs", "Right within a factor of 2.", labels=labels)
        labels = [*labels, "bound"]
        held = CounterMetricFamily("queuecast_answer_bound_held_jobs", "Jobs at or below its bound.", labels=labels)
        bounded = CounterMetricFamily("queuecast_answer_bound_jobs", "Jobs that had such a bound.", labels=labels)
        regret = GaugeMetricFamily(
            "queuecast_answer_regret_seconds",
            "By how much longer jobs waited than the least that was told of another site asked about them; their mean.",
            labels=["site"],
        )
        for handle in self._handles:
            site = handle.engine.site
            asked = self._scores.sites.get(site, {}).get(ASKED)
            if asked is not None and asked.mean_regret_s is not None:
                regret.add_metric([site], asked.mean_regret_s)
            kinds = {kind: scores.told for kind, scores in self._scores.sites.get(site, {}).items()}
            for kind, accuracy in {**kinds, **acted_on(handle.engine)}.items():
                error.add_metric([site, kind], accuracy.error.cumulated(ERROR_BUCKETS), accuracy.error.total)
                x2.add_metric([site, kind], accuracy.within_x2)
                for q, bound in accuracy.bounds.items():
                    held.add_metric([site, kind, q], bound.held)
                    bounded.add_metric([site, kind, q], bound.jobs)
        yield from (error, x2, held, bounded, regret)
