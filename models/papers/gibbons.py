"""Run times from the Historical Profiler, by Gibbons (1997).

R. Gibbons, "A Historical Application Profiler for Use by Parallel Schedulers", chapter 4. For each executable and user,
the profiler keeps the number of jobs and the sums of their run times, in ranges of CPUs, of run time and of memory
(section 4.3.2). From these sums it answers three queries (section 4.2), each with a confidence: how long a job will
run, how long it would run on p CPUs, and whether it runs longer than another job.

**Executables and users.** Jobs without an executable count as jobs of one unnamed executable, so that only the user
distinguishes them. Where a user has too few runs of an executable, the runs by all users count. Where the executable is
new, all jobs that ever ran count (section 4.3.3). Within each of these three categories, the mean of the runs in the
job's own range of CPUs comes first. The execution time function, fitted through all ranges, is used only where that
range has fewer than two runs, as in table 3 of Smith, Foster and Taylor (1998), who had Gibbons' own code. (Section
4.3.3 has the opposite order; `docs/research/papers.md` has the cost of that, and the misprints.) The ranges of CPUs are
the thesis' ⌈log2 n⌉, 1, 2, 3-4, 5-8 …, not Smith's 1, 2-3, 4-7 …

**The execution time function** (equation 4.1) is Sevcik's with a constant φ. On p CPUs it is

    T(p) = φW/p + α + βp

through the mean run times t_i of the ranges at their mean CPUs p_i, by least squares with the weights 1/σ_i²:

    b = (X'V⁻¹X)⁻¹ X'V⁻¹Y,   Y0 ± t(n, (1+δ)/2) √(X0'(X'V⁻¹X)⁻¹X0)

V holds the variances σ_i² of the means: the variance of a range's runs divided by their number. A range whose runs have
no variance, such as a single run, gets the pooled variance within all ranges.
"""

import math
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, ClassVar, NamedTuple

import msgspec
from msgspec import Meta

from models.method import RunMethod
from models.papers.execution_time import CONFIDENCE, MIN_RUNS, ExecutionTime, Sample, runs_longer
from models.runtimes.walltime import within
from models.site.job import Job, RunEstimate
from models.site.rows import Rows
from models.site.runs import RunHistory
from models.site.state import MICRO, micros
from models.stored_values import encode, reader

COEFFICIENTS = 3  # the coefficients of T(p): this many ranges must have runs for a fit

TIME_RANGE = 4
MEMORY_RANGE = 4
"""Ratio of a range's end to its begin, for run times and for memory. The thesis names no base."""


class Finding(NamedTuple):
    """The estimate for a job and half the width of its confidence interval, in seconds, with the reason."""

    estimate_s: float
    error_s: float
    reason: str


Category = tuple[str | None, ...]  # user and executable, the executable alone, or nothing


class FinishedJob(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A finished job, as it is stored in a row."""

    user: str | None
    executable: str | None
    cpus: int
    memory: int | None
    walltime: float | None
    run_s: float


class RunEntry(msgspec.Struct):
    """Figure 4.4's RunEntry: the number of runs in a range, and the sums of their run times, squares and CPUs.

    Run times are whole microseconds, or whole millionths of the walltime. With integers, a value that was added can be
    subtracted exactly, and the order of additions does not matter.
    """

    count: int = 0
    time: int = 0
    squares: int = 0
    cpus: int = 0

    def add(self, time: int, cpus: int, sign: int) -> None:
        """Add one run (`sign` 1) or remove it (-1)."""
        self.count += sign
        self.time += sign * time
        self.squares += sign * time * time
        self.cpus += sign * cpus

    @classmethod
    def merged(cls, entries: "Iterable[RunEntry]") -> "RunEntry":
        """The entry of all their runs."""
        total = cls()
        for entry in entries:
            total.count += entry.count
            total.time += entry.time
            total.squares += entry.squares
            total.cpus += entry.cpus
        return total

    def spread(self, unit: float) -> float:
        """Sum of the squared distances from the mean, where a run time of 1 is `unit` seconds."""
        return (self.count * self.squares - self.time**2) / self.count / MICRO**2 * unit**2

    def sample(self, unit: float) -> Sample:
        """The runs in seconds, where a run time of 1 is `unit` seconds."""
        deviation = math.sqrt(self.spread(unit) / (self.count - 1)) if self.count >= MIN_RUNS else math.nan
        return Sample(self.count, self.time / self.count / MICRO * unit, deviation)


class ExecEntry:
    """Figure 4.4's ExecEntry: the runs of one category by ranges of CPUs, run time and memory."""

    def __init__(self) -> None:
        self.ranges: dict[int, dict[tuple[int, int | None], RunEntry]] = {}

    def add(self, ran: FinishedJob, time: int, sign: int) -> None:
        """Add one run (`sign` 1) or remove it (-1)."""
        place, kind = _cpus_range(ran.cpus), (_time_range(ran.run_s), _memory_range(ran.memory))
        entries = self.ranges.setdefault(place, {})
        entry = entries.setdefault(kind, RunEntry())
        entry.add(time, ran.cpus, sign)
        if not entry.count:
            del entries[kind]
        if not entries:
            del self.ranges[place]

    def find(self, place: int, job: Job, elapsed_s: float) -> RunEntry:
        """Return the runs in a range of CPUs that ran at least as long as the job, with similar memory."""
        least, memory = _time_range(elapsed_s), _memory_range(job.memory)
        kinds = self.ranges.get(place, {}).items()
        return RunEntry.merged(
            entry for (time, size), entry in kinds if time >= least and (memory is None or size == memory)
        )

    def find_all(self, job: Job, elapsed_s: float) -> list[RunEntry]:
        """Return the similar runs in each range of CPUs that has some, the smallest first."""
        found = (self.find(place, job, elapsed_s) for place in sorted(self.ranges))
        return [entry for entry in found if entry.count]


class Gibbons(RunMethod):
    """The Historical Profiler over the last `depth` jobs of a site.

    A job with a requested walltime is compared by shares of the walltime, as in Smith's table 9. Where there are no
    such runs, or with `relative` off, it is compared by seconds. Shares have a lower mean error on the CTC and KTH
    traces. The interval of a prediction is the thesis': that of the mean run time of such jobs, so a single run can be
    outside of it.

    A prediction costs a pass over the ranges of a category, some dozens.

    Args:
        relative: whether to compare run times by their share of the requested walltime.
        depth: jobs kept; all of them count the same (section 4.3.2).

    >>> method = Gibbons()
    >>> for run_s in (300.0, 500.0):
    ...     method.learn(Job(id="1", attempt=0, submit=0.0, user="ada", cpus=4), run_s, RunHistory())
    >>> method.predict(Job(id="2", attempt=0, submit=0.0, user="ada", cpus=3), RunHistory()).run_s
    400.0
    """

    name = "gibbons"
    tunable: ClassVar[dict[str, Any]] = {"relative": bool, "depth": Annotated[int, Meta(ge=2, le=1_000_000)]}

    def __init__(self, relative: bool = True, depth: int = 2048) -> None:
        self.relative = relative
        self.rows: Rows = Rows(depth)
        self._repository: dict[tuple[bool, Category], ExecEntry] = {}

    def predict(self, job: Job, runs: RunHistory, elapsed_s: float = 0.0) -> RunEstimate:
        """Return the estimate; for a job that has exceeded it, the multiple that the job has reached."""
        found = self._find(job, elapsed_s) or self._find(msgspec.structs.replace(job, memory=None))
        if found is None:
            return RunEstimate(None, "too little history")
        expected = outlived(found.estimate_s, found.error_s, elapsed_s)
        ends = (expected + half for half in (0.0, -found.error_s, found.error_s))
        run_s, low, high = (within(end, job.walltime, elapsed_s) for end in ends)
        return RunEstimate(run_s, found.reason, low, high)

    def get_exec_time_function(self, job: Job, elapsed_s: float = 0.0) -> ExecutionTime | None:
        """Fit T(p) of such a job to the first category with enough runs (section 4.2, getExecTimeFunction)."""
        fits = (_fitted(entry.find_all(job, elapsed_s), unit) for _, entry, unit in self._entries(job))
        return next((function for function in fits if function is not None), None)

    def compare_job_estimates(
        self,
        a: Job,
        b: Job,
        difference_s: float = 0.0,
        confidence: float = CONFIDENCE,
        elapsed_a_s: float = 0.0,
        elapsed_b_s: float = 0.0,
    ) -> bool:
        """Test whether a's mean is `difference_s` longer than b's at this confidence (section 4.2,
        compareJobEstimates).

        False too where either has too few runs. (The section has "difference times"; the test that it refers to is a
        test of differences, and so is its example.)
        """
        x, y = self._sample(a, elapsed_a_s), self._sample(b, elapsed_b_s)
        return x is not None and y is not None and runs_longer(x, y, difference_s, confidence)

    def learn(self, job: Job, run_s: float, runs: RunHistory) -> None:
        """Section 4.2's updateProfiler, for one job."""
        if len(self.rows.values) == self.rows.depth:
            self._count(_read(self.rows.values[0]), -1)
        ran = FinishedJob(job.user, job.executable, job.cpus, job.memory, job.limit_s, run_s)
        self.rows.append(encode(ran))
        self._count(ran, 1)

    def load(self, saved: bytes) -> None:
        """Compute the sums from the restored rows."""
        self._repository.clear()
        for ran in self.rows.read(_read):
            self._count(ran, 1)

    def _count(self, ran: FinishedJob, sign: int) -> None:
        for relative, unit in self._units(ran.walltime):
            time = micros(min(ran.run_s / unit, 1.0) if relative else ran.run_s)
            for category in _categories(ran):
                entry = self._repository.setdefault((relative, category), ExecEntry())
                entry.add(ran, time, sign)
                if not entry.ranges:
                    del self._repository[relative, category]

    def _units(self, walltime: float | None) -> Iterator[tuple[bool, float]]:
        """Return the units of run times: shares of the walltime, if there is one, and seconds."""
        if self.relative and walltime and walltime > 0:
            yield True, walltime
        yield False, 1.0

    def _entries(self, job: Job) -> Iterator[tuple[Category, ExecEntry, float]]:
        """Yield the repository's entries for such jobs, closest category first, with the unit of their run times in
        seconds.
        """
        for relative, unit in self._units(job.limit_s):
            for category in _categories(job):
                entry = self._repository.get((relative, category))
                if entry is not None:
                    yield category, entry, unit

    def _find(self, job: Job, elapsed_s: float = 0.0, confidence: float = CONFIDENCE) -> Finding | None:
        """Return the result of the first of the six templates in table 3 that has one."""
        for category, entry, unit in self._entries(job):
            own = entry.find(_cpus_range(job.cpus), job, elapsed_s)
            if own.count >= MIN_RUNS:
                sample = own.sample(unit)
                reason = f"mean of {own.count} by {_NAMES[len(category)]},cpus"
                return Finding(sample.mean, sample.error(confidence), reason)
            function = _fitted(entry.find_all(job, elapsed_s), unit)
            if function is not None:
                estimate_s, error_s = function.estimate_time(job.cpus, confidence)
                if 0 < estimate_s < math.inf:
                    reason = f"T({job.cpus}) of {function.observations} by {_NAMES[len(category)]}"
                    return Finding(estimate_s, error_s, reason)
        return None

    def _sample(self, job: Job, elapsed_s: float) -> Sample | None:
        for _, entry, unit in self._entries(job):
            own = entry.find(_cpus_range(job.cpus), job, elapsed_s)
            if own.count >= MIN_RUNS:
                return own.sample(unit)
        return None


_NAMES = ("site", "executable", "executable,user")


def outlived(estimate_s: float, error_s: float, elapsed_s: float) -> float:
    """Section 4.3.3: E, or for a job that has run for R > E + 3·error, E' = ⌈R/E - 0.5⌉·E with an E of 1 s at least.

    >>> outlived(600.0, 50.0, 700.0), outlived(600.0, 50.0, 1600.0)
    (600.0, 1800.0)
    """
    if estimate_s + 3 * error_s >= elapsed_s:
        return estimate_s
    step = max(estimate_s, 1.0)
    return math.ceil(elapsed_s / step - 0.5) * step


_read = reader(FinishedJob, "a job that ran")


def _categories(job: Job | FinishedJob) -> Iterator[Category]:
    """Yield the job's categories, the closest first; the one by user only if the job has a user.

    A job without an executable is one of an unnamed executable.
    """
    if job.user is not None:
        yield (job.executable, job.user)
    yield (job.executable,)
    yield ()


def _cpus_range(cpus: int) -> int:
    """Section 4.3.2: ⌈log2 n⌉ of n CPUs."""
    return (cpus - 1).bit_length()


def _time_range(run_s: float) -> int:
    return _logarithm(int(run_s), TIME_RANGE)


def _memory_range(memory: int | None) -> int | None:
    return None if memory is None else _logarithm(memory, MEMORY_RANGE)


def _logarithm(size: int, base: int) -> int:
    """Count the integer divisions of `size` by `base`, a power of two, until the result is 0."""
    return -(-max(size, 0).bit_length() // (base.bit_length() - 1))


def _fitted(entries: list[RunEntry], unit: float) -> ExecutionTime | None:
    if len(entries) < COEFFICIENTS:
        return None
    spreads = [entry.spread(unit) for entry in entries]
    freedom = sum(entry.count - 1 for entry in entries)
    together = math.fsum(spreads) / freedom if freedom else 0.0
    variances = [
        (spread / (entry.count - 1) if spread else together or 1.0) / entry.count
        for entry, spread in zip(entries, spreads, strict=True)
    ]
    samples = [entry.sample(unit) for entry in entries]
    cpus = [entry.cpus / entry.count for entry in entries]
    return ExecutionTime.fitted(
        cpus, [sample.mean for sample in samples], variances, sum(entry.count for entry in entries)
    )
