"""A template for run times: the attributes of similar jobs, and the estimate from the run times of a category."""

import math
from collections.abc import Callable, Iterable

import msgspec

from models.site.runs import ATTRIBUTES, Template

MAX_HISTORY_RUNS = 65_536  # maximum number of runs of a category that are kept: the meaning of "not limited"

UNIT = 2**23
"""A data point is a whole number: of seconds up to `UNIT`, 97 days, or of `UNIT`-ths of the requested walltime.

Sums of whole numbers are exact, independent of the order of additions and subtractions; with `MAX_HISTORY_RUNS` points
none of the sums of squares exceeds 64 bits.
"""

PREDICTORS: dict[str, Callable[[int], int]] = {
    "mean": lambda cpus: 0,
    "linear": lambda cpus: min(cpus, UNIT),
    "inverse": lambda cpus: round(UNIT / cpus),
    "logarithmic": lambda cpus: round(math.log(cpus) * UNIT / 32),
}
"""Estimates from a category's run times t: their mean, or a regression t = b0 + b1·x over x(n) of the CPUs n.

A regression does not depend on the unit of x, which is chosen so that x is at most `UNIT`.
"""

DATA = ("absolute", "relative")  # type of data point: a run time in seconds, or its share of the requested walltime
EXAMPLE = "user,cpus/4 mean relative 4096"

LAST_RESORT = "elapsed/64 mean absolute 64"  # all jobs of a site: for those without a similar job


class RunTemplate(msgspec.Struct, frozen=True):
    """Attributes by which jobs are similar, with the predictor and the number of runs that it uses.

    As text it is four words: the attributes, separated by commas ("site" for none); a predictor; "absolute" or
    "relative"; and the length of the history. The attributes are those of `models.site.runs.ATTRIBUTES` in their order,
    `cpus/N` for ranges of N CPUs and `elapsed/N` to use the time that a job has run already.

    A running job is compared only with jobs that ran at least as long. With `elapsed/N` these are the jobs whose run
    time is at least the elapsed time, rounded down to a multiple of N seconds.

    >>> str(RunTemplate.parse("cpus/4,user mean relative 4096"))
    'user,cpus/4 mean relative 4096'
    """

    attributes: tuple[str, ...]
    predictor: str = "mean"
    relative: bool = False
    history: int = MAX_HISTORY_RUNS
    elapsed: int | None = None

    @classmethod
    def parse(cls, text: str) -> "RunTemplate":
        """Parse the template from its text.

        Raises:
            ValueError: a word of the text is wrong; the message names the word and what is expected.
        """
        try:
            attributes, predictor, data, history = text.split()
        except ValueError:
            raise _fault(text, "expected four words: attributes, predictor, data and history") from None
        names = [] if attributes == "site" else attributes.split(",")
        if len({name.partition("/")[0] for name in names}) < len(names):
            raise _fault(text, "an attribute is there twice")
        ranges = {kind: _size(text, name) for name in names if (kind := name.partition("/")[0]) in ("cpus", "elapsed")}
        for name in names:
            if name.partition("/")[0] not in ranges and name not in ATTRIBUTES:
                raise _fault(text, f"no attribute {name!r}; there are: {', '.join(ATTRIBUTES)}, cpus/N, elapsed/N")
        if predictor not in PREDICTORS:
            raise _fault(text, f"no predictor {predictor!r}; there are: {', '.join(PREDICTORS)}")
        if data not in DATA:
            raise _fault(text, f"data is {data!r}; expected {' or '.join(DATA)}")
        if not history.isdecimal() or not 2 <= int(history) <= MAX_HISTORY_RUNS:
            raise _fault(text, f"history is {history!r}; expected 2 to {MAX_HISTORY_RUNS}")
        kept = [name for name in names if not name.startswith("elapsed/")]
        return cls.of(kept, predictor, data == "relative", int(history), ranges.get("elapsed"))

    @classmethod
    def of(
        cls,
        attributes: Iterable[str],
        predictor: str = "mean",
        relative: bool = False,
        history: int = MAX_HISTORY_RUNS,
        elapsed: int | None = None,
    ) -> "RunTemplate":
        """Return the template with its attributes in the standard order."""
        order = list(ATTRIBUTES)
        kept = sorted(attributes, key=lambda name: order.index(name.partition("/")[0]))
        return cls(tuple(kept), predictor, relative, history, elapsed)

    def __str__(self) -> str:
        elapsed = () if self.elapsed is None else (f"elapsed/{self.elapsed}",)
        attributes = ",".join((*self.attributes, *elapsed)) or "site"
        return f"{attributes} {self.predictor} {DATA[self.relative]} {self.history}"

    @property
    def kept(self) -> Template:
        """Histories of the categories that it reads."""
        return Template(self.attributes, self.history)

    def least_s(self, elapsed_s: float) -> int:
        """Seconds that a run must have taken, for a job that has run for `elapsed_s`, to be compared with it."""
        return 0 if self.elapsed is None else int(elapsed_s // self.elapsed) * self.elapsed

    def scale(self, walltime: float | None) -> float:
        """Return the seconds of a data point's unit, for a job of this walltime; NaN if a walltime is missing."""
        if not self.relative:
            return 1.0
        return walltime / UNIT if walltime else math.nan

    def point(self, run_s: float, walltime: float | None) -> int:
        """Convert a run to a data point; -1 if it has none. A run beyond its walltime counts as the whole walltime."""
        if not self.relative:
            return min(round(run_s), UNIT)
        return round(min(run_s / walltime, 1.0) * UNIT) if walltime else -1


def _size(text: str, name: str) -> int | None:
    """The N of `cpus/N` or `elapsed/N`; None for plain `cpus`, the ranges of powers of two."""
    kind, slash, size = name.partition("/")
    if kind == "cpus" and not slash:
        return None
    if not size.isdecimal() or not 1 <= int(size) <= 1_000_000_000 or size != str(int(size)):
        raise _fault(text, f"{name!r}: expected {kind}/N with N from 1 to 1000000000")
    return int(size)


def _fault(text: str, problem: str) -> ValueError:
    return ValueError(f"template {text!r}: {problem}; an example: {EXAMPLE!r}")
