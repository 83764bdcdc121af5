"""Process the messages of a partition, event by event."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Collection, Iterator
from concurrent.futures import Future
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Any

from models.records import AnyEvent, AnyOperation, Heartbeat, Rebuild, ResetSite
from streams.broker.fetched import Fetched
from streams.worker.checkpoint.checkpoint import EngineInput
from streams.worker.checkpoint.crashes import MAX_CRASHES, Place, place_of
from streams.worker.checkpoint.loader import EVENTS_PER_TURN, EngineFailed
from streams.worker.checkpoint.owned_table import OwnershipToken
from streams.worker.checkpoint.stored_site import MOST_FAILURES, PartitionLog, SiteHandle
from streams.worker.intake.intake import Intake, arrived, note, rebuilt_lately
from streams.worker.intake.messages import EventPart, SiteMessage, Unreadable
from streams.worker.ownership.checkpoints import Checkpoints
from streams.worker.ownership.operations import RebuildResult, change_site
from streams.worker.ownership.outbox import Outbox
from streams.worker.ownership.partition_sites import EvictionPending, PartitionSites
from streams.worker.ownership.runs import RunBudget
from streams.worker.ownership.site_queues import SiteQueues

log = logging.getLogger(__name__)
MAX_GAPS = 16  # maximum number of recorded gaps per topic
TURN_S = 0.02  # maximum duration of a bundle's turn, seconds


class Pause(Enum):
    """Reason why the rest of a message goes back to the queue although it waits for nothing."""

    OTHERS_TURN = "others' turn"


# What the rest of a message waits for; None if all is processed.
Rest = asyncio.Future[Any] | Pause | EvictionPending | None


@dataclass
class Processing:
    """Process the messages of a partition one by one, and the events of a bundle one by one.

    Between two events a site's state can be stored, the site may have to wait, and a rejected event does not affect the
    others. So a bundle has the same effect as its events in separate messages.

    Args:
        rebuilding: Limits the concurrent rebuilds of this worker.
        runs: Limits the messages between two turns of the loop's other tasks.
    """

    token: OwnershipToken
    queues: SiteQueues
    sites: PartitionSites
    checkpoints: Checkpoints
    intake: Intake
    outbox: Outbox
    rebuilding: asyncio.Semaphore
    runs: RunBudget
    _next: dict[str, int] = field(default_factory=dict, init=False)  # the offset of the next event, by topic
    _passed_over: list[tuple[str, int, int]] = field(default_factory=list, init=False)
    _gaps: dict[str, list[int]] = field(default_factory=dict, init=False)  # the offset after each gap, by topic
    _rebuild_results: dict[str, RebuildResult] = field(default_factory=dict, init=False)
    _prepared: dict[str, Place] = field(default_factory=dict, init=False)  # the prepared event of each site

    @property
    def preparing(self) -> Collection[str]:
        """Sites with an event whose slow part has begun, and which is not applied yet."""
        return self._prepared.keys()

    def arrived(self, message: Fetched) -> None:
        """Record the offset of a new message; skipped offsets may be deleted events."""
        expected = self._next.get(message.topic, message.offset)
        if message.offset > expected:
            self._passed_over.append((message.topic, expected, message.offset))
        self._next[message.topic] = max(expected, message.offset + 1)

    async def process_all(self) -> None:
        """Process messages in an endless loop.

        The states were read some time before the committed offsets at which the messages begin. If this process is
        still a member of the group when it has the first message, no other worker has committed an offset in between.
        """
        message: Fetched | None = await self.queues.next()
        await self.sites.loader.confirm_membership()
        while True:
            with self.runs.active():
                while message is not None:
                    async with self.checkpoints.turn:
                        await self._process_run(message)
                    await asyncio.sleep(0)  # a backlog must not delay other tasks
                    message = self.queues.poll()
            message = await self.queues.next()

    async def _process_run(self, message: Fetched | None) -> None:
        """Process a run of messages from this one on, or fewer if none is left."""
        for _ in self.runs.run():
            if message is None and (message := self.queues.poll()) is None:
                return
            self.token.check()
            await self._check_gaps()
            if (awaited := self._awaited(message)) is not None:
                self.queues.hold(awaited)
            else:
                await self._process(message)
            message = None

    def _awaited(self, message: Fetched) -> "asyncio.Future[Any] | None":
        """Return what a message has to wait for; None if it can be processed."""
        site = (message.key or b"").decode(errors="replace")
        handle = self.sites.handles.get(site)
        return self.sites.reading(site) if handle is None else _pending(handle)

    async def _check_gaps(self) -> None:
        """Check skipped offsets, and notify the sites if events were deleted before this worker read them."""
        while self._passed_over:
            topic, expected, found = self._passed_over.pop()
            place = PartitionLog(self.intake.places.owner(topic), self.token.partition)
            if await self.sites.has_gap(place, expected, found):
                self._gaps[topic] = [*self._gaps.get(topic, ()), found][-MAX_GAPS:]

    def _notice_gaps(self, handle: SiteHandle, raw: Fetched) -> None:
        """Notify a site of missing events when it reaches a message behind a gap."""
        for found in self._gaps.get(raw.topic, ()):
            if 0 <= handle.offset < found <= raw.offset:
                self.sites.pass_over(handle.engine.site)

    async def _process(self, message: Fetched) -> None:
        """Process one message, or a part of it if its site has to wait or others have their turn."""
        operated, rest = False, None
        try:
            what, own = self.intake.read(message)
            if self.checkpoints.is_evicting(what.site):  # a returning site: finish its deletion first
                await self.checkpoints.make()
            if isinstance(what, AnyOperation):
                rest, operated = await self._operate_carefully(what, own, message), True
            else:
                rest = await self._take_in(what, own, message)
            if isinstance(rest, Pause):
                return self.queues.again()
            if isinstance(rest, EvictionPending):
                return self.queues.follow(rest.site)
            if rest is not None:
                return self.queues.hold(rest)
        except Unreadable as error:
            self._followed(await self.outbox.reject(error.reason, error.detail, None, message))
        self.outbox.note_read(message)
        self.sites.note_activity(message)
        self.checkpoints.pending.batch.messages.append(message)
        self.queues.done()
        if operated:
            await self.checkpoints.make()
        else:
            await self.checkpoints.after_event()

    def _followed(self, *sends: Awaitable[Any]) -> None:
        """Record an event as processed, with the records that are being sent."""
        batch = self.checkpoints.pending.batch
        batch.events += 1
        for send in sends:
            if (
                not batch.sends or batch.sends[-1] is not send
            ):  # records of one batch of the producer share their future
                batch.sends.append(send)

    def _passed(self, handle: SiteHandle, raw: Fetched, applied_parts: int, *sends: Awaitable[Any]) -> None:
        """Record an event as applied or rejected in its site, with the records that are being sent."""
        handle.passed(raw.offset, raw.timestamp, applied_parts)
        self.checkpoints.pending.batch.sites.add(handle.engine.site)
        self._followed(*sends)

    async def _take_in(self, message: SiteMessage, own: bool, raw: Fetched) -> Rest:
        """Apply the events that are not in the site's state yet, and send their results.

        Returns:
            What the next event waits for; None if all are processed.

        Raises:
            Unreadable: The partition has no room for the site.
        """
        if not self.sites.knows(message.site) and all(isinstance(part.found, Heartbeat) for part in message.parts):
            return None  # a silent site takes no place in a full partition
        try:
            handle = await self.sites.admit(message.site, own, raw)
        except EvictionPending as before:
            return before
        if not handle.is_to_apply(raw.offset):
            return None
        self._notice_gaps(handle, raw)
        first, count, since = handle.next_part(raw.offset), len(message.parts), time.perf_counter()
        for number in range(first, count):
            if number > first:
                await self.checkpoints.after_event()
                if time.perf_counter() - since > TURN_S:
                    return Pause.OTHERS_TURN
                if number % EVENTS_PER_TURN == 0:
                    await asyncio.sleep(0)
                if (awaited := _pending(handle)) is not None:
                    return awaited
            part, applied_parts = message.parts[number], (number + 1) % count
            try:
                if self.checkpoints.crashes.has_no_suspect:
                    if (preparation := self._prepare(part.event, handle, place_of(raw, number))) is not None:
                        return preparation
                    self.checkpoints.crashes.count(self.queues.is_any_blocked)
                    awaited = await self._apply_or_repair(part, handle, raw, applied_parts)
                else:
                    async with self._careful(raw, handle, number):
                        awaited = await self._apply_or_repair(part, handle, raw, applied_parts)
                if awaited is not None:
                    return awaited
            except Unreadable as error:
                await self._reject(error, part, handle, raw, applied_parts)
        return None

    def _prepare(self, event: AnyEvent, handle: SiteHandle, place: Place) -> "asyncio.Task[None] | None":
        """Start the slow part of an event, which only its own site waits for; None if there is nothing left to do.

        While workers search for the cause of crashes, the event is applied in one step, which is tracked.
        """
        site = handle.engine.site
        if self._prepared.pop(site, None) == place or (steps := handle.engine.prepare(event)) is None:
            return None
        self._prepared[site] = place
        return self.sites.begin(partial(self._prepare_in_turns, site, steps))

    async def _prepare_in_turns(self, site: str, steps: Iterator[None]) -> None:
        """Run the slow part of an event; an error in it will be that of the event, which is applied next."""
        try:
            await self.sites.loader.in_turns(steps)
        except Exception:
            log.exception("Cannot prepare an event of site %s", site)

    async def _reject(self, error: Unreadable, part: EventPart, handle: SiteHandle, raw: Fetched, applied: int) -> None:
        """Send an event to the dead letters; its site counts it as processed."""
        letter = await self.outbox.reject(error.reason, error.detail, handle.engine.site, raw, part=part)
        self._passed(handle, raw, applied, letter)

    async def _apply_or_repair(
        self, part: EventPart, handle: SiteHandle, raw: Fetched, applied_parts: int
    ) -> "asyncio.Task[None] | None":
        """Apply an event; begin a checkpoint if workers crash. Return the repair task if the engine failed."""
        try:
            await self._apply(part, handle, raw, applied_parts)
        except EngineFailed as error:
            return self._repair(error, part, raw, applied_parts)
        except Unreadable as error:
            await self._reject(error, part, handle, raw, applied_parts)
        if self.checkpoints.crashes.is_careful:
            await self.checkpoints.begin_one()  # storing the result of the event may cause the crash
        return None

    async def _operate_carefully(self, operation: AnyOperation, own: bool, raw: Fetched) -> Rest:
        """Run `_operate` with crash tracking; a rejected operation is not a crash."""
        refused: Unreadable | None = None
        handle = await self.sites.get(operation.site, own) if self.sites.knows(operation.site) else None
        async with self._careful(raw, handle):
            try:
                rest = await self._operate(operation, own, raw)
            except Unreadable as error:
                refused = error
            else:
                if rest is None and self.checkpoints.crashes.is_careful:
                    await self.checkpoints.begin_one()  # storing the result may cause the crash
                return rest
        raise refused

    @asynccontextmanager
    async def _careful(self, raw: Fetched, handle: SiteHandle | None, number: int | None = None) -> AsyncIterator[None]:
        """Track work that may crash workers: an event of a message by its number, or an operation.

        Raises:
            Unreadable: Workers have crashed on it.
        """
        crashes = self.checkpoints.crashes
        crashes.count(self.queues.is_any_blocked)
        async with crashes.doing(place_of(raw, number or 0)) as may:
            if not may:
                if handle is not None and handle.is_to_apply(raw.offset):  # not again when it is redelivered
                    self.sites.pass_over(handle.engine.site)
                    if number is None:
                        handle.offset = raw.offset
                raise Unreadable("poison", f"{MAX_CRASHES} workers have crashed on it")
            yield

    async def _apply(self, part: EventPart, handle: SiteHandle, raw: Fetched, applied_parts: int) -> None:
        """Apply an event to its site's engine, and send its results.

        Raises:
            EngineFailed: The event may be partly applied.
            Unreadable: The event is not valid, or the engine has failed too often at events of its site.
        """
        event, site = part.event, handle.engine.site
        self.intake.unknown_fields.look(event, part.value)
        if handle.is_set_aside(raw.timestamp):
            self.sites.pass_over(site)
            raise Unreadable("set_aside", f"the engine failed at {MOST_FAILURES} events of this site within an hour")
        try:
            records = handle.engine.apply(event, arrived(raw))
        except Exception as error:  # a bug must not stop the other sites, but must be logged
            where = {"site": site, "partition": self.token.partition, "offset": raw.offset}
            log.exception("the engine failed", extra=where)
            raise EngineFailed(site, repr(error)) from None
        self.checkpoints.pending.batch.applied.append(EngineInput(site, event, arrived(raw)))
        self._passed(handle, raw, applied_parts, *await self.outbox.send(event, records, raw, part))

    def _repair(self, error: EngineFailed, part: EventPart, raw: Fetched, applied_parts: int) -> "asyncio.Task[None]":
        """Start to restore a site to its state before the event at which its engine failed, and reject this event.

        The site's later events wait for it; those of other sites do not. No checkpoint may begin meanwhile.
        """
        site, checkpoints = error.site, self.checkpoints

        async def repair(failed: SiteHandle) -> SiteHandle:
            await checkpoints.end()
            handle = await self.sites.rebuild(failed, checkpoints.pending.batch.applied)
            handle.failed(raw.timestamp)
            letter = await self.outbox.reject("engine_failed", error.detail, site, raw, part=part)
            self._passed(handle, raw, applied_parts, letter)
            checkpoints.repairing.discard(task)
            return handle

        task = self.sites.replace_handle(site, repair)
        checkpoints.repairing.add(task)
        return task

    async def _operate(self, operation: AnyOperation, own: bool, raw: Fetched) -> Rest:
        """Apply an operator's change to a site.

        Returns:
            What the rest of the operation waits for; None if it is done.

        Raises:
            Unreadable: The site is unknown, was rebuilt a short time ago, or the operation failed.
        """
        site = operation.site
        if not self.sites.knows(site):
            raise Unreadable("unknown_site", "an operation for a site of which no event has come")
        handle = await self.sites.get(site, own)
        if raw.offset > handle.offset:
            if not isinstance(operation, ResetSite | Rebuild):
                note(handle, operation, raw.timestamp, change_site(handle, operation))
            elif (result := self._rebuild_results.pop(site, None)) is not None and result.offset == raw.offset:
                note(handle, operation, raw.timestamp, result.describe(), rebuilt=True)
            elif rebuilt_lately(handle, operation, raw.timestamp):
                raise Unreadable("rebuilt_lately", "the site was rebuilt or reset less than ten minutes before")
            else:
                await self.checkpoints.make()  # store pending events: the site may be absent for several checkpoints
                return self.sites.replace_handle(site, partial(self._recreate, operation, raw))
            handle.offset = raw.offset
        self.checkpoints.pending.batch.sites.add(site)
        return None

    async def _recreate(self, operation: ResetSite | Rebuild, raw: Fetched, handle: SiteHandle) -> SiteHandle:
        """Recreate a site in the background, one site of this worker at a time.

        A rebuild applies the site's earlier events again, even one that has crashed workers. Workers then crash on the
        operation, which is rejected like an event.
        """
        async with self.rebuilding, self.checkpoints.crashes.doing(place_of(raw, 0)):
            try:
                fresh, done = await self._recreated(operation, raw.offset, handle)
            except EngineFailed as error:
                fresh, done, failed = handle, error.detail, True
            else:
                failed = False
        self._rebuild_results[operation.site] = RebuildResult(raw.offset, done, failed)
        return fresh

    async def _recreated(
        self, operation: ResetSite | Rebuild, offset: int, handle: SiteHandle
    ) -> tuple[SiteHandle, str]:
        """Return the site's new handle, and a description of the change.

        Raises:
            EngineFailed: The engine failed at an event.
        """
        if isinstance(operation, ResetSite):
            return await self.sites.loader.reset(handle), "reset: learning restarts"
        fresh, count = await self.sites.loader.rebuild(handle, offset)
        return fresh, f"rebuilt from {count} messages"


def _pending(handle: SiteHandle) -> "asyncio.Future[Any] | None":
    """Return what the site's next event has to wait for; None if nothing."""
    awaited: Future[Any] | None = handle.engine.pending()
    return None if awaited is None else asyncio.wrap_future(awaited)
