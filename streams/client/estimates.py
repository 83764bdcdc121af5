"""What stands to be read of the sites without asking: standing estimates and the latest outcomes."""

import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec

from models.records import Outcome, StandingEstimate
from models.site.shapes import HOUR_S, Shape, covering

KEPT_OUTCOMES = 50
"""The latest jobs of a site and method whose outcomes are kept."""

OUTDATED_S = 2 * HOUR_S
"""An estimate that is older by so much than the newest of its site is of a shape that is no longer offered."""

_decode_key = msgspec.json.Decoder(tuple[str, int, float, str | None]).decode
_decode_estimate = msgspec.json.Decoder(StandingEstimate).decode
_decode_outcome = msgspec.json.Decoder(Outcome).decode


class Stood(NamedTuple):
    """A standing estimate and when it came to the broker (Unix seconds)."""

    estimate: StandingEstimate
    updated: float


class SiteEstimates(NamedTuple):
    """What stands of a site: its estimates by size, walltime and queue, and when the latest came (Unix seconds)."""

    estimates: list[StandingEstimate]
    updated: float

    @property
    def latest(self) -> StandingEstimate:
        """The one that was made last."""
        return max(self.estimates, key=lambda estimate: estimate.made_at)


class Board:
    """What stands to be read of the sites: their standing estimates and latest outcomes, as messages bring them.

    Parameters:
        hours: after so long an estimate that was not made anew is forgotten.
    """

    def __init__(self, hours: float, clock: Callable[[], float] = time.time) -> None:
        self._oldest_s = hours * HOUR_S
        self._clock = clock
        self._estimates: dict[str, dict[Shape, Stood]] = {}
        self._partitions: dict[str, int] = {}
        self._outcomes: dict[str, dict[str, dict[tuple[str, int], Outcome]]] = {}

    @property
    def sites(self) -> list[str]:
        """The sites of which estimates stand, by name."""
        return sorted(site for site in list(self._estimates) if self._stood(site))

    def partition(self, site: str) -> int | None:
        """The partition on which the site's estimates lie, and its worker listens; None where none has been seen."""
        return self._partitions.get(site)

    def estimates(self, site: str) -> SiteEstimates | None:
        """What stands of a site; None where nothing does."""
        stood = self._stood(site)
        if not stood:
            return None
        order = sorted(stood, key=lambda shape: (shape.queue or "", shape.cpus, shape.walltime))
        return SiteEstimates([stood[shape].estimate for shape in order], max(one.updated for one in stood.values()))

    def _stood(self, site: str) -> Mapping[Shape, Stood]:
        """What stands of a site, after dropping what is outdated."""
        stood = self._estimates.get(site, {})
        newest = max((found.updated for found in stood.values()), default=0.0)
        oldest = max(newest - OUTDATED_S, self._clock() - self._oldest_s)
        for shape in [shape for shape, found in stood.items() if found.updated < oldest]:
            del stood[shape]
        if not stood:
            self._estimates.pop(site, None)
        return stood

    def covering(self, site: str, cpus: int, walltime: float | None, queue: str | None) -> StandingEstimate | None:
        """The estimate of the least shape that a job fits into; None where there is none."""
        stood = self._stood(site)
        shape = covering(stood, cpus, walltime, queue)
        return None if shape is None else stood[shape].estimate

    def outcomes(self, site: str, method: str) -> list[Outcome]:
        """The latest outcomes of a site's jobs, each job once, the newest first.

        Parameters:
            method: whose; where it has none, those of another one.
        """
        kept = self._outcomes.get(site, {})
        return list(kept.get(method, next(iter(kept.values()), {})).values())[::-1]

    def knows(self, site: str) -> bool:
        """Whether anything is known of a site."""
        return site in self._outcomes or bool(self._stood(site))

    def put_estimate(self, key: bytes, value: bytes | None, partition: int, updated: float) -> None:
        """Take in a message of the topic of estimates; one without a value takes an estimate back.

        Raises:
            msgspec.MsgspecError: it is none.
        """
        site, cpus, walltime, queue = _decode_key(key)
        self._partitions[site] = partition
        stood = self._estimates.setdefault(site, {})
        if value:
            stood[Shape(cpus, walltime, queue)] = Stood(_decode_estimate(value), updated)
        else:
            stood.pop(Shape(cpus, walltime, queue), None)

    def put_outcome(self, value: bytes) -> None:
        """Take in a message of the topic of outcomes; that of a job's end replaces that of its start.

        Raises:
            msgspec.MsgspecError: it is none.
        """
        outcome = _decode_outcome(value)
        kept = self._outcomes.setdefault(outcome.site, {}).setdefault(outcome.method, {})
        kept.pop((outcome.job, outcome.attempt), None)
        kept[outcome.job, outcome.attempt] = outcome
        if len(kept) > KEPT_OUTCOMES:
            del kept[next(iter(kept))]
