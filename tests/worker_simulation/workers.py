"""Workers in virtual time, and the group that assigns their partitions."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Any

from faust.types import TP

from streams.broker.fetched import Fetched
from streams.settings import Settings
from streams.worker.answers.time_slicer import CrashingWork, TimeSlicer
from streams.worker.checkpoint.event_logs import ChangelogRecords, MessageBatch
from streams.worker.checkpoint.job_log import site_of
from streams.worker.checkpoint.owned_table import Revoked
from streams.worker.checkpoint.store import SiteStore
from streams.worker.checkpoint.stored_site import LogOffsets, PartitionLog, decode_stored
from streams.worker.faust_compat import SiteTable, is_own_reason
from streams.worker.ownership.owner import CHECKPOINT_TURNS
from streams.worker.ownership.site_queues import MemoryBudget
from tests.support.fakes import Process
from tests.support.memory_servers import MemoryEvents, Message
from tests.worker_simulation.loop import CURRENT, SimulatedProcess, in_process
from tests.worker_simulation.servers import Kafka, Redis, RedisClient, Sender

SHARE, SLICE_S = 0.05, 0.02  # share of the loop for estimates, and duration of an estimate (s)
SESSION_S = 30.0  # session timeout of a member, seconds
ROOM = 60  # messages in memory


class ReadTable:
    """A worker's view of the table: the changelog as far as read, and its own writes."""

    take, drop = SiteTable.take, SiteTable.drop

    def __init__(self, kafka: Kafka, sender: Sender) -> None:
        self.data: dict[bytes, bytes] = {}
        self.read: dict[int, int] = {}  # offset of the last read message, by partition
        self._kafka, self._sender = kafka, sender

    async def recover(self, partitions: Iterable[int]) -> None:
        """Read the changelog of partitions from its beginning to its present end."""
        for partition in sorted(partitions):
            log = self._kafka.changelog[partition]
            place, end = 0, len(log)
            while place < end:
                await self._kafka.faults.pause()
                for key, value in log[place : min(place + 20, end)]:
                    self.take(key, value, partition)
                place = min(place + 20, end)
            self.read[partition] = end - 1

    def get(self, key: bytes) -> bytes | None:
        return self.data.get(key)

    def keys(self) -> Iterable[bytes]:
        return self.data.keys()

    def put(self, key: bytes, value: bytes | None, partition: int) -> Awaitable[Any]:
        if value is None:
            self.data.pop(key, None)
        else:
            self.data[key] = value
        log, process = self._kafka.changelog[partition], CURRENT.get()
        if site_of(key) == key and process is not None:
            stored = None if value is None else decode_stored(value)
            what = "nothing" if stored is None else f"claim {stored.claim}, offset {stored.offset}"
            self._kafka.faults.note(f"{process.name} stores {key.decode()}: {what}")
        return self._sender.deliver(("changelog", partition), lambda: log.append((key, value)))


class ReadEvents(MemoryEvents):
    """The topics as read by the worker with that table."""

    def __init__(self, kafka: Kafka, table: ReadTable) -> None:
        self._brokers, self._table = kafka, table

    async def ranges(self, logs: Iterable[PartitionLog]) -> dict[PartitionLog, LogOffsets]:
        wanted = list(logs)
        messages, committed = self._brokers.messages, self._brokers.committed
        return await self._brokers.faults.request(
            "kafka ends",
            lambda: {one: LogOffsets(0, len(messages[one.partition]), committed.get(one.partition)) for one in wanted},
        )

    async def read(self, log: PartitionLog, first: int, last: int, key: bytes) -> list[Any]:
        return (await self.read_some(TP("", log.partition), key, first, last, 1 << 30)).messages

    async def read_some(self, place: TP, key: bytes, first: int, last: int, most: int) -> MessageBatch:
        def effect() -> MessageBatch:
            log = self._brokers.messages[place.partition][first : last + 1]
            found = [Fetched.of(one) for one in log if one.key == key][:most]
            return MessageBatch(found, found[-1].offset + 1 if len(found) == most else last + 1, False)

        return await self._brokers.faults.request("kafka read", effect)

    async def late_states(self, partition: int, after: int | None = None) -> ChangelogRecords:
        first = (self._table.read[partition] if after is None else after) + 1

        def effect() -> ChangelogRecords:
            found = self._brokers.changelog[partition][first:]
            return ChangelogRecords(found, first + len(found) - 1)

        return await self._brokers.faults.request("kafka states", effect)

    async def earlier_states(self, partition: int, key: bytes, most: int | None = None) -> list[tuple[bytes, bytes]]:
        def effect() -> list[tuple[bytes, bytes]]:
            log = self._brokers.changelog[partition]
            return [(one, value) for one, value in log[-(most or len(log)) :][::-1] if value and site_of(one) == key]

        return await self._brokers.faults.request("kafka earlier states", effect)


class Worker:
    """A worker's process: it owns partitions, fetches their messages, and ends when one of its tasks fails.

    Args:
        deadly: site whose estimates crash the process.
    """

    def __init__(self, name: str, kafka: Kafka, redis: Redis, settings: Settings, deadly: str | None = None) -> None:
        self.name, self.kafka, self.faults, self.deadly = name, kafka, kafka.faults, deadly
        self.simulated = SimulatedProcess(name)
        self._sender = Sender(kafka)
        self._fetching: list[asyncio.Task[None]] = []
        self._acknowledged: dict[int, int] = {}
        self._committing: asyncio.Future[None] | None = None  # the latest commit
        self.generation, self._assigning = -1, asyncio.Lock()
        self._table = ReadTable(kafka, self._sender)
        self.process = Process(
            kafka,  # type: ignore[arg-type]  # of which a process takes what is given here alone
            settings,
            table=self._table,
            events=ReadEvents(kafka, self._table),
            store=lambda _, token: SiteStore(RedisClient(redis), "queuecast", token.check),  # type: ignore[arg-type]
            clock=self.faults.loop.time,
            now=self.faults.loop.clock,
            send=self._sender.send,
            acknowledge=self._acknowledge,
            confirm=self._confirm,
        )
        self.process.means.room = MemoryBudget(ROOM)
        self.ended = self.start(self._live())
        self.start(self._estimate())

    def start(self, work: Any) -> "asyncio.Task[Any]":
        """Start a task in this process."""
        return self.faults.loop.create_task(work, context=in_process(self.simulated))

    def kill(self) -> None:
        """End the process between two callbacks; its sent requests still arrive."""
        if self.simulated.alive:
            self.faults.note(f"kill {self.name}")
        self.simulated.alive = False

    async def _live(self) -> None:
        pulse_s = checkpoint_s = 0.0
        owner, turn_s = self.process.owner, self.process.means.settings.worker.checkpoint_seconds / CHECKPOINT_TURNS
        while True:
            now = self.faults.loop.time()
            try:
                if now >= pulse_s:
                    self.process.pulse.check()
                    pulse_s = now + 1.0
                if now >= checkpoint_s:
                    owner.checkpoint_due()
                    await self._commit()
                    checkpoint_s = now + turn_s
                self.process.raise_error()
            except Exception as error:
                self.faults.note(f"end {self.name}: {error!r}"[:120])
                if is_own_reason(error):
                    await owner.restore_crash_mark()
                self.kill()
            await asyncio.sleep(min(turn_s, 1.0))

    async def _estimate(self) -> None:
        """Run slices of work between events, like grid estimates; some fail, and some crash the process."""
        ticks = count()  # two per slice
        clock = lambda: self.faults.loop.time() + SLICE_S * next(ticks)  # noqa: E731
        owner = self.process.owner
        turns = TimeSlicer(lambda: owner.is_busy, clock, owner.doing)
        while True:
            for site in list(owner):
                with suppress(CrashingWork, Revoked, ZeroDivisionError):
                    await turns.take(partial(self._slice, site), SHARE, (site, "estimates", 0), always=True)
            await asyncio.sleep(self.faults.random.random())

    def _slice(self, site: str) -> None:
        if site == self.deadly and self.faults.rate:
            current_dies()
        if self.faults.random.random() < self.faults.rate:
            raise ZeroDivisionError("float division by zero")

    async def _confirm(self) -> None:
        generation = self.generation
        if not await self.faults.request("heartbeat", lambda: generation == self.kafka.generation):
            raise ConnectionError("not a member of the group")

    async def _commit(self) -> None:
        acknowledged, generation = dict(self._acknowledged), self.generation
        self._acknowledged.clear()
        for partition, offset in acknowledged.items():
            self._committing = asyncio.ensure_future(self._commit_one(generation, partition, offset))

    async def _commit_one(self, generation: int, partition: int, offset: int) -> None:
        try:
            await self.faults.request("commit", lambda: self.kafka.commit(generation, partition, offset))
        except ConnectionError:
            self._acknowledged.setdefault(partition, offset)

    def _acknowledge(self, place: TP, offset: int) -> None:
        self._acknowledged[place.partition] = offset

    async def revoke(self) -> None:
        """Release all partitions."""
        generation, self.generation = self.generation, -1
        for task in self._fetching:
            task.cancel()
        await self.process.owner.hand_over(list(self.process.owner._partitions))
        for partition, offset in self._acknowledged.items():
            await self._commit_one(generation, partition, offset)
        self._acknowledged.clear()

    async def assign(self, partitions: Iterable[int], generation: int) -> None:
        """Take over partitions, and start to fetch their messages."""
        async with self._assigning:
            self.generation = generation
            await self._table.recover(partitions)
            if generation != self.generation:
                return
            try:
                await self.process.owner.take_over(set(partitions))
            except Exception as error:
                self.process.error = self.process.error or error
        if generation == self.generation:
            self._fetching = [asyncio.ensure_future(self._fetch(one)) for one in partitions]

    async def _fetch(self, partition: int) -> None:
        place, log = self.kafka.committed.get(partition, 0), self.kafka.messages[partition]
        while True:
            await self.faults.pause()
            for raw in log[place : place + self.faults.random.randint(1, 50)]:
                await self.process.owner.take(Message(raw))
                place = raw.offset + 1
            if place >= len(log):
                await asyncio.sleep(0.05)


class Group:
    """The consumer group: assign each partition to one of the responsive members."""

    def __init__(self, kafka: Kafka, begin: Callable[[str], Worker], members: int) -> None:
        self._kafka, self._begin, self._faults = kafka, begin, kafka.faults
        self._members = members
        self._number = 0
        self.workers: list[Worker] = []
        self.zombies: list[Worker] = []
        self.stale = True

    async def run(self) -> None:
        """Replace dead workers, and rebalance when a member joins or leaves."""
        while True:
            if any(not worker.simulated.alive for worker in self.workers):
                self.workers = [worker for worker in self.workers if worker.simulated.alive]
                self.stale = True
            while len(self.workers) < self._members:
                self._number += 1
                self.workers.append(self._begin(f"w{self._number}"))
                self.stale = True
            if self.stale:
                self.stale = False
                await self._rebalance()
            await asyncio.sleep(self._faults.random.random())

    async def _rebalance(self) -> None:
        """Revoke all partitions, as in the eager protocol, and assign them to the responsive members."""
        revoked = {worker: worker.start(worker.revoke()) for worker in self.workers}
        if revoked:
            await asyncio.wait(revoked.values(), timeout=SESSION_S)
        answered = [worker for worker, task in revoked.items() if task.done() and worker.simulated.alive]
        for worker in self.workers:
            if worker not in answered and worker.simulated.alive:
                self.give_up(worker)
        self.workers = [worker for worker in self.workers if worker in answered]
        if not self.workers:
            return
        self._kafka.generation += 1
        parts: dict[Worker, list[int]] = {worker: [] for worker in self.workers}
        for partition in self._kafka.messages:
            parts[self._faults.random.choice(self.workers)].append(partition)
        for worker, partitions in parts.items():
            self._faults.note(f"assign {partitions} to {worker.name}")
            worker.start(worker.assign(partitions, self._kafka.generation))

    def give_up(self, worker: Worker) -> None:
        """Remove a worker from the group; it may still live and write for a while."""
        self._faults.note(f"give up {worker.name}")
        self.workers = [one for one in self.workers if one is not worker]
        self.zombies.append(worker)
        self.stale = True
        self._faults.loop.call_later(self._faults.random.random() * SESSION_S, worker.kill)


def current_dies() -> None:
    """End the process of this callback, like a crash of the interpreter.

    Raises:
        Killed: always, in the middle of the callback.
    """
    process = CURRENT.get()
    assert process is not None
    process.alive = False
    raise Killed


class Killed(BaseException):
    """The process is dead; its exception handlers do not run further."""
