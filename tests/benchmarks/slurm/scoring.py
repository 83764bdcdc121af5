"""Score the estimates of a run with the measures of `models.measures`, in hours of the trace."""

from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from models.arrays import Floats
from models.measures import Accuracy
from models.waiting_accuracy import WAITING_AGES_S, AgeAccuracy, Landmark, RecentRemaining
from tests.benchmarks.slurm.estimates import Run, ScoredJob

WARM_UP = 0.4
"""Share of the jobs, the first ones, that are not scored."""

METHODS = ("zero", "median", "test-only", "squeue", "blend")
BLOCK = 25
RESAMPLES = 4000
INTERVAL = (0.05, 0.95)
MIN_JOBS = 30

_FEW = "at least one job must be scored"


class Score(msgspec.Struct, kw_only=True):
    """The score of a method over a set of jobs.

    Attributes:
        jobs: number of jobs.
        missing: share of the jobs without an estimate.
        mae_h: mean absolute error, hours of the trace.
        mae_interval: its interval of 90 %.
        difference_h: interval of 90 % of its mean absolute error minus that of queuecast.
        x2: share within a factor of 2.
        x2_interval: its interval of 90 %.
    """

    jobs: int
    missing: float
    mae_h: float
    mae_interval: tuple[float, float]
    difference_h: tuple[float, float]
    x2: float
    x2_interval: tuple[float, float]


class AgeScore(msgspec.Struct, kw_only=True):
    """Mean absolute errors of the remaining wait at an age, hours of the trace, by method.

    `missing` is the share of the jobs for which Slurm had no estimate. `difference_h` is the interval of 90 % of
    Slurm's error minus that of queuecast. `with_estimate_h` has the errors over the jobs with an estimate of Slurm.
    """

    age_s: float
    jobs: int
    missing: float
    errors_h: dict[str, float]
    difference_h: tuple[float, float]
    with_estimate_h: dict[str, float]


def scored_jobs(run: Run) -> list[ScoredJob]:
    """Return the jobs after the warm-up."""
    return run.jobs[round(WARM_UP * len(run.jobs)) :]


def at_submission(run: Run, choose: Callable[[ScoredJob], bool]) -> dict[str, Score]:
    """Score the estimates at submission of the chosen jobs, by method. No estimate counts as the recent median."""
    jobs = [job for job in scored_jobs(run) if choose(job)]
    if not jobs:
        raise ValueError(_FEW)
    factor = run.workload.factor
    errors, within, missing = dict[str, Floats](), dict[str, Floats](), dict[str, float]()
    for method in METHODS:
        parts = [_single(job, method, factor) for job in jobs]
        errors[method] = np.array([part.error.total / 3600.0 for part in parts])
        within[method] = np.array([part.within_x2 for part in parts], float)
        missing[method] = float(np.mean([job.first(method) is None for job in jobs]))
    return {
        method: Score(
            jobs=len(jobs),
            missing=missing[method],
            mae_h=float(errors[method].mean()),
            mae_interval=interval(errors[method]),
            difference_h=interval(errors[method] - errors["blend"]),
            x2=float(within[method].mean()),
            x2_interval=interval(within[method]),
        )
        for method in METHODS
    }


def _single(job: ScoredJob, method: str, factor: int) -> Accuracy:
    """Return the accuracy of one estimate at submission."""
    accuracy, wait_s = Accuracy(), job.first(method)
    if wait_s is None:
        wait_s = job.first("median") or 0.0
    accuracy.add_wait(wait_s * factor, job.wait_s * factor)
    return accuracy


def while_waiting(run: Run) -> list[AgeScore]:
    """Score the estimates in force of the jobs that still waited at each age."""
    factor, found = run.workload.factor, list[AgeScore]()
    for age, age_s in enumerate(WAITING_AGES_S):
        jobs = [job for job in scored_jobs(run) if job.wait_s * factor > age_s]
        if len(jobs) < MIN_JOBS:
            break
        recent = [_recent_s(run.jobs, job, age, factor) for job in jobs]
        has_estimate = np.array([_estimate_s(job, "squeue", age_s, factor) is not None for job in jobs])
        rows: dict[str, list[AgeAccuracy]] = {
            method: [_at_age(job, method, age, left_s, factor) for job, left_s in zip(jobs, recent, strict=True)]
            for method in ("squeue", "blend")
        }
        errors = {
            "now": np.array([row.now_s for row in rows["blend"]]),
            "recent": np.array([row.recent_s for row in rows["blend"]]),
            "squeue": np.array([row.in_force_s for row in rows["squeue"]]),
            "blend": np.array([row.in_force_s for row in rows["blend"]]),
        }
        hours = {name: values / 3600.0 for name, values in errors.items()}
        found.append(
            AgeScore(
                age_s=age_s,
                jobs=len(jobs),
                missing=1.0 - float(has_estimate.mean()),
                errors_h={name: float(values.mean()) for name, values in hours.items()},
                difference_h=interval(hours["squeue"] - hours["blend"]),
                with_estimate_h={
                    name: float(values[has_estimate].sum()) / max(int(has_estimate.sum()), 1)
                    for name, values in hours.items()
                },
            )
        )
    return found


def _at_age(job: ScoredJob, method: str, age: int, recent_s: float, factor: int) -> AgeAccuracy:
    accuracy, age_s = AgeAccuracy(), WAITING_AGES_S[age]
    wait_s = _estimate_s(job, method, age_s, factor)
    whole_s = age_s + recent_s if wait_s is None else wait_s
    accuracy.add(Landmark(age, whole_s, whole_s, recent_s), job.wait_s * factor)
    return accuracy


def _estimate_s(job: ScoredJob, method: str, age_s: float, factor: int) -> float | None:
    """Return the estimate in force of the whole wait, seconds of the trace."""
    one = job.in_force(method, age_s / factor)
    return None if one is None or one.wait_s is None else one.wait_s * factor


def _recent_s(jobs: Sequence[ScoredJob], job: ScoredJob, age: int, factor: int) -> float:
    """Return the median remaining wait of the recent jobs that reached the age."""
    at, recent = job.submit * factor + WAITING_AGES_S[age], RecentRemaining()
    left = sorted(((one.submit + one.wait_s) * factor, one.wait_s * factor) for one in jobs)
    for left_at, wait_s in left:
        if left_at < at:
            recent.add(left_at, wait_s)
    return recent.median(age, at)


def coverage(run: Run, q: str) -> float:
    """Return the share of the scored jobs whose wait was within queuecast's bound at submission."""
    bounds = [(job, found[0].bounds) for job in scored_jobs(run) if (found := job.estimates.get("blend"))]
    held = [job.wait_s <= bound[q] for job, bound in bounds if bound is not None and q in bound]
    return float(np.mean(held)) if held else float("nan")


def interval(values: Floats) -> tuple[float, float]:
    """Return the interval of 90 % of a mean: a bootstrap over blocks of consecutive jobs, always the same."""
    blocks = [values[at : at + BLOCK] for at in range(0, len(values), BLOCK)]
    sums, sizes = np.array([block.sum() for block in blocks]), np.array([len(block) for block in blocks])
    drawn = np.random.default_rng(1).integers(0, len(blocks), (RESAMPLES, len(blocks)))
    means = sums[drawn].sum(axis=1) / sizes[drawn].sum(axis=1)
    low, high = np.quantile(means, INTERVAL)
    return float(low), float(high)
