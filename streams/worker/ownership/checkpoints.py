"""When what was processed of a partition becomes durable."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import partial

from streams.worker.checkpoint.checkpoint import Acknowledgements, Checkpoint, Histories, Pending, PendingBatch
from streams.worker.checkpoint.crashes import CrashTracker
from streams.worker.checkpoint.table import OwnedTable, Token
from streams.worker.ownership.sites import PartitionSites

Work = Callable[[], Awaitable[None]]  # what a task does; called when the task begins


@dataclass
class Checkpoints:
    """Makes the checkpoints of a partition, one at a time.

    Each begins between two events. None begins while a site is mended (`mending`): its state is that of no event.

    Parameters:
        begin: begins a task in the scope of the partition.

    Attributes:
        ended: when the last one ended, Unix seconds.
        turn: an event and the beginning of a checkpoint take turns.
    """

    pending: Pending
    sites: PartitionSites
    histories: Histories
    crashes: CrashTracker
    token: Token
    table: OwnedTable
    compressing: Executor
    begin: Callable[[Work], "asyncio.Task[None]"]
    acknowledgements: Acknowledgements
    ended: float | None = field(default=None, init=False)
    turn: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    mending: set["asyncio.Task[None]"] = field(default_factory=set, init=False)
    _running: tuple[PendingBatch, "asyncio.Task[None]"] | None = field(default=None, init=False)
    _due: "asyncio.Task[None] | None" = field(default=None, init=False)  # begins one

    @property
    def since(self) -> float | None:
        """When the oldest event came that is not durable yet, on the worker's clock; None where there is none."""
        return self.pending.since if self._running is None else self._running[0].since

    def is_going(self, site: str) -> bool:
        """Whether a site has lost its place, which is still to be made durable."""
        return site in self.pending.gone or (self._running is not None and site in self._running[0].gone)

    @property
    def due(self) -> bool:
        """Whether one is due, and none is running or about to begin."""
        beginning = self._due is not None and not self._due.done()
        return self.pending.due and self._running is None and not self.mending and not beginning

    def begin_due(self) -> None:
        """Begin the one that is due, after the event that is being processed."""
        self._due = self.begin(self._in_turn)

    async def _in_turn(self) -> None:
        async with self.turn:
            if self.pending.due:
                await self.begin_one()

    async def after_event(self) -> None:
        """An event is processed: make a checkpoint if it is to be durable at once, or begin one if there are enough."""
        if self.crashes.checkpoint_events == 1:
            await self.make()
        elif self.pending.batch.size >= self.crashes.checkpoint_events:
            await self.begin_one()

    async def make(self) -> None:
        """Make everything durable that followed from the pending events, then acknowledge them."""
        await self.begin_one()
        await self.end()

    async def begin_one(self) -> None:
        """Begin a checkpoint of the partition as it is now, after the end of an earlier one."""
        await self.end()
        while self.mending:
            await asyncio.wait(self.mending)
        if (batch := self.pending.take()) is not None:
            checkpoint = Checkpoint(batch, self.sites.handles, self.token)
            self._running = batch, self.begin(partial(self._run, checkpoint))

    async def _run(self, checkpoint: Checkpoint) -> None:
        await checkpoint.run(self.table, self.histories, self.compressing, self.acknowledgements)
        self.ended = time.time()
        await self.crashes.survived()
        self._running = None

    async def end(self) -> None:
        """Wait for the end of the one that is running."""
        if self._running is not None:
            await self._running[1]

    def forget(self) -> None:
        """The partition is another worker's."""
        self._running = None
