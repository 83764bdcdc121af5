"""Everything that touches the insides of Faust and aiokafka: faust-streaming 0.15.3, aiokafka 0.14.

pyproject.toml keeps both below their next minor version. Each override says what it mends; before a newer version is
allowed, look at each again.
"""

import asyncio
import logging
import os
import shutil
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterable, Set
from contextlib import asynccontextmanager, suppress
from typing import Any, Literal

import faust
from aiokafka.errors import ConsumerStoppedError, GroupAuthorizationFailedError, KafkaError
from faust.tables import manager
from faust.transport.drivers import aiokafka
from faust.types import TP
from faust.web.drivers.aiohttp import Web
from mode.services import WaitResults

from streams.broker.admin import PERMISSIONS
from streams.broker.consumer import wait_for_leaders
from streams.errors import Unreachable, UserError
from streams.worker.checkpoint.job_log import site_of
from streams.worker.checkpoint.pulse import Pulse
from streams.worker.checkpoint.stored import decode_stored

log = logging.getLogger(__name__)

STOP_S = 9.0
"""Seconds within which a worker that was told to stop has ended, whatever it still waits for."""

FETCH_WAIT_MS = 100
"""Milliseconds for which the broker holds its answer back while there are no events; the next request waits so long."""

AGAIN_S = 1.0
"""Seconds before the broker is asked again who is in the group, when it did not answer."""


class NameTaken(KafkaError):  # type: ignore[misc]  # aiokafka's classes are untyped
    """Another process has joined the group under this worker's name."""


class ConsumerThread(aiokafka.AIOKafkaConsumerThread):  # type: ignore[misc]  # faust's classes are untyped
    """The thread that talks to Kafka.

    Mends aiokafka 0.14: a member that the broker no longer knows joins again with a new identity. When another process
    has joined under its name, it would replace that one, which would replace it in turn, and so on. So before it joins
    again it looks who has its name.
    """

    holder_of: Callable[[str], str | None]
    """Gives the id of the member that has a name in the group; None when nobody has. It may block."""

    async def on_start(self) -> None:
        """Start, and follow the identities that the broker gives.

        Mends aiokafka 0.14: an error that cannot be retried is kept for `lost`; by itself the worker would wait, or try
        again, for ever.
        """
        await super().on_start()
        coordinator = self._consumer._coordinator
        send, join, own = coordinator._send_req, coordinator.ensure_active_group, set()

        async def noting(request: Any) -> Any:
            response = await send(request)
            if member := getattr(response, "member_id", None):
                own.add(member)
            return response

        async def unless_replaced(*arguments: Any) -> Any:
            if own and not coordinator.member_id and not await self._is_free(coordinator._group_instance_id, own):
                return None
            return await join(*arguments)

        async def keep(error: KafkaError) -> None:
            coordinator._pending_exception = error
            await asyncio.wait([coordinator._closing])

        coordinator._send_req, coordinator.ensure_active_group = noting, unless_replaced
        coordinator._push_error_to_user = keep

    def _stopped_set(self) -> None:
        try:
            super()._stopped_set()
        except RuntimeError:  # mends mode 0.7: a thread that has ended by itself has closed its loop
            self._stopped.set()

    async def _is_free(self, name: str, own: set[str]) -> bool:
        """Whether nobody else has this name; False where that can't be found out now."""
        try:
            holder = await asyncio.to_thread(self.holder_of, name)
        except Unreachable:
            await asyncio.sleep(AGAIN_S)
            return False
        if holder is not None and holder not in own:
            raise NameTaken(name)
        return True

    def _create_worker_consumer(self, transport: Any) -> Any:
        # Mends Faust 0.15.3, which makes 1.5 s of it and waits for that several times in each rebalance.
        consumer = super()._create_worker_consumer(transport)
        consumer._fetch_max_wait_ms = FETCH_WAIT_MS
        wait_for_leaders(consumer)
        return consumer

    async def _fetch_records(
        self, consumer: Any, active_partitions: Set[TP], timeout: float | None = None, max_records: int | None = None
    ) -> dict[TP, list[Any]]:
        """The next records of the partitions that are active now; none where none come within `timeout` seconds.

        Mends Faust 0.15.3. It hands aiokafka the set of active partitions itself, and empties it in a rebalance while
        aiokafka still waits for records; an empty set means all partitions there. Faust drops what comes while its flow
        is stopped: if that was of a changelog which was about to be read back, the worker waited for it for ever. So
        the flow and the set are looked at each time, with no `await` between the look and the taking.
        """
        fetcher, deadline = consumer._fetcher, time.monotonic() + (timeout or 0.0)
        with fetcher._subscriptions.fetch_context():
            while self.consumer.flow_active:
                if consumer._closed or fetcher._closed:
                    raise ConsumerStoppedError
                active, found = frozenset(active_partitions), {}
                if active and not fetcher._subscriptions.reassignment_in_progress:
                    found = await fetcher.fetched_records(active, timeout=0, max_records=max_records)
                if found:
                    return found
                waiter = fetcher._create_fetch_waiter()
                await asyncio.wait([waiter], timeout=deadline - time.monotonic())
                if not waiter.done():
                    waiter.cancel()
                    break
                waiter.result()  # raises what the broker refused
        return {}

    async def committed(self, *partitions: TP) -> dict[TP, int | None]:
        """What the group has committed of each partition; None where it has not."""

        async def ask() -> dict[TP, int | None]:
            return {tp: await self._consumer.committed(tp) for tp in partitions}

        found: dict[TP, int | None] = await self.call_thread(ask)
        return found

    def leave(self) -> None:
        """Leave the group when this stops.

        Mends aiokafka 0.14, in which a member with a lasting name (`group.instance.id`) never leaves.
        """
        if self._consumer is not None:
            self._consumer._coordinator._group_instance_id = None

    def lost(self) -> UserError | None:
        """Why this worker has lost its place in the group for good; None when it has not."""
        coordinator = self._consumer and self._consumer._coordinator
        if coordinator is None:
            return None
        error, task = coordinator._pending_exception, coordinator._coordination_task
        if error is None and task.done() and not task.cancelled():
            error = task.exception()
        return None if error is None else UserError(_explained(error, coordinator.group_id))


def _explained(error: BaseException, group: str) -> str:
    if isinstance(error, NameTaken):
        return f"another worker was started as {error.args[0]!r}; give each a worker.instance of its own"
    if isinstance(error, GroupAuthorizationFailedError):
        return f"kafka: this worker may no longer use the group {group}; {PERMISSIONS}"
    return f"kafka: this worker has lost its place in the group {group}: {error!r}"


def is_of_broker(error: BaseException) -> bool:
    """Whether an error comes from the connections to the broker: where its client has ended, its loop is closed."""
    return isinstance(error, KafkaError) or str(error) == "Event loop is closed"


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
        """Read values back from the changelog; of several of a site the one with the latest event counts.

        Faust 0.15.3 takes the last one written. That may be an earlier state, written by a worker that did not know yet
        that it had lost the partition.
        """
        for event in batch:
            key, value = event.key, event.value
            if site_of(key) != key:  # a segment: it is written once, and deleted
                if value:
                    self.data[key] = value
                else:
                    self.data.pop(key, None)
                continue
            before = self.data.get(key)
            if not value:  # the site has lost its place, or has moved to another partition, whose state counts then
                if before is None or decode_stored(before).partition == event.message.partition:
                    self.data.pop(key, None)
            elif before is None or decode_stored(value).position >= decode_stored(before).position:
                self.data[key] = value

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


class Rest:
    """The rest of a coroutine that has begun, and waits for something."""

    def __init__(self, begun: Coroutine[Any, Any, Any], waited_for: Any) -> None:
        self._begun, self._waited_for = begun, waited_for

    def __await__(self) -> Generator[Any, Any, Any]:
        try:
            yield self._waited_for
        except BaseException:
            self._begun.close()
            raise
        return (yield from self._begun.__await__())


class Consumer(aiokafka.Consumer):  # type: ignore[misc]  # faust's classes are untyped
    """Faust's consumer, with our thread, and with another end and another seek."""

    def _new_consumer_thread(self) -> ConsumerThread:
        thread = ConsumerThread(self, loop=self.loop, beacon=self.beacon)
        thread.holder_of = self.app.holder_of
        return thread

    async def committed(self, *partitions: TP) -> dict[TP, int | None]:
        """What the group has committed of each partition; None where it has not."""
        found: dict[TP, int | None] = await self._thread.committed(*partitions)
        return found

    def partitions_of(self, topic: str) -> int:
        """How many partitions a topic has, as far as this consumer knows; 0 where it knows nothing of it."""
        return len(self._thread._consumer.partitions_for_topic(topic) or ())

    async def on_stop(self) -> None:
        """Commit and leave the group, so that others get the partitions at once.

        A worker that has failed stays in the group until its session has expired, for it will be started again.
        """
        await super().on_stop()
        if self.app.failed is None:
            self._thread.leave()

    async def wait_first(self, *awaited: Any, **options: Any) -> WaitResults:
        """Wait for the first of these to be done, or until this stops.

        Mends Faust 0.15.3: each message is handed over in a task of its own, beside three that wait for the
        flow or this to stop: 30 µs. Nearly always there is room for the message, and so nothing to wait for.
        """
        message, *others = awaited
        if not others:
            return await super().wait_first(message, **options)
        try:
            waited_for = message.send(None)
        except StopIteration as done:
            for other in others:
                other.close()
            return WaitResults([message], [done.value], False)
        return await super().wait_first(Rest(message, waited_for), *others, **options)

    async def perform_seek(self) -> None:
        """Seek to the first event that is not processed yet.

        Mends Faust 0.15.3: while it reads the table it fetches events too and drops them; afterwards it seeks back, but
        only in partitions with a committed offset. A committed offset beyond the end counts as none: the topic was made
        again.
        """
        await super().perform_seek()
        for tp, end in (await self.highwaters(*self.assignment())).items():
            if (self._committed_offset[tp] or 0) > end:
                self._committed_offset[tp] = self._read_offset[tp] = None
        new = [tp for tp in self.assignment() if self._committed_offset[tp] is None and not self._is_changelog_tp(tp)]
        if new:
            await self._thread.seek_to_beginning(*(self._new_topicpartition(*tp) for tp in new))


class Transport(aiokafka.Transport):  # type: ignore[misc]  # faust's classes are untyped
    """Faust's way to Kafka, with our consumer."""

    Consumer = Consumer


class WorkerWeb(Web):  # type: ignore[misc]  # faust's classes are untyped
    """The web server with our pages alone: Faust's own, which tell of tables and partitions, are not found."""

    default_blueprints = production_blueprints = debug_blueprints = optional_blueprints = ()


class QueuecastApp(faust.App):  # type: ignore[misc]  # faust's classes are untyped
    """The Faust app; it ends the process when something fails, so that its supervisor starts it again.

    Faust 0.15.3 would restart the agent alone. Only a fresh start reads the last consistent state; to continue with one
    that is half done would not be safe.
    """

    failed: BaseException | None = None

    def __init__(self, *arguments: Any, pulse: Pulse, holder_of: Callable[[str], str | None], **options: Any) -> None:
        self.pulse = pulse
        self.holder_of = holder_of
        super().__init__(*arguments, **options)

    def _new_web(self) -> Web:
        return WorkerWeb(self)

    def _new_transport(self) -> Transport:
        return Transport(self.conf.broker_consumer, self)

    @faust.Service.task
    async def _check_alive(self) -> None:
        # Not one of Faust's timers: those begin only when the tables have been read for the first time.
        with self.pulse:
            while not self.should_stop:
                try:
                    self.pulse.check()
                    if lost := self.consumer._thread.lost():
                        raise lost
                except UserError as error:
                    await self.give_up(error)
                    raise
                await self.sleep(1.0)

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
        if isinstance(error, UserError):
            log.error("the worker stops: %s", error)
        else:
            log.error("the worker stops: %r", error, exc_info=None if is_of_broker(error) else error)
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
