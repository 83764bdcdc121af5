from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.records import End, Start
from models.simulation import Actual, Easy, Scheduler, SimulatedJob
from tests.simulation.multifactor import Multifactor, Priorities
from tests.simulation.schedulers import SCHEDULERS
from tests.support.simulated_jobs import CPUS, make

NOTHING = Priorities(age=0.0, fairshare=0.0, size=0.0)
"""Equal priorities, so jobs start in the order of submission."""


def going_by(**priorities: Any) -> Multifactor:
    """Return a scheduler of eight CPUs with these priorities and known run times."""
    return Multifactor("a", CPUS, 0, Actual(), False, priorities=msgspec.structs.replace(NOTHING, **priorities))


def job(number: int, user: str, submit: int, cpus: int, run: int, queue: str | None = None) -> SimulatedJob:
    return msgspec.structs.replace(make(number, submit, cpus, run, user), queue=queue)


def starts(site: Scheduler, *jobs: SimulatedJob) -> dict[str, float]:
    events = [event for job in jobs for event in site.submit(job)] + site.finish()
    return {event.job: event.time for event in events if isinstance(event, Start)}


def test_usage_decays_by_half_in_each_half_life() -> None:
    site = going_by(fairshare=2.0, share=0.5, half_life_s=100)
    site.submit(job(1, "a", 0, 8, 100))
    site.submit(job(2, "a", 1, 8, 50))
    site.submit(job(3, "b", 2, 8, 50))
    site.advance(99)
    assert site.used("b") == 0.0 and 0.49 < site.used("a") < 0.5
    site.advance(100)  # use of the whole machine for one half-life has a mean of one half
    assert site.used("a") == pytest.approx(0.5)
    assert site.priority(site.queue["2"]) == pytest.approx(2.0 * 2**-1.0)
    site.advance(150)
    assert site.used("a") == pytest.approx(0.5 * 2**-0.5)
    assert site.used("b") == pytest.approx(1 - 2**-0.5)


def test_fairshare_starts_users_with_less_usage_first() -> None:
    jobs = job(1, "a", 0, 8, 100), job(2, "a", 1, 8, 50), job(3, "b", 2, 8, 50)
    assert starts(going_by(fairshare=1.0), *jobs) == {"1": 0, "3": 100, "2": 150}
    assert starts(going_by(), *jobs) == {"1": 0, "2": 100, "3": 150}


def test_age_factor_offsets_size_up_to_its_maximum() -> None:
    # At 100, job 2 has waited 40 s longer and requests half of the machine less.
    jobs = job(1, "a", 0, 8, 100), job(2, "b", 10, 4, 50), job(3, "c", 50, 8, 50)
    assert starts(going_by(age=1.0, age_s=100, size=0.7), *jobs) == {"1": 0, "2": 100, "3": 150}  # 0.9 + 0.35 > 1.2
    assert starts(going_by(age=1.0, age_s=100, size=0.9), *jobs) == {"1": 0, "3": 100, "2": 150}  # 0.9 + 0.45 < 1.4
    assert starts(going_by(age=1.0, age_s=50, size=0.7), *jobs) == {"1": 0, "3": 100, "2": 150}  # both at maximum age


def test_capped_user_is_skipped_and_has_no_reservation() -> None:
    # a may use four CPUs: 2 is excluded until 1 ends. The long job of b takes the CPUs that 2 would use.
    jobs = job(1, "a", 0, 4, 100), job(2, "a", 1, 1, 10), job(3, "b", 2, 4, 300), job(4, "c", 3, 3, 10)
    assert starts(going_by(cap=0.5), *jobs) == {"1": 0, "3": 2, "2": 100, "4": 100}
    assert starts(going_by(), *jobs) == {"1": 0, "2": 1, "3": 11, "4": 100}


def test_user_without_running_jobs_can_start_a_job_above_the_cap() -> None:
    jobs = job(1, "a", 0, 8, 10), job(2, "a", 1, 6, 10), job(3, "a", 1, 2, 10)
    assert starts(going_by(cap=0.5), *jobs) == {"1": 0, "2": 10, "3": 20}


def test_queue_has_its_tier_and_its_limit() -> None:
    jobs = job(1, "a", 0, 8, 10, "long"), job(2, "b", 1, 4, 20, "long"), job(3, "c", 2, 4, 20, "long")
    late = job(4, "d", 3, 8, 10, "short")
    tiers = (("short", 1.0),)
    assert starts(going_by(tiers=tiers), *jobs, late) == {"1": 0, "4": 10, "2": 20, "3": 20}
    assert starts(going_by(limits=(("long", 0.5),)), *jobs) == {"1": 0, "2": 10, "3": 30}


def test_small_and_short_jobs_have_higher_priority() -> None:
    jobs = job(1, "a", 0, 8, 10), job(2, "b", 1, 8, 20), job(3, "c", 2, 2, 5), job(4, "c", 3, 2, 70)
    small = going_by(small=1.0, small_cpus=0.25, small_s=60)
    assert starts(small, *jobs) == {"1": 0, "3": 10, "2": 15, "4": 35}


def test_backfill_starts_job_that_does_not_delay_the_first() -> None:
    # 2 has the top priority and starts at 100. 3 ends before that, 4 does not; 5 does, but no CPUs remain.
    jobs = job(1, "a", 0, 6, 100), job(4, "b", 1, 2, 100), job(2, "b", 1, 8, 10), job(3, "c", 2, 2, 98)
    site = going_by(size=1.0)
    assert starts(site, jobs[0], jobs[2], jobs[3], job(4, "d", 3, 2, 98)) == {"1": 0, "3": 2, "2": 100, "4": 110}


def test_new_job_of_higher_priority_takes_the_reservation() -> None:
    # 3 starts at 100, and 4 would delay it. 5 outranks 3 and can start at 200: then one CPU remains for 4.
    jobs = job(1, "a", 0, 5, 100), job(2, "b", 0, 2, 200), job(3, "c", 1, 6, 50), job(4, "d", 2, 1, 300)
    assert starts(going_by(size=1.0), *jobs) == {"1": 0, "2": 0, "3": 100, "4": 150}
    assert starts(going_by(size=1.0), *jobs, job(5, "e", 3, 7, 10)) == {"1": 0, "2": 0, "4": 3, "5": 200, "3": 210}


@given(
    st.lists(
        st.tuples(st.integers(0, 6), st.integers(1, CPUS), st.integers(1, 20), st.integers(1, 30)),
        min_size=1,
        max_size=30,
    )
)
def test_multifactor_with_age_only_equals_easy(shapes: list[tuple[int, int, int, int]]) -> None:
    jobs, now = [], 0
    for number, (gap, cpus, run, walltime) in enumerate(shapes):
        now += gap
        jobs.append(msgspec.structs.replace(make(number, now, cpus, run), walltime=walltime))
    by_age = msgspec.structs.replace(NOTHING, age=1.0, age_s=1e6)
    assert starts(Multifactor("a", CPUS, 0, priorities=by_age), *jobs) == starts(Easy("a", CPUS, 0), *jobs)


def test_predicted_plans_use_the_last_runs_of_the_user() -> None:
    priorities = msgspec.structs.replace(NOTHING, plans="predicted")
    site = Multifactor("a", CPUS, 0, priorities=priorities)

    def limited_job(number: int, user: str, submit: int, cpus: int, run: int) -> SimulatedJob:
        return msgspec.structs.replace(job(number, user, submit, cpus, run), walltime=1000)

    jobs = [
        limited_job(1, "a", 0, 1, 10),
        limited_job(2, "a", 20, 1, 10),
        limited_job(3, "b", 40, 6, 500),
        limited_job(4, "c", 41, 8, 9),
    ]
    # 5 requests as long as 3, but its user's jobs ran for 10 s: it ends before 4 can start.
    assert starts(site, *jobs, limited_job(5, "a", 42, 2, 10))["5"] == 42


@pytest.mark.parametrize("policy", ["multifactor", "multifactor-tiers", "multifactor-small"])
def test_users_and_queues_stay_within_their_limits(policy: str) -> None:
    from models.simulation import generate

    site = SCHEDULERS[policy]("a", 64, 0)
    assert isinstance(site, Multifactor)
    rules, jobs = site.more, {}
    running: set[str] = set()
    for one in generate(3, 600, 64, 0.9, impatient=0.0):
        jobs[one.job] = one
        for event in site.submit(one):
            if isinstance(event, Start):
                running.add(event.job)
            elif isinstance(event, End):
                running.discard(event.job)
        for kind, shares in (("user", {each.user: rules.cap for each in jobs.values()}), ("queue", dict(rules.limits))):
            for name, share in shares.items():
                held = [jobs[job].cpus for job in running if getattr(jobs[job], kind) == name]
                assert len(held) < 2 or sum(held) <= share * 64
