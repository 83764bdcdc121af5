"""Queue of the trainings of one process, fair between sites."""

import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

from streams.training.training_slots import Rank

FIRST_WAITS_S = 30.0
"""Seconds after which a first model no longer waits for retraining: then the events of its site may wait for it."""


@dataclass(eq=False, slots=True)
class QueuedTraining:
    """A training that waits.

    Attributes:
        future: Receives its result.
        run: Trains and returns the result.
        first: True if its site has no model yet.
        owner: Object that the trainings of a method at a site share; None if there is none.
        queued_s: Time when it was queued, by the clock of the queue.
    """

    future: Future[Any]
    run: Callable[[], Any]
    first: bool
    owner: object
    queued_s: float = field(default=0.0, init=False)


class TrainingQueue:
    """Trainings in the order of their ranks: retraining first, then the method whose last training ended first.

    A first model that has waited for `FIRST_WAITS_S` ranks as retraining, since retraining may never end. A method
    without a training in this process counts as never trained. Trainings of equal ranks keep their order.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._waiting: list[QueuedTraining] = []
        self._trained: WeakKeyDictionary[object, float] = WeakKeyDictionary()
        self._changed = threading.Condition()
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, training: QueuedTraining) -> None:
        """Append a training."""
        with self._changed:
            training.queued_s = self._clock()
            self._waiting.append(training)
            self._changed.notify_all()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until a training is queued, or the queue is closed; return False after a timeout."""
        with self._changed:
            return self._changed.wait_for(lambda: bool(self._waiting) or self._is_closed, seconds)

    def rank(self) -> Rank:
        """Return the lowest rank; the highest possible one if the queue is empty."""
        with self._changed:
            return min(map(self._rank_of, self._waiting), default=(True, math.inf))

    def take(self) -> QueuedTraining:
        """Remove and return the training with the lowest rank.

        Raises:
            CancelledError: The queue is empty, because it was closed.
        """
        with self._changed:
            if not self._waiting:
                raise CancelledError
            training = min(self._waiting, key=self._rank_of)
            self._waiting.remove(training)
            return training

    def ended(self, training: QueuedTraining) -> None:
        """Record that a training ended now."""
        if training.owner is not None:
            with self._changed:
                self._trained[training.owner] = self._clock()

    def close(self) -> None:
        """Cancel the waiting trainings, and let `wait` return."""
        with self._changed:
            self._is_closed = True
            waiting, self._waiting = self._waiting, []
            self._changed.notify_all()
        for training in waiting:
            training.future.cancel()

    def _rank_of(self, training: QueuedTraining) -> Rank:
        last = None if training.owner is None else self._trained.get(training.owner)
        first = training.first and self._clock() - training.queued_s < FIRST_WAITS_S
        return first, -math.inf if last is None else last
