"""What takes long, one task at a time: a thread that waits, and a process of its own that works (`child`)."""

import atexit
import logging
import pickle
import queue
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

from models.waits.boosted.child import Child, ChildDied, Item, Work

log = logging.getLogger(__name__)

T = TypeVar("T")

IDLE_S = 60.0
"""Seconds without a task after which the process, some 120 MB, is let go."""

_Task = tuple[Future[Any], Callable[[], Any]]
_tasks: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
_ending = threading.Event()
_begin = threading.Lock()
_thread: threading.Thread | None = None
_child: Child | None = None


def run(task: Callable[[], T]) -> "Future[T]":
    """Have a task done in the background, after those before it; gives what will have its result or its error."""
    global _thread
    future: Future[T] = Future()
    with _begin:
        if _thread is None or not _thread.is_alive():  # the latter after a fork
            _thread = threading.Thread(target=_work, name="background", daemon=True)
            _thread.start()
    _tasks.put((future, task))
    return future


def in_child(work: Work, items: Iterable[Item]) -> bytes:
    """What work makes of items, done in the process; for tasks alone.

    Work that cannot be pickled is done here, as where no process can be started.

    Raises:
        WorkFailed: it raised an error there; here it raises the error itself.
        ChildDied: the process was killed, twice.
        CancelledError: this process is about to exit.
    """
    pickled = _pickled(work)
    if pickled is None:
        return work(items)
    kept = list(items)
    try:
        return _ask(pickled, kept)
    except ChildDied as error:
        log.warning("the process for training died (%s); once more", error)
        return _ask(pickled, kept)
    except OSError as error:
        log.warning("trained in this process, for no other can be started: %s", error)
        return work(kept)


def _pickled(work: Work) -> bytes | None:
    """What another process makes the same work of; None where it could not, as of functions of the main module."""
    try:
        pickled = pickle.dumps(work)
    except (pickle.PicklingError, AttributeError, TypeError) as error:  # what pickle raises is not always its own
        log.info("trained in this process, for the work cannot be sent to another: %s", error)
        return None
    return None if b"__main__" in pickled else pickled


def _ask(work: bytes, items: Iterable[Item]) -> bytes:
    global _child
    with _begin:
        go_on()
        _child = child = _child or Child()
    try:
        return child.call(work, items)
    except ChildDied:
        _let_go()
        go_on()
        raise


def _let_go() -> None:
    global _child
    with _begin:
        if _child is not None:
            _child.close()
            _child = None


def go_on() -> None:
    """Called by work every now and then, so that the process need not wait for its end when it exits itself.

    Raises:
        CancelledError: the process is about to exit.
    """
    if _ending.is_set():
        raise CancelledError


def _next() -> _Task | None:
    try:
        return _tasks.get(timeout=IDLE_S)
    except queue.Empty:
        _let_go()
        return _tasks.get()


def _work() -> None:
    while (found := _next()) is not None and not _ending.is_set():
        future, task = found
        if future.set_running_or_notify_cancel():
            try:
                future.set_result(task())
            except BaseException as error:
                future.set_exception(error)
        del found, future, task  # it may hold much


@atexit.register
def _end() -> None:
    with _begin:
        _ending.set()
        if _child is not None:
            _child.kill()
    _tasks.put(None)
    if _thread is not None:
        _thread.join()
    _let_go()
