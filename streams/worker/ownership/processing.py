"""Takes in the messages of a partition, event by event."""

import asyncio
import logging
from collections.abc import Awaitable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import faust

from models.engine.operations import begun_anew, operate
from models.records import AnyOperation, BeginAnew, ForgetJob, Rebuild, SetCapacity, UsePrior
from streams.worker.checkpoint.checkpoint import AppliedEvent
from streams.worker.checkpoint.deaths import MOST_DEATHS
from streams.worker.checkpoint.loader import EVENTS_PER_TURN, EngineFailed
from streams.worker.checkpoint.stored import MOST_FAILURES, Log, SiteHandle
from streams.worker.checkpoint.table import Token
from streams.worker.intake.intake import Intake, arrived, note, rebuilt_lately
from streams.worker.intake.messages import EventPart, SiteMessage, Unreadable
from streams.worker.ownership.checkpoints import Checkpoints
from streams.worker.ownership.lanes import Lanes, site_of_message
from streams.worker.ownership.outbox import Outbox
from streams.worker.ownership.sites import PartitionSites

log = logging.getLogger(__name__)


@dataclass
class Processing:
    """Processes the messages of a partition one by one, and the events of a bundle one by one.

    Between two events the state of a site can be stored, the site may have to wait, and one that is refused costs none
    of the others. So a bundle does what its events do in messages of their own.
    """

    token: Token
    lanes: Lanes
    sites: PartitionSites
    checkpoints: Checkpoints
    intake: Intake
    outbox: Outbox
    _next: dict[str, int] = field(default_factory=dict, init=False)  # the offset of the next event, by topic

    async def work_off(self) -> None:
        """Process the messages that come, without end."""
        while True:
            message = await self.lanes.next()
            async with self.checkpoints.turn:
                await self._look_for_gap(message.message)
                if (awaited := self._awaited(message)) is not None:
                    self.lanes.hold(message, awaited)
                elif self.lanes.waiting and not self.sites.knows(site_of_message(message)):
                    self.lanes.hold_all(message)  # which site gives its place to a new one follows from all before it
                else:
                    await self._process(message)
            await asyncio.sleep(0)  # a backlog must not hold up what else the loop has to do

    def _awaited(self, message: faust.EventT) -> "asyncio.Future[Any] | None":
        """What a message has to wait for before it can be processed."""
        site = site_of_message(message)
        handle = self.sites.handles.get(site)
        return self.sites.reading(site) if handle is None else _pending(handle)

    async def _look_for_gap(self, raw: Any) -> None:
        """Notice offsets that were passed over: events may have been deleted while this worker was behind."""
        self.token.check()
        expected = self._next.get(raw.topic, raw.offset)
        if raw.offset > expected:
            place = Log(self.intake.places.owner(raw.topic), self.token.partition)
            await self.sites.look_for_gap(place, expected, raw.offset)
        self._next[raw.topic] = max(expected, raw.offset + 1)  # one that has waited is looked at twice

    async def _process(self, message: faust.EventT) -> None:
        """Take one message in, or so much of it as goes before its site has to wait."""
        raw, operated = message.message, False
        try:
            what, own = self.intake.read(raw)
            if self.checkpoints.is_going(what.site):  # and comes back: all of it is deleted first
                await self.checkpoints.make()
            if isinstance(what, AnyOperation):
                await self._make_sure(raw, what.site)
                await self._operate(what, own, raw)
                operated = True
            elif (awaited := await self._take_in(what, own, raw)) is not None:
                self.lanes.hold(message, awaited)
                return
        except Unreadable as error:
            self._followed(await self.outbox.reject(error.reason, error.detail, None, raw))
        self.outbox.note_read(raw)
        self.checkpoints.pending.batch.messages.append(message)
        self.lanes.done()
        if operated:
            await self.checkpoints.make()
        else:
            await self.checkpoints.after_event()

    def _followed(self, *sends: Awaitable[Any]) -> None:
        """An event is processed, and this is on its way to the broker."""
        batch = self.checkpoints.pending.batch
        batch.events += 1
        batch.sends.extend(sends)

    def _passed(self, handle: SiteHandle, raw: Any, begun: int, *sends: Awaitable[Any]) -> None:
        """An event is applied, or refused, which its site counts too; and this is on its way to the broker."""
        handle.passed(raw.offset, raw.timestamp, begun)
        self.checkpoints.pending.batch.sites.add(handle.engine.site)
        self._followed(*sends)

    async def _take_in(self, told: SiteMessage, own: bool, raw: Any) -> "asyncio.Future[Any] | None":
        """Take in the events that are not in the site's state yet; what they led to is on its way, and pending.

        Returns:
            What has to be waited for before the next one; None where all are processed.

        Raises:
            Unreadable: there is no room for the site.
        """
        handle = await self.sites.admit(told.site, own, raw.timestamp)
        if not handle.is_to_apply(raw.offset):
            return None
        first, count = handle.next_part(raw.offset), len(told.parts)
        for number in range(first, count):
            if number > first:
                await self.checkpoints.after_event()
                if number % EVENTS_PER_TURN == 0:
                    await asyncio.sleep(0)
                if (awaited := _pending(handle)) is not None:
                    return awaited
            part, begun = told.parts[number], (number + 1) % count
            try:
                await self._make_sure(raw, told.site, number)
                await self._apply(part, handle, raw, begun)
            except EngineFailed as error:
                return self._mend(error, part, raw, begun)
            except Unreadable as error:
                letter = await self.outbox.reject(error.reason, error.detail, told.site, raw, part=part)
                self._passed(handle, raw, begun, letter)
        return None

    async def _make_sure(self, raw: Any, site: str, number: int = 0) -> None:
        """Make sure that no workers have died on an event. Raises Unreadable: they have."""
        if not await self.checkpoints.deaths.may(raw, number, bool(self.lanes.waiting)):
            self.sites.pass_over(site)
            raise Unreadable("poison", f"{MOST_DEATHS} workers have died on it")

    async def _apply(self, part: EventPart, handle: SiteHandle, raw: Any, begun: int) -> None:
        """Apply an event to its site's engine, and send what it leads to.

        Raises:
            EngineFailed: half of it may be applied.
            Unreadable: it is no event, or the engine has failed too often at events of its site.
        """
        event, site = part.event, handle.engine.site
        self.intake.unknown_fields.look(event, part.value)
        if handle.is_set_aside(raw.timestamp):
            self.sites.pass_over(site)
            raise Unreadable("set_aside", f"the engine failed at {MOST_FAILURES} events of this site within an hour")
        try:
            records = handle.engine.apply(event, arrived(raw))
        except Exception as error:  # a fault of ours must neither stop the other sites nor stay unseen
            where = {"site": site, "partition": self.token.partition, "offset": raw.offset}
            log.exception("the engine failed", extra=where)
            raise EngineFailed(site, repr(error)) from None
        self.checkpoints.pending.batch.applied.append(AppliedEvent(event, arrived(raw)))
        self._passed(handle, raw, begun, *await self.outbox.send(event, records, raw, part))

    def _mend(self, error: EngineFailed, part: EventPart, raw: Any, begun: int) -> "asyncio.Task[None]":
        """Begin to make a site as it was before the event at which its engine failed, which is rejected.

        Its further events wait for that, those of others do not. No checkpoint may begin meanwhile.
        """
        site, checkpoints = error.site, self.checkpoints

        async def mend(failed: SiteHandle) -> SiteHandle:
            await checkpoints.end()
            handle = await self.sites.rebuild(failed, checkpoints.pending.batch.applied)
            handle.failed(raw.timestamp)
            letter = await self.outbox.reject("engine_failed", error.detail, site, raw, part=part)
            self._passed(handle, raw, begun, letter)
            checkpoints.mending.discard(task)
            return handle

        task = self.sites.mend(site, mend)
        checkpoints.mending.add(task)
        return task

    async def _operate(self, operation: AnyOperation, own: bool, raw: Any) -> None:
        """Change a site as an operator says. Raises Unreadable: there is no such site here, it was rebuilt a short time
        ago, or that failed.
        """
        site = operation.site
        if not self.sites.knows(site):
            raise Unreadable("unknown_site", "an operation for a site of which no event has come")
        handle = await self.sites.get(site, own)
        if raw.offset > handle.offset:
            if isinstance(operation, BeginAnew):
                await self.checkpoints.end()
                handle = await self.sites.replace(handle, begun_anew(handle.engine))
                note(handle, operation, raw.timestamp, "begun anew: nothing is learnt yet")
            elif not isinstance(operation, Rebuild):
                note(handle, operation, raw.timestamp, _operated(handle, operation))
            elif rebuilt_lately(handle, raw.timestamp):
                raise Unreadable("rebuilt_lately", "the site was rebuilt less than ten minutes before")
            else:
                await self.checkpoints.end()
                try:
                    handle, count = await self.sites.begin_again(handle, raw.offset)
                except EngineFailed as error:
                    raise Unreadable("engine_failed", error.detail) from None
                note(handle, operation, raw.timestamp, f"made again from {count} messages", rebuilt=True)
            handle.offset = raw.offset
        self.checkpoints.pending.batch.sites.add(site)


def _operated(handle: SiteHandle, operation: ForgetJob | SetCapacity | UsePrior) -> str:
    """Return what an operation did at a site.

    Raises:
        Unreadable: it failed, whatever the error. An operation is no reason for a worker to end.
    """
    try:
        return operate(handle.engine, operation)
    except Exception as error:
        log.exception("Rejected an operation of site %s", handle.engine.site)
        raise Unreadable("operation_failed", f"{type(error).__name__}: {error}"[:500]) from None


def _pending(handle: SiteHandle) -> "asyncio.Future[Any] | None":
    """What the site's next event has to wait for."""
    awaited: Future[Any] | None = handle.engine.pending()
    return None if awaited is None else asyncio.wrap_future(awaited)
