"""Forests over the state of the site at a job's submission, beside a method that simulates a schedule for them."""

import logging
import struct
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from math import inf, isfinite
from typing import Annotated, Any, ClassVar, Final, NamedTuple, get_type_hints

import msgspec
import numpy as np
from msgspec import Meta

from models.arrays import Floats, Ints, Singles
from models.method import Memory, SiteContext, WaitMethod
from models.records import JobKey
from models.site.job import Job
from models.site.notes import JobNotes, Pair
from models.site.rows import Rows
from models.site.size import MIN_STARTED_JOBS
from models.stored_values import encode, reader
from models.trainer import trainer
from models.waits.boosted.forest import Boosting
from models.waits.boosted.forests import POINT, QUANTILES, Forests, ForestsSnapshot, TrainingRows
from models.waits.boosted.prior import Prior, shipped
from models.waits.boosted.queued import QueuedFeatures
from models.waits.boosted.recent import SCALE_S, Departure, Recent, RecentState, codes_of
from models.waits.boosted.submit_features import NAMES, Stored, row_of
from models.waits.boosted.training import ROWS_PER_JOB, Schedule, Training

log = logging.getLogger(__name__)

_NOTE: Final = struct.Struct("<QI6I")
"""Rows before a note, the version of the prior, and the job's codes. The features follow, and the prior's estimates, so
that a training need not compute these again for 30,000 jobs."""

_DEPARTURE: Final = struct.Struct("<dd?Q")  # departure from the queue, and the number of rows before it

_PRIOR: Final = 1
"""The kind of note that contains a site's own prior."""

_BINS: Final = 63
"""Bins of a feature: as accurate as more, and faster."""

Share = Annotated[float, Meta(gt=0.0, le=1.0)]


class BoostedParameters(NamedTuple):
    """Parameters of the method.

    The model is trained on the last `window` jobs that left the queue, and again after at most `every` jobs. `trees` of
    up to `leaves` leaves of at least `leaf_rows` jobs are added at the rate `rate`. Each tree uses the share `features`
    of the features and `rows` of the jobs. A job that was cancelled in the queue has the weight `cancelled`, relative
    to one that started then; 0 leaves it out. `quantiles` adds quantiles of the wait, as bounds.
    """

    window: Annotated[int, Meta(ge=100, le=200_000)] = 30_000
    every: Annotated[int, Meta(ge=50, le=100_000)] = 3000
    trees: Annotated[int, Meta(ge=1, le=2000)] = 150
    leaves: Annotated[int, Meta(ge=2, le=1024)] = 31
    leaf_rows: Annotated[int, Meta(ge=1, le=10_000)] = 40
    rate: Share = 0.05
    features: Share = 0.3
    rows: Share = 0.7
    cancelled: Annotated[float, Meta(ge=0.0, le=1.0)] = 0.5
    quantiles: bool = True


class _SavedBoosted(msgspec.Struct, array_like=True, frozen=True):
    recent: RecentState
    training: bytes


_read = reader(_SavedBoosted, "a saved state")


class Boosted(WaitMethod):
    """Waits by boosted trees, for a method that has simulated a schedule before; see the package.

    Training runs in the background. The site's first own model is in force some 20 jobs after 100 have started. Before
    that the prior predicts, when the size of the site is available.

    Args:
        parameters: those of `BoostedParameters`.
    """

    name: ClassVar[str] = "boosted"
    tunable: ClassVar[Mapping[str, Any]] = get_type_hints(BoostedParameters, include_extras=True)
    rows: Rows

    def __init__(self, **parameters: Any) -> None:
        self.parameters = p = BoostedParameters(**parameters)
        schedule = Schedule(every=p.every)
        self._notes = JobNotes(ROWS_PER_JOB * p.window, schedule.behind_rows, _check_note, _check_departure)
        self.rows = self._notes.rows
        self._recent = Recent(p.window * ROWS_PER_JOB // 2)
        self._may_change, fit = False, self._starting_from(None)
        self.training: Training[Forests] = Training(self._notes, fit, Forests.encode, self._decode, schedule)

    @property
    def memory(self) -> Memory:
        """Number of jobs that it learns from; they need no predictions."""
        return Memory(self.parameters.window, 0)

    def _starting_from(self, prior: Prior | None) -> "_Fit":
        """Return the training function that starts from this prior. Until its first model, the prior predicts."""
        self._prior, fit = prior, _Fit(self.parameters, prior)
        self._aims = fit.aims
        self._unread: str | None = None  # reason if a stored prior cannot be used
        self._others = None if prior is None else Forests.prior_estimates(prior, fit.aims, NAMES)
        return fit

    def start_from(self, prior: Prior | None, may_change: bool = False) -> None:
        """Start from this prior, or from none; if it `may_change`, a prior in the notes replaces it."""
        self._may_change = may_change
        self.training.restart_with(self._starting_from(prior))

    def use_prior(self, encoded: bytes) -> None:
        """Start from another prior from now on; it is stored with the notes.

        Raises:
            ValueError: it is not a prior, or it lacks a required quantile.
        """
        prior = Prior.decode(encoded)
        if missing := {*POINT, *QUANTILES}.difference(prior.aims):
            raise ValueError(f"a prior that does not apply to {', '.join(map(str, missing))}")
        self.training.restart_with(self._starting_from(prior))
        self._notes.put(_PRIOR, encoded)

    def estimate_given_schedule(
        self, job: Job, context: SiteContext, simulated_s: float | None
    ) -> ForestsSnapshot | None:
        """Note a job and return the forests' estimate, given its wait in a simulated schedule, in seconds.

        None before the first training is done where there is no prior.
        """
        singles, begins = self._note(job, context, simulated_s)
        self.training.step()
        return self._snapshot(singles, context, begins)

    def see(self, job: Job, context: SiteContext, simulated_s: float | None) -> None:
        """Note the features of an old job. No training begins for old jobs."""
        self._note(job, context, simulated_s)
        self.training.step(may_start=False)

    def _note(self, job: Job, context: SiteContext, simulated_s: float | None) -> tuple[Singles, Floats | None]:
        """Store a job's features and the prior's estimates; return both."""
        codes, rows = codes_of(job), self._notes.count
        row = row_of(job, codes, rows, context, self._recent, simulated_s)
        singles, prior = row.astype(np.float32), self._prior
        prior_values = None if prior is None else prior.values(singles.reshape(1, -1))[0]
        version, prior_bytes = 0, b""
        if prior is not None and prior_values is not None:
            version, prior_bytes = prior.version, prior_values.tobytes()
        self._notes.note(job.key, _NOTE.pack(rows, version, *codes) + row.tobytes() + prior_bytes)
        self._recent.submitted(job.submit)
        return singles, prior_values

    def consider(self, job: Job, context: SiteContext, simulated_s: float | None) -> ForestsSnapshot | None:
        """Return what `estimate_given_schedule` would return for a hypothetical job."""
        return self._snapshot(self.features(job, context, simulated_s).astype(np.float32), context)

    def features(self, job: Job, context: SiteContext, simulated_s: float | None) -> Stored:
        """Return the features of a job that is only considered."""
        return row_of(job, codes_of(job), self._notes.count, context, self._recent, simulated_s)

    def queued(
        self, features: QueuedFeatures, jobs: Sequence[Job], rows: Ints, context: SiteContext, now: float
    ) -> Floats:
        """Return features that queued jobs, in these rows of the table, would have if they were submitted now."""
        return features.read(jobs, rows, context, self._recent, self._notes.count, now)

    def _snapshot(self, row: Singles, context: SiteContext, begins: Floats | None = None) -> ForestsSnapshot | None:
        forests = self.training.model or (self._others if _has_size(context) else None)
        return None if forests is None else forests.snapshot(row, begins)

    @property
    def degraded(self) -> str | None:
        """Reason if the model was lost, or the prior that it started from."""
        return "; ".join(filter(None, (self._unread, self.training.degraded))) or None

    def pending(self) -> Future[Any] | None:
        """The training that must be done before the next event."""
        return self.training.pending()

    def learn(self, job: Job, wait_s: float, context: SiteContext) -> None:
        """Learn from a job that started after this wait."""
        assert job.start is not None
        self._settle(job, Departure(wait_s, job.start, cancelled=False))

    def cancelled(self, job: Job, waited_s: float, context: SiteContext) -> None:
        """Learn from a job that was cancelled in the queue."""
        if self.parameters.cancelled:
            self._settle(job, Departure(waited_s, job.ready + waited_s, cancelled=True))

    def _settle(self, job: Job, departure: Departure) -> None:
        rows = self._notes.count
        note = self._notes.settle(job.key, _DEPARTURE.pack(*departure, rows))
        if note is not None:
            number, _, *codes = _NOTE.unpack_from(note)
            self._recent.job_dequeued(tuple(codes), number, departure, rows)
        self.training.step(may_start=not job.progress.old)

    def forget(self, key: JobKey) -> None:
        """Drop a job whose wait will stay unknown."""
        self._notes.forget(key)

    def save(self) -> bytes:
        """Serialize the state that the rows do not contain; 6 KB."""
        return encode(_SavedBoosted(self._recent.save(), self.training.save()))

    def load(self, saved: bytes) -> None:
        """Restore the state from `save`, and lay out the rows. A stored prior of other features is replaced by the
        package's.

        Raises:
            ValueError: it is not such a state.
        """
        found = _read(saved)
        self._notes.load()
        recent = self._recent
        recent.load(found.recent)
        for note, settled in self._notes.settled():
            number, _, *codes = _NOTE.unpack_from(note)
            *departure, rows = _DEPARTURE.unpack(settled)
            recent.remember(tuple(codes), number, Departure(*departure), rows)
        if self._may_change and (own := self._notes.latest(_PRIOR)) is not None:
            try:
                self.training.restart_with(self._starting_from(Prior.decode(own)))
            except ValueError as error:
                log.warning("Cannot use the stored prior; using the package's: %s", error)
                self._unread = "cannot use the grid's prior: using the package's"
        self.training.load(found.training)

    def _decode(self, encoded: bytes) -> Forests:
        return Forests.decode(encoded, NAMES, self._prior, self._aims)

    def learnt_rows(self) -> TrainingRows:
        """Return the jobs that a training would use now."""
        return training_rows(self._notes.settled(), self.parameters.cancelled, self._prior)


def _has_size(context: SiteContext) -> bool:
    """Return True if the size of the site is registered, or can be estimated from enough jobs."""
    return context.capacity is not None or context.history.count >= MIN_STARTED_JOBS


def training_rows(jobs: Iterable[Pair], cancelled: float, prior: Prior | None) -> TrainingRows:
    """Convert notes to rows of features; cancelled jobs have the weight `cancelled`.

    The prior's estimates are computed again for notes that have those of another prior.
    """
    notes, waits, weights, begins, stale = [], [], [], [], []
    width = 0 if prior is None else 8 * len(prior.aims)
    end = _NOTE.size + 2 * len(NAMES)
    for place, (note, settled) in enumerate(jobs):
        wait_s, _, was_cancelled, _ = _DEPARTURE.unpack(settled)
        notes.append(note[_NOTE.size : end])
        waits.append(wait_s)
        weights.append(cancelled if was_cancelled else 1.0)
        known = prior is not None and _NOTE.unpack_from(note)[1] == prior.version
        begins.append(note[end:] if known else bytes(width))
        if not known:
            stale.append(place)
    rows = np.frombuffer(b"".join(notes), np.float16).reshape(len(notes), -1).astype(np.float32)
    found = TrainingRows(rows, np.array(waits), np.array(weights))
    if prior is None:
        return found
    values = np.frombuffer(b"".join(begins)).reshape(len(rows), -1).copy()
    if stale:
        values[stale] = prior.values(rows[stale])
    return found._replace(begins=values)


def _check_note(note: bytes, rows: int) -> None:
    """Check the note of a job.

    Raises:
        ValueError: it is not valid.
    """
    prior_length = len(note) - _NOTE.size - 2 * len(NAMES)
    if prior_length < 0 or prior_length % 8:
        raise ValueError(f"a note of {len(note)} bytes")
    if (number := _NOTE.unpack_from(note)[0]) > rows:
        raise ValueError(f"a note after {number} rows; expected at most {rows}")


def _check_departure(settled: bytes, rows: int) -> None:
    """Check how a job left the queue.

    Raises:
        ValueError: it is not valid.
    """
    if len(settled) != _DEPARTURE.size:
        raise ValueError(f"a departure of {len(settled)} bytes; expected {_DEPARTURE.size}")
    wait_s, at, _, number = _DEPARTURE.unpack(settled)
    if not (-SCALE_S < wait_s < inf and isfinite(at)) or number > rows:
        raise ValueError(f"a job that left at {at}, after {wait_s} s and {number} rows")


class _Fit:
    """Training function on notes, without mutable state, so that another thread may call it."""

    def __init__(self, parameters: BoostedParameters, prior: Prior | None) -> None:
        p, self._prior = parameters, prior
        self._cancelled = p.cancelled
        self.aims = (*POINT, *QUANTILES) if p.quantiles else POINT
        self._boosting = Boosting(
            trees=p.trees,
            leaves=p.leaves,
            leaf_rows=p.leaf_rows,
            rate=p.rate,
            features=p.features,
            rows=p.rows,
            bins=_BINS,
        )

    def __call__(self, jobs: Iterable[Pair]) -> Forests:
        rows = training_rows(jobs, self._cancelled, self._prior)
        return Forests.fit(rows, self.aims, NAMES, self._boosting, self._prior, trainer().threads)


def warm_up_training(_: Iterable[bytes]) -> bytes:
    """Train on almost no data, to load and compile all that a training needs in a new process."""
    rows = TrainingRows(np.zeros((8, len(NAMES)), np.float32), np.arange(8.0), np.ones(8))
    return Forests.fit(rows, POINT, NAMES, Boosting(trees=1), shipped()).encode()
