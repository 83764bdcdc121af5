"""One partition that is this worker's: all that is known of it, and all that is done for it."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import faust

from models.durations import DAY_S
from models.engine.operations import begun_anew
from models.records import AnyOperation, BeginAnew, Rebuild, events_of
from streams.settings import Settings
from streams.worker.checkpoint.checkpoint import (
    Acknowledgements,
    AppliedEvent,
    Checkpoint,
    Histories,
    Pending,
    PendingBatch,
)
from streams.worker.checkpoint.deaths import MOST_DEATHS, Deaths
from streams.worker.checkpoint.event_logs import EventLogs, LogGaps
from streams.worker.checkpoint.loader import EngineFailed, SiteLoader
from streams.worker.checkpoint.store import SiteStore
from streams.worker.checkpoint.stored import MOST_FAILURES, Log, SiteHandle, Table
from streams.worker.checkpoint.table import OwnedTable, Retries, Revoked, StoredSites, Token
from streams.worker.intake.intake import Intake, arrived, change, note, rebuilt_lately
from streams.worker.intake.messages import Told, Unreadable
from streams.worker.ownership.lanes import Lanes, site_of_message
from streams.worker.ownership.outbox import Outbox
from streams.worker.ownership.sites import PartitionSites

log = logging.getLogger(__name__)

Work = Callable[[], Awaitable[None]]
"""What a task does; called when the task begins."""

FIRST_S = 1.0
"""Seconds within which a partition that comes begins to read its sites back before it serves any."""

HAND_OVER_S = 5.0
"""Seconds that a last checkpoint may take when a partition is revoked."""

MOST_WAITING = 10_000
"""Messages that wait in all partitions at most; some 5 MB. While there are so many, no further one is taken."""

CLAIMS_AT_A_TIME = 8
"""Sites that are claimed in Redis at a time."""

EVENTS_PER_TURN = 16
"""Events of a bundle that are applied before the loop may do something else: some milliseconds."""

READ_AT_A_TIME = 2
"""Sites that are read back at a time while nothing else is done: one's entries come from Redis meanwhile."""


@dataclass
class Means:
    """What the partitions of a worker have in common.

    `store` makes a store that asks a token, `alive` raises where the process may write nothing any more, `supervised`
    runs a task whose error stops the worker, `clock` is a steady one in seconds. `room` bounds how many messages wait.
    So many sites at a time are claimed (`claiming`), read back before a partition is served (`reading_first`), and
    after that (`reading`).
    """

    settings: Settings
    table: Table
    store: Callable[[Token], SiteStore]
    events: EventLogs
    intake: Intake
    outbox: Outbox
    alive: Callable[[], None]
    supervised: Callable[[Work], Awaitable[None]]
    clock: Callable[[], float] = time.monotonic
    compressing: Executor = field(default_factory=lambda: ThreadPoolExecutor(1, "checkpoint"))
    room: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MOST_WAITING))
    claiming: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(CLAIMS_AT_A_TIME))
    reading_first: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(READ_AT_A_TIME))
    reading: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(1))


class OwnedPartition:
    """One partition of the events, from its assignment until it is revoked.

    All that is done for it is done in one task scope, and all that is written asks its token. So once `revoke` has
    returned nothing more happens here, and the next owner may begin. What fails in the scope stops the worker.

    Its messages are processed one by one. Those of a site that has to wait (for a training, to be read back, or to be
    mended) wait in a lane of their own, and the others pass them by; so each site's messages keep their order. No
    checkpoint counts a message that waits, and nothing after it is acknowledged, so it is delivered again after a
    crash.

    Parameters:
        stored: what the table has of it.
    """

    def __init__(self, number: int, means: Means, stored: StoredSites) -> None:
        self.number = number
        self.checkpointed: float | None = None  # when the last checkpoint ended, Unix seconds
        self._means = means
        self._stored: StoredSites | None = stored
        settings, self.token = means.settings, Token(number, means.alive)
        self._intake, self._outbox = means.intake, means.outbox
        self._table = OwnedTable(means.table, self.token)
        self._retries = Retries(self.token.check)
        store = means.store(self.token)
        loader = SiteLoader(store, settings.engine, self._retries, means.events, self._table.get, self._intake.replay)
        worker = settings.worker
        self._deaths = Deaths(number, store, self._retries, worker.checkpoint_events)
        self._histories = Histories(store, loader, self._retries, lambda site: self._table.get(site.encode()))
        self._pending = Pending(worker.checkpoint_events, worker.checkpoint_seconds, means.clock)
        self.sites = PartitionSites(
            number,
            self._table,
            loader,
            LogGaps(means.events, self._retries, self._table),
            self._pending,
            self._begin,
            worker.partition_sites,
            settings.sites.forget_days * DAY_S,
        )
        self._next: dict[str, int] = {}  # the offset of the next event, by topic
        self._lanes = Lanes(means.room)
        self._acknowledgements = Acknowledgements()
        self._mending: set[asyncio.Task[None]] = set()  # sites whose engines failed
        self._one = asyncio.Lock()  # an event and the beginning of a checkpoint take turns
        self._running: tuple[PendingBatch, asyncio.Task[None]] | None = None  # a checkpoint
        self._due: asyncio.Task[None] | None = None  # begins one
        self._begun, self._leaving = asyncio.Event(), asyncio.Event()
        self._scope = asyncio.TaskGroup()
        self._life = asyncio.ensure_future(means.supervised(self._live))
        self._life.add_done_callback(_known)

    # --- its life ---

    async def _live(self) -> None:
        """From the first claim to the last checkpoint. This is where a void token ends what was under way."""
        try:
            async with self._scope:
                stored, self._stored = self._stored, None
                assert stored is not None
                await self._deaths.begin()
                await self.sites.take_over(stored, self._means.claiming)
                await self.sites.read_back(self._means.reading_first, FIRST_S)
                self._begun.set()
                self._begin(partial(self.sites.read_back, self._means.reading))
                self._begin(self._work_off)
                await self._leaving.wait()
                async with self._one:
                    await self._checkpoint()
                await self._deaths.ended()
                self.token.revoke()
                raise Revoked("the partition is handed over")
        except BaseExceptionGroup as failed:
            for error in failed.exceptions:
                if not isinstance(error, Revoked):
                    raise error from None
        finally:
            self.token.revoke()

    def _begin(self, work: Work) -> "asyncio.Task[None]":
        return self._scope.create_task(self._revoking_on_error(work))

    async def _revoking_on_error(self, work: Work) -> None:
        """Do work after whose failure nothing more is written, nor begun in the scope."""
        try:
            await work()
        except Exception:
            self.token.revoke()
            raise

    async def begun(self) -> None:
        """Done when the partition is served, or will never be."""
        begun = asyncio.ensure_future(self._begun.wait())
        await asyncio.wait([begun, self._life], return_when=asyncio.FIRST_COMPLETED)
        begun.cancel()

    async def revoke(self) -> None:
        """Make a last checkpoint, if there is time; when this returns, nothing more is done for the partition."""
        self._lanes.clear()
        if self._begun.is_set():
            self._leaving.set()
            await asyncio.wait([self._life], timeout=HAND_OVER_S)
        if not self._life.done():
            log.warning("no last checkpoint; the next owner will see those events again", extra=self._where)
        self.token.revoke()
        self._life.cancel()
        await asyncio.wait([self._life])
        self._lanes.clear()
        self._running = None
        self.sites.handles.clear()  # engines are large, and not to be kept until Python looks for cycles

    @property
    def is_served(self) -> bool:
        """Whether its messages are processed, and questions about its sites answered."""
        return self._begun.is_set() and not self._leaving.is_set() and not self.token.void

    @property
    def obstacle(self) -> str | None:
        """The server that is being waited for, and its error; None while there is none."""
        return self._retries.obstacle

    @property
    def since(self) -> float | None:
        """When the oldest event came that is not durable yet, on the worker's clock; None where there is none."""
        return self._pending.since if self._running is None else self._running[0].since

    @property
    def _where(self) -> dict[str, int]:
        return {"partition": self.number}

    # --- its messages ---

    def __len__(self) -> int:
        return len(self._lanes)

    def put(self, message: faust.EventT) -> None:
        """Have a message processed in its turn."""
        self._acknowledgements.take(message)
        self._lanes.put(message)

    async def _work_off(self) -> None:
        while True:
            message = await self._lanes.next()
            async with self._one:
                await self._look_for_gap(message.message)
                if (awaited := self._awaited(message)) is not None:
                    self._lanes.hold(message, awaited)
                elif self._lanes.waiting and not self.sites.knows(site_of_message(message)):
                    self._lanes.hold_all(message)  # which site gives its place to a new one follows from all before it
                else:
                    await self._process(message)
                    self._lanes.done()
            await asyncio.sleep(0)  # a backlog must not hold up what else the loop has to do

    def _awaited(self, message: faust.EventT) -> "asyncio.Future[Any] | None":
        """What a message has to wait for before it can be processed."""
        site = site_of_message(message)
        handle = self.sites.handles.get(site)
        awaited: Any = self.sites.reading(site) if handle is None else handle.engine.pending()
        return asyncio.wrap_future(awaited) if isinstance(awaited, Future) else awaited

    async def _look_for_gap(self, raw: Any) -> None:
        """Notice offsets that were passed over: events may have been deleted while this worker was behind."""
        self.token.check()
        expected = self._next.get(raw.topic, raw.offset)
        if raw.offset > expected:
            await self.sites.look_for_gap(Log(self._intake.places.owner(raw.topic), self.number), expected, raw.offset)
        self._next[raw.topic] = max(expected, raw.offset + 1)  # one that has waited is looked at twice

    async def _process(self, message: faust.EventT) -> None:
        """Take one message in: what followed from it is on its way to the broker, and pending."""
        raw, operated, sends = message.message, False, list[Awaitable[Any]]()
        try:
            if not await self._deaths.may(raw):
                self.sites.pass_over(site_of_message(message), raw)
                raise Unreadable("poison", f"{MOST_DEATHS} workers have died on it")
            what, own = self._intake.read(raw)
            going = self._running[0].gone if self._running is not None else ()
            if what.site in self._pending.gone or what.site in going:  # and comes back: all of it is deleted first
                await self._checkpoint()
            if isinstance(what, AnyOperation):
                await self._operate(what, own, raw)
                operated = True
            else:
                handle = await self.sites.admit(what.site, own, raw.timestamp)
                if raw.offset > handle.offset:  # else its state includes it already
                    sends = await self._apply(what, handle, raw)
        except EngineFailed as error:
            self._lanes.hold_site(error.site, self._mend(message, error))
            return
        except Unreadable as error:
            sends = [await self._outbox.reject(error.reason, error.detail, None, raw)]
        self._is_processed(message, sends)
        if operated or self._deaths.checkpoint_events == 1:  # durable at once
            await self._checkpoint()
        elif self._pending.batch.size >= self._deaths.checkpoint_events:
            await self._begin_checkpoint()

    def _is_processed(self, message: faust.EventT, sends: list[Awaitable[Any]]) -> None:
        self._outbox.note_read(message.message)
        self._pending.batch.events.append(message)
        self._pending.batch.sends.extend(sends)

    async def _apply(self, told: Told, handle: SiteHandle, raw: Any) -> list[Awaitable[Any]]:
        """Apply an event, or a bundle of them, to its site's engine; gives the outputs, on their way.

        Raises:
            EngineFailed: half of it may be applied.
            Unreadable: the engine has failed too often at events of its site.
        """
        self._intake.unknown_fields.look(told, raw.value)
        if handle.is_set_aside(raw.timestamp):
            self.sites.pass_over(told.site, raw)
            raise Unreadable("set_aside", f"the engine failed at {MOST_FAILURES} events of this site within an hour")
        events, records = events_of(told), []
        for number, event in enumerate(events):
            try:
                records.append(handle.engine.apply(event, arrived(raw)))
            except Exception as error:  # a fault of ours must neither stop the other sites nor stay unseen
                log.exception("the engine failed", extra={"site": told.site, **self._where, "offset": raw.offset})
                raise EngineFailed(told.site, repr(error)) from None
            if number % EVENTS_PER_TURN == EVENTS_PER_TURN - 1:
                await asyncio.sleep(0)
        self._pending.batch.applied.extend(AppliedEvent(event, raw.offset, arrived(raw)) for event in events)
        sends = list[Awaitable[Any]]()
        for event, found in zip(events, records, strict=True):
            sends.extend(await self._outbox.send(event, found, raw, alone=event is told))
        handle.passed(raw.offset, raw.timestamp)
        self._pending.batch.sites.add(told.site)
        return sends

    def _mend(self, message: faust.EventT, error: EngineFailed) -> "asyncio.Task[None]":
        """Begin to make a site as it was before the event at which its engine failed, which is rejected.

        Its further events wait for that, those of others do not. No checkpoint may begin meanwhile: it would
        acknowledge events of the site that no state includes.
        """
        site, raw = error.site, message.message

        async def mend() -> None:
            await self._end_of_checkpoint()
            failures = self.sites.handles[site].failures
            handle = await self.sites.rebuild(site, self._pending.batch.applied)
            handle.failures = failures
            handle.failed(raw.timestamp)
            sends = [await self._outbox.reject("engine_failed", error.detail, site, raw)]
            handle.passed(raw.offset, raw.timestamp)
            self._pending.batch.sites.add(site)
            self._is_processed(message, sends)
            self._mending.discard(task)

        task = self._begin(mend)
        self._mending.add(task)
        return task

    async def _operate(self, operation: AnyOperation, own: bool, raw: Any) -> None:
        """Change a site as an operator says.

        Raises:
            Unreadable: there is no such site here, it was rebuilt a short time ago, or that failed.
        """
        site = operation.site
        if not self.sites.knows(site):
            raise Unreadable("unknown_site", "an operation for a site of which no event has come")
        handle = await self.sites.get(site, own)
        if raw.offset > handle.offset:
            if isinstance(operation, BeginAnew):
                await self._end_of_checkpoint()
                handle = await self.sites.replace(handle, begun_anew(handle.engine))
                note(handle, operation, raw.timestamp, "begun anew: nothing is learnt yet")
            elif not isinstance(operation, Rebuild):
                note(handle, operation, raw.timestamp, change(handle.engine, operation))
            elif rebuilt_lately(handle, raw.timestamp):
                raise Unreadable("rebuilt_lately", "the site was rebuilt less than ten minutes before")
            else:
                await self._end_of_checkpoint()
                try:
                    handle, count = await self.sites.begin_again(handle, raw.offset)
                except EngineFailed as error:
                    raise Unreadable("engine_failed", error.detail) from None
                note(handle, operation, raw.timestamp, f"made again from {count} messages", rebuilt=True)
            handle.offset = raw.offset
        self._pending.batch.sites.add(site)

    # --- its checkpoints ---

    def checkpoint_due(self) -> None:
        """Begin a checkpoint if one is due and none is running."""
        if not self.is_served or self._running is not None or self._mending or not self._pending.due:
            return
        if self._due is None or self._due.done():
            self._due = self._begin(self._checkpoint_in_turn)

    async def _checkpoint_in_turn(self) -> None:
        async with self._one:
            if self._pending.due:
                await self._begin_checkpoint()

    async def _checkpoint(self) -> None:
        """Make everything durable that followed from the pending events, then acknowledge them."""
        await self._begin_checkpoint()
        await self._end_of_checkpoint()

    async def _begin_checkpoint(self) -> None:
        """Begin a checkpoint of the partition as it is now, after the end of an earlier one."""
        await self._end_of_checkpoint()
        while self._mending:
            await asyncio.wait(self._mending)
        if (batch := self._pending.take()) is not None:
            checkpoint = Checkpoint(batch, self.sites.handles, self.token)
            self._running = batch, self._begin(partial(self._run, checkpoint))

    async def _run(self, checkpoint: Checkpoint) -> None:
        await checkpoint.run(self._table, self._histories, self._means.compressing, self._acknowledgements)
        self.checkpointed = time.time()
        await self._deaths.survived()
        self._running = None

    async def _end_of_checkpoint(self) -> None:
        if self._running is not None:
            await self._running[1]


def _known(life: "asyncio.Future[None]") -> None:
    """What stopped the worker is known by now; else asyncio would tell of it once more."""
    if not life.cancelled():
        life.exception()
