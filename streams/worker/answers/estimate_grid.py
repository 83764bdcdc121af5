"""Grid estimates: the predicted wait of each job shape if a job were submitted now.

They are computed in time slices between events. No state and no offset depends on them, so they are sent without a
checkpoint. After a crash the next worker computes them again.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import msgspec
from aiokafka.errors import KafkaError
from faust.exceptions import NotReady

from models.durations import DAY_S
from models.engine.asking.engine_answers import grid_estimates, remaining_work_s
from models.engine.engine import Engine
from models.records import GridEstimate
from models.site.job import Phase
from models.site.shapes import HOUR_S, Shape, covering, grid, partition_grid, sizes
from models.site.state import SITE
from models.site.topology import Topology
from streams.settings import EstimateSettings
from streams.worker.answers.answer_scores import BOUND, AnswerScores, PublishedWait
from streams.worker.answers.freshness import Freshness
from streams.worker.answers.time_slicer import CrashingWork, TimeSlicer
from streams.worker.checkpoint.owned_table import Revoked
from streams.worker.checkpoint.stored_site import SiteHandle

log = logging.getLogger(__name__)
MAX_SLICE_S = 0.002  # usual maximum delay of events by a slice of estimates, seconds
TICK_S = 0.2  # polling interval for due estimates, seconds

METRIC_SHAPES = ((0.0, HOUR_S), (1 / 8, 4 * HOUR_S), (1 / 4, 12 * HOUR_S), (1 / 2, 24 * HOUR_S))
"""Shapes of the metrics: fraction of the site's CPUs (0: one CPU), and time limit in seconds."""

Send = Callable[[bytes, bytes | None, int], Awaitable[Awaitable[Any]]]
"""Send a key and a value to a partition of the estimates topic; the result is done on delivery."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(GridEstimate).decode


def site_time(engine: Engine, clock: Callable[[], float] = time.time) -> float:
    """Return the current time at a site: the wall clock, or the time of the last event of a replayed log.

    A live site may have no events for a weekend, while its jobs continue to age.
    """
    now, last = clock(), engine.time
    return now if engine.clock.live or abs(now - last) < DAY_S else last


def key_of(site: str, shape: Shape) -> bytes:
    """Return the key of a shape's record, as JSON: `["ctc",64,14400.0,"batch"]`, then the GPUs if there are any."""
    return _encode([site, *(shape if shape.gpus else shape[:-1])])


def _busiest(engine: Engine, topology: Topology, most: int) -> list[str]:
    """Return a site's partitions; if there are more than `most`, those with the most recent activity."""
    names = list(topology.partitions)
    if len(names) <= most:
        return names
    heard = set(engine.open_queues(most))
    return sorted(names, key=lambda name: (name not in heard, names.index(name)))[:most]


def _compute_slice(estimates: Iterator[tuple[Shape, GridEstimate]]) -> list[tuple[Shape, GridEstimate]]:
    """Compute the next estimates for `MAX_SLICE_S`, at least one; return an empty list at the end."""
    start_s, made = time.perf_counter(), []
    for one in estimates:
        made.append(one)
        if time.perf_counter() - start_s >= MAX_SLICE_S:
            break
    return made


class StateSummary(NamedTuple):
    """Summary of a site's state, for measuring how much it has changed."""

    events: int
    queued_cpus: int
    running_cpus: int
    cpus: int

    @classmethod
    def of(cls, engine: Engine) -> "StateSummary":
        """Summarise the current state of an engine."""
        queued, running = (engine.context.state.totals(SITE, phase) for phase in (Phase.QUEUED, Phase.RUNNING))
        return cls(engine.events, queued.cpus, running.cpus, engine.context.cpus)


@dataclass
class PublishedEstimates:
    """The grid estimates of one site.

    Attributes:
        since: Time of the refresh, monotonic clock.
        made: Time of the refresh, Unix seconds.
        shapes: Shapes that were sent.
        waits: Predicted waits, seconds (None: no estimate).
        remaining_work_s: Remaining work divided by the CPUs.
        stale: Whether the site was stale at the refresh.
        records: The last records sent.
        withdrawn: Shapes no longer offered that may still have records on the topic.
        sent: Whether the broker has acknowledged all records.
    """

    engine: Engine
    summary: StateSummary
    since: float
    made: float
    shapes: frozenset[Shape] = frozenset()
    waits: dict[Shape, float | None] = field(default_factory=dict)
    remaining_work_s: float | None = None
    stale: bool = False
    records: dict[Shape, bytes] = field(default_factory=dict)
    withdrawn: frozenset[Shape] = frozenset()
    sent: bool = False


@dataclass(eq=False)
class EstimateGrids:
    """Keep the grid estimates of this worker's sites up to date.

    Args:
        handles: Current sites of this worker by name.
        freshness: Provides the freshness of sites.
        scores: Records the published estimates to score them.
        turns: Gives events priority.
        is_restoring: Returns whether a site belongs to this worker although it is not in `handles`.
    """

    handles: Mapping[str, SiteHandle]
    settings: EstimateSettings
    send: Send
    clock: Callable[[], float] = time.monotonic
    freshness: Freshness = field(default_factory=Freshness)
    scores: AnswerScores = field(default_factory=AnswerScores)
    turns: TimeSlicer = field(default_factory=TimeSlicer)
    is_restoring: Callable[[str], bool] = lambda _: False
    estimates: dict[str, PublishedEstimates] = field(default_factory=dict, init=False)
    records: int = field(default=0, init=False)

    async def run(self) -> None:
        """Refresh due estimates in an endless loop."""
        while self.settings.enabled:
            self._forget()
            for site, handle in list(self.handles.items()):
                if self.handles.get(site) is handle and self.due(handle):
                    await self._try(handle)
            await asyncio.sleep(TICK_S)

    def _forget(self) -> None:
        """Drop the estimates of sites that another worker serves now."""
        for site in [site for site in self.estimates if site not in self.handles and not self.is_restoring(site)]:
            del self.estimates[site]
            self.scores.forget(site)

    def due(self, handle: SiteHandle) -> bool:
        """Return whether a site's estimates are too old, or its state has changed enough since their refresh."""
        estimates = self.estimates.get(handle.engine.site)
        if estimates is None or estimates.engine is not handle.engine:
            return True
        if not estimates.shapes:  # the size of the site was unknown
            return handle.engine.context.cpus > 0
        age = self.clock() - estimates.since
        if age < self.settings.refresh_seconds:
            return age >= self.settings.max_age_seconds
        turned = (self.freshness.of(handle).stale is not None) != estimates.stale
        return age >= self.settings.max_age_seconds or turned or not estimates.sent or self._changed(estimates)

    def _changed(self, estimates: PublishedEstimates) -> bool:
        before, now, change = estimates.summary, StateSummary.of(estimates.engine), self.settings.min_change
        moved = max(abs(now.queued_cpus - before.queued_cpus), abs(now.running_cpus - before.running_cpus))
        news = now.events - before.events
        live_jobs = len(estimates.engine.context.state)
        much = moved > change * now.cpus or news > change * live_jobs or now.cpus != before.cpus
        return news > 0 and much

    async def _try(self, handle: SiteHandle) -> None:
        """Refresh one site; an error must not stop other sites or events."""
        try:
            await self.refresh(handle)
        except Revoked:
            pass  # another worker serves the site now
        except CrashingWork:
            log.warning("No grid estimates: workers have crashed on them", extra={"site": handle.engine.site})
        except (KafkaError, NotReady) as error:  # not ready: this worker is stopping, and its producer has stopped
            log.warning("Cannot send grid estimates: %r", error, extra={"site": handle.engine.site})
        except Exception:
            log.exception("Cannot compute grid estimates", extra={"site": handle.engine.site})

    async def refresh(self, handle: SiteHandle) -> None:
        """Compute and send a site's estimates; delete those of shapes that are no longer offered."""
        engine, before = handle.engine, self.estimates.get(handle.engine.site)
        tracked = (engine.site, "estimates", 0)
        shapes, now, share = self.shapes(engine), site_time(engine), self.settings.cpu_share
        estimates = PublishedEstimates(engine, StateSummary.of(engine), self.clock(), time.time(), frozenset(shapes))
        if before is not None and before.engine is engine:  # until the new ones are computed
            estimates.records = {shape: one for shape, one in before.records.items() if shape in estimates.shapes}
        if before is not None:
            estimates.withdrawn = (before.shapes | before.withdrawn) - estimates.shapes
        self.estimates[engine.site] = estimates
        estimates.stale = self.freshness.of(handle).stale is not None
        sent: list[Awaitable[Any]] = []
        waits: dict[Shape, PublishedWait] = {}
        estimates.remaining_work_s = await self.turns.take(
            partial(remaining_work_s, engine, now), share, tracked, always=True
        )
        remaining = zip(shapes, grid_estimates(engine, shapes, now), strict=True)
        while made := await self.turns.take(partial(_compute_slice, remaining), share, tracked, always=True):
            for shape, estimate in made:
                if self.handles.get(engine.site) is not handle:
                    return  # another worker serves the site now
                estimates.waits[shape] = estimate.predicted_wait_s
                waits[shape] = PublishedWait(estimate.predicted_wait_s, (estimate.bounds or {}).get(BOUND))
                record = estimates.records[shape] = _encode(self.freshness.marked(estimate, handle))
                sent.append(await self.send(key_of(engine.site, shape), record, handle.partition))
        withdrawn = estimates.withdrawn
        sent += [await self.send(key_of(engine.site, shape), None, handle.partition) for shape in withdrawn]
        self.scores.published(engine.site, {} if estimates.stale else waits)
        await asyncio.gather(*sent)
        estimates.withdrawn, estimates.sent = frozenset(), True
        self.records += len(sent)

    def shapes(self, engine: Engine) -> list[Shape]:
        """Return the shapes of a site's grid."""
        settings = self.settings
        topology = Topology.of(engine.context.capacity)
        if topology is not None:
            named = [name for name in settings.queues if name in topology.partitions]
            names = named or _busiest(engine, topology, settings.max_queues)
            return partition_grid(topology, settings.walltimes, settings.max_cpus, names)
        queues = settings.queues or engine.open_queues(settings.max_queues)
        return grid(sizes(engine.context.cpus, settings.max_cpus), settings.walltimes, tuple(queues))

    def covering(
        self, handle: SiteHandle, cpus: int, walltime: float | None, queue: str | None, gpus: int
    ) -> GridEstimate | None:
        """Return the latest estimate of the smallest shape that fits a job; None if there is none."""
        estimates = self.estimates.get(handle.engine.site)
        if estimates is None or estimates.engine is not handle.engine:
            return None
        shape = covering(estimates.records, cpus, walltime, queue, gpus)
        return None if shape is None else _decode(estimates.records[shape])

    def shown(self, estimates: PublishedEstimates) -> Iterable[tuple[Shape, float | None]]:
        """Yield the four shapes of the metrics and their waits."""
        for share, walltime in METRIC_SHAPES:
            shape = covering(estimates.waits, max(int(share * estimates.summary.cpus), 1), walltime, None)
            if shape is not None:
                yield shape, estimates.waits[shape]
