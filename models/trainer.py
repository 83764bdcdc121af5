"""Executor of trainings. The default runs them synchronously; a worker replaces it by its own.

The events determine the training data and from which event on a result is used (`models.waits.boosted.training`). So
the output of an engine does not depend on the executor or on the duration of a training.
"""

from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Protocol, TypeVar

T = TypeVar("T")

Work = Callable[[Iterable[bytes]], bytes]


class Trainer(Protocol):
    """Interface of the executor of trainings. `threads` is the maximum for one training, and does not change its
    result.
    """

    threads: int

    def begin(
        self, work: Work, items: Iterable[bytes], then: Callable[[bytes], T], first: bool, owner: object = None
    ) -> "Future[T]":
        """Start a training; return a future with its result, or the error that it raised.

        Args:
            work: the function to run; for another process it must be picklable.
            then: converts the result of `work`; another thread may call it.
            first: whether the site has no model yet; sites with a model are trained first.
            owner: object that the trainings of a method share; the one whose last training ended first goes first.
        """


class SynchronousTrainer:
    """Runs each training synchronously in the calling thread."""

    def __init__(self, threads: int = 1) -> None:
        self.threads = threads

    def begin(
        self, work: Work, items: Iterable[bytes], then: Callable[[bytes], T], first: bool, owner: object = None
    ) -> "Future[T]":
        """Run a training as in `Trainer.begin`; the returned future is done."""
        future: Future[T] = Future()
        try:
            future.set_result(then(work(items)))
        except Exception as error:
            future.set_exception(error)
        return future


_trainer: Trainer = SynchronousTrainer()


def trainer() -> Trainer:
    """Return the trainer of this process."""
    return _trainer


def use(chosen: Trainer) -> None:
    """Set the trainer of this process."""
    global _trainer
    _trainer = chosen
