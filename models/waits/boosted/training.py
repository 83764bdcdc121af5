"""Background training that is deterministic: a model is in force from an event that was fixed beforehand.

The training data of a model, and the event from which on it is used, follow from the events alone. They do not depend
on the duration of the training or on the process that runs it: a replay, the stream and a restart give the same
predictions. Only the event from which on it is in force may have to wait: `Training.pending` reports this before that
event arrives.
"""

import logging
from collections.abc import Callable, Iterable
from concurrent.futures import CancelledError, Future
from functools import partial
from typing import Any, Generic, TypeVar

import msgspec

from models.site.notes import JobNotes, Pair, pairs
from models.stored_values import encode, reader
from models.trainer import trainer

log = logging.getLogger(__name__)

M = TypeVar("M")
ROWS_PER_JOB = 2  # in the notes: one at its submission, one at its start
ROWS_PER_EVENT = 8  # upper limit of the rows that one event adds to the notes


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """Times of the trainings, and the delay until each model is in force. Jobs are counted as two rows of the notes.

    The first training begins when `first` jobs have started. Each further one begins after half as many jobs again, but
    at most `every` jobs after the one before. A model is in force after `share` of the jobs until the next training, at
    least `least` and at most `most`.
    """

    first: int = 100
    every: int = 3000
    share: float = 0.1
    least: int = 20
    most: int = 300

    @property
    def behind_rows(self) -> int:
        """Rows that the notes must keep behind those in use, so that a training can be started again."""
        return ROWS_PER_JOB * self.most + 2 * ROWS_PER_EVENT

    def interval(self, rows: int) -> int:
        """Return the rows from a training that begins at this row until the next one."""
        return max(min(rows // 2, ROWS_PER_JOB * self.every), 1)

    def delay(self, rows: int) -> int:
        """Return the rows from a training that begins at this row until its model is in force."""
        jobs = min(max(int(self.share * self.interval(rows)) // ROWS_PER_JOB, self.least), self.most)
        return ROWS_PER_JOB * jobs


class _State(msgspec.Struct, array_like=True):
    """Progress of the trainings, in rows of the notes: -1 is never.

    `start_rows` and `due` belong to the current training, `counts` is when the model in force was trained, and `next`
    is when the next training may begin. `lost` is set if the model that was in force is missing.
    """

    start_rows: int = -1
    due: int = -1
    counts: int = -1
    next: int = 0
    lost: bool = False


class _StoredModel(msgspec.Struct, array_like=True, frozen=True):
    """A model, with the row at which its training began: where the latest is lost, an earlier one may remain."""

    start_rows: int
    model: bytes


def _fit(
    fit: Callable[[Iterable[Pair]], M], encode: Callable[[M], bytes], skipped: int, rows: Iterable[bytes]
) -> bytes:
    return encode(fit(pairs(rows, skipped)))


_read_state = reader(_State, "a training")
_read_stored = reader(_StoredModel, "a model")


class Training(Generic[M]):
    """The model in force, and the training of the next one.

    The method calls `step` after each job that it has noted or settled, and predicts by `model`. It loads its notes
    first, then this. The notes contain the model.

    >>> notes = JobNotes(1000, Schedule().behind_rows)
    >>> training = Training(notes, fit=lambda jobs: str(len(list(jobs))), encode=str.encode, decode=bytes.decode)
    >>> for number in range(130):
    ...     notes.note((str(number), 0), b"features")
    ...     training.step()
    ...     _ = notes.settle((str(number), 0), b"wait")
    ...     training.step()
    >>> training.model
    '100'

    Args:
        notes: the notes of the method's jobs.
        fit: trains a model on notes and the values that they were settled with, and on nothing else. Its exceptions
            are logged, and the model before stays. It is pickled for another process, so it must be a function of a
            module, or a `functools.partial` of one and a few settings. It must not be a method of an object with the
            notes.
        encode: serializes the model; in that process too.
        decode: the inverse, in another thread; raises ValueError if the data is not a model of this version.
        schedule: when models are trained.
        kind: under which the notes have the model.

    Raises:
        ValueError: the notes keep too few rows behind.
    """

    def __init__(
        self,
        notes: JobNotes,
        fit: Callable[[Iterable[Pair]], M],
        encode: Callable[[M], bytes],
        decode: Callable[[bytes], M],
        schedule: Schedule | None = None,
        kind: int = 0,
    ) -> None:
        self._schedule = schedule or Schedule()
        if notes.behind_rows < self._schedule.behind_rows:
            raise ValueError(f"the notes keep {notes.behind_rows} rows behind; {self._schedule.behind_rows} are needed")
        self.model: M | None = None
        self._notes = notes
        self._fit, self._encode, self._decode = fit, encode, decode
        self._kind = kind
        self._state = _State()
        self._future: Future[tuple[M, bytes]] | None = None

    @property
    def degraded(self) -> str | None:
        """Reason why predictions are less accurate: the model was lost, and a new one is being trained."""
        return "the model was lost; training a new one" if self._state.lost else None

    def step(self, may_start: bool = True) -> None:
        """Put the next model in force, or start a training, if it is due after a change of the notes. O(1).

        Waits for the training to end if the model is due now.

        Args:
            may_start: whether a training may start: none is needed where nothing is predicted.
        """
        state, count = self._state, self._notes.count
        if state.start_rows >= 0 and count >= state.due:
            self._come_into_force()
        elif may_start and state.start_rows < 0 and count >= state.next and self._notes.jobs >= self._schedule.first:
            self._begin()

    def restart_with(self, fit: Callable[[Iterable[Pair]], M]) -> None:
        """Reset the model and train by another `fit` from now on; the next training starts immediately."""
        self._fit, self._future, self.model = fit, None, None
        self._state = _State(next=self._notes.count)

    def pending(self) -> Future[Any] | None:
        """Return the training for which the next event would have to wait; None if there is none."""
        if self._state.start_rows < 0:
            return None
        future = self._training()
        soon = self._notes.count + ROWS_PER_EVENT >= self._state.due
        return future if soon and not future.done() else None

    def _begin(self) -> None:
        """Start a training on the current notes."""
        state, count = self._state, self._notes.count
        state.start_rows, state.due = count, count + self._schedule.delay(count)
        state.next = count + self._schedule.interval(count)
        self._training()

    def _training(self) -> "Future[tuple[M, bytes]]":
        """Return the current training; start it again if another process had started it."""
        if self._future is None:
            (rows, skipped), decode = self._notes.as_of(self._state.start_rows), self._decode
            work = partial(_fit, self._fit, self._encode, skipped)
            first = self._state.counts < 0 and not self._state.lost
            self._future = trainer().begin(work, rows, lambda encoded: (decode(encoded), encoded), first, self._notes)
        return self._future

    def _come_into_force(self) -> None:
        state, future = self._state, self._training()
        start_rows, state.start_rows, self._future = state.start_rows, -1, None
        try:
            self.model, encoded = future.result()
        except CancelledError:  # the process is about to exit
            raise
        except Exception:
            log.exception("Training failed; keeping the previous model")
        else:
            state.counts, state.lost = start_rows, False
            self._notes.put(self._kind, encode(_StoredModel(start_rows, encoded)))

    def save(self) -> bytes:
        """Serialize the progress; the notes contain the model itself."""
        return encode(self._state)

    def load(self, saved: bytes) -> None:
        """Restore the state from `save`. A training that was running starts again, and so does one for a lost model.

        Raises:
            ValueError: it is not such a state.
        """
        self._state = _read_state(saved)
        self._future = None
        self.model = self._stored()
        if self._state.counts >= 0 and self.model is None:
            self._state.lost, self._state.counts = True, -1
            self._state.next = self._notes.count
            if self._state.start_rows < 0 and self._notes.jobs >= self._schedule.first:
                self._begin()
        if self._state.start_rows >= 0:
            self._training()

    def _stored(self) -> M | None:
        found = self._notes.latest(self._kind)
        if found is None or self._state.counts < 0:
            return None
        try:
            stored = _read_stored(found)
            return self._decode(stored.model) if stored.start_rows == self._state.counts else None
        except ValueError as error:
            log.warning("Cannot use the stored model; training a new one: %s", error)
            return None
