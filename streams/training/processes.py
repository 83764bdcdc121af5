"""Training in a child process (`child`), one at a time, so that it uses at most one core."""

import atexit
import fcntl
import itertools
import logging
import pickle
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import IO, Any, TypeVar

from models import trainer
from models.trainer import Work
from streams.training.child import Child, ChildDied, ChildHangs

log = logging.getLogger(__name__)

T = TypeVar("T")
IDLE_S = 60.0  # seconds without a training after which the process is stopped to free its memory

PATIENCE_S = 10.0
"""Seconds without a heartbeat after which the process is replaced; doubled at each retry of a training."""

MOST_PATIENCE_S = 160.0
TURN_S = 0.1  # seconds between two attempts to lock

MOST_DEATHS = 3
"""Crashes after which a training is abandoned: it needs too much memory, or a library has a bug.

A training that hangs is retried: the machine may be the cause, and a replay must give the same result."""

_END = 2
_Task = tuple[int, int, Future[Any] | None, Callable[[], Any]]  # priority, sequence number, future and function


class Processes:
    """Run trainings one at a time in a child process; retraining goes before the first training of a site."""

    def __init__(self) -> None:
        self.threads = 1
        self.restarts = 0  # processes replaced after a crash or hang
        self._other_cpu_s = 0.0  # of ended processes, and of trainings in this process
        self._tasks: queue.PriorityQueue[_Task] = queue.PriorityQueue()
        self._numbers = itertools.count()
        self._since: float | None = None
        self._ending = threading.Event()
        self._begin = threading.Lock()
        self._thread: threading.Thread | None = None
        self._child: Child | None = None
        self.turns: Path | None = None
        """A lock file shared by several processes, so that only one of them trains at a time."""
        atexit.register(self._end)

    @property
    def waiting(self) -> int:
        """Number of queued trainings."""
        return self._tasks.qsize()

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

    def begin(self, work: Work, items: Iterable[bytes], then: Callable[[bytes], T], first: bool) -> "Future[T]":
        """Queue a training; see `Trainer.begin`.

        The future's error is WorkFailed if the work raised one, and ChildDied if its processes died.
        """
        future: Future[T] = Future()
        with self._begin:
            if self._thread is None or not self._thread.is_alive():  # not alive after a fork
                self._thread = threading.Thread(target=self._work, name="training", daemon=True)
                self._thread.start()
        self._tasks.put((int(first), next(self._numbers), future, lambda: then(self._in_child(work, items))))
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
            except ChildHangs as error:
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
        except (ChildDied, ChildHangs):
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

    def _next(self) -> _Task:
        try:
            return self._tasks.get(timeout=IDLE_S)
        except queue.Empty:
            self._let_go()
            return self._tasks.get()

    def _work(self) -> None:
        while True:
            _, _, future, task = self._next()
            if future is None or self._ending.is_set():
                return
            if future.set_running_or_notify_cancel():
                try:
                    with self._turn():
                        self._since = time.monotonic()
                        future.set_result(task())
                except BaseException as error:
                    future.set_exception(error)
                self._since = None
            del future, task  # they may hold much memory

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Prevent training in other processes that share the `turns` file. A process that dies releases the lock."""
        if self.turns is None:
            yield
            return
        with self.turns.open("ab") as file:
            while not _locked(file):
                if self._ending.wait(TURN_S):
                    raise CancelledError
            yield

    def _end(self) -> None:
        with self._begin:
            self._ending.set()
            if self._child is not None:
                self._child.kill()
        self._tasks.put((_END, next(self._numbers), None, lambda: None))
        if self._thread is not None:
            self._thread.join()
        self._let_go()


def _locked(file: IO[bytes]) -> bool:
    """Try to lock a file until it is closed; return False if another process holds the lock."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


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
