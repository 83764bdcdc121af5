"""A simulation: a workload, workers, and temporary faults; then the output must equal that of a run without faults."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from random import Random
from typing import Any
from unittest.mock import patch

import msgspec

from models.engine.engine import Engine
from models.engine.settings import EngineSettings
from models.records import AnyEvent, Submit
from streams.settings import Settings, WorkerSettings
from streams.worker.checkpoint import job_log, pacing
from streams.worker.checkpoint.crashes import CrashMark, CrashTracker
from streams.worker.checkpoint.loader import EngineFailed, SiteLoader
from streams.worker.checkpoint.stored_site import SiteHandle
from streams.worker.ownership import checkpoints, outbox, partition_sites, processing
from tests.worker_simulation.checker import Difference, compare
from tests.worker_simulation.loop import SimulatedLoop, time_module, trained_later
from tests.worker_simulation.servers import Faults, Kafka, Redis
from tests.worker_simulation.workers import Group, Worker, current_dies
from tests.worker_simulation.workload import BROKEN, PARTITIONS, POISON, Sent, workload

SETTINGS = Settings(
    engine=EngineSettings(method="median", shadows=("qbets",), publish_shadows=True, history=12),
    worker=WorkerSettings(checkpoint_events=7, checkpoint_seconds=4.0, max_sites_per_partition=5),
)
PUBLISHED_S = 60.0  # duration of sending and of faults, seconds
DRAINED_S = 3600.0  # time limit for processing all messages after the faults, seconds


class PoisonReached(Exception):
    """A run without faults applied an event that crashes processes."""


class Simulation:
    """A run of a workload, determined by a seed.

    Args:
        faulty: True to inject faults.
    """

    def __init__(self, seed: int, faulty: bool = True) -> None:
        self.random = Random(f"{seed} {faulty}")
        self.loop = SimulatedLoop(self.random, self.random.choice((0.0, 0.0, 0.2)) if faulty else 0.0)
        self.faults = Faults(self.loop, self.random)
        if not faulty:
            self.faults.heal()
        self.kafka, self.redis = Kafka(self.faults, PARTITIONS), Redis(self.faults)
        self.faulty = faulty
        self.loses_writes = False
        self.degraded = set[str]()  # sites with unrecoverable losses in Redis
        self.refused = set[tuple[int, int]]()  # partitions and offsets, in a run without faults
        self.messages = workload(Random(seed))
        self.deadly = self.random.choice((None, None, "alder")) if faulty else None
        self.group = Group(self.kafka, self._begin, self.random.randint(1, 3) if faulty else 1)

    def _begin(self, name: str) -> Worker:
        return Worker(name, self.kafka, self.redis, SETTINGS, self.deadly)

    def run(self) -> None:
        """Run the simulation to its end.

        Raises:
            Difference: not all messages are processed in time.
        """
        with _patched(self):
            try:
                self.loop.run_until_complete(self._run())
            finally:
                for worker in (*self.group.workers, *self.group.zombies):
                    self.loop.thaw(worker.simulated)
                self.loop.end()

    async def _run(self) -> None:
        publishing = asyncio.ensure_future(self._publish(self.messages))
        running = asyncio.ensure_future(self.group.run())
        if self.faulty:
            disturbing = asyncio.ensure_future(self._disturb())
            await asyncio.wait([publishing, disturbing, running], timeout=PUBLISHED_S)
            disturbing.cancel()
            self._heal()
        await publishing
        end = self.loop.time() + DRAINED_S
        while any(self.kafka.committed.get(one, 0) < len(log) for one, log in self.kafka.messages.items()):
            if running.done():
                running.result()
            if self.loop.time() > end:
                raise Difference(f"no progress: {self.kafka.committed} committed of {self._ends()}")
            await asyncio.sleep(1.0)
        running.cancel()
        if leaving := [worker.start(worker.revoke()) for worker in self.group.workers]:
            await asyncio.wait(leaving, timeout=DRAINED_S)

    def _ends(self) -> dict[int, int]:
        return {number: len(log) for number, log in self.kafka.messages.items()}

    async def _publish(self, messages: list[Sent]) -> None:
        for sent in messages:
            self.kafka.publish(sent.partition, sent.key, sent.value, sent.time)
            if self.random.random() < 0.1:
                await asyncio.sleep(self.random.random() * 20 * PUBLISHED_S / len(messages))

    async def _disturb(self) -> None:
        """Inject faults at random times."""
        pause_s = self.random.choice((2.0, 6.0, 20.0))
        kinds = [self._kill, self._freeze, self._give_up, self._rebalance, self._lose_writes]
        kinds = self.random.sample(kinds, self.random.randint(1, len(kinds)))
        while True:
            await asyncio.sleep(self.random.random() * pause_s)
            self.random.choice(kinds)()

    def _victim(self) -> Worker | None:
        """Return a worker to disturb, but none whose successor would reject an event as the cause."""
        if any(mark.under_way for mark in self._marks()) or not self.group.workers:
            return None
        return self.random.choice(self.group.workers)

    def _marks(self) -> Iterator[CrashMark]:
        for number in range(PARTITIONS):
            if value := self.redis.data.get(f"queuecast:crashes:{number}", {}).get(b"mark"):
                yield msgspec.msgpack.decode(value, type=CrashMark)

    def _kill(self) -> None:
        if (worker := self._victim()) is not None:
            worker.kill()

    def _freeze(self) -> None:
        if (worker := self._victim()) is not None and not worker.simulated.frozen:
            seconds = self.random.choice((1.0, 20.0, 60.0))
            self.faults.note(f"freeze {worker.name} for {seconds:.0f} s")
            worker.simulated.frozen = True
            self.loop.call_later(seconds, self.loop.thaw, worker.simulated)

    def _give_up(self) -> None:
        if (worker := self._victim()) is not None:
            self.group.give_up(worker)

    def _rebalance(self) -> None:
        self.group.stale = True

    def _lose_writes(self) -> None:
        """Fail over to a Redis replica that is up to two seconds behind."""
        self.faults.note("Redis loses its writes from here on")
        self.loses_writes = True
        self.redis.keep()
        self.loop.call_later(self.random.random() * 2.0, self.redis.fail_over)

    def _heal(self) -> None:
        self.faults.heal()
        for worker in (*self.group.workers, *self.group.zombies):
            if worker.simulated.frozen:
                self.loop.thaw(worker.simulated)


def undisturbed(seed: int) -> Simulation:
    """Run a seed's workload without faults; events that crash processes are rejected."""
    refused = set[tuple[int, int]]()
    while True:
        simulation, before = Simulation(seed, faulty=False), len(refused)
        simulation.refused = refused
        simulation.run()
        if len(refused) == before:
            return simulation


def check(seed: int) -> Simulation:
    """Simulate a seed.

    Raises:
        Difference: the output differs from that without faults.
    """
    logging.disable(logging.CRITICAL)
    try:
        expected, found = undisturbed(seed), Simulation(seed)
        try:
            found.run()
            compare(found.kafka, expected.kafka, found.degraded)
        except BaseException as error:
            error.add_note("\n".join(found.faults.trace[-60:]))
            raise
        return found
    finally:
        logging.disable(logging.NOTSET)


@contextmanager
def _patched(simulation: Simulation) -> Iterator[None]:
    """Replace the clock, the names and the engine calls of workers by those of the simulation."""
    clock = time_module(simulation.loop)
    writers = iter(range(1 << 30))
    modules = (checkpoints, outbox, processing, partition_sites, pacing)
    patches: list[Any] = [patch.object(module, "time", clock) for module in modules]
    patches.append(patch.object(job_log, "new_writer", lambda: f"{next(writers):08x}"))
    patches.append(patch.object(Engine, "apply", _applying(simulation.faulty)))
    if simulation.faulty:
        patches.append(patch.object(Engine, "pending", _pending(simulation)))
        patches.append(patch.object(SiteLoader, "_go_back", _going_back(simulation)))
    else:
        simulation.refused.update(_poisonous(simulation.messages))
        patches.append(patch.object(CrashTracker, "has_no_suspect", False))
        patches.append(patch.object(CrashTracker, "doing", _refusing(simulation.refused)))
        patches.append(patch.object(SiteLoader, "rebuild", _noting(simulation.refused)))
    started: list[Any] = []
    try:
        for one in patches:
            one.start()
            started.append(one)
        yield
    finally:
        for one in reversed(started):
            one.stop()


def _poisonous(messages: list[Sent]) -> Iterator[tuple[int, int]]:
    """Yield the partitions and offsets of events that crash processes."""
    ends = dict.fromkeys(range(PARTITIONS), 0)
    for sent in messages:
        if sent.value is not None and b'"user":"poison"' in sent.value:
            yield sent.partition, ends[sent.partition]
        ends[sent.partition] += 1


def _refusing(refused: set[tuple[int, int]]) -> Any:
    @asynccontextmanager
    async def doing(tracker: CrashTracker, place: Any) -> AsyncIterator[bool]:
        yield (tracker._partition, place[1]) not in refused

    return doing


def _noting(refused: set[tuple[int, int]]) -> Any:
    """Return a rebuild that records the poisonous events that it reaches."""
    rebuild = SiteLoader.rebuild

    async def noting(loader: SiteLoader, handle: SiteHandle, offset: int) -> Any:
        try:
            return await rebuild(loader, handle, offset)
        except EngineFailed as error:
            if PoisonReached.__name__ in error.detail:
                refused.add((handle.partition, offset))
            raise

    return noting


def _going_back(simulation: Simulation) -> Any:
    """Return a recovery from the events that records its failures."""
    go_back = SiteLoader._go_back

    async def going_back(loader: SiteLoader, site: str, stored: Any, *rest: Any) -> Any:
        handle = await go_back(loader, site, stored, *rest)
        if handle is None:
            simulation.faults.note(f"{site} is degraded")
            if simulation.loses_writes:
                simulation.degraded.add(site)
        return handle

    return going_back


def _applying(faulty: bool) -> Any:
    apply = Engine.apply

    def applying(engine: Engine, event: AnyEvent, arrived: float | None = None) -> Any:
        user = event.user if isinstance(event, Submit) else None
        if user == POISON:
            if faulty:
                current_dies()
            raise PoisonReached
        records = apply(engine, event, arrived)
        if user == BROKEN:
            raise ZeroDivisionError("float division by zero")
        return records

    return applying


def _pending(simulation: Simulation) -> Any:
    """Return a replacement of `Engine.pending` that sometimes waits for a training."""
    begun: dict[int, tuple[Engine, int, Any]] = {}

    def pending(engine: Engine) -> Any:
        if engine.events % 8 != 5:
            return None
        last = begun.get(id(engine))
        if last is None or last[0] is not engine or last[1] != engine.events:
            future = trained_later(simulation.loop, simulation.random.random() ** 2)
            begun[id(engine)] = engine, engine.events, future
            return future
        return None if last[2].done() else last[2]

    return pending
