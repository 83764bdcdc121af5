"""Decide when to send a notification about a pending job, from its estimates, earlier notices and the site's time."""

from hashlib import sha256
from typing import Literal, Self

import msgspec

from models.durations import duration
from models.records import Notice, Prediction

BOUND = "0.9"  # the bound that is the latest start in a notice
LEAST_CHANGE_S = 300.0  # minimum change for a notice of an earlier start
Kind = Literal["about_to_start", "slipped", "sooner"]
JobPlace = tuple[str, str, int]  # a job: its site, its id, its attempt


class StartEstimate(msgspec.Struct, frozen=True):
    """Expected and latest start of a job, and when this was estimated. Unix seconds."""

    expected_start: float
    latest: float | None
    made_at: float

    @classmethod
    def of(cls, expected_start: float, latest: float | None, made_at: float) -> Self:
        """Create an estimate; the latest start is at least the expected one."""
        return cls(expected_start, None if latest is None else max(latest, expected_start), made_at)


def estimate_of(prediction: Prediction) -> StartEstimate | None:
    """Return the start estimate of a prediction; None if it has none."""
    start, wait_s = prediction.predicted_start, prediction.predicted_wait_s
    if start is None or wait_s is None:
        return None
    bound = (prediction.bounds or {}).get(BOUND)
    return StartEstimate.of(start, None if bound is None else start - wait_s + bound, prediction.made_at)


class WatchedJob(msgspec.Struct):
    """A pending job: the estimate that was last sent (at first its first estimate), and the current one.

    `armed` means that the notice before its start is not sent yet. `overdue` means that the notice after its latest
    start was sent. `blocked_by` is the reason if no start can be predicted.
    """

    place: JobPlace
    method: str
    last_notified: StartEstimate
    now: StartEstimate
    armed: bool
    overdue: bool = False
    blocked_by: str | None = None
    last_id: str = ""
    user: str | None = None
    sending: bool = False

    def estimated(self, estimate: StartEstimate) -> None:
        """Set a later estimate. It clears `blocked_by`, because its worker is queried again before a notice is sent."""
        if estimate.made_at >= self.now.made_at:
            self.now, self.blocked_by = estimate, None

    def was_notified(self, notice: Notice, before_s: float) -> None:
        """Record a delivered notice. A job delayed to a start within `before_s` needs no second notice of it."""
        estimate = StartEstimate(notice.expected_start, notice.latest, notice.estimated_at)
        self.overdue = notice.kind == "slipped" and notice.latest is not None and notice.at > notice.latest
        if notice.kind == "slipped":
            self.armed = notice.expected_start - notice.at > before_s
        elif notice.kind == "about_to_start":
            self.armed = False
        self.last_notified, self.last_id = estimate, notice.id
        self.estimated(estimate)


def watched(place: JobPlace, first: StartEstimate, before_s: float, method: str = "") -> WatchedJob:
    """Track a job that was just submitted. If it starts soon, it needs no notice before its start."""
    return WatchedJob(place, method, first, first, armed=first.expected_start - first.made_at > before_s)


def due(job: WatchedJob, now: float, before_s: float) -> Kind | None:
    """Return the kind of notice that is due at the site's time `now`; None if none is.

    Args:
        before_s: seconds before the start when the notice of an imminent start is due.
    """
    last, estimate = job.last_notified, job.now
    newer = estimate.made_at > last.made_at
    if last.latest is not None:
        later = newer and estimate.expected_start > last.latest
        if later or (now > last.latest and not job.overdue):
            return "slipped"
    if job.blocked_by is not None:
        return None
    if job.armed and estimate.expected_start - now <= before_s and now <= estimate.expected_start + before_s:
        return "about_to_start"
    remaining_s, remaining_before_s = estimate.expected_start - estimate.made_at, last.expected_start - estimate.made_at
    if newer and remaining_s <= remaining_before_s / 2 and remaining_before_s - remaining_s >= LEAST_CHANGE_S:
        return "sooner"
    return None


def notice(job: WatchedJob, kind: Kind, now: float, name: str) -> Notice:
    """Create the notice; recreated after a crash, it has the same id."""
    site, job_id, attempt = job.place
    identity = "\0".join((name, site, job_id, str(attempt), kind, job.last_id))
    return Notice(
        id=sha256(identity.encode()).hexdigest()[:32],
        name=name,
        kind=kind,
        site=site,
        job=job_id,
        attempt=attempt,
        user=job.user,
        at=now,
        expected_start=job.now.expected_start,
        latest=job.now.latest,
        expected_before=job.last_notified.expected_start,
        estimated_at=job.now.made_at,
        text=_text(job, kind, now),
    )


def _text(job: WatchedJob, kind: Kind, now: float) -> str:
    site, job_id, _ = job.place
    remaining_s = job.now.expected_start - now
    when = f"in about {duration(remaining_s)}" if remaining_s >= 60.0 else "any moment"
    if kind == "about_to_start":
        return f"job {job_id} at {site} is expected to start {when}"
    if job.blocked_by is not None:
        return f"job {job_id} at {site} has no predictable start: {job.blocked_by}"
    by = duration(abs(job.now.expected_start - job.last_notified.expected_start))
    if kind == "sooner":
        return f"job {job_id} at {site} is expected to start {when}, {by} sooner than {_before(job)}"
    if job.now.expected_start > job.last_notified.expected_start:
        return f"job {job_id} at {site} is expected to start {when}, {by} later than {_before(job)}"
    longer = "" if job.last_id else f": it has waited longer than {100 * float(BOUND):.0f} % of jobs like it"
    return f"job {job_id} at {site} has not started by its latest predicted time{longer}"


def _before(job: WatchedJob) -> str:
    """Return the reference of a comparison: the previous notice, else the prediction at submission."""
    return "in the last notice" if job.last_id else "first predicted"
