"""Recovery of methods after a change of a site's policy.

The same jobs run under one policy for `DAYS_BEFORE` days and then under another; a method's error is the mean of
|predicted − true wait| of the jobs that were submitted in a span. Waits, and with them errors, differ between policies
and from week to week. So errors are also shown as shares of the mean wait, and for a site that always followed the
second policy: when both are equal, the method has recovered.

The environment selects: `TESTS_CHANGE_METHODS=qespera,policy` names the methods, `TESTS_CHANGE_SEEDS=301` the
workloads and `TESTS_CHANGE_POLICIES="easy to lwf"` the changes below.

    .venv/bin/python -m pytest -m benchmark -s tests/benchmarks/test_policy_change.py
"""

import os
from collections import defaultdict
from collections.abc import Iterable, Mapping

import msgspec
import numpy as np
import pytest

from models.engine.engine import Engine
from models.engine.settings import EngineSettings
from models.method_registry import METHODS
from models.records import Outcome
from models.simulation import SimulatedJob, generate
from models.simulation.workload import DAY
from tests.simulation.grid import MONDAY
from tests.simulation.multifactor import Priorities
from tests.simulation.schedulers import Policy, run_changing

pytestmark = pytest.mark.timeout(7200)

CPUS, LOAD, JOBS = 256, 0.75, 12_000
SHORTER = 3
"""Divide run times by three and triple the number of jobs, so that weeks are more similar."""
DAYS_BEFORE, DAYS_AFTER = 42, 21
WEEKS_BEFORE = 3
"""Weeks before the change that define the old error level."""

CHANGES: dict[str, tuple[Policy, Policy]] = {
    "easy to lwf": ("easy", "lwf"),
    "lwf to easy": ("lwf", "easy"),
    "fairshare to small first": (
        Priorities(age=1.0, fairshare=3.0, size=0.0, cap=0.4),
        Priorities(age=1.0, fairshare=0.5, size=-2.0, small=1.0, cap=0.8),
    ),
}

Errors = Mapping[str, Mapping[int, list[float]]]
"""Absolute errors (s) of a day's jobs, by method and day (0: the first day of the new policy)."""


def option_values(what: str, default: Iterable[str]) -> list[str]:
    """Return the comma-separated values of the environment, or the default."""
    given = os.environ.get(f"TESTS_CHANGE_{what}")
    return list(default) if given is None else [name.strip() for name in given.split(",") if name.strip()]


def workload(seed: int) -> list[SimulatedJob]:
    """Return the jobs of the days before and after the change."""
    jobs = generate(seed, JOBS, CPUS, LOAD * SHORTER, start_time=MONDAY, impatient=0.0)
    end = MONDAY + (DAYS_BEFORE + DAYS_AFTER) * DAY
    assert jobs[-1].submit >= end
    return [shorter(job) for job in jobs if job.submit < end]


def shorter(job: SimulatedJob) -> SimulatedJob:
    """Return the job with a shorter run time."""
    walltime = None if job.walltime is None else job.walltime // SHORTER
    return msgspec.structs.replace(job, run=max(job.run // SHORTER, 1), walltime=walltime)


def errors_of(
    methods: list[str], jobs: list[SimulatedJob], policy: Policy, changes: list[tuple[int, Policy]]
) -> Errors:
    """Return the methods' errors."""
    method, *shadows = dict.fromkeys(("zero", *methods))
    engine = Engine("a", EngineSettings(method=method, shadows=tuple(shadows), bounds="", publish_shadows=True))
    errors: dict[str, defaultdict[int, list[float]]] = {name: defaultdict(list) for name in engine.methods.waits}
    for event in run_changing(jobs, CPUS, "a", policy, changes):
        for record in engine.apply(event):
            if isinstance(record, Outcome) and record.actual_run_s is None:
                day = int(record.made_at - MONDAY) // DAY - DAYS_BEFORE
                errors[record.method][day].append(abs(record.error_s))
    return errors


@pytest.mark.parametrize("name", option_values("POLICIES", CHANGES))
def test_errors_after_policy_change_are_printed_by_week(name: str) -> None:
    before, after = CHANGES[name]
    methods = option_values("METHODS", [method for method in ("qespera", "policy", "blend") if method in METHODS])
    seeds = [int(seed) for seed in option_values("SEEDS", ("301", "302"))]
    workloads = [workload(seed) for seed in seeds]
    change = MONDAY + DAYS_BEFORE * DAY
    changed = pooled(errors_of(methods, jobs, before, [(change, after)]) for jobs in workloads)
    constant = pooled(errors_of(methods, jobs, after, []) for jobs in workloads)
    show(f"{name}; seeds {seeds}, {sum(map(len, workloads))} jobs", changed, constant)
    assert level(changed["zero"], -7 * WEEKS_BEFORE, 0) > 0


def pooled(found: Iterable[Errors]) -> Errors:
    """Return the errors of all workloads together."""
    together: defaultdict[str, defaultdict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for errors in found:
        for method, days in errors.items():
            for day, seconds in days.items():
                together[method][day] += seconds
    return together


def level(days: Mapping[int, list[float]], first: int, end: int) -> float:
    """Return the mean error of the jobs of these days, in hours."""
    errors = [error for day in range(first, end) for error in days.get(day, ())]
    return float(np.mean(errors)) / 3600 if errors else 0.0


def show(title: str, changed: Errors, constant: Errors) -> None:
    """Print the errors by week and by day, in hours and as shares of the mean wait, which is the error of `zero`."""
    spans = {f"{WEEKS_BEFORE} weeks before": (-7 * WEEKS_BEFORE, 0)}
    spans |= {f"week {week}": (7 * week - 7, 7 * week) for week in range(1, 1 + DAYS_AFTER // 7)}
    print(f"\n\n{title}\n")
    print(f"| error, h (share of the mean wait) | {' | '.join(spans)} | from week 2 on, against all along |")
    print("|---" * (len(spans) + 2) + "|")
    for errors, which in ((changed, ""), (constant, "; second policy all along")):
        for method, days in errors.items():
            levels = [(level(days, *span), level(errors["zero"], *span)) for span in spans.values()]
            cells = [f"{hours:.2f} ({hours / wait if wait else 0.0:.2f})" for hours, wait in levels]
            later = level(days, 7, DAYS_AFTER) / (level(constant[method], 7, DAYS_AFTER) or 1.0)
            print(f"| {method}{which} | {' | '.join(cells)} | {later:.2f} |")
    print("\nby day, from a week before:")
    for method, days in changed.items():
        print(f"{method:>12}", " ".join(f"{level(days, day, day + 1):.1f}" for day in range(-7, DAYS_AFTER)))
