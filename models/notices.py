"""When a queued job is worth a notice: a function of its estimates, what was told before, and the site's time."""

from hashlib import sha256
from typing import Literal, Self

import msgspec

from models.durations import duration
from models.records import Notice, Prediction

BOUND = "0.9"  # the bound that is the latest start told
LEAST_CHANGE_S = 300.0  # a start that comes sooner by less is not told
Kind = Literal["about_to_start", "slipped", "sooner"]
JobPlace = tuple[str, str, int]  # a job: its site, its id, its attempt


class StartEstimate(msgspec.Struct, frozen=True):
    """When a job is expected to start, and by when at the latest; when that was said. Unix seconds."""

    expected_start: float
    latest: float | None
    made_at: float

    @classmethod
    def of(cls, expected_start: float, latest: float | None, made_at: float) -> Self:
        """An estimate; a bound that lies before the expected start is none."""
        return cls(expected_start, None if latest is None else max(latest, expected_start), made_at)


def estimate_of(prediction: Prediction) -> StartEstimate | None:
    """What a prediction says of the start; None where it gives no estimate."""
    start, wait_s = prediction.predicted_start, prediction.predicted_wait_s
    if start is None or wait_s is None:
        return None
    bound = (prediction.bounds or {}).get(BOUND)
    return StartEstimate.of(start, None if bound is None else start - wait_s + bound, prediction.made_at)


class WatchedJob(msgspec.Struct):
    """A job that queues: what was told of it (at first its first estimate), and what is estimated now.

    `armed`: a notice that it is about to start is still to come. `overdue`: it was told that the latest start passed.
    `blocked_by`: why no start can be promised, where none can.
    """

    place: JobPlace
    method: str
    told: StartEstimate
    now: StartEstimate
    armed: bool
    overdue: bool = False
    blocked_by: str | None = None
    last_id: str = ""
    user: str | None = None
    sending: bool = False

    def estimated(self, estimate: StartEstimate) -> None:
        """Take a later estimate. Whether it is held back still, its worker knows, which is asked before telling."""
        if estimate.made_at >= self.now.made_at:
            self.now, self.blocked_by = estimate, None

    def was_told(self, notice: Notice, before_s: float) -> None:
        """Take a notice that was delivered. What slipped to a start within `before_s` need not be told so again."""
        estimate = StartEstimate(notice.expected_start, notice.latest, notice.estimated_at)
        self.overdue = notice.kind == "slipped" and notice.latest is not None and notice.at > notice.latest
        if notice.kind == "slipped":
            self.armed = notice.expected_start - notice.at > before_s
        elif notice.kind == "about_to_start":
            self.armed = False
        self.told, self.last_id = estimate, notice.id
        self.estimated(estimate)


def watched(place: JobPlace, first: StartEstimate, before_s: float, method: str = "") -> WatchedJob:
    """A job that was just submitted. Who submits one that starts soon needs not be told so."""
    return WatchedJob(place, method, first, first, armed=first.expected_start - first.made_at > before_s)


def due(job: WatchedJob, now: float, before_s: float) -> Kind | None:
    """Which notice is due at the site's time `now`, the one of a start `before_s` seconds before it; None: none is."""
    told, estimate = job.told, job.now
    newer = estimate.made_at > told.made_at
    if told.latest is not None:
        later = newer and estimate.expected_start > told.latest
        if later or (now > told.latest and not job.overdue):
            return "slipped"
    if job.blocked_by is not None:
        return None
    if job.armed and estimate.expected_start - now <= before_s and now <= estimate.expected_start + before_s:
        return "about_to_start"
    left, left_before = estimate.expected_start - estimate.made_at, told.expected_start - estimate.made_at
    if newer and left <= left_before / 2 and left_before - left >= LEAST_CHANGE_S:
        return "sooner"
    return None


def notice(job: WatchedJob, kind: Kind, now: float, name: str) -> Notice:
    """The notice; made again after a crash, it has the same id."""
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
        expected_before=job.told.expected_start,
        estimated_at=job.now.made_at,
        text=_text(job, kind, now),
    )


def _text(job: WatchedJob, kind: Kind, now: float) -> str:
    site, job_id, _ = job.place
    left_s = job.now.expected_start - now
    when = f"in about {duration(left_s)}" if left_s >= 60.0 else "any moment"
    if kind == "about_to_start":
        return f"job {job_id} at {site} is expected to start {when}"
    if job.blocked_by is not None:
        return f"job {job_id} at {site} has no start that can be promised: {job.blocked_by}"
    by = duration(abs(job.now.expected_start - job.told.expected_start))
    if kind == "sooner":
        return f"job {job_id} at {site} is expected to start {when}, {by} sooner than {_before(job)}"
    if job.now.expected_start > job.told.expected_start:
        return f"job {job_id} at {site} is expected to start {when}, {by} later than {_before(job)}"
    longer = "" if job.last_id else f": it has waited longer than {100 * float(BOUND):.0f} % of jobs like it"
    return f"job {job_id} at {site} has not started by the time that was told as the latest{longer}"


def _before(job: WatchedJob) -> str:
    """What a notice compares with: the one before it, else what was predicted at the submission."""
    return "told before" if job.last_id else "at first predicted"
