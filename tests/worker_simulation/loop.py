"""An event loop with virtual time, whose processes can be killed and frozen between any two callbacks."""

import asyncio
import concurrent.futures
import heapq
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar
from random import Random
from types import SimpleNamespace
from typing import Any


class SimulatedProcess:
    """An operating-system process: its callbacks are dropped after its death, and kept while it is frozen."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True
        self.frozen = False
        self.kept: list[asyncio.Handle] = []


CANCELLATIONS = 20  # maximum cancellations of remaining tasks at the end, as some tasks catch them

MAX_STEPS = 300_000  # maximum callbacks of a simulation; usually there are some 10,000

CURRENT: ContextVar[SimulatedProcess | None] = ContextVar("process", default=None)
"""The process of a callback; None for the servers and the simulation itself."""


class Deadlock(Exception):
    """No callback is ready and no timer is set."""


class Livelock(Exception):
    """The simulation exceeded the maximum number of callbacks."""


class _NumberedTask(asyncio.Task[Any]):
    """A task with its number as hash, so that the order of a set does not depend on addresses in memory."""

    number = 0

    def __hash__(self) -> int:
        return self.number


class SimulatedLoop(asyncio.BaseEventLoop):
    """An event loop with a random order of callbacks; virtual time advances only when all tasks wait.

    Work of other threads runs in the loop after a delay, so the result does not depend on the machine.

    Args:
        random: generator of all decisions.
        reorder: probability that the next callback is not the one that has been ready for longest.
    """

    def __init__(self, random: Random, reorder: float = 0.0) -> None:
        super().__init__()
        self._random, self._reorder = random, reorder
        self._now_s = 0.0
        self._tasks = 0
        self._dropped: list[asyncio.Handle] = []
        self.is_over = False
        self._steps = 0
        self.set_task_factory(self._numbered)
        self.set_exception_handler(lambda *_: None)

    def time(self) -> float:
        """Return the virtual time in seconds."""
        return self._now_s

    def clock(self) -> float:
        """Return the virtual time in seconds; each call advances it a little."""
        self._now_s += self._random.random() * 1e-3
        return self._now_s

    def _numbered(
        self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any], **options: Any
    ) -> "asyncio.Task[Any]":
        self._tasks += 1
        task = _NumberedTask.__new__(_NumberedTask)
        task.number = self._tasks
        task.__init__(work, loop=loop, **options)  # type: ignore[misc]  # which puts the task into a set
        return task

    def thaw(self, process: SimulatedProcess) -> None:
        """Resume a frozen process."""
        process.frozen = False
        self._ready.extend(process.kept)  # type: ignore[attr-defined]
        process.kept.clear()

    def _run_once(self) -> None:
        """Run one callback; `BaseEventLoop` runs all ready ones, and waits for sockets."""
        self._steps += 1
        if self._steps > MAX_STEPS and not self.is_over:
            raise Livelock(f"at {self._now_s:.3f} s")
        ready, scheduled = self._ready, self._scheduled  # type: ignore[attr-defined]
        if not ready:
            self._pass_time(scheduled)
        while scheduled and scheduled[0]._when <= self._now_s:
            handle = heapq.heappop(scheduled)
            handle._scheduled = False
            if not handle._cancelled:
                ready.append(handle)
        if not ready:
            return
        chosen = 0
        if self._reorder and len(ready) > 1 and self._random.random() < self._reorder:
            chosen = self._random.randrange(len(ready))
        handle = ready[chosen]
        del ready[chosen]
        if handle._cancelled:
            return
        process = handle._context.get(CURRENT)
        if self.is_over or process is None or (process.alive and not process.frozen):
            handle._run()
        else:
            (process.kept if process.alive else self._dropped).append(handle)

    def end(self) -> None:
        """Cancel all tasks, also those of dead processes, so that Python does not warn about pending tasks."""
        self.is_over = True
        self._ready.extend(self._dropped)  # type: ignore[attr-defined]
        self.run_until_complete(self._cancel_all())
        self.close()

    async def _cancel_all(self) -> None:
        own = asyncio.current_task()
        for _ in range(CANCELLATIONS):
            tasks = [task for task in asyncio.all_tasks() if task is not own]
            if not tasks:
                return
            for task in tasks:
                task.cancel()
            await asyncio.sleep(10.0)

    def _pass_time(self, scheduled: list[Any]) -> None:
        while scheduled and scheduled[0]._cancelled:
            heapq.heappop(scheduled)._scheduled = False
        if not scheduled:
            raise Deadlock(f"at {self._now_s:.3f} s")
        self._now_s = max(self._now_s, scheduled[0]._when)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Do nothing: a cancelled timer is dropped at its time."""

    def _write_to_self(self) -> None:
        """Do nothing: no thread waits for a socket."""

    def _process_events(self, event_list: object) -> None:
        raise AssertionError

    def run_in_executor(  # type: ignore[override]  # typeshed types it more narrowly
        self, executor: Any, work: Callable[..., Any], *given: Any
    ) -> "asyncio.Future[Any]":
        """Run the work of another thread in the loop, after a delay."""
        done: asyncio.Future[Any] = self.create_future()

        def run() -> None:
            if done.cancelled():
                return
            try:
                done.set_result(work(*given))
            except Exception as error:
                done.set_exception(error)

        self.call_later(self._random.random() * 0.01, run)
        return done


def trained_later(loop: SimulatedLoop, seconds: float) -> "concurrent.futures.Future[None]":
    """Return a training in another process that takes `seconds` of virtual time."""
    future: concurrent.futures.Future[None] = concurrent.futures.Future()
    loop.call_later(seconds, lambda: None if future.done() else future.set_result(None))
    return future


def time_module(loop: SimulatedLoop) -> SimpleNamespace:
    """Return the worker's replacement of the module `time`."""
    return SimpleNamespace(monotonic=loop.clock, perf_counter=loop.clock, time=loop.clock)


def in_process(process: SimulatedProcess | None) -> Context:
    """Return a context whose callbacks belong to a process."""
    context = Context()
    context.run(CURRENT.set, process)
    return context
