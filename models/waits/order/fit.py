"""Shares of pairs of jobs that started in an order: the scheduler's priorities, and the learned order.

A pair is a job that started and a similar one that could have started instead (`contenders`).
"""

import math
from itertools import pairwise
from typing import Annotated, ClassVar

import msgspec
from msgspec import Meta

from models.records import OrderFit

MIN_AGREEING = 0.7
"""The scheduler's own priorities are used while this share of the recent pairs started in their order."""

MIN_FIT_PAIRS = 50.0
"""Number of pairs from which a share is reported."""

KIND_EDGES_S = (0.0, 3600.0, 12 * 3600.0, math.inf)
"""Edges of the kinds of jobs: time limits, or predicted run times of jobs without one, in seconds."""

KIND_NAMES = ("up to 1 h", "1 to 12 h", "over 12 h")


PairCount = Annotated[float, Meta(ge=0.0, le=1e6)]
"""Range of a number of pairs in a stored state; it excludes NaN, which has no share."""


class PairsSeen(msgspec.Struct, array_like=True):
    """Numbers of recent pairs of jobs, and of those that started in the order."""

    most: ClassVar[float] = 1000.0
    """Number of recent pairs that count; the weight of an older one is below 1/e."""

    pairs: PairCount = 0.0
    agreeing: PairCount = 0.0

    def see(self, behind: int, before: int) -> None:
        """Count a start: `behind` jobs that could have started are behind it in the order, `before` are before it."""
        kept = (1.0 - 1.0 / self.most) ** (behind + before)
        self.pairs = kept * self.pairs + behind + before
        self.agreeing = kept * self.agreeing + behind

    @property
    def share(self) -> float | None:
        """Share of the pairs that started in the order; None with fewer than `MIN_FIT_PAIRS`."""
        return self.agreeing / self.pairs if self.pairs >= MIN_FIT_PAIRS else None


class PrioritiesSeen(PairsSeen, array_like=True):
    """Recent pairs of jobs with different priorities of the scheduler.

    Priorities can be outdated, or only one part of the scheduler's criteria.
    """

    most: ClassVar[float] = 300.0

    @property
    def follows_priorities(self) -> bool:
        """True if jobs start in the order of their priorities; also until some have not."""
        return self.agreeing >= MIN_AGREEING * self.pairs


class FitSeen(msgspec.Struct, array_like=True):
    """Recent pairs in the learned order: of all jobs, and of the started jobs of each kind."""

    site: PairsSeen
    kinds: tuple[PairsSeen, PairsSeen, PairsSeen]

    @classmethod
    def empty(cls) -> "FitSeen":
        """Return the state before the first start."""
        return cls(PairsSeen(), (PairsSeen(), PairsSeen(), PairsSeen()))

    def see(self, planned_s: float, behind: int, before: int) -> None:
        """Count a start of a job that is planned to run for these seconds, as `PairsSeen.see`."""
        if behind or before:
            self.site.see(behind, before)
            self.kinds[kind_of(planned_s)].see(behind, before)

    @property
    def by_kind(self) -> dict[str, float]:
        """The share of each kind that has enough pairs."""
        shares = {name: seen.share for name, seen in zip(KIND_NAMES, self.kinds, strict=True)}
        return {name: share for name, share in shares.items() if share is not None}


def kind_of(planned_s: float) -> int:
    """Return the kind of a job, by the seconds that it is planned to run.

    >>> [KIND_NAMES[kind_of(hours * 3600.0)] for hours in (0, 1, 2, 12, 13)]
    ['up to 1 h', 'up to 1 h', '1 to 12 h', '1 to 12 h', 'over 12 h']
    """
    return next(kind for kind, (_, most) in enumerate(pairwise(KIND_EDGES_S)) if planned_s <= most)


def fit_of(priorities: PrioritiesSeen, learned: FitSeen) -> OrderFit | None:
    """Return the fit of the order that simulates the schedule; None with too few pairs.

    Jobs with priorities of the scheduler start in that order while the priorities agree with the starts.
    """
    share = priorities.share
    if share is not None and priorities.follows_priorities:
        return OrderFit(order="priorities", share=share, pairs=round(priorities.pairs))
    share, pairs = learned.site.share, round(learned.site.pairs)
    return None if share is None else OrderFit(order="learned", share=share, pairs=pairs, kinds=learned.by_kind)
