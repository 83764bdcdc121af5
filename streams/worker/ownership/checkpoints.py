"""Schedule the checkpoints of a partition."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import partial

from streams.worker.checkpoint.checkpoint import Acknowledgements, Checkpoint, Histories, PendingBatch, PendingEvents
from streams.worker.checkpoint.crashes import CrashTracker
from streams.worker.checkpoint.owned_table import OwnedTable, OwnershipToken
from streams.worker.ownership.partition_sites import PartitionSites

Work = Callable[[], Awaitable[None]]  # body of a task; called when the task starts


@dataclass
class Checkpoints:
    """Make the checkpoints of a partition, one at a time.

    Each begins between two events. None begins while a site is being repaired (`repairing`), because its state is then
    incomplete.

    Args:
        begin: Starts a task in the scope of the partition.

    Attributes:
        ended: End of the last checkpoint, Unix seconds.
        turn: Lock shared by the processing of an event and the beginning of a checkpoint.
    """

    pending: PendingEvents
    sites: PartitionSites
    histories: Histories
    crashes: CrashTracker
    token: OwnershipToken
    table: OwnedTable
    compressing: Executor
    begin: Callable[[Work], "asyncio.Task[None]"]
    acknowledgements: Acknowledgements
    ended: float | None = field(default=None, init=False)
    turn: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    repairing: set["asyncio.Task[None]"] = field(default_factory=set, init=False)
    _running: tuple[PendingBatch, "asyncio.Task[None]"] | None = field(default=None, init=False)
    _due: "asyncio.Task[None] | None" = field(default=None, init=False)  # task that begins a checkpoint

    @property
    def since(self) -> float | None:
        """Time of the oldest event that is not durable yet, on the worker's clock; None if there is none."""
        return self.pending.since if self._running is None else self._running[0].since

    def is_evicting(self, site: str) -> bool:
        """Return whether a site was evicted and the eviction is not durable yet."""
        return site in self.pending.evicted or (self._running is not None and site in self._running[0].evicted)

    @property
    def due(self) -> bool:
        """True if a checkpoint is due, and none is running or about to begin."""
        beginning = self._due is not None and not self._due.done()
        return self.pending.due and self._running is None and not self.repairing and not beginning

    def begin_due(self) -> None:
        """Begin the due checkpoint after the current event."""
        self._due = self.begin(self._in_turn)

    async def _in_turn(self) -> None:
        async with self.turn:
            if self.pending.due:
                await self.begin_one()

    async def after_event(self) -> None:
        """Make a checkpoint if the event must be durable immediately, or begin one if enough events are pending."""
        if self.crashes.checkpoint_events == 1:
            await self.make()
        elif self.pending.batch.size >= self.crashes.checkpoint_events:
            await self.begin_one()

    async def make(self) -> None:
        """Make the results of the pending events durable, then acknowledge the events."""
        await self.begin_one()
        await self.end()

    async def begin_one(self) -> None:
        """Begin a checkpoint of the partition's current state, after the end of an earlier one."""
        await self.end()
        while self.repairing:
            await asyncio.wait(self.repairing)
        if (batch := self.pending.take()) is not None:
            checkpoint = Checkpoint(batch, self.sites.handles, self.token)
            self._running = batch, self.begin(partial(self._run, checkpoint))

    async def _run(self, checkpoint: Checkpoint) -> None:
        await checkpoint.run(self.table, self.histories, self.compressing, self.acknowledgements)
        self.ended = time.time()
        await self.crashes.survived()
        self._running = None

    async def end(self) -> None:
        """Wait for the end of the running checkpoint."""
        if self._running is not None:
            await self._running[1]

    def forget(self) -> None:
        """Drop the running checkpoint: another worker owns the partition."""
        self._running = None
