"""Accuracy of a site's methods: totals, sums by week, and the number of predictions."""

from collections.abc import Iterable
from typing import Self

import msgspec

from models.durations import WEEK_S
from models.engine.outgoing import bounds_of
from models.engine.settings import EngineSettings
from models.measures import ERROR_BUCKETS, Accuracy, Histogram, RunAccuracy, Tally
from models.site.job import Job
from models.waiting_accuracy import Landmark, WaitingAccuracy

MAX_RIVALS = 8  # maximum number of external estimators that are scored per site
MAX_WEEKS = 8  # retention of the accuracy by week
OTHER = "other"  # label of the queues and accounts without a histogram of their own


class Week(msgspec.Struct, array_like=True):
    """The methods' sums at the beginning of a week (Unix seconds), started and cancelled jobs together."""

    begin: float
    tallies: dict[str, Tally]


class ActualWaits(msgspec.Struct, array_like=True):
    """Histograms of the scored waits of started jobs; the edges are ERROR_BUCKETS.

    `queues` are by queue or partition, `accounts` by account. `before` is the ineligible time: a dependency, a begin
    time or a hold.
    """

    queues: dict[str, Histogram] = {}
    accounts: dict[str, Histogram] = {}
    before: Histogram = msgspec.field(default_factory=lambda: Histogram.over(ERROR_BUCKETS))

    def add(self, job: Job, wait_s: float, most: int) -> None:
        """Add a job that started after `wait_s` seconds.

        Args:
            most: maximum number of names with their own histogram, the first ones. A name stays in `other`, because
                moving it would decrease that counter.
        """
        for known, name in ((self.queues, job.queue), (self.accounts, job.account)):
            if name is not None:
                place = name if name in known or len(known) < most else OTHER
                known.setdefault(place, Histogram.over(ERROR_BUCKETS)).add(wait_s, ERROR_BUCKETS)
        if job.ineligible_s:
            self.before.add(job.ineligible_s, ERROR_BUCKETS)


class Scores(msgspec.Struct, kw_only=True):
    """Counters and accuracy of the methods of a site. It is stored unchanged.

    Attributes:
        accuracy: the accuracy of each method for waits over the started jobs.
        cancelled: the same over jobs cancelled while pending, scored as in the literature: as if they had started at
            that time and run for no time.
        run_accuracy: the accuracy of each method for run times over the ended jobs.
        predictions: number of wait estimates of each method.
        run_predictions: number of run time estimates of each method.
        degraded: number of wait estimates that the method itself marked as degraded.
        later: the last estimates of jobs that were estimated again while pending, by the default method.
        later_first: the first estimates of the same jobs.
        considered: the estimates of `what_if`, the method for considered jobs, if it is not the default method.
        considered_first: the estimates of the default method for the same jobs.
        rivals: the accuracy of the default method over the started jobs with an external estimate, by the name of the
            estimate's source. The accuracy of the external estimates is in `accuracy` and `cancelled`.
        waits: the actual waits, independent of predictions.
        waiting: the accuracy of the estimates in force at fixed ages.
    """

    method: str
    what_if: str = ""
    lender: str
    max_label_values: int
    accuracy: dict[str, Accuracy]
    cancelled: dict[str, Accuracy]
    run_accuracy: dict[str, RunAccuracy]
    predictions: dict[str, int]
    run_predictions: dict[str, int]
    degraded: dict[str, int]
    weeks: list[Week] = []
    later: Accuracy = msgspec.field(default_factory=Accuracy)
    later_first: Accuracy = msgspec.field(default_factory=Accuracy)
    considered: Accuracy = msgspec.field(default_factory=Accuracy)
    considered_first: Accuracy = msgspec.field(default_factory=Accuracy)
    rivals: dict[str, Accuracy] = {}
    waits: ActualWaits = msgspec.field(default_factory=ActualWaits)
    waiting: WaitingAccuracy = msgspec.field(default_factory=WaitingAccuracy)

    @classmethod
    def of(cls, site: str, settings: EngineSettings) -> Self:
        """Create the scores of a new site."""
        methods = settings.methods_at(site)
        return cls(
            method=settings.method,
            what_if=settings.what_if_at(site),
            lender=settings.bounds,
            max_label_values=settings.max_label_values,
            accuracy={name: Accuracy() for name in methods},
            cancelled={name: Accuracy() for name in methods},
            run_accuracy={name: RunAccuracy() for name in settings.run_methods},
            predictions=dict.fromkeys(methods, 0),
            run_predictions=dict.fromkeys(settings.run_methods, 0),
            degraded=dict.fromkeys(methods, 0),
        )

    def add_rival(self, name: str) -> None:
        """Measure the external estimates by this name from now on."""
        self.rivals[name] = Accuracy()
        self.accuracy[name], self.cancelled[name] = Accuracy(), Accuracy()

    def _bounds(self, job: Job, name: str) -> dict[str, float] | None:
        """Return the bounds of an estimate; an external estimate has none."""
        return None if name in self.rivals else bounds_of(job, name, self.lender)

    def count_waits(self, job: Job) -> None:
        """Count the predictions of all methods for the wait of a job."""
        for name in self.predictions:
            self.predictions[name] += 1
            self.degraded[name] += job.estimates[name].degraded is not None

    def count_runs(self) -> None:
        """Count the predictions of all methods for the run time of a job."""
        for name in self.run_predictions:
            self.run_predictions[name] += 1

    def add_started(self, job: Job, wait_s: float, noted: Iterable[Landmark] = ()) -> None:
        """Add a job that started after `wait_s` seconds. Methods that did not predict it, or no longer run, are left
        out.

        Args:
            noted: the state of the job at fixed ages.
        """
        self.waiting.add(noted, wait_s)
        for name, estimate in job.estimates.items():
            if name in self.accuracy:
                self.accuracy[name].add_wait(estimate.wait_s, wait_s, self._bounds(job, name))
        self.waits.add(job, wait_s, self.max_label_values)
        first = job.estimates.get(self.method)
        if first is None:
            return
        beside = [ours for name, ours in self.rivals.items() if name in job.estimates]
        if job.later is not None:
            self.later.add_wait(job.later.estimate.wait_s, wait_s, job.later.estimate.bounds)
            beside.append(self.later_first)
        if self.what_if != self.method and (considered := job.estimates.get(self.what_if)) is not None:
            self.considered.add_wait(considered.wait_s, wait_s, self._bounds(job, self.what_if))
            beside.append(self.considered_first)
        for ours in beside:
            ours.add_wait(first.wait_s, wait_s, self._bounds(job, self.method))

    def add_ended(self, job: Job, wait_s: float, run_s: float) -> None:
        """Add a job that ended after `wait_s` seconds in the queue and `run_s` seconds of run time."""
        for name, estimate in job.estimates.items():
            if name in self.accuracy:
                self.accuracy[name].add_response(estimate.wait_s, wait_s, run_s)
        for name, run_estimate in job.run_estimates.items():
            if name in self.run_accuracy:
                self.run_accuracy[name].add(run_estimate.run_s, run_s, run_estimate.interval)

    def add_cancelled(self, job: Job, waited_s: float, noted: Iterable[Landmark] = ()) -> None:
        """Add a job that was cancelled after `waited_s` seconds in the queue."""
        self.waiting.add(noted, waited_s)
        for name, accuracy in self.cancelled.items():
            if name in job.estimates:
                estimate = job.estimates[name]
                accuracy.add_wait(estimate.wait_s, waited_s, self._bounds(job, name))
                accuracy.add_response(estimate.wait_s, waited_s, 0.0)

    def tallies(self) -> dict[str, Tally]:
        """The methods' sums, started and cancelled jobs together."""
        return {name: self.accuracy[name].tally() + self.cancelled[name].tally() for name in self.accuracy}

    def lately(self, weeks: int) -> Tally:
        """Return the sums of the default method over the last `weeks` weeks, or since it started."""
        now = self.accuracy[self.method].tally() + self.cancelled[self.method].tally()
        begins = [week.tallies[self.method] for week in self.weeks[-weeks:] if self.method in week.tallies]
        return now.since(begins[0]) if begins else now

    def begin_week(self, now: float) -> None:
        """Record the sums at `now` (Unix seconds), if a week has passed since the last record."""
        while self.weeks and self.weeks[-1].begin > now + WEEK_S:  # started by a wrong clock
            self.weeks.pop()
        if not self.weeks or now >= self.weeks[-1].begin + WEEK_S:
            self.weeks.append(Week(now, self.tallies()))
            del self.weeks[:-MAX_WEEKS]

    def restore(self, saved: "Scores") -> None:
        """Restore the stored scores of the methods that still run, and of the external estimates."""
        for name in saved.rivals:
            if name not in self.accuracy and name not in self.run_accuracy:
                self.add_rival(name)
        for kind in ("rivals", "accuracy", "cancelled", "run_accuracy", "predictions", "run_predictions", "degraded"):
            mine, stored = getattr(self, kind), getattr(saved, kind)
            mine |= {name: stored[name] for name in stored if name in mine}
        self.weeks, self.waits, self.waiting = saved.weeks, saved.waits, saved.waiting
        self.later, self.later_first = saved.later, saved.later_first
        if saved.what_if == self.what_if:
            self.considered, self.considered_first = saved.considered, saved.considered_first
