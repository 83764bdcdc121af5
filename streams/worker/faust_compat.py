"""Use of Faust internals: faust-streaming 0.15.3; `kafka_compat` has those of its Kafka driver.

pyproject.toml allows only the checked version. Each override describes what it fixes. Before you allow another version,
compare each override with its source. `streams.broker.private_names` lists the names, and `kafka_compat` checks them.
"""

import asyncio
import faulthandler
import logging
import os
import shutil
import signal
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any, Literal

import faust
from aiokafka.errors import KafkaError
from faust.tables import manager
from faust.types import EventT, StreamT
from faust.web.drivers.aiohttp import Web
from redis.exceptions import RedisError

from streams.errors import UserError
from streams.worker.checkpoint.job_log import site_of
from streams.worker.checkpoint.stored_site import decode_stored
from streams.worker.checkpoint.watchdog import Watchdog, WorkerStalled
from streams.worker.kafka_compat import Transport

log = logging.getLogger(__name__)

STOP_S = 9.0
"""Timeout for a worker to stop, seconds."""


def run_until_stopped(app: "QueuecastApp", **options: Any) -> BaseException | None:
    """Run the app's worker until it is stopped; return the error if it ended for another reason.

    Works around mode 0.7, which only logs that a service cannot be started.
    """
    worker = faust.Worker(app, redirect_stdouts=False, quiet=True, **options)
    try:
        with suppress(SystemExit):
            worker.execute_from_commandline()
    except Exception as error:
        return app.failed or error
    started = worker._starting_fut
    failed = started.exception() if started is not None and started.done() and not started.cancelled() else None
    found: BaseException | None = app.failed or worker.crash_reason or failed
    return found


class SiteTable(faust.Table):  # type: ignore[misc]  # faust's classes are untyped
    """The table of sites: each site's stored state, in one value or several (`job_log`)."""

    def apply_changelog_batch(self, batch: Iterable[Any]) -> None:
        """Restore values from the changelog; of several values of a site the one with the highest rank counts.

        Faust 0.15.3 uses the last one written. That may be an earlier state, from a worker that had not noticed that it
        lost the partition.
        """
        for event in batch:
            self.take(event.key, event.value, event.message.partition)

    def take(self, key: bytes, value: bytes | None, partition: int) -> None:
        """Apply a changelog record of a key."""
        if site_of(key) != key:  # a segment, which is written once and deleted once
            if value:
                self.data[key] = value
            else:
                self.data.pop(key, None)
            return
        before = self.data.get(key)
        if not value:  # the site was evicted, or has moved to another partition, whose state counts then
            if before is None or decode_stored(before).partition == partition:
                self.data.pop(key, None)
        elif before is None or decode_stored(value).rank >= decode_stored(before).rank:
            self.data[key] = value

    def drop(self, keys: Iterable[bytes]) -> None:
        """Remove keys in memory only.

        Faust 0.15.3 keeps those of partitions that another worker owns. The records that delete them may be compacted
        away before the partition comes back. An evicted site would then reappear.
        """
        for key in keys:
            self.data.pop(key, None)

    def put(self, key: bytes, value: bytes | None, partition: int) -> Awaitable[Any]:
        """Set a value (None deletes it); the result is done when the changelog has it.

        Faust 0.15.3 allows writes only while the stream has an event, and uses the event's partition.
        """
        if value is None:
            self.data.pop(key, None)
        else:
            self.data[key] = value
        sent: Awaitable[Any] = self.send_changelog(partition, key, value)
        return sent


class RecoveryEnd(asyncio.Event):
    """Event for the end of the tables' recovery, also for code that starts to wait later.

    Faust 0.15.3 sets this event and clears it immediately, so only code that waits at that moment is notified. On a
    busy machine a short changelog is read before Faust starts to wait. The worker then waited until the next rebalance,
    with partitions that it did not serve.
    """

    def __init__(self, in_recovery: Callable[[], bool]) -> None:
        super().__init__()
        self._in_recovery = in_recovery

    async def wait(self) -> Literal[True]:
        """Wait until the tables have been read."""
        return True if not self._in_recovery() else await super().wait()


class TableManager(manager.TableManager):  # type: ignore[misc]  # faust's classes are untyped
    """Faust's table manager with a reliable end of recovery (`RecoveryEnd`)."""

    @property
    def recovery(self) -> Any:
        """The service that reads the tables from their changelogs."""
        found = super().recovery
        if found._signal_recovery_end is None:
            found._signal_recovery_end = RecoveryEnd(lambda: found.in_recovery)
        return found


class WorkerWeb(Web):  # type: ignore[misc]  # faust's classes are untyped
    """A web server with our pages only, without Faust's pages about tables and partitions."""

    default_blueprints = production_blueprints = debug_blueprints = optional_blueprints = ()


IDLE_SESSIONS = 5
"""Session timeouts after which a hanging process without CPU use is ended too. After a suspend the process itself
logs a better message."""


def watch_loop(seconds: float) -> None:
    """End this process unless this is called again in time; write a traceback, and let the supervisor restart it.

    Both timers are those of the system and need no GIL. One counts CPU time, so that a stopped process does not count
    as hanging.

    Args:
        seconds: CPU time, or `IDLE_SESSIONS` times as much wall-clock time; 0 disables both timers.
    """
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    if not seconds:
        faulthandler.cancel_dump_traceback_later()
        return
    if signal.getsignal(signal.SIGVTALRM) is signal.SIG_DFL:
        faulthandler.register(signal.SIGVTALRM, all_threads=True, chain=True)
    faulthandler.dump_traceback_later(IDLE_SESSIONS * seconds, exit=True)


OWN_REASONS = (KafkaError, RedisError, OSError, UserError, MemoryError)


def is_own_reason(error: BaseException) -> bool:
    """Return whether a worker ends for a reason that is independent of its current work.

    A stalled process does not count, because an event may have caused the stall.
    """
    return isinstance(error, OWN_REASONS) and not isinstance(error, WorkerStalled)


class QueuecastApp(faust.App):  # type: ignore[misc]  # faust's classes are untyped
    """The Faust app; it ends the process after an error, so that the supervisor restarts it.

    Faust 0.15.3 would restart only the agent. Only a new process restores the last consistent state; to continue with a
    partial state would not be safe.
    """

    failed: BaseException | None = None

    async def restore_crash_mark(self) -> None:
        """Record that no event caused the end of this process; `build_app` replaces this method."""

    def __init__(
        self, *arguments: Any, pulse: Watchdog, holder_of: Callable[[str], str | None], **options: Any
    ) -> None:
        self.pulse = pulse
        self.holder_of = holder_of
        super().__init__(*arguments, **options)

    def _new_web(self) -> Web:
        return WorkerWeb(self)

    def _new_transport(self) -> Transport:
        return Transport(self.conf.broker_consumer, self)

    async def fetched(self, stream: StreamT[bytes]) -> AsyncIterator[EventT]:
        """Yield the messages of a stream as they are fetched; the caller acknowledges them.

        Works around Faust 0.15.3, whose stream yields one message per turn of the event loop, which costs much CPU time
        with a backlog. As in Faust, messages fetched before a rebalance are dropped, because they are redelivered. The
        time of the last message is recorded, because otherwise Faust logs that the stream is stuck.
        """
        queue, taken = stream.channel.queue, self.monitor.stream_inbound_time
        with suppress(StopAsyncIteration):  # thrown into the queue to stop the agent
            while True:
                event = await queue.get()
                message = event.message
                if self.flow_control.is_active() and message.generation_id == self.consumer_generation_id:
                    taken[message.tp] = time.monotonic()
                    yield event

    @faust.Service.task
    async def _check_alive(self) -> None:
        """Check every second whether this process may continue.

        A process with a hanging event loop cannot check itself, so timers outside of Python watch it (`watch_loop`).
        """
        # Not a Faust timer: those start only after the first recovery of the tables.
        while not self.should_stop:
            try:
                watch_loop(self.conf.broker_session_timeout)
                self.pulse.check()
                if lost := self.consumer._thread.lost():
                    raise lost
            except UserError as error:
                await self.give_up(error)
                raise
            await self.sleep(1.0)
        watch_loop(0.0)

    @asynccontextmanager
    async def stopping_on_error(self) -> AsyncIterator[None]:
        """Stop the worker if the block raises; Faust itself would restart the failed part, or ignore the error."""
        try:
            yield
        except Exception as error:
            await self.give_up(error)
            raise

    async def supervised(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do work; an error in it stops the worker."""
        async with self.stopping_on_error():
            await work()

    async def give_up(self, error: BaseException) -> None:
        """Stop the worker because of an error; later errors are only consequences and are ignored."""
        if self.failed is not None:
            return
        self.failed = error
        if is_own_reason(error):
            await self.restore_crash_mark()
        if isinstance(error, UserError):
            log.error("Stopping the worker: %s", error)
        else:
            log.error("Stopping the worker: %r", error, exc_info=None if isinstance(error, KafkaError) else error)
        await self.crash(error)

    async def stop(self) -> None:
        """Stop within `STOP_S`; Faust 0.15.3 would wait forever for an unreachable broker.

        No data is lost: events that are not durable are not committed either, and are redelivered.
        """
        timer = threading.Timer(STOP_S, self._end)
        timer.daemon = True
        timer.start()
        await super().stop()

    def _end(self) -> None:
        log.warning("Forced exit: not stopped within %.0f s; uncommitted events will be redelivered", STOP_S)
        shutil.rmtree(self.conf.datadir, ignore_errors=True)
        logging.shutdown()
        os._exit(1 if self.failed else 0)
