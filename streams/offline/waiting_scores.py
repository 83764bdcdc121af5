"""Scores of a replay while jobs wait: the estimates in force at fixed ages, and the notices that would be sent."""

from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush

import msgspec

from models.durations import duration
from models.notices import JobPlace, StartEstimate, WatchedJob, due, notice, watched
from models.records import Outcome
from models.waiting_accuracy import Landmark, WaitingAccuracy
from streams.text.terminal import show_table, show_wrapped

BEFORE_S = 900.0
"""How long before its expected start a job is notified, by default (`notify.before_seconds`)."""

LONG_WAIT_S = 3600.0
"""Jobs that waited for longer than this should get a notice before their start, seconds."""

MAX_AHEAD_S = 3600.0
"""A notice that a job is about to start came true if the job started within this time, seconds."""

IN_TIME_S = (300.0, 3600.0)
"""A notice that a job is about to start is in time if it came so long before the start, seconds."""

AFTER_S = 1.0
"""A latest start counts as passed after so long, seconds."""


class NoticeCounts(msgspec.Struct):
    """Counts of the notices that would have been sent of the jobs that are scored.

    Attributes:
        jobs: jobs that started after more than an hour.
        in_time: of these, the ones with an `about_to_start` between 5 and 60 minutes before the start.
        about: `about_to_start` notices of all jobs that started. With only those of long waits, most notices that came
            true in the first hour would be missing.
        came_true: of these notices, the ones after which the job started within an hour.
        slipped: `slipped` notices of all jobs that started.
        false_slipped: of these, the ones of jobs that started by the previously announced latest start.
    """

    jobs: int = 0
    in_time: int = 0
    about: int = 0
    came_true: int = 0
    slipped: int = 0
    false_slipped: int = 0

    def rows(self) -> dict[str, float | None]:
        """Return the shares, None where there is nothing to divide by."""
        return {
            "jobs": self.jobs,
            "about_to_start_in_time": _share(self.in_time, self.jobs),
            "about_to_start": self.about,
            "came_true": _share(self.came_true, self.about),
            "slipped": self.slipped,
            "false_slipped": _share(self.false_slipped, self.slipped),
        }


def _share(part: int, of: int) -> float | None:
    return part / of if of else None


class SentNotice(msgspec.Struct, array_like=True, frozen=True):
    """A notice: its kind, when it was sent (Unix seconds), and the latest start announced before it."""

    kind: str
    at: float
    latest: float | None


class WatchedReplay(msgspec.Struct):
    """A pending job whose notices are simulated, and those already sent."""

    job: WatchedJob
    sent: list[SentNotice] = []


class WaitingCounts(msgspec.Struct):
    """The counts of `WaitingScores`, and the jobs that are still pending."""

    accuracy: WaitingAccuracy = msgspec.field(default_factory=WaitingAccuracy)
    notices: NoticeCounts = msgspec.field(default_factory=NoticeCounts)
    queued: list[WatchedReplay] = []


class WaitingScores:
    """Score the estimates published while jobs were pending.

    Args:
        method: the method to score.
        before_s: how long before its expected start a job is notified, seconds.
    """

    def __init__(self, method: str, before_s: float = BEFORE_S) -> None:
        self._method, self._before_s = method, before_s
        self.accuracy, self.notices = WaitingAccuracy(), NoticeCounts()
        self._jobs: dict[JobPlace, WatchedReplay] = {}
        self._heap: list[tuple[float, JobPlace]] = []

    @property
    def counted(self) -> WaitingCounts:
        """State to store for an interrupted replay."""
        return WaitingCounts(self.accuracy, self.notices, list(self._jobs.values()))

    @counted.setter
    def counted(self, saved: WaitingCounts) -> None:
        self.accuracy, self.notices = saved.accuracy, saved.notices
        self._jobs = {one.job.place: one for one in saved.queued}
        self._heap = [(at, place) for place, one in self._jobs.items() for at in self._checks(one.job)]
        heapify(self._heap)

    def estimated(self, place: JobPlace, estimate: StartEstimate) -> None:
        """Add a published estimate of the method."""
        self._pass_to(estimate.made_at)
        one = self._jobs.get(place)
        if one is None:
            one = self._jobs[place] = WatchedReplay(watched(place, estimate, self._before_s, self._method))
        else:
            one.job.estimated(estimate)
        self._check(one, estimate.made_at)

    def job_dequeued(self, outcome: Outcome, noted: Iterable[Landmark], scored: bool) -> None:
        """Add a job that has left the queue.

        Args:
            outcome: the outcome of its wait.
            noted: the estimates in force at fixed ages.
            scored: whether the job is scored.
        """
        if outcome.method != self._method or outcome.actual_run_s is not None:
            return
        self._pass_to(outcome.observed_at)
        one = self._jobs.pop((outcome.site, outcome.job, outcome.attempt), None)
        if not scored:
            return
        self.accuracy.add(noted, outcome.actual_wait_s)
        if one is not None and not outcome.censored:
            self._count(one, outcome)

    def _count(self, one: WatchedReplay, outcome: Outcome) -> None:
        counts, begin = self.notices, outcome.observed_at
        slipped = [sent for sent in one.sent if sent.kind == "slipped"]
        counts.slipped += len(slipped)
        counts.false_slipped += sum(sent.latest is not None and begin <= sent.latest for sent in slipped)
        ahead_s = [begin - sent.at for sent in one.sent if sent.kind == "about_to_start"]
        counts.about += len(ahead_s)
        counts.came_true += sum(remaining_s <= MAX_AHEAD_S for remaining_s in ahead_s)
        if outcome.actual_wait_s > LONG_WAIT_S:
            counts.jobs += 1
            counts.in_time += any(IN_TIME_S[0] <= remaining_s <= IN_TIME_S[1] for remaining_s in ahead_s)

    def _checks(self, job: WatchedJob) -> list[float]:
        """Return when a notice of a job may be due without a new estimate, Unix seconds."""
        found = [job.now.expected_start - self._before_s] if job.armed else []
        if job.last_notified.latest is not None and not job.overdue:
            found.append(job.last_notified.latest + AFTER_S)
        return found

    def _pass_to(self, now: float) -> None:
        """Send the notices that were due before `now` (Unix seconds)."""
        while self._heap and self._heap[0][0] < now:
            at, place = heappop(self._heap)
            one = self._jobs.get(place)
            if one is not None and at in self._checks(one.job):
                self._send(one, at)

    def _check(self, one: WatchedReplay, now: float) -> None:
        """Send the notice that is due at an estimate, and note when others may be."""
        self._send(one, now)
        for at in self._checks(one.job):
            if at > now:
                heappush(self._heap, (at, one.job.place))

    def _send(self, one: WatchedReplay, at: float) -> None:
        job = one.job
        kind = due(job, at, self._before_s)
        if kind is None:
            return
        one.sent.append(SentNotice(kind, at, job.last_notified.latest))
        job.was_notified(notice(job, kind, at, ""), self._before_s)
        for later in self._checks(job):
            if later > at:
                heappush(self._heap, (later, job.place))


def table(accuracy: WaitingAccuracy) -> tuple[Sequence[str], list[list[str]]]:
    """Return the accuracy by age as heads and lines of a table; errors in hours."""
    heads = ["while they wait", "jobs", "in force h", "at submission h", "starts now h", "recent median h", "ratio"]
    rows, names = accuracy.rows(), list[str]()
    for row in rows.values():
        names += [name for name in row if name.startswith("cov_") and name not in names]
    heads += [*(f"cov {name.removeprefix('cov_')}" for name in names), "expired"]
    keys = ("in_force_h", "first_h", "now_h", "recent_h", "ratio", *names, "expired")
    lines = [
        [duration(age_s), f"{row['jobs']:,.0f}", *(f"{row[key]:.3f}" if key in row else "" for key in keys)]
        for age_s, row in rows.items()
    ]
    return heads, lines


def notice_sentences(counts: NoticeCounts) -> list[str]:
    """Describe the accuracy of the notices in sentences; empty without a notice or a wait of over an hour."""
    found = list[str]()
    if counts.jobs:
        share = 100 * counts.in_time / counts.jobs
        found.append(
            f"Of the {counts.jobs:,} jobs that waited over an hour, {share:.0f} % would have received a notice between "
            "5 and 60 minutes before the start."
        )
    if counts.about:
        share = 100 * counts.came_true / counts.about
        found.append(
            f"Of the {counts.about:,} notices that a job is about to start, {share:.0f} % were followed by its "
            "start within an hour."
        )
    if counts.slipped:
        share = 100 * counts.false_slipped / counts.slipped
        found.append(
            f"Of the {counts.slipped:,} notices that a start had slipped, {share:.1f} % were false: the job started by "
            "the latest start stated before."
        )
    return found


def document(counts: WaitingCounts) -> dict[str, object]:
    """Return the scores as data for `--json`."""
    rows = {duration(age_s): row for age_s, row in counts.accuracy.rows().items()}
    return {"while_waiting": rows, "notices": counts.notices.rows()}


def show(counts: WaitingCounts) -> None:
    """Print the table by age, and the accuracy of the notices."""
    heads, lines = table(counts.accuracy)
    if lines:
        show_table(heads, lines)
        for sentence in notice_sentences(counts.notices):
            show_wrapped(sentence)
