"""Records that an engine emits: predictions, outcomes, and anomalies; and why an estimate is missing or degraded."""

from collections.abc import Collection, Iterator

import msgspec

from models.engine.settings import EngineSettings
from models.method_registry import TRIVIAL
from models.records import Capacity, Event, Outcome, Prediction
from models.site.job import Estimate, Job, LaterEstimate, RunEstimate


class Anomaly(msgspec.Struct, frozen=True):
    """An event that does not match the state. A `rejected` one changed nothing; the others had a defined effect.

    `implausible` marks a rejected event whose time or size is implausible for any site.
    """

    reason: str
    detail: str
    rejected: bool = False
    implausible: bool = False


EFFECTIVE = frozenset(
    (
        "start_without_submit",
        "submit_after_start",
        "end_seen_before_start",
        "requeue_seen_before_start",
        "cancel_while_running",
        "start_before_submit",
        "cancel_before_submit",
        "end_before_start",
        "late_submit",
        "unlimited_walltime",
        "start_before_eligible",
        "end_of_array",
        "gave_up_unsubmitted",
    )
)
"""Reasons of anomalies that changed a live job; events with other reasons must not set the site's clock."""


def stale(event: Event) -> Anomaly:
    """Return the anomaly for an event that came after a later change."""
    return Anomaly(f"stale_{event.kind}", f"the {event.kind} of {event.time} came after a later change", rejected=True)


Record = Prediction | Outcome | Anomaly  # emitted for an event


class Outgoing:
    """Creates the predictions and outcomes of a site's jobs, for each published method.

    Args:
        rivals: names of external estimates, whose outcomes are published too if shadows are; names may be added later.
    """

    def __init__(self, site: str, settings: EngineSettings, rivals: Collection[str] = ()) -> None:
        self._site = site
        self._rivals = rivals if settings.publish_shadows else ()
        self._runtimes, self._lender = settings.runtimes, settings.bounds
        shadows = settings.publish_shadows
        self._waits = settings.methods_at(site) if shadows else (settings.method,)
        # Shadows for run times only are published under their own names, without a wait.
        self._only_runs = tuple(
            name for name in (settings.run_methods[1:] if shadows else ()) if name not in self._waits
        )

    def predictions(self, job: Job, degraded: str | None, last_task_s: float | None = None) -> Iterator[Prediction]:
        """Yield the predictions of a job that was just submitted.

        Args:
            last_task_s: for an array, the seconds between the starts of its first and its last task.
        """
        for name in (*self._waits, *self._only_runs):
            prediction = self.prediction(job, name, degraded)
            if last_task_s is None or prediction.predicted_wait_s is None:
                yield prediction
            else:
                yield msgspec.structs.replace(prediction, last_task_wait_s=prediction.predicted_wait_s + last_task_s)

    def prediction(self, job: Job, name: str, degraded: str | None) -> Prediction:
        """Return the prediction of the method `name`; a method for run times only has no wait."""
        run = job.run_estimates.get(name, job.run_estimates[self._runtimes])
        estimate = job.estimates.get(name) or Estimate(None, run.reason)
        return Prediction(
            site=self._site,
            job=job.id,
            attempt=job.attempt,
            made_at=job.submit,
            predicted_wait_s=estimate.wait_s,
            predicted_run_s=run.run_s,
            predicted_start=start_of(job, estimate.wait_s),
            bounds=bounds_of(job, name, self._lender),
            run_interval=run.interval,
            method=name,
            reason=estimate.reason,
            degraded="; ".join(filter(None, (degraded, estimate.degraded))) or None,
            p_immediate_start=msgspec.UNSET if estimate.p_immediate_start is None else estimate.p_immediate_start,
        )

    def again(self, job: Job, later: LaterEstimate, degraded: str | None) -> Prediction:
        """Return a later estimate of a pending job, by the default method."""
        first, estimate = self.prediction(job, self._waits[0], degraded), later.estimate
        assert estimate.wait_s is not None
        return msgspec.structs.replace(
            first,
            made_at=later.made_at,
            predicted_wait_s=estimate.wait_s,
            predicted_start=job.ready + estimate.wait_s,
            bounds=estimate.bounds,
            reason=estimate.reason,
            waited_s=max(later.made_at - job.ready, 0.0),
            p_immediate_start=msgspec.UNSET,
        )

    def outcomes(
        self,
        job: Job,
        at: float,
        wait_s: float,
        run_s: float | None = None,
        censored: bool = False,
        preempted: bool = False,
    ) -> Iterator[Outcome]:
        """Yield the job's predictions with the actual wait, and with the run time `run_s` if it has ended."""
        only_runs = self._only_runs if run_s is not None else ()
        for name in (*self._waits, *only_runs, *self._rivals):
            if name in job.estimates or name in job.run_estimates:  # not if submitted before this method ran
                outcome = self._outcome(job, name, at, wait_s, run_s, censored)
                yield msgspec.structs.replace(outcome, run_error_s=None, preempted=True) if preempted else outcome

    def _outcome(self, job: Job, name: str, at: float, wait_s: float, run_s: float | None, censored: bool) -> Outcome:
        estimate = job.estimates.get(name) or Estimate(None, "")
        run = job.run_estimates.get(name) or job.run_estimates.get(self._runtimes) or RunEstimate(job.run_s, "")
        return Outcome(
            site=self._site,
            job=job.id,
            attempt=job.attempt,
            made_at=job.submit,
            method=name,
            predicted_wait_s=estimate.wait_s,
            predicted_run_s=run.run_s,
            bounds=None if name in self._rivals else bounds_of(job, name, self._lender),
            run_interval=run.interval,
            observed_at=at,
            actual_wait_s=wait_s,
            actual_run_s=run_s,
            error_s=(estimate.wait_s or 0.0) - wait_s,
            run_error_s=None if run_s is None or run.run_s is None else run.run_s - run_s,
            wait_from=job.wait_from,
            ineligible_s=job.ineligible_s or msgspec.UNSET,
            censored=censored,
        )


def start_of(job: Job, wait_s: float | None) -> float | None:
    """Return the start of a job with this wait, Unix seconds; None if its eligible time is unknown."""
    return None if wait_s is None or job.depends else job.ready + wait_s


def count_from_eligible(job: Job) -> None:
    """Add to the reasons of a job's estimates that they count from the eligible time, if that is not the submission."""
    if job.depends:
        since = "counted from when its dependency is met"
    elif job.ready > job.submit:
        since = "counted from when it becomes eligible"
    else:
        return
    for name, estimate in job.estimates.items():
        if estimate.wait_s is not None:
            job.estimates[name] = msgspec.structs.replace(estimate, reason=f"{estimate.reason}; {since}")


def bounds_of(job: Job, name: str, lender: str) -> dict[str, float] | None:
    """Return the bounds of the method `name`: its own, else those of the method `lender`."""
    estimate = job.estimates.get(name)
    if estimate is None or estimate.wait_s is None or name in TRIVIAL:
        return None
    lent = job.estimates.get(lender)
    return estimate.bounds or (None if lent is None else lent.bounds)


def withhold(job: Job, reason: str | None) -> None:
    """Remove the job's estimates of its wait, if a reason is given."""
    if reason is not None:
        for name, estimate in job.estimates.items():
            job.estimates[name] = msgspec.structs.replace(
                estimate, wait_s=None, bounds=None, reason=reason, p_immediate_start=None
            )


def nodes_down(capacity: Capacity | None, max_down_fraction: float) -> str | None:
    """Return why no wait is predicted: more than the share `max_down_fraction` of the nodes is down."""
    if capacity is None or not capacity.nodes:
        return None
    return "nodes down" if capacity.down_nodes > max_down_fraction * capacity.nodes else None
