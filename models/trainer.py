"""Who does the work of trainings. Here it is done at once; what runs engines beside other things gives another one.

What is trained on, and from which event on the result counts, follow from the events (`models.waits.boosted.training`),
so whoever does it, and however long that takes, what the engine says is the same.
"""

from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Protocol, TypeVar

T = TypeVar("T")

Work = Callable[[Iterable[bytes]], bytes]


class Trainer(Protocol):
    """Does the work of trainings. `threads` is how many one of them may take; what it learns is the same."""

    threads: int

    def begin(self, work: Work, items: Iterable[bytes], then: Callable[[bytes], T], first: bool) -> "Future[T]":
        """Have work done; gives what will have its result, or the error that it raised.

        Parameters:
            work: to be done in another process it must be one that can be pickled.
            then: makes of what work gives what is asked for; may be called by another thread.
            first: whether the site has no model yet: those that have one go first.
        """


class SynchronousTrainer:
    """Does everything at once, and lets its caller wait."""

    def __init__(self, threads: int = 1) -> None:
        self.threads = threads

    def begin(self, work: Work, items: Iterable[bytes], then: Callable[[bytes], T], first: bool) -> "Future[T]":
        """As `Trainer.begin`; what it gives is done."""
        future: Future[T] = Future()
        try:
            future.set_result(then(work(items)))
        except Exception as error:
            future.set_exception(error)
        return future


_trainer: Trainer = SynchronousTrainer()


def trainer() -> Trainer:
    """The one of this process."""
    return _trainer


def use(chosen: Trainer) -> None:
    """Have trainings done by this one from now on."""
    global _trainer
    _trainer = chosen
