"""Use of internals of aiokafka and of Faust's driver for it: aiokafka 0.14, faust-streaming 0.15.3.

pyproject.toml allows only the checked versions. Each override describes what it fixes. Before you allow another
version, compare each override with its source. `streams.broker.private_names` lists the names.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator, Set
from typing import Any

from aiokafka import conn
from aiokafka.errors import (
    ConsumerStoppedError,
    GroupAuthorizationFailedError,
    KafkaConnectionError,
    KafkaError,
    NoError,
    RebalanceInProgressError,
    for_code,
)
from aiokafka.protocol.group import HeartbeatRequest
from faust.transport.drivers import aiokafka
from faust.types import TP
from mode.services import WaitResults
from mode.utils.futures import maybe_async

from streams.broker.admin import PERMISSIONS
from streams.broker.consumer import wait_for_leaders
from streams.broker.private_names import AIOKAFKA, FAUST, check_private_names
from streams.errors import Unreachable, UserError

check_private_names((*AIOKAFKA, *FAUST))

FETCH_WAIT_MS = 100
"""Maximum time that the broker waits for events before it responds, milliseconds; it delays the next request."""

AGAIN_S = 1.0
"""Pause before a retry of a query for the group's members, seconds."""


Headers = list[tuple[str, bytes]]


class Connection(conn.AIOKafkaConnection):  # type: ignore[misc]  # aiokafka's classes are untyped
    """A connection to a broker that reports that it is lost.

    Works around aiokafka 0.14, which writes to a connection closed by the broker until it has read the end. asyncio
    ignores these writes. uvloop raises a RuntimeError, which ends aiokafka's sender or fetcher, and so the worker.
    Received data is still read; then aiokafka closes the connection.
    """

    def send(self, request: Any, expect_response: bool = True) -> Any:
        """Send a request, and return an awaitable for the response.

        Raises:
            KafkaConnectionError: The connection is closed.
        """
        self._check_open()
        return super().send(request, expect_response)

    def _send_sasl_token(self, payload: bytes, expect_response: bool = True) -> Any:
        self._check_open()
        return super()._send_sasl_token(payload, expect_response)

    def _check_open(self) -> None:
        if self._writer is not None and self._writer.is_closing():
            raise KafkaConnectionError(f"Connection at {self._host}:{self._port} closed by the other end")


conn.AIOKafkaConnection = Connection  # used by `create_conn` for all clients of this process


class NameTaken(KafkaError):  # type: ignore[misc]  # aiokafka's classes are untyped
    """Another process has joined the group with this worker's name."""


class Member(aiokafka.AIOKafkaConsumerThread):  # type: ignore[misc]  # faust's classes are untyped
    """Membership of this worker in its group; it reads from Kafka in the main event loop.

    Works around Faust 0.15.3, which runs it in a thread with another event loop. With each message the two loops woke
    each other and competed for the GIL, which increased the latency of predictions.

    Works around aiokafka 0.14: a member that the broker has removed joins again with a new identity. If another process
    has joined with its name, the two would replace each other forever. So before it joins again, it queries which
    member has its name.
    """

    holder_of: Callable[[str], str | None]
    """Return the id of the member with a name in the group; None if there is none. May block."""

    def __init__(self, consumer: Any, *, loop: asyncio.AbstractEventLoop, **options: Any) -> None:
        super().__init__(consumer, loop=loop, thread_loop=loop, **options)

    async def start(self) -> None:
        """Start, and return when started. Raises the error if the start fails."""
        self._thread_started.set()
        self._thread_running = self.parent_loop.create_future()
        self._serving = asyncio.create_task(self._serve())
        self._serving.add_done_callback(lambda task: task.cancelled() or task.exception())  # already reported
        await self._thread_running

    async def call_thread(self, call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Call a function that Faust would call in the thread."""
        return await maybe_async(call(*arguments, **options))

    async def _gather_remaining_tasks(self) -> None:
        """Do nothing: the other tasks of this loop belong to other code."""

    async def on_start(self) -> None:
        """Start, and track the member ids that the broker assigns.

        Works around aiokafka 0.14: a permanent error is kept for `lost`. Otherwise the worker would wait or retry
        forever.
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

    async def _is_free(self, name: str, own: set[str]) -> bool:
        """Return whether no other process has this name; False if that cannot be queried now."""
        try:
            holder = await asyncio.to_thread(self.holder_of, name)
        except Unreachable:
            await asyncio.sleep(AGAIN_S)
            return False
        if holder is not None and holder not in own:
            raise NameTaken(name)
        return True

    def _create_worker_consumer(self, transport: Any) -> Any:
        # Works around Faust 0.15.3, which sets 1.5 s and waits for it several times in each rebalance.
        consumer = super()._create_worker_consumer(transport)
        consumer._fetch_max_wait_ms = FETCH_WAIT_MS
        wait_for_leaders(consumer)
        return consumer

    async def _fetch_records(
        self, consumer: Any, active_partitions: Set[TP], timeout: float | None = None, max_records: int | None = None
    ) -> dict[TP, list[Any]]:
        """Return the next records of the active partitions; an empty mapping if none arrive within `timeout` seconds.

        Works around Faust 0.15.3. It passes its set of active partitions to aiokafka, and empties the set in a
        rebalance while aiokafka still waits for records; an empty set means all partitions there. Faust drops records
        that arrive while its flow is stopped. If these were of a changelog that was about to be restored, the worker
        waited for them forever. So the flow and the set are checked each time, with no `await` between the check and
        the fetch.
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
                waiter.result()  # raises the broker's error
        return {}

    async def confirm(self) -> None:
        """Confirm with the group's coordinator that this process is still a member, in its present generation.

        Raises:
            KafkaError: It is not, or the coordinator does not answer; a rebalance will tell.
        """
        coordinator = self._consumer._coordinator
        request = HeartbeatRequest(coordinator.group_id, coordinator.generation, coordinator.member_id)
        error = for_code((await coordinator._send_req(request)).error_code)
        if error not in (NoError, RebalanceInProgressError):  # in a rebalance it keeps its partitions until revoked
            raise error(coordinator.group_id)

    def leave(self) -> None:
        """Leave the group when this stops.

        Works around aiokafka 0.14, in which a static member (`group.instance.id`) never leaves.
        """
        if self._consumer is not None:
            self._consumer._coordinator._group_instance_id = None

    def lost(self) -> UserError | None:
        """Return the reason why this worker has permanently lost its place in the group; None if it has not."""
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


class StartedCoroutine:
    """The rest of a coroutine that has started and waits for something."""

    def __init__(self, running: Coroutine[Any, Any, Any], waited_for: Any) -> None:
        self._running, self._waited_for = running, waited_for

    def __await__(self) -> Generator[Any, Any, Any]:
        try:
            yield self._waited_for
        except BaseException:
            self._running.close()
            raise
        return (yield from self._running.__await__())


class Consumer(aiokafka.Consumer):  # type: ignore[misc]  # faust's classes are untyped
    """Faust's consumer with our group member, and with other acknowledgements, another seek and another stop."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._durable: dict[TP, int] = {}

    def acknowledge(self, tp: TP, offset: int) -> None:
        """Let the next commit cover all messages of a partition before an offset.

        Faust 0.15.3 keeps the offset of each acknowledged message that follows one that is not. It may commit beyond
        that one if nothing has been committed yet.
        """
        self._durable[tp] = offset

    def _filter_tps_with_pending_acks(self, topics: Any = None) -> list[TP]:
        return [tp for tp in self._durable if topics is None or tp in topics or tp.topic in topics]

    def _new_offset(self, tp: TP) -> int | None:
        return self._durable.pop(tp, None)

    def _new_consumer_thread(self) -> Member:
        member = Member(self, loop=self.loop, beacon=self.beacon)
        member.holder_of = self.app.holder_of
        return member

    async def confirm(self) -> None:
        """Confirm with the group's coordinator that this process is still a member (`Member.confirm`)."""
        await self._thread.confirm()

    async def committed(self, *partitions: TP) -> dict[TP, int | None]:
        """Return the committed offset of each partition; None without one."""
        return {tp: await self._thread._consumer.committed(tp) for tp in partitions}

    def partitions_of(self, topic: str) -> int:
        """Return the number of partitions of a topic in this consumer's metadata; 0 if the topic is not there."""
        return len(self._thread._consumer.partitions_for_topic(topic) or ())

    async def on_stop(self) -> None:
        """Commit and leave the group, so that other members get the partitions immediately.

        A failed worker stays in the group until its session expires, because it will be restarted.
        """
        await super().on_stop()
        if self.app.failed is None:
            self._thread.leave()

    async def wait_first(self, *awaited: Any, **options: Any) -> WaitResults:
        """Wait until the first of these is done, or this stops.

        Works around Faust 0.15.3, which passes each message in a separate task, next to three tasks that wait for the
        flow or a stop. Nearly always there is room for the message, and so nothing to wait for.
        """
        message, *others = awaited
        if not others:
            return await super().wait_first(message, **options)
        try:
            waited_for = message.send(None)
        except BaseException as error:
            for other in others:
                other.close()
            if isinstance(error, StopIteration):
                return WaitResults([message], [error.value], False)
            raise
        return await super().wait_first(StartedCoroutine(message, waited_for), *others, **options)

    async def perform_seek(self) -> None:
        """Seek to the first event that is not processed yet.

        Works around Faust 0.15.3: while it restores the table it also fetches events and drops them. Afterwards it
        seeks back, but only in partitions with a committed offset. A committed offset beyond the end is ignored,
        because the topic was recreated.
        """
        self._durable.clear()
        await super().perform_seek()
        for tp, end in (await self.highwaters(*self.assignment())).items():
            if (self._committed_offset[tp] or 0) > end:
                self._committed_offset[tp] = self._read_offset[tp] = None
        new = [tp for tp in self.assignment() if self._committed_offset[tp] is None and not self._is_changelog_tp(tp)]
        if new:
            await self._thread.seek_to_beginning(*(self._new_topicpartition(*tp) for tp in new))


class Producer(aiokafka.Producer):  # type: ignore[misc]  # faust's classes are untyped
    """Faust's producer, with a short way into a batch that is already open.

    In Faust 0.15.3 and aiokafka 0.14 each record passes through six functions and has a future of its own. With a
    backlog nearly every record finds an open batch, and shares the future of this batch.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        # The future of the latest batch of each partition, and the one given for it, which may be cancelled.
        self._deliveries: dict[TP, tuple[asyncio.Future[Any], asyncio.Future[Any]]] = {}

    async def deliver(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        partition: int | None,
        headers: list[tuple[str, bytes]],
    ) -> Awaitable[Any]:
        """Send a record; the result is done when the broker has it."""
        if partition is not None and (delivery := self._append(TP(topic, partition), key, value, headers)) is not None:
            return delivery
        sent: Awaitable[Any] = await self.send(topic, key, value, partition, None, headers)
        return sent

    def _append(
        self, place: TP, key: bytes | None, value: bytes | None, headers: Headers
    ) -> asyncio.Future[Any] | None:
        """Append a record to the open batch of a partition; None if there is none, or it is full."""
        accumulator = self._ensure_producer()._message_accumulator
        batches = accumulator._batches.get(place)
        if not batches or accumulator._closed or accumulator._exception is not None:
            return None
        batch = batches[-1]
        if batch._builder.append(timestamp=None, key=key, value=value, headers=headers) is None:
            return None
        future, delivery = self._deliveries.get(place, (None, None))
        if delivery is None or future is not batch.future or delivery.cancelled():
            # The producer needs the batch's own future, even if a checkpoint is cancelled.
            delivery = asyncio.shield(batch.future)
            self._deliveries[place] = batch.future, delivery
        return delivery


class Transport(aiokafka.Transport):  # type: ignore[misc]  # faust's classes are untyped
    """Faust's Kafka transport with our consumer and producer."""

    Consumer = Consumer
    Producer = Producer
