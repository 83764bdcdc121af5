"""Standing estimates: how long a job of each shape would wait if it came now, kept fresh beside the events.

They are made in slices between which events come in, and no state and no offset depends on them: one that is lost when
a worker dies is made anew by the next. So they go out without waiting for the ledger.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec
from aiokafka.errors import KafkaError

from models.engine.answers import drain_s, standing
from models.engine.engine import Engine
from models.site.expiry import DAY_S
from models.site.shapes import HOUR_S, Shape, covering, grid, sizes
from models.site.state import SITE, Phase
from streams.settings import EstimateSettings
from streams.worker.ledger import Slot

log = logging.getLogger(__name__)

SLICE_S = 0.002
"""So long at a time, in the main, the events have to wait."""

TICK_S = 0.2
"""Between looks for sites whose estimates are due."""

SHOWN = ((0.0, HOUR_S), (1 / 8, 4 * HOUR_S), (1 / 4, 12 * HOUR_S), (1 / 2, 24 * HOUR_S))
"""The shapes shown to Prometheus: the share of the site's processors (0: one of them), and the walltime in seconds."""

Send = Callable[[bytes, bytes | None, int], Awaitable[Awaitable[Any]]]
"""Sends a key and a value to a partition of the topic of estimates; what it gives is done when they have arrived."""

_encode = msgspec.json.Encoder().encode


def site_time(engine: Engine, clock: Callable[[], float] = time.time) -> float:
    """What time it is at a site: the time of day, or where its events come from another time that of the last one."""
    now, last = clock(), engine.time
    return now if abs(now - last) < DAY_S else last


def key_of(site: str, shape: Shape) -> bytes:
    """The key of a shape's record: JSON, `["ctc",64,14400.0,"batch"]`."""
    return _encode([site, *shape])


class Looks(NamedTuple):
    """What of a site's state tells how much it has changed."""

    events: int
    queued_cpus: int
    running_cpus: int
    cpus: int

    @classmethod
    def of(cls, engine: Engine) -> "Looks":
        """How it looks now."""
        queued, running = (engine.context.state.totals(SITE, phase) for phase in (Phase.QUEUED, Phase.RUNNING))
        return cls(engine.events, queued.cpus, running.cpus, engine.context.cpus)


@dataclass
class Kept:
    """What stands of a site: for whom and since when (monotonic, and Unix seconds), the shapes, and what is shown."""

    engine: Engine
    looks: Looks
    since: float
    made: float
    shapes: frozenset[Shape] = frozenset()
    waits: dict[Shape, float | None] = field(default_factory=dict)
    drain_s: float | None = None


class Standing:
    """Keeps the estimates of this worker's sites fresh.

    Parameters:
        slots: the sites that this worker has now, by name.
    """

    def __init__(
        self,
        slots: Mapping[str, Slot],
        settings: EstimateSettings,
        send: Send,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.kept: dict[str, Kept] = {}
        self.records = 0
        self._slots = slots
        self._settings = settings
        self._send = send
        self._clock = clock

    async def run(self) -> None:
        """Refresh what is due, for ever."""
        while self._settings.enabled:
            for site in [site for site in self.kept if site not in self._slots]:
                del self.kept[site]
            for site, slot in list(self._slots.items()):
                if self._slots.get(site) is slot and self.due(slot):
                    await self._try(slot)
            await asyncio.sleep(TICK_S)

    def due(self, slot: Slot) -> bool:
        """Whether a site's estimates are old, or its state has changed enough since they were made."""
        kept = self.kept.get(slot.engine.site)
        if kept is None or kept.engine is not slot.engine:
            return True
        if not kept.shapes:  # nobody knew how large the site is
            return slot.engine.context.cpus > 0
        age = self._clock() - kept.since
        return age >= self._settings.oldest_seconds or (age >= self._settings.seconds and self._changed(kept))

    def _changed(self, kept: Kept) -> bool:
        before, now, change = kept.looks, Looks.of(kept.engine), self._settings.change
        moved = max(abs(now.queued_cpus - before.queued_cpus), abs(now.running_cpus - before.running_cpus))
        news = now.events - before.events
        much = moved > change * now.cpus or news > change * len(kept.engine.context.state) or now.cpus != before.cpus
        return news > 0 and much

    async def _try(self, slot: Slot) -> None:
        """A flaw in one site's estimates must not stop the others', nor the events."""
        try:
            await self.refresh(slot)
        except KafkaError as error:
            log.warning("standing estimates could not be sent: %r", error, extra={"site": slot.engine.site})
        except Exception:
            log.exception("standing estimates failed", extra={"site": slot.engine.site})

    async def refresh(self, slot: Slot) -> None:
        """Make a site's estimates anew and send them; take back those of shapes that are no longer offered."""
        engine, before = slot.engine, self.kept.get(slot.engine.site)
        shapes, now = self.shapes(engine), site_time(engine)
        kept = Kept(engine, Looks.of(engine), self._clock(), time.time(), frozenset(shapes))
        self.kept[engine.site] = kept
        kept.drain_s = drain_s(engine, now)
        sent = []
        begun = time.perf_counter()
        for shape, estimate in zip(shapes, standing(engine, shapes, now), strict=True):
            if self._slots.get(engine.site) is not slot:
                return  # another worker's now
            kept.waits[shape] = estimate.predicted_wait_s
            sent.append(await self._send(key_of(engine.site, shape), _encode(estimate), slot.partition))
            spent = time.perf_counter() - begun
            if spent >= SLICE_S:
                await asyncio.sleep(spent / self._settings.share - spent)
                begun = time.perf_counter()
        gone = before.shapes - kept.shapes if before else ()
        sent += [await self._send(key_of(engine.site, shape), None, slot.partition) for shape in gone]
        await asyncio.gather(*sent)
        self.records += len(sent)

    def shapes(self, engine: Engine) -> list[Shape]:
        """The shapes that a site's estimates are made for."""
        settings = self._settings
        queues = settings.queues or engine.open_queues(settings.most_queues)
        return grid(sizes(engine.context.cpus, settings.most_cpus), settings.walltimes, tuple(queues))

    def shown(self, kept: Kept) -> Iterable[tuple[Shape, float | None]]:
        """Four shapes and their waits."""
        for share, walltime in SHOWN:
            shape = covering(kept.waits, max(int(share * kept.looks.cpus), 1), walltime, None)
            if shape is not None:
                yield shape, kept.waits[shape]
