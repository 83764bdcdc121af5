"""What touches the insides of Faust: faust-streaming 0.15.3; `kafka_compat` those of its driver for Kafka.

pyproject.toml allows the version that was checked. Each override says what it mends; before another version is allowed,
compare each with its source. `streams.broker.private_names` lists the names, and `kafka_compat` checks them.
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
from streams.worker.checkpoint.pulse import Pulse, StoodStill
from streams.worker.checkpoint.stored import decode_stored
from streams.worker.kafka_compat import Transport

log = logging.getLogger(__name__)

STOP_S = 9.0
"""Seconds within which a worker that was told to stop has ended, whatever it still waits for."""


def run_until_stopped(app: "QueuecastApp", **options: Any) -> BaseException | None:
    """Run the app's worker until it is told to stop; returns what else it ended of.

    Mends mode 0.7, which tells nobody but its log where a service cannot be started.
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
        """Read values back from the changelog; of several of a site the one counts that goes furthest.

        Faust 0.15.3 takes the last one written. That may be an earlier state, written by a worker that did not know yet
        that it had lost the partition.
        """
        for event in batch:
            self.take(event.key, event.value, event.message.partition)

    def take(self, key: bytes, value: bytes | None, partition: int) -> None:
        """Take what a partition of the changelog has of a key."""
        if site_of(key) != key:  # a segment: it is written once, and deleted
            if value:
                self.data[key] = value
            else:
                self.data.pop(key, None)
            return
        before = self.data.get(key)
        if not value:  # the site has lost its place, or has moved to another partition, whose state counts then
            if before is None or decode_stored(before).partition == partition:
                self.data.pop(key, None)
        elif before is None or decode_stored(value).rank >= decode_stored(before).rank:
            self.data[key] = value

    def drop(self, keys: Iterable[bytes]) -> None:
        """Forget keys, in memory alone.

        Faust 0.15.3 keeps those of partitions that are another worker's. What that deletes may be compacted away by the
        time that the partition comes back: then a site that is gone would be there again.
        """
        for key in keys:
            self.data.pop(key, None)

    def put(self, key: bytes, value: bytes | None, partition: int) -> Awaitable[Any]:
        """Set a value, None to delete it; done when the changelog has it.

        Faust 0.15.3 allows writes only while the stream has an event, and takes the partition from that.
        """
        if value is None:
            self.data.pop(key, None)
        else:
            self.data[key] = value
        sent: Awaitable[Any] = self.send_changelog(partition, key, value)
        return sent


class RecoveryEnd(asyncio.Event):
    """Tells that the tables have been read; also to those who begin to wait after that.

    Faust 0.15.3 sets this event and clears it at once, so that only those who wait at that moment hear of it. On a busy
    machine a short changelog is read before Faust begins to wait: the worker then waited for ever, with partitions that
    it did not serve, until the next rebalance.
    """

    def __init__(self, in_recovery: Callable[[], bool]) -> None:
        super().__init__()
        self._in_recovery = in_recovery

    async def wait(self) -> Literal[True]:
        """Done when the tables have been read."""
        return True if not self._in_recovery() else await super().wait()


class TableManager(manager.TableManager):  # type: ignore[misc]  # faust's classes are untyped
    """Faust's manager of tables; the end of reading them is not missed (`RecoveryEnd`)."""

    @property
    def recovery(self) -> Any:
        """The service that reads the tables from their changelogs."""
        found = super().recovery
        if found._signal_recovery_end is None:
            found._signal_recovery_end = RecoveryEnd(lambda: found.in_recovery)
        return found


class WorkerWeb(Web):  # type: ignore[misc]  # faust's classes are untyped
    """The web server with our pages alone: Faust's own, which tell of tables and partitions, are not found."""

    default_blueprints = production_blueprints = debug_blueprints = optional_blueprints = ()


IDLE_SESSIONS = 5
"""Sessions after which a process that hangs without working is ended too. It may have been asleep, which it says better
itself when it wakes up."""


def watch_loop(seconds: float) -> None:
    """End this process if that is not called again: it writes where it hangs, and its supervisor starts it again.

    Both timers are the system's and need no lock of Python's. One counts processor time, so that a process that was
    stopped is not taken for one that hangs.

    Args:
        seconds: of processor time, or `IDLE_SESSIONS` times as many in all; 0: no longer.
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
    """Return whether a worker ends for a reason of its own, and not because of what it was doing.

    One that stood still may have been busy with an event.
    """
    return isinstance(error, OWN_REASONS) and not isinstance(error, StoodStill)


class QueuecastApp(faust.App):  # type: ignore[misc]  # faust's classes are untyped
    """The Faust app; it ends the process when something fails, so that its supervisor starts it again.

    Faust 0.15.3 would restart the agent alone. Only a fresh start reads the last consistent state; to continue with one
    that is half done would not be safe.
    """

    failed: BaseException | None = None

    async def excuse(self) -> None:
        """Note that no event is to blame for the end of this process; who builds the app says where."""

    def __init__(self, *arguments: Any, pulse: Pulse, holder_of: Callable[[str], str | None], **options: Any) -> None:
        self.pulse = pulse
        self.holder_of = holder_of
        super().__init__(*arguments, **options)

    def _new_web(self) -> Web:
        return WorkerWeb(self)

    def _new_transport(self) -> Transport:
        return Transport(self.conf.broker_consumer, self)

    async def fetched(self, stream: StreamT[bytes]) -> AsyncIterator[EventT]:
        """The messages of a stream, to be acknowledged by who takes them, as they have been fetched.

        Mends Faust 0.15.3: its stream gives one in each turn of the event loop, which cost a fifth of the processor
        time that a worker with a backlog takes beside its engines. As there, what was fetched before a rebalance is
        left out, for it comes again; and it is noted when messages were taken, lest Faust says that none are.
        """
        queue, taken = stream.channel.queue, self.monitor.stream_inbound_time
        with suppress(StopAsyncIteration):  # thrown into the queue when the agent is to stop
            while True:
                event = await queue.get()
                message = event.message
                if self.flow_control.is_active() and message.generation_id == self.consumer_generation_id:
                    taken[message.tp] = time.monotonic()
                    yield event

    @faust.Service.task
    async def _check_alive(self) -> None:
        """Look each second whether this process may go on.

        One whose event loop hangs can look at nothing, so it is watched from outside of Python (`watch_loop`).
        """
        # Not one of Faust's timers: those begin only when the tables have been read for the first time.
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
        """Stop the worker when the block raises; Faust alone would restart what failed, or ignore it."""
        try:
            yield
        except Exception as error:
            await self.give_up(error)
            raise

    async def supervised(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do work whose error stops the worker."""
        async with self.stopping_on_error():
            await work()

    async def give_up(self, error: BaseException) -> None:
        """Stop the worker because of an error; what fails after the first one follows from that."""
        if self.failed is not None:
            return
        self.failed = error
        if is_own_reason(error):
            await self.excuse()
        if isinstance(error, UserError):
            log.error("the worker stops: %s", error)
        else:
            log.error("the worker stops: %r", error, exc_info=None if isinstance(error, KafkaError) else error)
        await self.crash(error)

    async def stop(self) -> None:
        """Stop within `STOP_S`; Faust 0.15.3 would wait for ever for a broker that is away.

        Nothing is lost by that: what is not durable is not committed either, and those events come again.
        """
        timer = threading.Timer(STOP_S, self._end)
        timer.daemon = True
        timer.start()
        await super().stop()

    def _end(self) -> None:
        log.warning("not stopped within %.0f s, so ended; events that are not committed will be seen again", STOP_S)
        shutil.rmtree(self.conf.datadir, ignore_errors=True)
        logging.shutdown()
        os._exit(1 if self.failed else 0)
