"""One thread for what takes long: one task at a time in a process, at a lower priority than the events."""

import atexit
import os
import queue
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")

NICENESS = 10
"""By how much the thread's priority is lower, where threads have one of their own (Linux)."""

_Task = tuple[Future[Any], Callable[[], Any]]
_tasks: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
_ending = threading.Event()
_begin = threading.Lock()
_thread: threading.Thread | None = None


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


def go_on() -> None:
    """Called by a task every now and then, so that the process need not wait for its end when it exits itself.

    Raises:
        CancelledError: the process is about to exit.
    """
    if _ending.is_set():
        raise CancelledError


def _work() -> None:
    with suppress(OSError, AttributeError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), os.getpriority(os.PRIO_PROCESS, 0) + NICENESS)
    while (found := _tasks.get()) is not None and not _ending.is_set():
        future, task = found
        if future.set_running_or_notify_cancel():
            try:
                future.set_result(task())
            except BaseException as error:
                future.set_exception(error)
        del found, future, task  # it may hold much


@atexit.register
def _end() -> None:
    _ending.set()
    _tasks.put(None)
    if _thread is not None:
        _thread.join()
