"""Sums over the live jobs equal a manual computation."""

import random

import numpy as np
import pytest

from models.site.job import STARTED, Extras, Job, Phase
from models.site.state import SiteState
from models.waits.boosted.live_features import HORIZONS_S, NAMES, live_features

NOW, CPUS = 1e9, 128


def site(dice: random.Random, jobs: int) -> SiteState:
    """Build a site with jobs of each kind, some of which have departed."""
    state = SiteState()
    for number in range(jobs):
        walltime = dice.choice([None, 600.0, 3600.0, 36000.0])
        job = Job(
            str(number),
            0,
            NOW - dice.uniform(0.0, 1e5),
            user=dice.choice([None, "ada", "bob"]),
            queue=dice.choice([None, "short", "long"]),
            cpus=dice.choice([1, 3, 8, 60]),
            walltime=walltime,
            run_s=dice.choice([None, 60.0, 5000.0]),
            extras=Extras(pending_reason=dice.choice([None, None, "Priority", "QOSMaxCpuPerUserLimit"])),
        )
        job.planned_run_s = walltime or job.run_s or 0.0
        state.enter(job)
        phase = dice.choice(list(Phase))
        if phase in STARTED:
            state.move(job, Phase.RUNNING, NOW - dice.uniform(0.0, 20_000.0))
        state.move(job, phase, job.start)
        if dice.random() < 0.2:
            state.leave(job)
    return state


def left(job: Job) -> tuple[float, float]:
    """Return the expected and the planned remaining run time of a running job."""
    assert job.start is not None
    elapsed = NOW - job.start
    planned = max(job.planned_run_s - elapsed, 0.0)
    run_s = min(job.run_s if job.run_s is not None else job.walltime or 3600.0, job.walltime or 1e9)
    if run_s > elapsed:
        return run_s - elapsed, planned
    return min(0.5 * elapsed, 0.5 * planned if job.planned_run_s else 1e9), planned


def fits_in(ends: list[tuple[float, int]], free: int, wanted: int) -> tuple[float, int]:
    """Return when `wanted` CPUs are free as jobs end at these times, and the other free CPUs at that time."""
    if free >= wanted:
        return 0.0, free - wanted
    for time, cpus in sorted(ends):
        free += cpus
        if free >= wanted:
            return time, free - wanted
    return 1e7, free - wanted


def by_hand(job: Job, state: SiteState) -> dict[str, float]:
    """Compute the features by their definitions."""
    queued, running = [*state.in_phase(Phase.QUEUED)], [*state.in_phase(Phase.RUNNING)]
    groups = {
        "all": queued,
        "smaller": [other for other in queued if other.cpus <= job.cpus],
        "shorter": [other for other in queued if other.planned_run_s <= job.planned_run_s],
        "less_work": [other for other in queued if work(other) <= work(job)],
        "same_queue": [other for other in queued if other.queue == job.queue],
        "same_user": [other for other in queued if other.user == job.user and job.user is not None],
        "similar": [
            other
            for other in queued
            if job.cpus / 2 <= other.cpus <= 2 * job.cpus
            and job.planned_run_s / 2 <= other.planned_run_s <= 2 * job.planned_run_s
        ],
    }
    groups["own_similar"] = [other for other in groups["similar"] if other in groups["same_user"]]
    found: dict[str, float] = {}
    for group, jobs in groups.items():
        found[f"queued_{group}_jobs"] = len(jobs)
        found[f"queued_{group}_cpus"] = sum(other.cpus for other in jobs)
        found[f"queued_{group}_work"] = sum(work(other) for other in jobs)
        found[f"queued_{group}_oldest"] = max((NOW - other.ready for other in jobs), default=0.0)
    own = [other for other in running if other.user == job.user and job.user is not None]
    beside = [other for other in running if other.queue == job.queue]
    found |= {
        "running_jobs": len(running),
        "own_running_jobs": len(own),
        "own_running_cpus": sum(other.cpus for other in own),
        "queue_running_jobs": len(beside),
        "queue_running_cpus": sum(other.cpus for other in beside),
        "queue_left_expected": sum(other.cpus * left(other)[0] for other in beside),
    }
    free = CPUS - sum(other.cpus for other in running)
    found |= {"free": free, "room": free - job.cpus}
    barred = [other for other in queued if other.extras.pending_reason == "QOSMaxCpuPerUserLimit"]
    head = min((other for other in queued if other not in barred), key=lambda other: other.ready, default=None)
    found["head_cpus"], found["head_planned"] = (head.cpus, head.planned_run_s) if head else (0, 0.0)
    for place, by in enumerate(("expected", "planned")):
        ends = [(left(other)[place], other.cpus) for other in running]
        for horizon in HORIZONS_S:
            found[f"freed_{by}_{round(horizon / 60)}min"] = sum(cpus for time, cpus in ends if time <= horizon)
        found[f"left_{by}"] = sum(time * cpus for time, cpus in ends)
        found[f"fits_in_{by}"] = fits_in(ends, free, job.cpus)[0]
        found[f"head_in_{by}"], found[f"spare_{by}"] = fits_in(ends, free, head.cpus) if head else (0.0, free)
        found[f"head_slack_{by}"] = found[f"head_in_{by}"] - job.planned_run_s
    before_head = head is None or found["head_slack_planned"] >= 0.0 or found["spare_planned"] >= job.cpus
    found["backfills"] = float(free >= job.cpus and before_head)
    found["drain_all"] = (found["left_expected"] + found["queued_all_work"]) / CPUS
    found["drain_less_work"] = (found["left_expected"] + found["queued_less_work_work"]) / CPUS
    own_submits = [
        other.submit
        for other in state.jobs.values()
        if other.user == job.user and job.user is not None and other.phase is not Phase.ENDED_BEFORE_START
    ]
    found["own_latest"] = NOW - max(own_submits, default=NOW - 1e7)
    held = [*state.in_phase(Phase.HELD), *barred]
    found["held_jobs"], found["held_cpus"] = len(held), sum(other.cpus for other in held)
    return found


def work(job: Job) -> float:
    return job.cpus * job.planned_run_s


@pytest.mark.parametrize("jobs", [0, 1, 5, 40, 300])
def test_live_features_equal_manual_computation(jobs: int) -> None:
    dice = random.Random(jobs)
    state = site(dice, jobs)
    for user, queue in ((None, None), ("ada", "short"), ("eve", "unknown")):
        job = Job("new", 0, NOW, user=user, queue=queue, cpus=dice.choice([1, 4, 100]), planned_run_s=3600.0)
        expected = by_hand(job, state)
        assert expected.keys() == set(NAMES)
        if queue == "unknown":  # jobs without a queue are not in this unknown queue
            assert expected["queued_same_queue_jobs"] == 0
        found = np.zeros(len(NAMES))
        live_features(job, state.table, NOW, CPUS, found)
        np.testing.assert_allclose(found, [expected[name] for name in NAMES], rtol=1e-12, err_msg=str(NAMES))
