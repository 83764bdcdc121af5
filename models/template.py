"""Run times from templates of similar jobs, by Smith, Foster and Taylor (1998) and Smith, Taylor and Foster (1999).

A template sorts the jobs that ran into categories, and makes of a category's run times an estimate with a confidence
interval. Of the estimates of several templates the one with the smallest interval counts. Which templates a site
should have is found by `models.template_search`.
"""

import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Annotated, Any, ClassVar

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Meta
from numba import njit

from models.method import RunMethod
from models.runs import ATTRIBUTES, Category, Run, RunHistory, Template
from models.state import Job, RunEstimate

Floats = npt.NDArray[np.float64]

CONFIDENCE = 0.9
"""Probability with which a run time is to be within its interval: that of the papers' figures."""

CHEBYSHEV = math.sqrt(1 / (1 - CONFIDENCE))
"""Standard deviations to either side of the mean, by Chebyshev's theorem: 1 - 1/k² = confidence."""

MOST_HISTORY = 65_536
"""Runs kept of a category at most: what stands for "not limited"."""

MOST_TEMPLATES = 32
"""Templates of a set at most; the papers' sets have up to 10."""

PREDICTORS: dict[str, Callable[[int], float]] = {
    "mean": lambda cpus: 0.0,
    "linear": float,
    "inverse": lambda cpus: 1.0 / cpus,
    "logarithmic": math.log,
}
"""What is made of a category's run times t: their mean, or a regression t = b0 + b1·x(n) over the processors n."""

DATA = ("absolute", "relative")
"""What a data point is: a run time in seconds, or its share of the requested walltime."""

EXAMPLE = "user,cpus/4 mean relative 4096"

DEFAULT = (
    "user,executable,cpus/1,elapsed/64 mean relative 64",
    "user,elapsed/64 mean relative 64",
    "elapsed/64 mean relative 4096",
    "elapsed/64 mean absolute 4096",
)


class RunTemplate(msgspec.Struct, frozen=True):
    """By what jobs are alike, how many of the last runs of a category are used, and how.

    As text it is four words: the attributes with commas ("site" where there is none), which are those of
    `models.runs.ATTRIBUTES` in their order, `cpus/N` for ranges of N processors and `elapsed/N` for the use of the
    time that a job has run already; a predictor; "absolute" or "relative"; and the history's length.

    A job that has run for a while is compared with those only that ran as long: with `elapsed/N` those whose run time
    is at least the elapsed time rounded down to a multiple of N seconds.

    >>> str(RunTemplate.parse("cpus/4,user mean relative 4096"))
    'user,cpus/4 mean relative 4096'
    """

    attributes: tuple[str, ...]
    predictor: str = "mean"
    relative: bool = False
    history: int = MOST_HISTORY
    elapsed: int | None = None

    @classmethod
    def parse(cls, text: str) -> "RunTemplate":
        """The template that a text describes.

        Raises:
            ValueError: says which of its words is wrong and what was expected.
        """
        try:
            attributes, predictor, data, history = text.split()
        except ValueError:
            raise _fault(text, "expected four words: attributes, predictor, data and history") from None
        names = [] if attributes == "site" else attributes.split(",")
        if len({name.partition("/")[0] for name in names}) < len(names):
            raise _fault(text, "an attribute stands there twice")
        ranges = {kind: _size(text, name) for name in names if (kind := name.partition("/")[0]) in ("cpus", "elapsed")}
        for name in names:
            if name.partition("/")[0] not in ranges and name not in ATTRIBUTES:
                raise _fault(text, f"no attribute {name!r}; there are: {', '.join(ATTRIBUTES)}, cpus/N, elapsed/N")
        if predictor not in PREDICTORS:
            raise _fault(text, f"no predictor {predictor!r}; there are: {', '.join(PREDICTORS)}")
        if data not in DATA:
            raise _fault(text, f"data is {data!r}; expected {' or '.join(DATA)}")
        if not history.isdecimal() or not 2 <= int(history) <= MOST_HISTORY:
            raise _fault(text, f"history is {history!r}; expected 2 to {MOST_HISTORY}")
        kept = [name for name in names if not name.startswith("elapsed/")]
        return cls.of(kept, predictor, data == "relative", int(history), ranges.get("elapsed"))

    @classmethod
    def of(
        cls,
        attributes: Iterable[str],
        predictor: str = "mean",
        relative: bool = False,
        history: int = MOST_HISTORY,
        elapsed: int | None = None,
    ) -> "RunTemplate":
        """The template with its attributes in the order in which those of all templates stand."""
        return cls(tuple(sorted(attributes, key=_place)), predictor, relative, history, elapsed)

    def __str__(self) -> str:
        elapsed = () if self.elapsed is None else (f"elapsed/{self.elapsed}",)
        attributes = ",".join((*self.attributes, *elapsed)) or "site"
        return f"{attributes} {self.predictor} {DATA[self.relative]} {self.history}"

    @property
    def kept(self) -> Template:
        """The categories' histories that it reads."""
        return Template(self.attributes, self.history)

    def least_s(self, elapsed_s: float) -> float:
        """Seconds that a run must have taken, for a job that has run for `elapsed_s`, to be compared with it."""
        return 0.0 if self.elapsed is None else elapsed_s // self.elapsed * self.elapsed

    def scale(self, walltime: float | None) -> float:
        """What one of its data points is a share of, in seconds; NaN where it cannot be told without a walltime."""
        if not self.relative:
            return 1.0
        return walltime if walltime else math.nan

    def point(self, run_s: float, walltime: float | None) -> float:
        """A run as a data point; NaN where it is none. What ran over its walltime ran for all of it."""
        return min(run_s / self.scale(walltime), 1.0) if self.relative else run_s


def _size(text: str, name: str) -> int | None:
    """The N of `cpus/N` or `elapsed/N`; None for plain `cpus`, the ranges of powers of two."""
    kind, slash, size = name.partition("/")
    if kind == "cpus" and not slash:
        return None
    if not size.isdecimal() or not 1 <= int(size) <= 1_000_000_000 or size != str(int(size)):
        raise _fault(text, f"{name!r}: expected {kind}/N with N from 1 to 1000000000")
    return int(size)


def _place(name: str) -> int:
    return list(ATTRIBUTES).index(name.partition("/")[0])


def _fault(text: str, problem: str) -> ValueError:
    return ValueError(f"template {text!r}: {problem}; an example: {EXAMPLE!r}")


RUN, POINT, NODES = range(3)
"""The rows of a category's data: run times in seconds, data points, and what the regression is over."""


@njit(cache=True)
def estimate(
    data: Floats, first: int, last: int, least_s: float, at: float, regression: bool, quantiles: Floats
) -> tuple[float, float, int]:
    """What a category's data, from place `first` up to `last`, say of a job.

    The value expected, half the width of its confidence interval, both in the data points' unit, and how many points
    that is made of. The half width is infinite where there are too few: a mean needs two, a regression three, and not
    all on as many processors. All is added up anew each time, in the data's order: the same data give the same bits.

    Parameters:
        data: rows `RUN`, `POINT` and `NODES`; a point that is NaN is none.
        least_s: seconds that a run must have taken to be used.
        at: the job's own place on the `NODES` axis.
        quantiles: Student's t by degrees of freedom, for regressions.
    """
    count, points, nodes, least, most = 0, 0.0, 0.0, np.inf, -np.inf
    for i in range(first, last):
        if data[RUN, i] >= least_s and not np.isnan(data[POINT, i]):
            count += 1
            points += data[POINT, i]
            nodes += data[NODES, i]
            least, most = min(least, data[NODES, i]), max(most, data[NODES, i])
    if count < 2 or (regression and (count < 3 or least == most)):
        return 0.0, np.inf, count
    points /= count
    nodes /= count
    spread, together, squares = 0.0, 0.0, 0.0
    for i in range(first, last):
        if data[RUN, i] >= least_s and not np.isnan(data[POINT, i]):
            y = data[POINT, i] - points
            squares += y * y
            if regression:
                x = data[NODES, i] - nodes
                spread += x * x
                together += x * y
    if not regression:
        return points, CHEBYSHEV * math.sqrt(squares / (count - 1)), count
    slope = together / spread
    residues = 0.0
    for i in range(first, last):
        if data[RUN, i] >= least_s and not np.isnan(data[POINT, i]):
            residue = data[POINT, i] - points - slope * (data[NODES, i] - nodes)
            residues += residue * residue
    off = at - nodes
    root = math.sqrt(residues / (count - 2)) * math.sqrt(1.0 + 1.0 / count + off * off / spread)
    return points + slope * off, quantiles[count - 2] * root, count


@cache
def student_quantiles(history: int) -> Floats:
    """Student's t that is exceeded to either side with probability 1 - `CONFIDENCE`, by degrees of freedom.

    For histories of this length; 10 µs each.
    """
    from scipy.special import stdtrit  # slow to import, and for regressions only

    return np.concatenate(([np.nan], stdtrit(np.arange(1, max(history - 1, 2)), (1 + CONFIDENCE) / 2)))


def within(run_s: float, walltime: float | None, elapsed_s: float = 0.0) -> float:
    """A run time not beyond the walltime, at which a job is ended, nor below what it has run already."""
    return max(min(run_s, walltime) if walltime else run_s, elapsed_s, 0.0)


class _Points:
    """The data of one category for one template, brought up to date from the history whenever they are read."""

    __slots__ = ("data", "first", "last", "number", "runs", "template")

    def __init__(self, template: RunTemplate, runs: deque[Run]) -> None:
        self.template = template
        self.runs = runs
        self.number = 0  # of the last run that was taken over
        self.first = self.last = 0
        self.data: Floats = np.empty((3, 8))

    def update(self) -> None:
        new: list[Run] = []
        for run in reversed(self.runs):
            if run.number <= self.number or len(new) == self.template.history:
                break
            new.append(run)
        if new:
            self._append(new[::-1])
            self.number = new[0].number

    def _append(self, new: list[Run]) -> None:
        if self.last + len(new) > self.data.shape[1]:
            kept = self.data[:, self.first : self.last]
            data = np.empty((3, 2 * (kept.shape[1] + len(new))))
            data[:, : kept.shape[1]] = kept
            self.data, self.first, self.last = data, 0, kept.shape[1]
        nodes = PREDICTORS[self.template.predictor]
        for place, run in enumerate(new, self.last):
            self.data[RUN, place] = run.run_s
            self.data[POINT, place] = self.template.point(run.run_s, run.walltime)
            self.data[NODES, place] = nodes(run.cpus)
        self.last += len(new)
        self.first = max(self.first, self.last - self.template.history)


CACHED = 50_000
"""Categories of all templates whose data are kept as arrays beside the history."""


class Templates(RunMethod):
    """The estimate of the template that is surest, of a set of templates.

    Each template whose category has enough runs gives an estimate and its 90% confidence interval (1998, appendix): by
    Chebyshev's theorem for a mean, by Student's distribution for a regression. The smallest interval wins, in seconds;
    of equal ones the first. No estimate is above the walltime or below the time that the job has run already.

    Parameters:
        templates: as text, see `RunTemplate`. Those of a site are found by `queuecast tune --runtimes template`.

    Raises:
        ValueError: a template cannot be read.

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
        "templates": Annotated[list[str], Meta(min_length=1, max_length=MOST_TEMPLATES)],
    }

    def __init__(self, templates: Sequence[str] = DEFAULT) -> None:
        self.set = [RunTemplate.parse(text) for text in templates]
        self.templates = tuple(template.kept for template in self.set)
        self._points: list[dict[Category, _Points]] = [{} for _ in self.set]
        regressions = [template.history for template in self.set if template.predictor != "mean"]
        self._quantiles = student_quantiles(max(regressions)) if regressions else np.empty(0)

    def predict(self, job: Job, runs: RunHistory, elapsed_s: float = 0.0) -> RunEstimate:
        """The surest estimate. About 4 µs a template, and 1 to 3 µs a thousand runs of its category."""
        found = self._surest(job, runs, elapsed_s)
        if found is None:
            return RunEstimate(None, "no history")
        run_s, half, reason = found
        low, middle, high = (within(bound, job.walltime, elapsed_s) for bound in (run_s - half, run_s, run_s + half))
        return RunEstimate(middle, reason, low, high)

    def _surest(self, job: Job, runs: RunHistory, elapsed_s: float) -> tuple[float, float, str] | None:
        best, found = math.inf, None
        for place, template in enumerate(self.set):
            scale = template.scale(job.walltime)
            if math.isnan(scale):
                continue
            points = self._of(place, self.templates[place].category(job), runs)
            if points is None:
                continue
            at, regression = PREDICTORS[template.predictor](job.cpus), template.predictor != "mean"
            least_s = template.least_s(elapsed_s)
            value, half, count = estimate(
                points.data, points.first, points.last, least_s, at, regression, self._quantiles
            )
            if half * scale < best:
                best = half * scale
                found = (value * scale, best, f"{template.predictor} of {count} by {self.templates[place].name}")
        return found

    def _of(self, place: int, category: Category | None, runs: RunHistory) -> _Points | None:
        kept = runs.of(category)
        if category is None or len(kept) < 2:
            return None
        cached = self._points[place]
        points = cached.get(category)
        if points is None or points.runs is not kept:  # a category that was forgotten begins anew
            if points is None and len(cached) * len(self.set) >= CACHED:
                del cached[next(iter(cached))]
            points = cached[category] = _Points(self.set[place], kept)
        points.update()
        return points
