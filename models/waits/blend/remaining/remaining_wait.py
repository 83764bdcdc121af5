"""The model of the remaining wait: forests over landmarks, mixed with other estimates, with calibrated bounds."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from math import isnan, nan
from struct import Struct
from typing import Any, ClassVar, Final

import msgspec
import numpy as np

from models.arrays import Floats, Records
from models.method import Memory, Method, SiteContext
from models.records import JobKey
from models.site.job import Estimate, Job, Phase
from models.site.rows import PerJob, Rows
from models.site.state import SITE
from models.stored_values import check_alike, encode, reader
from models.waits.blend.mixture_snapshot import BOUNDS, MEDIAN, QUANTILES
from models.waits.blend.remaining.ages import AGES, LANDMARKS_S, age_class, age_classes
from models.waits.blend.remaining.calibration import BoundsInForce, Calibration, CalibrationState
from models.waits.blend.remaining.experts import (
    CONDITIONAL,
    EXPERTS,
    FORESTS,
    NOW,
    RECENT,
    SCHEDULE,
    AgeExperts,
    ExpertsState,
)
from models.waits.blend.remaining.landmark_forests import CANCELLED_WEIGHT, WINDOW_JOBS, LandmarkForests
from models.waits.blend.remaining.queued_features import NAMES
from models.waits.blend.remaining.snapshot import QueueReader, QueueSnapshot
from models.waits.boosted.boosted import Boosted
from models.waits.boosted.submit_features import Stored
from models.waits.order import LearntOrder

MAX_QUEUED: Final = 2**32 - 1

BY_SCHEDULE: Final = "by the simulated schedule: too few jobs have started for bounds"

_HEAD = Struct("<dI")  # when the wait of the job began, and how many jobs queued at its submission
_LANDMARK = np.dtype(
    [
        ("at", "<f8"),
        ("age_class", "u1"),
        ("estimates_s", "<f4", (len(EXPERTS),)),
        ("bounds_s", "<f4", (QUANTILES,)),
        ("shift", "<f4", (QUANTILES,)),
        ("row", "<f2", (len(NAMES),)),
    ]
)
"""Record of a job at an age: the time (Unix seconds), the age's class, the experts' estimates, the bounds that were in
force when the class began (nan: none), the shift of the class, and the features."""

_LANDMARK_HEAD = Struct(f"<dB{len(EXPERTS) + 2 * QUANTILES}f")  # the same before the features
_NO_BOUNDS: Final = (nan,) * QUANTILES
_LANDMARK_BYTES = _LANDMARK.itemsize
_AGE_CLASS = 8  # the place of the age class in a landmark


class _SavedRemainingWait(msgspec.Struct, array_like=True, frozen=True):
    experts: ExpertsState
    calibration: CalibrationState
    training: bytes


_read = reader(_SavedRemainingWait, "a model of remaining waits")


class RemainingWait(Method):
    """Forests, experts and calibration of the remaining wait. See the package.

    A job is noted at most once per age class, with the features of the first estimate in that class. All its landmarks
    are learned when it leaves the queue.

    Args:
        order: simulates the schedule.
        boosted: computes the features of a job that is submitted now.
    """

    name: ClassVar[str] = "remaining"
    rows: Rows

    def __init__(self, order: LearntOrder, boosted: Boosted) -> None:
        self._reader = QueueReader(order, boosted)
        self.forests = LandmarkForests()
        self.rows = self.forests.notes.rows
        self.per_job = self._landmarks = PerJob(bytes, _check_landmarks)
        """The landmarks of queued jobs."""
        self._experts, self._calibration = AgeExperts(), Calibration()

    @property
    def memory(self) -> Memory:
        """The jobs that it learns from; they must have been predicted while they queued."""
        return Memory(0, WINDOW_JOBS)

    @property
    def degraded(self) -> str | None:
        """Reason if the model was lost, else None."""
        return self.forests.training.degraded

    def pending(self) -> Future[Any] | None:
        """Return the training that must be done before the next event."""
        return self.forests.training.pending()

    def submitted(self, job: Job, context: SiteContext) -> None:
        """Note a job that is being submitted and is not yet part of the state."""
        queued = context.state.totals(SITE, Phase.QUEUED).tasks
        self._landmarks.put(job.key, _HEAD.pack(job.ready, min(queued, MAX_QUEUED)))

    def refresh(
        self, jobs: Sequence[Job], firsts: Sequence[Estimate | None], context: SiteContext, now: float
    ) -> list[Estimate | None]:
        """Estimate the whole waits of queued jobs, and note their features.

        Args:
            jobs: the jobs as they are in their area.
            firsts: their first predictions. One without bounds is replaced by the simulated schedule.
            context: the area.
            now: Unix seconds.
        """
        found: list[Estimate | None] = [None] * len(jobs)
        bounded = [(place, [*first.bounds.values()]) for place, first in enumerate(firsts) if first and first.bounds]
        if bounded:
            places, bounds_s = zip(*bounded, strict=True)
            some = [jobs[place] for place in places]
            for place, estimate in zip(places, self._refresh(some, bounds_s, context, now), strict=True):
                found[place] = estimate
        if len(bounded) < len(jobs):
            starts_s: list[float] = self._reader.starts(jobs, context, now).tolist()
            for place, (job, first, start_s) in enumerate(zip(jobs, firsts, starts_s, strict=True)):
                if first is not None and first.wait_s is not None and not first.bounds and not isnan(start_s):
                    found[place] = Estimate(max(now - job.ready, 0.0) + start_s, BY_SCHEDULE)
        return found

    def _refresh(
        self, jobs: Sequence[Job], bounds_s: Sequence[Sequence[float]], context: SiteContext, now: float
    ) -> Iterator[Estimate]:
        """Yield the estimates of jobs whose first predictions had these bounds, (jobs, QUANTILES) in seconds."""
        snapshot = self._reader.read(jobs, np.array(bounds_s), context, now)
        schedule_s = None if self.forests.training.model else self._reader.starts(jobs, context, now)
        remaining_s, experts_s = self._estimate(snapshot, schedule_s)
        waits_s = (snapshot.ages_s[:, None] + remaining_s).tolist()
        for number, (job, first_s, quantiles_s) in enumerate(zip(jobs, bounds_s, waits_s, strict=True)):
            if not job.unscored:
                self._note(job, now, first_s, experts_s[number], snapshot.rows[number])
            reason = snapshot.reason(number, self._queued_at_submission(job), context)
            yield Estimate(quantiles_s[MEDIAN], reason, dict(zip(BOUNDS, quantiles_s, strict=True)))

    def _queued_at_submission(self, job: Job) -> int | None:
        value = self._landmarks.get(job.key)
        return None if value is None else int(_HEAD.unpack_from(value)[1])

    def _estimate(self, found: QueueSnapshot, schedule_s: Floats | None) -> tuple[Floats, Floats]:
        """Estimate the remaining waits of queued jobs. Changes nothing.

        Args:
            found: the state of the site for the jobs.
            schedule_s: seconds until they start in the simulated schedule, (jobs,). It is simulated only until the
                forests are trained: later it doubles the time for a small gain in accuracy.

        Returns:
            The quantiles of `PROBABILITIES`, (jobs, QUANTILES) seconds, of which the median is the estimate; and the
            estimate of each expert, (jobs, EXPERTS) seconds, for `note`.
        """
        numbers, model = age_classes(found.ages_s), self.forests.training.model
        quantiles_s = found.conditional_s if model is None else model.quantiles(found.rows.astype(np.float32))
        estimates_s = np.empty((len(numbers), len(EXPERTS)))
        estimates_s[:, CONDITIONAL] = found.conditional_s[:, MEDIAN]
        estimates_s[:, FORESTS] = np.nan if model is None else quantiles_s[:, MEDIAN]
        estimates_s[:, SCHEDULE] = np.nan if schedule_s is None else schedule_s
        estimates_s[:, RECENT], estimates_s[:, NOW] = self._experts.recent(numbers), 0.0
        combined_s = self._experts.combine(numbers, estimates_s)
        return self._calibration.bounds(numbers, combined_s, quantiles_s), estimates_s

    def _note(self, job: Job, at: float, first_s: Sequence[float], estimates_s: Floats, row: Stored) -> None:
        """Note a job as a landmark of its age class, unless the class has one. `at` is in Unix seconds.

        The bounds in force did not change between the beginning of the class and its first estimate. They are those of
        its first prediction, `first_s`, until a later one is published.
        """
        value, number = self._landmarks.get(job.key), age_class(at - job.ready)
        ready, queued = (job.ready, 0) if value is None else _HEAD.unpack_from(value)
        if value is None or ready != job.ready:
            value = _HEAD.pack(job.ready, queued)  # the wait was restarted, and earlier landmarks are not part of it
        if len(value) == _HEAD.size or value[_AGE_CLASS - _LANDMARK_BYTES] < number:
            in_force_s = first_s if job.later is None else _bounds_of(job.later.estimate)
            numbers = *estimates_s.tolist(), *in_force_s, *self._calibration.shift(number).tolist()
            self._landmarks.put(job.key, value + _LANDMARK_HEAD.pack(at, number, *numbers) + row.tobytes())

    def job_dequeued(self, job: Job, first: Estimate | None, wait_s: float, cancelled: bool) -> None:
        """Learn that a job left the queue after `wait_s` seconds; `first` is its first prediction."""
        value = self._landmarks.pop(job.key)
        if value is None or _HEAD.unpack_from(value)[0] != job.ready:
            return
        weight, at, noted = CANCELLED_WEIGHT if cancelled else 1.0, job.ready + wait_s, landmarks(value)
        if len(noted) or job.later is None:  # otherwise its later bounds are those of its group, since an unknown age
            last = first if job.later is None else job.later.estimate
            self._judge_bounds(noted, _bounds_of(last), wait_s, weight)
        if len(noted):
            remaining_s = np.maximum(at - noted["at"], 0.0)
            classes = noted["age_class"].astype(np.int64)
            self._experts.learn(classes, noted["estimates_s"].astype(np.float64), remaining_s, weight)
            self.forests.learn(job.key, classes, noted["row"], remaining_s, cancelled)
        self.forests.training.step(may_start=not job.progress.old)

    def _judge_bounds(self, noted: Records, last_s: Sequence[float], wait_s: float, weight: float) -> None:
        """Learn which of the bounds in force at each landmark age covered the wait.

        They count for the class that ends at that age, whenever they were published: the jobs that it estimates need
        bounds that cover then. Where no later estimate was published, the first prediction is in force.

        Args:
            noted: the landmarks of the job. The bounds of each were in force since the class of the one before it.
            last_s: the bounds in force when it left the queue, (QUANTILES,) seconds; nan: none.
            wait_s: its wait, seconds.
            weight: what it counts.
        """
        passed, begin = bisect_left(LANDMARKS_S, wait_s), 0
        if not passed:
            return
        classes, shifts = noted["age_class"].tolist(), noted["shift"].tolist()
        bounds_s, made_in = [*noted["bounds_s"].tolist(), last_s], [*classes, *(classes[-1:] or [0])]
        shifts += shifts[-1:] or [_NO_BOUNDS]
        numbers, places = list[int](), list[int]()
        for place, number in enumerate((*classes, passed)):
            end = min(number, passed)  # the start event may be late
            if not isnan(bounds_s[place][0]):
                numbers += range(begin, end)
                places += [place] * (end - begin)
            begin = end
        if numbers:
            columns = ([column[place] for place in places] for column in (made_in, bounds_s, shifts))
            in_force = BoundsInForce(*map(np.array, columns))
            self._calibration.learn(np.array(numbers), in_force, wait_s, weight)

    def forget(self, key: JobKey) -> None:
        """Drop a job whose wait will stay unknown."""
        self._landmarks.pop(key)

    def save(self) -> bytes:
        """Return what was learned beside the rows; 20 KB."""
        return encode(_SavedRemainingWait(self._experts.state, self._calibration.state, self.forests.training.save()))

    def load(self, saved: bytes) -> None:
        """Restore the state from `save`, and lay out the rows.

        Raises:
            ValueError: it is not such a state.
        """
        found = _read(saved)
        check_alike((found.experts, found.calibration), (self._experts.state, self._calibration.state))
        self._calibration.state = found.calibration
        self._experts.load(found.experts)
        self.forests.load(found.training)


def _bounds_of(estimate: Estimate | None) -> Sequence[float]:
    """Return the bounds of an estimate, (QUANTILES,) seconds; nan without bounds."""
    bounds = estimate.bounds if estimate is not None else None
    return [*bounds.values()] if bounds is not None and len(bounds) == QUANTILES else _NO_BOUNDS


def _check_landmarks(value: bytes, rows: int = 0) -> None:
    """Check the landmarks of a job.

    Raises:
        ValueError: they are not valid.
    """
    if len(value) < _HEAD.size or (len(value) - _HEAD.size) % _LANDMARK_BYTES:
        raise ValueError(f"{len(value)} bytes: not landmarks of {_LANDMARK_BYTES} bytes each")
    if len(value) > _HEAD.size:
        found = landmarks(value)
        classes = found["age_class"].astype(int)
        if classes[-1] >= AGES or (np.diff(classes) <= 0).any() or np.isnan(found["estimates_s"]).all(axis=1).any():
            raise ValueError(f"landmarks of age classes {classes.tolist()}, or one without an estimate")


def landmarks(value: bytes) -> Records:
    """Return the landmarks of a job, the first one first, as `_LANDMARK` records."""
    return np.frombuffer(value, _LANDMARK, -1, _HEAD.size)
