"""Compare the default with the better baseline by stretch of jobs, and print the coverage by month and queue.

    queuecast replay TRACE --rows 1 60000 --shadows --outcomes FILE
    python -m tests.benchmarks.stretches TRACE FILE

Consecutive stretches have 2000 jobs in the order of submission, from the 1001st on. Months have 30 days from the first
submission. The coverage is printed for months of at least 200 jobs and for queues of at least 1000.
"""

import sys
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from models.records import Outcome
from streams.sources.swf import SwfJob, read_swf

STRETCH, LEARNING = 2000, 1000
FACTOR, COVERAGE_OFF = 1.15, 0.04
BOUND, METHOD, TRIVIAL = "0.9", "blend", ("zero", "median")
MONTH_S, MONTH_JOBS, QUEUE_JOBS = 30 * 86_400.0, 200, 1000


class Scored(NamedTuple):
    """A job: its line in the trace, the errors by method in hours, and whether its bound covered the wait."""

    job: SwfJob
    errors_h: dict[str, float]
    held: bool


def scored(trace: Path, outcomes: Path) -> list[Scored]:
    """Return the jobs with an outcome of every method, in the order of submission."""
    errors: dict[str, dict[str, float]] = {}
    held: dict[str, bool] = {}
    with outcomes.open("rb") as lines:
        for line in lines:
            one = msgspec.json.decode(line, type=Outcome)
            if one.actual_run_s is None:
                wait_s = one.actual_wait_s
                errors.setdefault(one.job, {})[one.method] = abs((one.predicted_wait_s or 0.0) - wait_s) / 3600
                if one.method == METHOD and one.bounds is not None:
                    held[one.job] = wait_s <= one.bounds[BOUND]
    jobs = ((str(job.number), job) for job in read_swf(trace).jobs)
    return [Scored(job, errors[name], held[name]) for name, job in jobs if name in held and METHOD in errors[name]]


def worst(jobs: list[Scored]) -> list[tuple[float, int, float, float]]:
    """Return the ratios of the stretches, descending, with the index of the first job and both mean errors (h)."""
    found = []
    for begin in range(LEARNING, len(jobs) - STRETCH + 1, STRETCH):
        part = jobs[begin : begin + STRETCH]
        means = {name: float(np.mean([one.errors_h[name] for one in part])) for name in (METHOD, *TRIVIAL)}
        rule = min(means[name] for name in TRIVIAL)
        found.append((means[METHOD] / max(rule, 1e-9), begin + 1, means[METHOD], rule))
    return sorted(found, reverse=True)


def coverage(jobs: list[Scored], least: int, group: dict[int, int]) -> list[tuple[int, int, float]]:
    """Return the number, size and coverage of each group with at least `least` jobs."""
    found: dict[int, list[bool]] = {}
    for place, one in enumerate(jobs):
        found.setdefault(group[place], []).append(one.held)
    return [(name, len(held), float(np.mean(held))) for name, held in sorted(found.items()) if len(held) >= least]


def main() -> None:
    """Print the stretches and the coverage."""
    jobs = scored(Path(sys.argv[1]), Path(sys.argv[2]))
    stretches = worst(jobs)
    print(f"{len(jobs)} jobs, {np.mean([one.held for one in jobs]):.1%} within the bound of {BOUND}")
    print(f"{sum(factor > FACTOR for factor, *_ in stretches)} of {len(stretches)} stretches over {FACTOR}; the worst:")
    for factor, begin, mine, rule in stretches[:4]:
        print(f"  from {begin}: {factor:.2f} times, {mine:.2f} h, the better trivial rule {rule:.2f} h")
    later = jobs[LEARNING:]
    months = {place: int((one.job.submit - jobs[0].job.submit) // MONTH_S) for place, one in enumerate(later)}
    queues = {place: one.job.queue for place, one in enumerate(later)}
    for what, least, group in (("months", MONTH_JOBS, months), ("queues", QUEUE_JOBS, queues)):
        shares = coverage(later, least, group)
        off = [f"{name} ({count} jobs) {share:.1%}" for name, count, share in shares if abs(share - 0.9) > COVERAGE_OFF]
        print(f"{what}: {len(off)} of {len(shares)} off by more than {COVERAGE_OFF}: {', '.join(off) or 'none'}")


if __name__ == "__main__":
    main()
