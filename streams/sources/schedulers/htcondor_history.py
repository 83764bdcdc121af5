"""The runs of a job, as the ad of a history has them: of several starts it has the first and the last alone."""

from typing import NamedTuple

import msgspec

from models.records import AnyEvent, Start, Submit
from streams.sources.logs.lifecycles import LifecycleTracker

APART_S = 60.0  # clocks of the schedd and of the ad's totals differ by less, seconds


class RunTimes(NamedTuple):
    """Run times of a job according to its ad; times are Unix seconds, None if missing.

    Attributes:
        starts: number of starts of the job.
        first: time of its first start.
        last: time of its last start.
        total_s: total run time.
        last_s: duration of its last run.
        holds: number of holds.
    """

    starts: int
    first: float | None
    last: float | None
    total_s: float | None
    last_s: float | None
    holds: int


def finished(
    lifecycles: LifecycleTracker, submit: Submit, runs: RunTimes, departed_at: float, state: str
) -> list[AnyEvent]:
    """Return the events of a job that left at `departed_at` (Unix seconds).

    The wait between two runs is available only if there are exactly two, and the job was never held.
    """
    if runs.starts > 1 and runs.first is not None and runs.last is not None and runs.last - runs.first > APART_S:
        return _several(lifecycles, submit, runs, departed_at, state)
    began = runs.first if runs.last is None else runs.last
    if began is None:
        return lifecycles.ran(submit.job, None, departed_at, state, lambda: submit)
    ran_s = runs.total_s if runs.last_s is None else runs.last_s
    return _last_run(lifecycles, submit, began, ran_s, departed_at, state)


def _last_run(
    lifecycles: LifecycleTracker, submit: Submit, began: float, ran_s: float | None, departed_at: float, state: str
) -> list[AnyEvent]:
    """The last run; a job that was removed long after it had stopped was held, or queued again, in between."""
    job, start = submit.job, Start(site=submit.site, time=began, job=submit.job)
    if state != "cancelled" or ran_s is None or not 0.0 < ran_s < departed_at - began - APART_S:
        return lifecycles.ran(job, start, departed_at, state, lambda: submit)
    stopped = began + ran_s
    events = lifecycles.start(start, lambda: submit) + lifecycles.requeue(job, stopped)
    return events + lifecycles.hold(job, stopped) + lifecycles.cancel(job, departed_at)


def _several(
    lifecycles: LifecycleTracker, submit: Submit, runs: RunTimes, departed_at: float, state: str
) -> list[AnyEvent]:
    assert runs.first is not None and runs.last is not None  # checked before
    job, site = submit.job, submit.site
    last_s = departed_at - runs.last if runs.last_s is None else runs.last_s
    before_s = None if runs.total_s is None else runs.total_s - last_s
    if before_s is None or before_s <= 0.0 or runs.first + before_s > runs.last:
        return _last_run(lifecycles, _late(submit, submit.time), runs.last, runs.last_s, departed_at, state)
    events = lifecycles.start(Start(site=site, time=runs.first, job=job), lambda: submit)
    stopped = runs.first + before_s
    if runs.starts == 2 and not runs.holds:
        events += lifecycles.requeue(job, stopped, "preempted")
        return events + _last_run(lifecycles, submit, runs.last, runs.last_s, departed_at, state)
    attempt = lifecycles.attempt(job) + 1
    events += lifecycles.end(job, stopped, "preempted")
    events += lifecycles.submit(_late(submit, stopped, attempt))
    lifecycles.known[job].attempt = attempt
    return events + _last_run(lifecycles, submit, runs.last, runs.last_s, departed_at, state)


def _late(submit: Submit, at: float, attempt: int = 0) -> Submit:
    """The submission of an attempt whose wait is unknown."""
    return msgspec.structs.replace(submit, time=at, attempt=attempt, late=True)
