"""Run times from templates of similar jobs, by Smith, Foster and Taylor (1998) and Smith, Taylor and Foster (1999).

A template sorts the jobs that ran into categories, and makes of a category's run times an estimate with a confidence
interval. Of the estimates of several templates the surest counts, or the mean weighted by how sure they are. Which
templates a site should have is found by `models.papers.search.templates`.
"""

import math
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
from msgspec import Meta

from models.arrays import Floats, Ints
from models.kernels import njit
from models.method import RunMethod
from models.papers.run_template import LAST_RESORT, PREDICTORS, UNIT, RunTemplate
from models.runtimes.walltime import within
from models.site.job import Job, RunEstimate
from models.site.runs import Category, Run, RunHistory

CONFIDENCE = 0.9  # probability with which a run time is to be within its interval: that of the papers' figures

CHEBYSHEV = math.sqrt(1 / (1 - CONFIDENCE))
"""Standard deviations to either side of the mean, by Chebyshev's theorem: 1 - 1/k² = confidence."""

MIN_HALF_WIDTH_S = 60.0  # half a width in seconds; narrower intervals count as this wide

Choice = Literal["surest", "weighted"]
"""Combination of a set's estimates: the surest of them, as in the papers, or their weighted mean."""

MAX_TEMPLATES = 32  # maximum number of templates of a set; the papers' sets have up to 10

DEFAULT = (
    "user,executable,walltime,elapsed/64 mean relative 64",
    "user,executable,walltime,elapsed/64 mean absolute 32",
    "user,walltime,elapsed/64 mean relative 32",
    "user,cpus/4,walltime,elapsed/64 mean relative 2",
    "user,cpus/4,walltime,elapsed/64 mean relative 32",
    "queue,user,elapsed/64 mean relative 32",
    "user,cpus/4,elapsed/64 mean relative 4",
    "user,elapsed/64 mean relative 8",
    LAST_RESORT,
)
"""Templates that are accurate on each of four traces (CTC, KTH, SDSC SP2 and Blue Horizon), from a search on all of
them."""

RUN, POINT, NODES = range(3)
"""The rows of a category's data: run times in whole seconds, data points, and x of the regression."""

Sums = tuple[int, int, int, int, int, int]  # of data points y: their number, Σy, Σy², Σx, Σx² and Σxy
NOTHING: Sums = (0, 0, 0, 0, 0, 0)


@njit(cache=True)
def plus(sums: Sums, point: int, nodes: int, sign: int) -> Sums:
    """Add a data point to the sums (`sign` 1) or subtract it (-1); a point of -1 is none."""
    if point < 0:
        return sums
    n, y, yy, x, xx, xy = sums
    return (
        n + sign,
        y + sign * point,
        yy + sign * point * point,
        x + sign * nodes,
        xx + sign * nodes * nodes,
        xy + sign * nodes * point,
    )


@njit(cache=True)
def sums_of(data: Ints, first: int, last: int, least_s: int) -> Sums:
    """The sums over the runs from place `first` up to `last` that took at least `least_s` seconds."""
    n, y, yy, x, xx, xy = NOTHING
    for i in range(first, last):
        point, nodes = data[POINT, i], data[NODES, i]
        if data[RUN, i] >= least_s and point >= 0:
            n += 1
            y += point
            yy += point * point
            x += nodes
            xx += nodes * nodes
            xy += nodes * point
    return n, y, yy, x, xx, xy


@njit(cache=True)
def estimate(sums: Sums, at: int, regression: bool, quantiles: Floats) -> tuple[float, float]:
    """Return a category's estimate for a job and half the width of its confidence interval.

    Both are in the unit of the data points. The half width is infinite where there are too few: a mean needs two, a
    regression three, and not all on the same number of CPUs.

    Args:
        sums: the sums of the category's data points.
        at: x of the job itself.
        regression: whether to use a regression instead of the mean.
        quantiles: Student's t by degrees of freedom, for regressions.
    """
    n, y, yy, x, xx, xy = sums
    if n < 2:
        return 0.0, np.inf
    q, r = y // n, y % n  # about the integer part of the mean the sums are still exact
    squares = max(yy - q * (y + r) - r * r / n, 0.0)
    if not regression:
        return y / n, CHEBYSHEV * math.sqrt(squares / (n - 1))
    p, s = x // n, x % n
    spread = xx - p * (x + s) - s * s / n
    if n < 3 or spread <= 0.0:
        return 0.0, np.inf
    slope = (xy - q * x - p * r - s * r / n) / spread
    residues = max(squares - slope * slope * spread, 0.0)
    off = at - x / n
    root = math.sqrt(residues / (n - 2)) * math.sqrt(1.0 + 1.0 / n + off * off / spread)
    return y / n + slope * off, quantiles[n - 2] * root


@cache
def student_quantiles(history: int) -> Floats:
    """Return Student's t, exceeded to either side with probability 1 - `CONFIDENCE`, by degrees of freedom."""
    from scipy.special import stdtrit  # slow to import, and only for regressions

    return np.concatenate(([np.nan], stdtrit(np.arange(1, max(history - 1, 2)), (1 + CONFIDENCE) / 2)))


class TemplateEstimate(NamedTuple):
    """The estimate of a template, from `runs` runs: seconds, and half the width of its interval."""

    run_s: float
    half_s: float
    runs: int
    template: RunTemplate


def weighted(found: Sequence[TemplateEstimate]) -> tuple[float, float]:
    """Return the mean of the estimates, weighted by the inverse width of their intervals, and the mean of these widths.

    Estimates of templates without attributes, which use all jobs of the site, count only where there is no other.
    """
    weights, runs, halves = 0.0, 0.0, 0.0
    for estimate in [estimate for estimate in found if estimate.template.attributes] or found:
        weight = 1.0 / max(estimate.half_s, MIN_HALF_WIDTH_S)
        weights += weight
        runs += weight * estimate.run_s
        halves += weight * estimate.half_s
    return runs / weights, halves / weights


class _Points:
    """The data of one category for one template, updated from the history at each read."""

    __slots__ = ("data", "first", "last", "number", "runs", "sums", "template")

    def __init__(self, template: RunTemplate, runs: list[Run]) -> None:
        self.template = template
        self.runs = runs
        self.number = 0  # of the last run that was processed
        self.first = self.last = 0
        self.data: Ints = np.empty((3, 8), np.int64)
        self.sums = NOTHING

    def update(self) -> None:
        new: list[Run] = []
        for run in reversed(self.runs):
            if run.number <= self.number or len(new) == self.template.history:
                break
            new.append(run)
        if new:
            self._make_room(len(new))
            for run in reversed(new):
                self._append(run)
            self.number = new[0].number

    def _make_room(self, count: int) -> None:
        if self.last + count > self.data.shape[1]:
            kept = self.data[:, self.first : self.last]
            self.data = np.empty((3, 2 * (kept.shape[1] + count)), np.int64)
            self.data[:, : kept.shape[1]] = kept
            self.first, self.last = 0, kept.shape[1]

    def _append(self, run: Run) -> None:
        point, nodes = self.template.point(run.run_s, run.walltime), PREDICTORS[self.template.predictor](run.cpus)
        self.data[:, self.last] = min(int(run.run_s), UNIT), point, nodes
        self.sums = plus(self.sums, point, nodes, 1)
        self.last += 1
        if self.last - self.first > self.template.history:
            _, point, nodes = self.data[:, self.first].tolist()
            self.sums = plus(self.sums, point, nodes, -1)
            self.first += 1

    def sums_from(self, least_s: int) -> Sums:
        return self.sums if least_s <= 0 else sums_of(self.data, self.first, self.last, least_s)


MAX_CACHED_CATEGORIES = 50_000
"""Maximum number of categories, of all templates together, whose data are cached as arrays: the latest ones."""


class Templates(RunMethod):
    """Run times from a set of templates.

    Each template whose category has enough runs gives an estimate and its 90% confidence interval (1998, appendix): by
    Chebyshev's theorem for a mean, by Student's distribution for a regression. In the papers the estimate with the
    smallest interval, in seconds, is the prediction, the first of equal ones. The default is their mean, weighted by
    the inverse width, which is some percent more accurate. Estimates are limited to at most the walltime and at least
    the time that the job has run.

    Args:
        templates: as text, see `RunTemplate`. `queuecast tune --runtimes template` finds those of a site.
        choice: "surest" or "weighted".

    Raises:
        ValueError: a template cannot be parsed.

    >>> method = Templates(["user mean relative 4096"])
    >>> history = RunHistory(method.templates)
    >>> job = Job(id="1", attempt=0, submit=0.0, user="ada", walltime=3600.0)
    >>> for run_s in (1500.0, 2100.0):
    ...     new, gone = history.learn(job, run_s)
    >>> method.predict(job, history)
    RunEstimate(run_s=1800.0, reason='mean of 2 by user', low=458.35..., high=3141.64...)
    """

    name = "template"
    tunable: ClassVar[dict[str, Any]] = {
        "templates": Annotated[list[str], Meta(min_length=1, max_length=MAX_TEMPLATES)],
        "choice": Choice,
    }

    def __init__(self, templates: Sequence[str] = DEFAULT, choice: Choice = "weighted") -> None:
        self.set = [RunTemplate.parse(text) for text in templates]
        self.choice = choice
        self.templates = tuple(template.kept for template in self.set)
        self._points: list[dict[Category, _Points]] = [{} for _ in self.set]
        regressions = [template.history for template in self.set if template.predictor != "mean"]
        self._quantiles = student_quantiles(max(regressions)) if regressions else np.empty(0)
        sums_of(np.empty((3, 0), np.int64), 0, 0, 0)  # compile it now, not at the first prediction of a running job

    def predict(self, job: Job, runs: RunHistory, elapsed_s: float = 0.0) -> RunEstimate:
        """Return the estimate of the set."""
        found = list(self._estimates(job, runs, elapsed_s))
        if not found:
            return RunEstimate(None, "no history")
        surest = min(found, key=lambda estimate: estimate.half_s)
        reason = f"{surest.template.predictor} of {surest.runs} by {surest.template.kept.name}"
        run_s, half_s = surest.run_s, surest.half_s
        if self.choice == "weighted":
            run_s, half_s = weighted(found)
            if len(found) > 1 and surest.template.attributes:
                reason = f"{len(found)} templates, the surest {reason}"
        low, middle, high = (within(at, job.walltime, elapsed_s) for at in (run_s - half_s, run_s, run_s + half_s))
        return RunEstimate(middle, reason, low, high)

    def _estimates(self, job: Job, runs: RunHistory, elapsed_s: float) -> Iterator[TemplateEstimate]:
        for place, template in enumerate(self.set):
            scale = template.scale(job.walltime)
            points = None if math.isnan(scale) else self._of(place, self.templates[place].category(job), runs)
            if points is None:
                continue
            sums = points.sums_from(template.least_s(elapsed_s))
            at, regression = PREDICTORS[template.predictor](job.cpus), template.predictor != "mean"
            value, half = estimate(sums, at, regression, self._quantiles)
            if half < math.inf:
                yield TemplateEstimate(value * scale, half * scale, sums[0], template)

    def _of(self, place: int, category: Category | None, runs: RunHistory) -> _Points | None:
        kept = runs.of(category)
        if category is None or len(kept) < 2:
            return None
        cached = self._points[place]
        points = cached.get(category)
        if points is None or points.runs is not kept:  # a category that was dropped starts again
            if points is None and len(cached) * len(self.set) >= MAX_CACHED_CATEGORIES:
                del cached[next(iter(cached))]
            points = cached[category] = _Points(self.set[place], kept)
        points.update()
        return points
