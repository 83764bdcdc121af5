"""CPU time of one simulated wait with a thousand running and a thousand queued jobs."""

import time

import numpy as np
import pytest

from models.method import SiteContext
from models.method_registry import method_named
from models.records import Capacity
from models.runtimes.closest import Closest
from models.site.history import History
from models.site.job import Job, Phase
from models.site.runs import RunHistory
from models.site.state import SiteState

RUNNING = QUEUED = 1000
PREDICTIONS = 200
NOW = 1e9

LOOPS = 500
"""Maximum cost of a simulated wait, in plain loops over the live jobs."""


def busy_site() -> SiteContext:
    """Return a full site of jobs of 1 to 64 CPUs.

    Walltimes are up to five times the run times; a third of the jobs have exceeded their expected run time.
    """
    dice = np.random.default_rng(1)
    state, runs = SiteState(), RunHistory(Closest.templates)
    for number in range(RUNNING + QUEUED):
        run_s = float(dice.exponential(8000.0)) + 60.0
        walltime = run_s * float(dice.uniform(1.0, 5.0))
        job = Job(str(number), 0, NOW - 100.0, user=f"u{number % 50}", cpus=int(2 ** dice.integers(0, 7)))
        job.walltime, job.run_s, job.planned_run_s = walltime, run_s, walltime
        if number < RUNNING:
            job.phase, job.start = Phase.RUNNING, NOW - float(dice.uniform(0.0, 1.5)) * run_s
            runs.learn(job, run_s)
        state.enter(job)
    cpus = sum(job.cpus for job in state.in_phase(Phase.RUNNING))
    return SiteContext(state, History(10), runs, Closest(), Capacity(site="alder", time=0.0, cpus=cpus))


def looped(context: SiteContext) -> float:
    """Return the time of a plain loop over the live jobs (s)."""
    begin = time.thread_time()
    seen = [(job.cpus, job.run_s) for job in context.state.jobs.values() if job.phase is not Phase.HELD]
    assert len(seen) == RUNNING + QUEUED
    return time.thread_time() - begin


@pytest.mark.parametrize("name", ["fcfs", "lwf", "easy", "conservative", "order"])
def test_simulated_wait_cost_is_bounded_by_plain_loops(name: str) -> None:
    site, method = busy_site(), method_named(name)
    method.predict(Job("compiles", 0, NOW, cpus=1, run_s=60.0), site)
    seconds = []
    for number in range(PREDICTIONS):
        job = Job("new", 0, NOW + number, cpus=2 ** (number % 7), run_s=3600.0, walltime=7200.0)
        begin = time.thread_time()
        wait_s = method.predict(job, site).wait_s
        seconds.append(time.thread_time() - begin)
        assert wait_s is not None and wait_s > 0.0
    p50, p99 = 1000 * np.quantile(seconds, [0.5, 0.99])
    plain = 1000 * min(looped(site) for _ in range(20))
    print(f"\n{name}: p50 {p50:.1f} ms, p99 {p99:.1f} ms; a loop over the jobs {plain:.2f} ms")
    assert p50 < LOOPS * plain
