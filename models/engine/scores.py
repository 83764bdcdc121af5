"""How good a site's methods have been: their accuracy, the sums by week, and how many predictions were made."""

from collections.abc import Iterable
from typing import Self

import msgspec

from models.engine.outgoing import bounds_of
from models.engine.settings import EngineSettings
from models.measures import ERROR_BUCKETS, Accuracy, Histogram, RunAccuracy, Tally
from models.site.clock import WEEK_S
from models.site.job import Job
from models.waiting_accuracy import Landmark, WaitingAccuracy

MAX_RIVALS = 8  # so many others' expectations are scored at a site, at most
MAX_WEEKS = 8  # for so many weeks the accuracy is kept by week
OTHER = "other"  # the name of all queues, and of all accounts, beyond those that are counted by name


class Week(msgspec.Struct, array_like=True):
    """The methods' sums, started and cancelled jobs together, as they were when a week began (Unix seconds)."""

    begin: float
    tallies: dict[str, Tally]


class ActualWaits(msgspec.Struct, array_like=True):
    """Histograms of the waits of the jobs that started, of those alone that are scored; the edges are ERROR_BUCKETS.

    `queues` are by queue or partition, `accounts` by account; `before` is of the time before jobs became eligible: by a
    dependency, a begin time or a hold.
    """

    queues: dict[str, Histogram] = {}
    accounts: dict[str, Histogram] = {}
    before: Histogram = msgspec.field(default_factory=lambda: Histogram.over(ERROR_BUCKETS))

    def add(self, job: Job, wait_s: float, most: int) -> None:
        """A job has started after `wait_s` seconds.

        Parameters:
            most: so many names, the first ones, have a histogram of their own: one that moved out of `other` later
                would have that count backwards.
        """
        for known, name in ((self.queues, job.queue), (self.accounts, job.account)):
            if name is not None:
                place = name if name in known or len(known) < most else OTHER
                known.setdefault(place, Histogram.over(ERROR_BUCKETS)).add(wait_s, ERROR_BUCKETS)
        if job.ineligible_s:
            self.before.add(job.ineligible_s, ERROR_BUCKETS)


class Scores(msgspec.Struct, kw_only=True):
    """What is counted and measured of each method of a site. It is stored as it is.

    `accuracy` measures each method for waits over the jobs that started; `cancelled` over those cancelled in the queue,
    scored as the literature does: as if they had started then and run for no time. `run_accuracy` measures the methods
    for run times over the jobs that ended. `predictions` and `run_predictions` count the estimates that were made, and
    `degraded` those for waits of which the method itself said that they are worse than usual.
    `later` measures the last estimate of the jobs that were estimated again while they queued, by the method that
    counts, and `later_first` the first estimate of the same jobs. `considered` measures `what_if`, the method that
    answers for jobs that are only considered, where that is another one, and `considered_first` the one that counts
    over the same jobs.
    `rivals` are those whose expectations are measured as the methods' estimates are, by name: for each the accuracy of
    the method that counts over the same jobs, those that started.
    `waits` are the waits that jobs had, whatever was predicted. `waiting` measures the estimates in force
    at fixed ages.
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
        """Those of a new site."""
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
        """Somebody's expectations are measured from now on."""
        self.rivals[name] = Accuracy()
        self.accuracy[name], self.cancelled[name] = Accuracy(), Accuracy()

    def _bounds(self, job: Job, name: str) -> dict[str, float] | None:
        """The bounds of an estimate; a rival has none, and borrows none."""
        return None if name in self.rivals else bounds_of(job, name, self.lender)

    def count_waits(self, job: Job) -> None:
        """Each method for waits has predicted this job."""
        for name in self.predictions:
            self.predictions[name] += 1
            self.degraded[name] += job.estimates[name].degraded is not None

    def count_runs(self) -> None:
        """Each method for run times has predicted a job."""
        for name in self.run_predictions:
            self.run_predictions[name] += 1

    def add_started(self, job: Job, wait_s: float, noted: Iterable[Landmark] = ()) -> None:
        """A job has started after `wait_s` seconds. A method that ran no longer, or not yet, is left out.

        Parameters:
            noted: what held of the job at fixed ages.
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
        """A job has ended after it waited for `wait_s` and ran for `run_s` seconds."""
        for name, estimate in job.estimates.items():
            if name in self.accuracy:
                self.accuracy[name].add_response(estimate.wait_s, wait_s, run_s)
        for name, run_estimate in job.run_estimates.items():
            if name in self.run_accuracy:
                self.run_accuracy[name].add(run_estimate.run_s, run_s, run_estimate.interval)

    def add_cancelled(self, job: Job, waited_s: float, noted: Iterable[Landmark] = ()) -> None:
        """A job was cancelled in the queue, after `waited_s` seconds."""
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
        """The sums of the method that counts over the last so many weeks that have begun; less where it is newer."""
        now = self.accuracy[self.method].tally() + self.cancelled[self.method].tally()
        begins = [week.tallies[self.method] for week in self.weeks[-weeks:] if self.method in week.tallies]
        return now.since(begins[0]) if begins else now

    def begin_week(self, now: float) -> None:
        """Note the sums as they are `now` (Unix seconds), if a week has passed since this was last done."""
        while self.weeks and self.weeks[-1].begin > now + WEEK_S:  # begun by a clock that was wrong
            self.weeks.pop()
        if not self.weeks or now >= self.weeks[-1].begin + WEEK_S:
            self.weeks.append(Week(now, self.tallies()))
            del self.weeks[:-MAX_WEEKS]

    def restore(self, saved: "Scores") -> None:
        """Take back what was stored, of the methods that still run, and of the rivals."""
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
