"""Policies with inaccurate estimates, checked second by second."""

from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.records import AnyEvent, End, Start, Submit
from models.simulation import Actual, Estimates, Scheduler, SimulatedJob
from models.simulation.preemptive import Preemptive
from tests.simulation.schedulers import SCHEDULERS
from tests.support.simulated_jobs import CPUS, Given, make

Workload = tuple[list[SimulatedJob], dict[str, int]]


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    """Draw jobs and their estimated run times."""
    shape = st.tuples(st.integers(0, 6), st.integers(1, CPUS), st.integers(1, 20), st.integers(1, 25))
    jobs: list[SimulatedJob] = []
    estimated: dict[str, int] = {}
    now = 100
    for number, (gap, cpus, run, seconds) in enumerate(draw(st.lists(shape, min_size=1, max_size=25)), 1):
        now += gap
        jobs.append(make(number, now, cpus, run))
        estimated[str(number)] = seconds
    return jobs, estimated


def made(policy: str, jobs: list[SimulatedJob], estimates: Estimates) -> Scheduler:
    return SCHEDULERS[policy]("a", CPUS, jobs[0].submit, estimates, enforced=False)


def seconds_of(site: Scheduler, jobs: list[SimulatedJob]) -> Iterator[list[AnyEvent]]:
    """Yield the events of each second, from the first submission until all jobs have ended."""
    coming = list(jobs)
    left = {job.job for job in jobs}
    while left:
        events = site.advance(site.now)
        while coming and coming[0].submit == site.now:
            events += site.submit(coming.pop(0))
        left -= {event.job for event in events if isinstance(event, End)}
        yield events
        events = site.advance(site.now + 1)
        left -= {event.job for event in events if isinstance(event, End)}
        yield events


def starts_of(policy: str, jobs: list[SimulatedJob], estimates: Estimates | None = None) -> dict[str, int]:
    site = made(policy, jobs, estimates or Actual())
    events = [event for job in jobs for event in site.submit(job)] + site.finish()
    return {event.job: int(event.time) for event in events if isinstance(event, Start)}


def ends_of(policy: str, jobs: list[SimulatedJob], estimates: Estimates | None = None) -> dict[str, int]:
    site = made(policy, jobs, estimates or Actual())
    events = [event for job in jobs for event in site.submit(job)] + site.finish()
    return {event.job: int(event.time) for event in events if isinstance(event, End)}


every = pytest.mark.parametrize("policy", sorted(SCHEDULERS))


@every
@settings(max_examples=40)
@given(workload=workloads(), exact=st.booleans())
def test_cpus_are_not_shared_and_work_is_conserved(policy: str, workload: Workload, exact: bool) -> None:
    jobs, estimated = workload
    by_id = {job.job: job for job in jobs}
    site = made(policy, jobs, Actual() if exact else Given(estimated))
    worked: Counter[str] = Counter()
    started: Counter[str] = Counter()
    ended: dict[str, str] = {}
    before: set[str] = set()
    clock = site.now
    for events in seconds_of(site, jobs):
        for event in events:
            if isinstance(event, Start):
                assert event.time >= by_id[event.job].submit and event.cpus == by_id[event.job].cpus
                started[event.job] += 1
            elif isinstance(event, End):
                assert event.job not in ended
                ended[event.job] = event.state
                wanted = by_id[event.job].run
                if event.state == "timeout":
                    assert policy == "easy-kill" and wanted > (wanted if exact else estimated[event.job])
                    wanted = estimated[event.job]
                assert worked[event.job] + (site.now - clock) * (event.job in before) == wanted
        assert sum(each.job.cpus for each in site.running.values()) == CPUS - site.free <= CPUS
        if isinstance(site, Preemptive):
            in_use = [int(number) for name in site.running for number in site.processors[name]]
            assert len(in_use) == len(set(in_use)) == CPUS - site.free
        if site.now > clock:
            worked.update(before)
        before = set(site.running)
        clock = site.now
    assert started == Counter(by_id.keys()) and ended.keys() == by_id.keys()


@pytest.mark.parametrize("policy", ["lerwf", "lerwf-fill", "easy-preemptive"])
@given(workload=workloads())
def test_suspended_job_resumes_on_its_previous_cpus(policy: str, workload: Workload) -> None:
    jobs, estimated = workload
    site = made(policy, jobs, Given(estimated))
    assert isinstance(site, Preemptive)
    had: dict[str, list[int]] = {}
    for _ in seconds_of(site, jobs):
        for name in (*site.running, *site.suspended):
            assert had.setdefault(name, site.processors[name].tolist()) == site.processors[name].tolist()
        assert site.processors.keys() == site.running.keys() | site.suspended.keys()


@pytest.mark.parametrize("policy", ["fcfs", "lewf", "lwf"])
@given(workload=workloads())
def test_policies_without_fill_start_jobs_in_order(policy: str, workload: Workload) -> None:
    jobs, estimated = workload
    site = made(policy, jobs, Given(estimated))
    ranks = {
        "fcfs": lambda job: int(job.job),
        "lewf": lambda job: (estimated[job.job], int(job.job)),
        "lwf": lambda job: (estimated[job.job] * job.cpus, int(job.job)),
    }
    queued: dict[str, SimulatedJob] = {}
    for events in seconds_of(site, jobs):
        for event in events:
            if isinstance(event, Submit):
                queued[event.job] = jobs[int(event.job) - 1]
            elif isinstance(event, Start):
                assert min(queued.values(), key=ranks[policy]).job == event.job
                del queued[event.job]
        if queued:
            assert min(queued.values(), key=ranks[policy]).cpus > site.free


@pytest.mark.parametrize("policy", ["fcfs-fill", "lewf-fill"])
@given(workload=workloads())
def test_policies_with_fill_queue_only_jobs_that_do_not_fit(policy: str, workload: Workload) -> None:
    jobs, estimated = workload
    site = made(policy, jobs, Given(estimated))
    for _ in seconds_of(site, jobs):
        assert all(job.cpus > site.free for job in site.queue.values())


@given(workload=workloads())
def test_conservative_with_true_run_times_delays_no_job(workload: Workload) -> None:
    jobs, _ = workload
    site = SCHEDULERS["conservative"]("a", CPUS, jobs[0].submit, Actual(), enforced=False)
    promised: dict[str, int] = {}
    for events in seconds_of(site, jobs):
        for event in events:
            if isinstance(event, Start):
                assert event.time <= promised.get(event.job, event.time)
        starts = site._schedule(list(site.queue.values()), whole=True)  # type: ignore[attr-defined]
        for name, start in zip(site.queue, starts.tolist(), strict=True):
            assert site.now <= start <= promised.get(name, start)
            promised[name] = start


@given(workload=workloads())
def test_easy_never_delays_the_head_with_true_run_times(workload: Workload) -> None:
    jobs, _ = workload
    site = SCHEDULERS["easy"]("a", CPUS, jobs[0].submit, Actual(), enforced=False)
    promised: dict[str, int] = {}
    for events in seconds_of(site, jobs):
        for event in events:
            if isinstance(event, Start):
                assert event.time <= promised.get(event.job, event.time)
        head = site.reservation  # type: ignore[attr-defined]
        if head is not None:
            assert head.time <= promised.setdefault(head.job.job, head.time)


def conservative_by_the_second(jobs: list[SimulatedJob], estimates: Estimates) -> dict[str, int]:
    """Compute starts of conservative backfilling, with a new plan at each second and submission."""
    starts: dict[str, int] = {}
    running: dict[str, tuple[SimulatedJob, int]] = {}  # with the planned end
    queue: list[SimulatedJob] = []
    now = jobs[0].submit

    def schedule() -> None:
        free = [CPUS - sum(job.cpus for job, limit in running.values() if limit > now + k) for k in range(2000)]
        for job in list(queue):
            seconds = estimates.of(job)
            start = next(k for k in range(2000) if all(left >= job.cpus for left in free[k : k + seconds]))
            for k in range(start, start + seconds):
                free[k] -= job.cpus
            if start == 0:
                queue.remove(job)
                starts[job.job] = now
                running[job.job] = job, now + seconds

    coming = list(jobs)
    while coming or queue or running:
        for name, (job, limit) in list(running.items()):
            if starts[name] + job.run <= now:
                del running[name]
            elif limit == now:
                running[name] = job, starts[name] + estimates.of(job, now - starts[name])
        schedule()
        while coming and coming[0].submit == now:
            queue.append(coming.pop(0))
            schedule()
        now += 1
    return starts


@settings(max_examples=40)
@given(workload=workloads())
def test_conservative_equals_a_simulation_second_by_second(workload: Workload) -> None:
    jobs, estimated = workload
    estimates = Given(estimated)
    assert starts_of("conservative", jobs, estimates) == conservative_by_the_second(jobs, estimates)


@settings(max_examples=40)
@given(workload=workloads())
def test_easy_variants_with_actual_run_times_are_equal(workload: Workload) -> None:
    jobs, _ = workload
    assert ends_of("easy-kill", jobs) == ends_of("easy-preemptive", jobs) == ends_of("conservative", jobs)


# Gibbons 1997, section 5.1: "if there are 16 CPUs in the system, and the five jobs in the ordered queue require
# one, sixteen, nine, seven and six CPUs respectively, the jobs requiring one, nine and six are started".
SIXTEEN = [make(0, 0, 16, 10), *(make(n, 1, cpus, 100) for n, cpus in enumerate((1, 16, 9, 7, 6), 1))]


@pytest.mark.parametrize(("policy", "first"), [("fcfs", ["0", "1"]), ("fcfs-fill", ["0", "1", "3", "5"])])
def test_policies_with_fill_match_the_thesis_example(policy: str, first: list[str]) -> None:
    site = SCHEDULERS[policy]("a", 16, 0, Actual(), enforced=False)
    events = [event for job in SIXTEEN for event in site.submit(job)] + site.advance(50)
    assert [event.job for event in events if isinstance(event, Start)] == first


# All 8 CPUs are in use until 10; then 1 is long and small, 2 short and large, 3 medium and small.
QUEUED = [make(0, 0, 8, 10), make(1, 1, 3, 40), make(2, 2, 7, 12), make(3, 3, 2, 20)]


@pytest.mark.parametrize(
    ("policy", "starts"),
    [
        ("fcfs", {"0": 0, "1": 10, "2": 50, "3": 62}),
        ("fcfs-fill", {"0": 0, "1": 10, "3": 10, "2": 50}),
        ("lewf", {"0": 0, "2": 10, "3": 22, "1": 22}),
        ("lewf-fill", {"0": 0, "2": 10, "3": 22, "1": 22}),
        ("lwf", {"0": 0, "3": 10, "2": 30, "1": 42}),  # work: 120, 84 and 40
        ("easy", {"0": 0, "1": 10, "3": 10, "2": 50}),
        ("conservative", {"0": 0, "1": 10, "3": 10, "2": 50}),
        ("easy-kill", {"0": 0, "1": 10, "3": 10, "2": 50}),
        ("easy-preemptive", {"0": 0, "1": 10, "3": 10, "2": 50}),
    ],
)
def test_policies_equal_manual_schedule(policy: str, starts: dict[str, int]) -> None:
    assert starts_of(policy, QUEUED) == starts


def test_conservative_protects_second_job_and_easy_does_not() -> None:
    # 2 is the head and starts at 10 with four CPUs free; 3 needs all and starts at 20. 4, long and small, fits with
    # the head and would delay 3.
    jobs = [make(1, 0, 6, 10), make(2, 1, 4, 10), make(3, 2, 8, 5), make(4, 3, 2, 30)]
    assert starts_of("easy", jobs) == {"1": 0, "4": 3, "2": 10, "3": 33}
    for policy in ("conservative", "easy-kill", "easy-preemptive"):
        assert starts_of(policy, jobs) == {"1": 0, "2": 10, "3": 20, "4": 25}


def test_easy_kill_kills_at_the_estimate() -> None:
    jobs = [make(1, 0, 8, 30), make(2, 1, 8, 5)]
    site = made("easy-kill", jobs, Given({"1": 12, "2": 9}))
    events = [event for job in jobs for event in site.submit(job)] + site.finish()
    ends = [(event.job, event.time, event.state) for event in events if isinstance(event, End)]
    assert ends == [("1", 12, "timeout"), ("2", 17, "completed")]


def test_easy_preemptive_requeues_with_original_estimate() -> None:
    # 1 runs 30 and is estimated at 12: it runs from 0 to 12, after 2 from 17 to 29, and on, as the queue is empty.
    jobs = [make(1, 0, 8, 30), make(2, 1, 8, 5), make(3, 20, 8, 4)]
    estimates = {"1": 12, "2": 9, "3": 9}
    site = made("easy-preemptive", jobs[:2], Given(estimates))
    events = [event for job in jobs[:2] for event in site.submit(job)] + site.finish()
    assert isinstance(site, Preemptive) and site.suspensions == {"1": 2}
    assert [(event.job, event.time) for event in events if isinstance(event, End)] == [("2", 17), ("1", 35)]
    # 3 arrives while 1 runs, and is before it in the queue when 1 is suspended again.
    assert ends_of("easy-preemptive", jobs, Given(estimates)) == {"2": 17, "3": 33, "1": 39}


def test_job_that_outlives_its_estimate_is_estimated_again() -> None:
    # 1 is estimated to end at 10, then at 20 and 40: from 10 on 3 is too long to start before 2.
    jobs = [make(1, 0, 6, 30), make(2, 1, 8, 5), make(3, 11, 2, 9), make(4, 12, 2, 9)]
    estimates = Given({"1": 10, "2": 5, "3": 9, "4": 10})
    assert starts_of("easy", jobs, estimates) == {"1": 0, "3": 11, "4": 20, "2": 30}
    assert starts_of("conservative", jobs, estimates) == {"1": 0, "3": 11, "4": 20, "2": 30}


def test_lerwf_suspends_for_the_shorter_and_resumes() -> None:
    # 1 has 16 s to run at 4, when 2 (6 s) arrives: it waits from 4 to 10. At 12 it has 14 s, and 3 has 11 s: no change.
    jobs = [make(1, 0, 8, 20), make(2, 4, 8, 6), make(3, 12, 8, 11)]
    assert ends_of("lerwf", jobs) == {"2": 10, "3": 23, "1": 37}
    assert ends_of("lewf", jobs) == {"1": 20, "2": 26, "3": 37}


def test_lerwf_does_not_suspend_for_the_longer() -> None:
    jobs = [make(1, 0, 8, 20), make(2, 4, 8, 17)]
    assert ends_of("lerwf", jobs) == {"1": 20, "2": 37}


def test_blocked_job_blocks_later_jobs_unless_filling() -> None:
    # At 1, job 2 of 6 CPUs does not fit next to the shorter 1; job 3 is behind it and would fit.
    jobs = [make(1, 0, 4, 10), make(2, 1, 6, 20), make(3, 2, 2, 30)]
    assert starts_of("lerwf", jobs) == {"1": 0, "2": 10, "3": 10}
    assert starts_of("lerwf-fill", jobs) == {"1": 0, "3": 2, "2": 10}


def test_suspended_job_waits_for_its_own_cpus() -> None:
    # 1 has CPUs 0 to 5. 2 (all 8) suspends it; then 3 takes 4 CPUs, two of them from 1. When 2 ends, 1 cannot
    # resume on its CPUs until 3 has ended.
    jobs = [make(1, 0, 6, 50), make(2, 1, 8, 10), make(3, 2, 4, 20)]
    assert ends_of("lerwf", jobs) == {"2": 11, "3": 31, "1": 80}
    site = made("lerwf", jobs, Actual())
    for job in jobs:
        site.submit(job)
    site.advance(12)
    assert isinstance(site, Preemptive)
    assert site.processors["1"].tolist() == [0, 1, 2, 3, 4, 5]
    assert {6, 7} < set(site.processors["3"].tolist())


@pytest.mark.parametrize(("policy", "left"), [("lerwf", {"5"}), ("lerwf-fill", {"5", "3", "1"})])
def test_short_new_job_suspends_running_jobs_by_policy(policy: str, left: set[str]) -> None:
    # Gibbons 1997, table 5.2 without B: A, C and D run on 2, 2 and 11 of 16; E arrives, needs 6 and has the least work.
    # E runs on the CPUs of D, together with C and A if these can start before D.
    site = SCHEDULERS[policy]("a", 16, 0, Actual(), enforced=False)
    for job in (make(1, 0, 2, 300), make(3, 0, 2, 150), make(4, 0, 11, 100)):
        site.submit(job)
    assert set(site.running) == {"1", "3", "4"}
    site.submit(make(5, 3, 6, 50))
    assert set(site.running) == left


@every
def test_job_with_zero_run_time_frees_cpus_within_the_second(policy: str) -> None:
    assert ends_of(policy, [make(1, 0, 8, 0), make(2, 0, 8, 5), make(3, 5, 8, 0)]) == {"1": 0, "2": 5, "3": 5}
