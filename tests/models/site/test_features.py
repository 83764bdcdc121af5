from dataclasses import dataclass, replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from models.site.history import COUNT, FEATURES, features_of
from models.site.job import Job, Phase
from models.site.state import SiteState

USERS = ("ada", "bob", None)
TIMES = st.integers(0, 10**9)  # integers, so floating-point sums are exact
EXTREME_TIMES = st.sampled_from([0, 1, 10**9])


@dataclass(frozen=True)
class Listed:
    """A job in a list of queued or running jobs, as in the paper."""

    user: str | None
    req_size: int
    ert: float
    submit: float
    start: float | None


def table_2(target: Job, waiting: list[Listed], running: list[Listed], now: float) -> list[float]:
    """Compute the features by table II of the paper."""

    def of_user(jobs: list[Listed]) -> list[float]:
        own = [job for job in jobs if target.user is not None and job.user == target.user]
        return [
            sum(job.req_size * job.ert for job in own),
            sum(job.req_size for job in own),
            sum(job.ert for job in own),
            len(own),
        ]

    return [
        target.cpus,
        target.planned_run_s,
        sum(job.req_size for job in waiting),
        sum(job.ert for job in waiting),
        sum(now - job.submit for job in waiting),
        sum(job.req_size for job in running),
        sum(job.ert for job in running),
        sum(now - (job.start or 0.0) for job in running),
        *of_user(waiting),
        *of_user(running),
    ]


@st.composite
def histories(draw: st.DrawFn) -> tuple[SiteState, list[Listed], list[Listed], Job, float]:
    """Draw a state after many changes, the lists it represents, and the next job with its time."""
    state = SiteState()
    live: dict[str, tuple[Job, Listed]] = {}
    for number in range(draw(st.integers(0, 25))):
        submit = float(draw(TIMES | EXTREME_TIMES))
        listed = Listed(draw(st.sampled_from(USERS)), draw(st.integers(1, 4096)), float(draw(TIMES)), submit, None)
        job = Job(
            id=str(number), attempt=0, submit=submit, user=listed.user, cpus=listed.req_size, planned_run_s=listed.ert
        )
        state.enter(job)
        live[job.id] = (job, listed)
        for name, wish in draw(st.dictionaries(st.sampled_from(sorted(live)), st.integers(0, 4), max_size=3)).items():
            job, listed = live[name]
            if wish == 0:
                state.leave(job)
                del live[name]
            elif wish == 1 and listed.start is None:
                start = listed.submit + draw(TIMES)
                state.move(job, Phase.RUNNING, start)
                live[name] = (job, replace(listed, start=start))
            elif wish == 2:
                state.alter(job, cpus=7, planned_run_s=60.0)
                live[name] = (job, replace(listed, req_size=7, ert=60.0))
            elif wish == 3 and job.phase is Phase.QUEUED:
                state.move(job, Phase.HELD)
            elif job.phase is Phase.HELD:
                state.move(job, Phase.QUEUED)
    lists = {phase: [listed for job, listed in live.values() if job.phase is phase] for phase in Phase}
    target = Job(
        id="new",
        attempt=0,
        submit=2e9,
        user=draw(st.sampled_from((*USERS, "new"))),
        cpus=draw(st.integers(1, 4096)),
        planned_run_s=float(draw(TIMES)),
    )
    return state, lists[Phase.QUEUED], lists[Phase.RUNNING], target, 2e9


@given(histories())
def test_features_are_those_of_table_2(
    history: tuple[SiteState, list[Listed], list[Listed], Job, float],
) -> None:
    state, waiting, running, target, now = history
    np.testing.assert_array_equal(features_of(target, state, now), table_2(target, waiting, running, now))


def test_features_equal_manual_computation() -> None:
    state = SiteState()
    state.enter(Job(id="1", attempt=0, submit=100.0, user="ada", cpus=2, planned_run_s=10.5))
    state.enter(Job(id="2", attempt=0, submit=110.0, user="bob", cpus=4, planned_run_s=20.0))
    for number, start in ((3, 130.0), (4, 140.0)):
        job = Job(id=str(number), attempt=0, submit=90.0, user="ada", cpus=number, planned_run_s=100.0)
        state.enter(job)
        state.move(job, Phase.RUNNING, start)
    target = Job(id="5", attempt=0, submit=200.0, user="ada", cpus=16, planned_run_s=3600.0)
    found = dict(zip(FEATURES, features_of(target, state, 200.0), strict=True))
    assert found == {
        "cpus": 16,
        "ert": 3600,
        "queued_cpus": 6,
        "queued_ert": 30.5,
        "queued_elapsed": 190,
        "running_cpus": 7,
        "running_ert": 200,
        "running_elapsed": 130,
        "user_queued_work": 21,
        "user_queued_cpus": 2,
        "user_queued_ert": 10.5,
        "user_queued_jobs": 1,
        "user_running_work": 700,
        "user_running_cpus": 7,
        "user_running_ert": 200,
        "user_running_jobs": 2,
    }


def test_jobs_without_user_do_not_count_as_one_user() -> None:
    state = SiteState()
    state.enter(Job(id="1", attempt=0, submit=0.0, user=None, cpus=8, planned_run_s=60.0))
    found = features_of(Job(id="2", attempt=0, submit=1.0, user=None), state, 1.0)
    assert found[FEATURES.index("queued_cpus")] == 8
    assert not found[FEATURES.index("user_queued_work") :].any()


def test_features_at_an_empty_site_are_those_of_the_job() -> None:
    found = features_of(Job(id="1", attempt=0, submit=5.0, user="ada", cpus=3, planned_run_s=60.0), SiteState(), 5.0)
    assert found.dtype == np.float64 and found.shape == (COUNT,) == (16,)
    assert found.tolist() == [3.0, 60.0, *[0.0] * 14]
