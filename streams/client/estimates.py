"""Grid estimates and latest outcomes of all sites, cached in memory from their topics."""

import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from models.records import GridEstimate, Outcome
from models.site.shapes import HOUR_S, Shape, covering
from streams.broker.topics import partition_of
from streams.text.terminal import moment

MAX_OUTCOMES = 50  # how many jobs of a site and method are kept with their outcomes: the latest ones

MAX_QUIET_S = HOUR_S
"""A site whose estimates were not renewed for this long is stale: a worker renews them every quarter of an hour."""

MAX_BEHIND_NEWEST_S = 2 * HOUR_S
"""An estimate that is older than the newest of its site by more than this is for a shape that is not offered now."""


class WithdrawnEstimate(msgspec.Struct, array_like=True, frozen=True):
    """A shape that a site no longer offers: the key of a tombstone record."""

    site: str
    cpus: int
    walltime: float
    queue: str | None
    gpus: int = 0

    @property
    def shape(self) -> Shape:
        """The shape alone."""
        return Shape(self.cpus, self.walltime, self.queue, self.gpus)


_decode_key = msgspec.json.Decoder(WithdrawnEstimate).decode
_decode_estimate = msgspec.json.Decoder(GridEstimate).decode
_decode_outcome = msgspec.json.Decoder(Outcome).decode


def change_of(message: Any) -> GridEstimate | WithdrawnEstimate:
    """Decode a message of the estimates topic.

    Raises:
        msgspec.MsgspecError: it is neither an estimate nor a withdrawal.
    """
    return _decode_key(message.key or b"") if message.value is None else _decode_estimate(message.value)


class CachedEstimate(NamedTuple):
    """A grid estimate and its broker timestamp (Unix seconds)."""

    estimate: GridEstimate
    updated: float


class SiteEstimates(NamedTuple):
    """A site's grid estimates by queue, GPUs, size and walltime, and the timestamp of the latest (Unix seconds)."""

    estimates: list[GridEstimate]
    updated: float

    @property
    def latest(self) -> GridEstimate:
        """The estimate that was made last."""
        return max(self.estimates, key=lambda estimate: estimate.made_at)


class EstimateCache:
    """Cache of the latest outcomes and grid estimates by site; estimates expire `hours` after their last refresh."""

    def __init__(self, hours: float, clock: Callable[[], float] = time.time) -> None:
        self.partitions = 0  # how many the topic of estimates has; 0: unknown
        self._max_age_s = hours * HOUR_S
        self.clock = clock
        self._estimates: dict[str, dict[Shape, CachedEstimate]] = {}
        self._outcomes: dict[str, dict[str, dict[tuple[str, int], Outcome]]] = {}

    @property
    def sites(self) -> list[str]:
        """The names of the sites that have estimates, sorted."""
        return sorted(site for site in list(self._estimates) if self._current(site))

    def latest_site(self) -> str | None:
        """Return the site whose estimates were renewed last; None if there are no estimates."""
        current = {site: self._current(site) for site in list(self._estimates)}
        renewed = {site: max(one.updated for one in found.values()) for site, found in current.items() if found}
        return max(renewed, key=renewed.__getitem__, default=None)

    def estimates(self, site: str) -> SiteEstimates | None:
        """A site's estimates; None where there are none."""
        current = self._current(site)
        if not current:
            return None
        order = sorted(current, key=lambda shape: (shape.queue or "", shape.gpus, shape.cpus, shape.walltime))
        updated = max(cached.updated for cached in current.values())
        return SiteEstimates([current[shape].estimate for shape in order], updated)

    def _current(self, site: str) -> Mapping[Shape, CachedEstimate]:
        cached = self._estimates.get(site, {})
        newest = max((one.updated for one in cached.values()), default=0.0)
        oldest = max(newest - MAX_BEHIND_NEWEST_S, self.clock() - self._max_age_s)
        for shape in [shape for shape, one in cached.items() if one.updated < oldest]:
            del cached[shape]
        if not cached:
            self._estimates.pop(site, None)
        return cached

    def covering(
        self, site: str, cpus: int, walltime: float | None, queue: str | None, gpus: int = 0
    ) -> GridEstimate | None:
        """Return the estimate of the smallest shape that fits the job (`walltime` in seconds); None without one."""
        current = self._current(site)
        shape = covering(current, cpus, walltime, queue, gpus)
        return None if shape is None else msgspec.structs.replace(current[shape].estimate, stale=self.stale(site))

    def stale(self, site: str) -> str | None:
        """Return the reason why the site's estimates are too old, as its worker states or by its silence; else None."""
        found = self.estimates(site)
        if found is None:
            return None
        silent = self.clock() - found.updated > MAX_QUIET_S
        return f"no message from its worker since {moment(found.updated)}" if silent else found.latest.stale

    def outcomes(self, site: str, method: str) -> list[Outcome]:
        """Return the latest outcomes of a site's jobs, newest first, one per job.

        If this method has none, those of another method.
        """
        by_method = self._outcomes.get(site, {})
        return list(by_method.get(method, next(iter(by_method.values()), {})).values())[::-1]

    def knows(self, site: str) -> bool:
        """Check if there are estimates or outcomes of a site."""
        return site in self._outcomes or bool(self._current(site))

    def put_estimate(self, key: bytes, value: bytes | None, partition: int, updated: float) -> None:
        """Store a message of the estimates topic; one without a value removes the estimate.

        Messages in a partition that the site had before a repartitioning are ignored.

        Args:
            key: key of the message.
            value: value of the message.
            partition: partition of the message.
            updated: broker timestamp, Unix seconds.

        Raises:
            msgspec.MsgspecError: it is not an estimate.
        """
        of = _decode_key(key)
        if self.partitions and partition_of(of.site, self.partitions) != partition:
            return
        cached = self._estimates.setdefault(of.site, {})
        if value:
            cached[of.shape] = CachedEstimate(_decode_estimate(value), updated)
        else:
            cached.pop(of.shape, None)

    def put_outcome(self, value: bytes) -> None:
        """Store a message of the outcomes topic; the one at a job's end replaces the one at its start.

        Raises:
            msgspec.MsgspecError: it is not an outcome.
        """
        outcome = _decode_outcome(value)
        latest = self._outcomes.setdefault(outcome.site, {}).setdefault(outcome.method, {})
        latest.pop((outcome.job, outcome.attempt), None)
        latest[outcome.job, outcome.attempt] = outcome
        if len(latest) > MAX_OUTCOMES:
            del latest[next(iter(latest))]
