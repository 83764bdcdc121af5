"""Training in a child process (`child`), one at a time, so that it uses at most one core."""

import atexit
import logging
import pickle
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from typing import TypeVar

from models import trainer
from models.trainer import Work
from streams.training.child import Child, ChildDied, ChildUnresponsive
from streams.training.training_queue import QueuedTraining, TrainingQueue
from streams.training.training_slots import TrainingSlots

log = logging.getLogger(__name__)

T = TypeVar("T")
IDLE_S = 60.0  # seconds without a training after which the process is stopped to free its memory

PATIENCE_S = 10.0
"""Seconds without a heartbeat after which the process is replaced; doubled at each retry of a training."""

MOST_PATIENCE_S = 160.0

MOST_DEATHS = 3
"""Crashes after which a training is abandoned: it needs too much memory, or a library has a bug.

A training that hangs is retried: the machine may be the cause, and a replay must give the same result."""


class Processes:
    """Run trainings one at a time in a child process, in the order of `TrainingQueue`."""

    def __init__(self) -> None:
        self.threads = 1
        self.restarts = 0  # processes replaced after a crash or hang
        self._other_cpu_s = 0.0  # of ended processes, and of trainings in this process
        self._queue = TrainingQueue()
        self._since: float | None = None
        self._ending = threading.Event()
        self._begin = threading.Lock()
        self._thread: threading.Thread | None = None
        self._child: Child | None = None
        self.slots: TrainingSlots | None = None
        """Slots shared with other processes; None if this process shares none."""
        atexit.register(self._end)

    @property
    def waiting(self) -> int:
        """Number of queued trainings."""
        return len(self._queue)

    @property
    def running_s(self) -> float:
        """Duration of the current training so far, seconds; 0 without one."""
        since = self._since
        return 0.0 if since is None else time.monotonic() - since

    @property
    def cpu_s(self) -> float:
        """CPU time of all trainings, here and in child processes, seconds; never decreases."""
        with self._begin:
            return self._other_cpu_s + (0.0 if self._child is None else self._child.cpu_s)

    @property
    def child(self) -> int | None:
        """The process id of the child; None without one."""
        child = self._child
        return None if child is None else child.pid

    def begin(
        self, work: Work, items: Iterable[bytes], then: Callable[[bytes], T], first: bool, owner: object = None
    ) -> "Future[T]":
        """Queue a training; see `Trainer.begin`.

        The future's error is WorkFailed if the work raised one, and ChildDied if its processes died.
        """
        future: Future[T] = Future()
        with self._begin:
            if self._thread is None or not self._thread.is_alive():  # not alive after a fork
                self._thread = threading.Thread(target=self._work, name="training", daemon=True)
                self._thread.start()
        self._queue.put(QueuedTraining(future, lambda: then(self._in_child(work, items)), first, owner))
        return future

    def _in_child(self, work: Work, items: Iterable[bytes]) -> bytes:
        """Run work in the child process; in this process if the work cannot be pickled or no child can be started."""
        pickled = _pickled(work)
        if pickled is None:
            return self._here(work, items)
        kept, deaths, patience_s = list(items), 0, PATIENCE_S
        while True:
            try:
                return self._call(pickled, kept, patience_s)
            except ChildUnresponsive as error:
                log.error("Training process hangs (%s); retrying in a new one", error)
                patience_s = min(2 * patience_s, MOST_PATIENCE_S)
            except ChildDied as error:
                deaths += 1
                if deaths == MOST_DEATHS:
                    raise
                log.warning("Training process crashed (%s); retrying in a new one", error)
            except OSError as error:
                log.warning("Training in-process: cannot start the training process: %s", error)
                return self._here(work, kept)

    def _here(self, work: Work, items: Iterable[bytes]) -> bytes:
        before = time.thread_time()
        try:
            return work(items)
        finally:
            with self._begin:
                self._other_cpu_s += time.thread_time() - before

    def _call(self, work: bytes, items: Iterable[bytes], patience_s: float) -> bytes:
        with self._begin:
            self._go_on()
            self._child = child = self._child or Child(self.threads)
        try:
            return child.call(work, items, patience_s)
        except (ChildDied, ChildUnresponsive):
            self._let_go()
            self._go_on()
            self.restarts += 1
            raise

    def _let_go(self) -> None:
        with self._begin:
            if self._child is not None:
                self._child.close()
                self._other_cpu_s += self._child.cpu_s
                self._child = None

    def _go_on(self) -> None:
        if self._ending.is_set():
            raise CancelledError

    def _work(self) -> None:
        while not self._ending.is_set():
            if not self._queue.wait(IDLE_S):
                self._let_go()
                self._queue.wait()
            with suppress(CancelledError):
                self._train_next()

    def _train_next(self) -> None:
        """Wait for a slot, and run the training that has the lowest rank then."""
        self._go_on()
        with self._slot():
            training = self._queue.take()
            if training.future.set_running_or_notify_cancel():
                self._since = time.monotonic()
                try:
                    training.future.set_result(training.run())
                except BaseException as error:
                    training.future.set_exception(error)
                self._since = None
                self._queue.ended(training)

    @contextmanager
    def _slot(self) -> Iterator[None]:
        """Hold one of the shared slots, if there are any. Without access to their files the training begins anyway."""
        with ExitStack() as held:
            if self.slots is not None:
                try:
                    held.enter_context(self.slots.take(self._queue.rank, self._ending))
                except OSError as error:
                    log.warning("Training without a slot: %s", error)
            yield

    def _end(self) -> None:
        with self._begin:
            self._ending.set()
            if self._child is not None:
                self._child.kill()
        self._queue.close()
        if self._thread is not None:
            self._thread.join()
        self._let_go()


def _pickled(work: Work) -> bytes | None:
    """Return the pickled work; None if another process cannot load it, as for functions of the main module."""
    try:
        pickled = pickle.dumps(work)
    except (pickle.PicklingError, AttributeError, TypeError) as error:  # pickle also raises built-in errors
        log.info("Training in-process: cannot pickle the work: %s", error)
        return None
    return None if b"__main__" in pickled else pickled


@cache
def processes() -> Processes:
    """Return the trainer of this process; the first call installs it."""
    found = Processes()
    trainer.use(found)
    return found
