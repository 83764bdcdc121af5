from collections import Counter
from itertools import chain, groupby, repeat

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.records import AnyEvent, Cancel, Capacity, End, JobEvent, Start, Submit
from models.simulation import Easy, Scheduler, SimulatedJob, generate
from tests.simulation.schedulers import SCHEDULERS, fork, run_changing

CPUS = 8


def make(
    number: int, submit: int, cpus: int, seconds: int, walltime: int | None = None, patience: int | None = None
) -> SimulatedJob:
    return SimulatedJob(
        job=str(number),
        submit=submit,
        user="u1",
        group="g1",
        queue="batch",
        executable="namd",
        cpus=cpus,
        run=seconds,
        walltime=seconds if walltime is None else walltime,
        patience=patience,
    )


@st.composite
def workloads(draw: st.DrawFn) -> list[SimulatedJob]:
    shapes = draw(
        st.lists(
            st.tuples(
                st.integers(0, 8),
                st.integers(1, CPUS),
                st.integers(1, 30),
                st.integers(1, 30),
                st.none() | st.integers(1, 40),
            ),
            min_size=1,
            max_size=40,
        )
    )
    jobs: list[SimulatedJob] = []
    now = 100
    for number, (gap, cpus, seconds, walltime, patience) in enumerate(shapes, 1):
        now += gap
        jobs.append(make(number, now, cpus, seconds, walltime, patience))
    return jobs


def happenings(jobs: list[SimulatedJob], policy: str, cpus: int = CPUS) -> list[tuple[int, str, str]]:
    return [
        (int(event.time), event.kind, event.job)
        for event in run_changing(jobs, cpus, "a", policy)
        if isinstance(event, JobEvent)
    ]


def waits(events: list[AnyEvent]) -> list[float]:
    submitted = {event.job: event.time for event in events if isinstance(event, Submit)}
    return [event.time - submitted[event.job] for event in events if isinstance(event, Start)]


every = pytest.mark.parametrize("policy", sorted(SCHEDULERS))
uninterrupted = pytest.mark.parametrize("policy", sorted(SCHEDULERS.keys() - {"lerwf", "lerwf-fill"}))
prioritised = {"multifactor", "multifactor-tiers", "multifactor-small"}
unordered = {"lewf", "lewf-fill", "lwf", "lerwf", "lerwf-fill"} | prioritised
in_order = pytest.mark.parametrize("policy", sorted(SCHEDULERS.keys() - unordered))


@uninterrupted
@given(jobs=workloads())
def test_jobs_run_once_for_their_run_time_or_are_cancelled(policy: str, jobs: list[SimulatedJob]) -> None:
    by_id = {job.job: job for job in jobs}
    first, *events = run_changing(jobs, CPUS, "a", policy)
    assert first == Capacity(site="a", time=float(jobs[0].submit), cpus=CPUS)
    starts: dict[str, float] = {}
    gone = Counter[str]()
    used = 0
    for event in events:
        assert isinstance(event, JobEvent) and event.site == "a" and event.attempt == 0
        job = by_id[event.job]
        if isinstance(event, Submit):
            assert (event.time, event.cpus, event.walltime) == (job.submit, job.cpus, job.walltime)
        elif isinstance(event, Start):
            assert job.submit <= event.time and event.cpus == job.cpus
            assert job.patience is None or event.time < job.submit + job.patience
            starts[event.job] = event.time
            used += job.cpus
        elif isinstance(event, End):
            assert event.time - starts[event.job] == min(job.run, job.walltime)
            assert event.state == ("timeout" if job.run > job.walltime else "completed")
            gone[event.job] += 1
            used -= job.cpus
        else:
            assert isinstance(event, Cancel) and job.patience is not None
            assert event.job not in starts and event.time == job.submit + job.patience
            gone[event.job] += 1
        assert 0 <= used <= CPUS
    assert gone == Counter(by_id.keys())
    assert Counter(event.job for event in events if isinstance(event, Submit)) == Counter(by_id.keys())


@every
@settings(max_examples=30)
@given(jobs=workloads())
def test_events_of_one_second_sort_ends_first_starts_last(policy: str, jobs: list[SimulatedJob]) -> None:
    events = happenings(jobs, policy)
    assert [time for time, _, _ in events] == sorted(time for time, _, _ in events)
    submitted: set[str] = set()
    for _, second in groupby(events, key=lambda event: event[0]):
        happened = list(second)
        kinds = [kind for _, kind, _ in happened]
        first = kinds.index("submit") if "submit" in kinds else len(kinds)
        assert kinds[:first] == sorted(kinds[:first], key=("end", "cancel", "start").index)
        assert set(kinds[first:]) <= {"submit", "start"}
        for _, kind, job in happened:
            assert (kind == "submit") == (job not in submitted)
            submitted.add(job)


@in_order
@given(jobs=workloads())
def test_scheduler_is_never_idle_while_the_head_of_queue_fits(policy: str, jobs: list[SimulatedJob]) -> None:
    cpus = {job.job: job.cpus for job in jobs}
    free = CPUS
    queue: dict[str, None] = {}
    clock = jobs[0].submit
    for time, kind, job in happenings(jobs, policy):
        if time != clock and queue:
            assert cpus[next(iter(queue))] > free
        clock = time
        if kind == "submit":
            queue[job] = None
        elif kind == "end":
            free += cpus[job]
        else:
            del queue[job]
            free -= cpus[job] if kind == "start" else 0
    assert not queue and free == CPUS


@given(jobs=workloads())
def test_fcfs_starts_in_the_order_of_submission(jobs: list[SimulatedJob]) -> None:
    started = [int(job) for _, kind, job in happenings(jobs, "fcfs") if kind == "start"]
    assert started == sorted(started)


def shadow(running: dict[str, int], cpus: dict[str, int], head: str) -> int:
    """Return the latest start of the head, by trying every end by walltime."""
    free = CPUS - sum(cpus[job] for job in running)
    return min(
        end for end in running.values() if free + sum(cpus[job] for job in running if running[job] <= end) >= cpus[head]
    )


@given(jobs=workloads())
def test_easy_never_delays_the_reservation_of_the_head(jobs: list[SimulatedJob]) -> None:
    site = Easy("a", CPUS, jobs[0].submit)
    cpus = {job.job: job.cpus for job in jobs}
    walltime = {job.job: job.walltime for job in jobs}
    running: dict[str, int] = {}
    promised: dict[str, int] = {}

    def look(events: list[AnyEvent]) -> None:
        for event in events:
            if isinstance(event, Start):
                assert event.time <= promised.get(event.job, event.time)
                running[event.job] = int(event.time) + walltime[event.job]
            elif isinstance(event, End):
                del running[event.job]
        assert (site.reservation is None) == (not site.queue)
        if site.reservation is not None:
            head = next(iter(site.queue))
            assert site.reservation.job.job == head
            assert site.reservation.time == shadow(running, cpus, head) <= promised.get(head, site.reservation.time)
            promised.setdefault(head, site.reservation.time)

    for job in jobs:
        while site.now < job.submit:
            look(site.advance(site.now + 1))
        look(site.submit(job))
    while site.queue:
        look(site.advance(site.now + 1))
    assert all(isinstance(event, End) for event in site.finish())


def easy_by_the_second(jobs: list[SimulatedJob]) -> dict[str, int]:
    """Compute starts under EASY (Mu'alem and Feitelson) at every second and submission."""
    cpus = {job.job: job.cpus for job in jobs}
    starts: dict[str, int] = {}
    ends: dict[str, int] = {}
    limits: dict[str, int] = {}
    queue: list[SimulatedJob] = []
    now = jobs[0].submit

    def free() -> int:
        return CPUS - sum(cpus[job] for job in ends)

    def start(job: SimulatedJob) -> None:
        queue.remove(job)
        starts[job.job] = now
        ends[job.job] = now + min(job.run, job.walltime)
        limits[job.job] = now + job.walltime

    def schedule() -> None:
        while queue and queue[0].cpus <= free():
            start(queue[0])
        for job in queue[1:]:
            time = shadow({job: limits[job] for job in ends}, cpus, queue[0].job)
            extra = free() + sum(cpus[job] for job in ends if limits[job] <= time) - queue[0].cpus
            if job.cpus <= free() and (now + job.walltime <= time or job.cpus <= extra):
                start(job)

    coming = list(jobs)
    while coming or queue:
        ends = {job: end for job, end in ends.items() if end > now}
        queue = [job for job in queue if job.patience is None or now < job.submit + job.patience]
        schedule()
        while coming and coming[0].submit == now:
            queue.append(coming.pop(0))
            schedule()
        now += 1
    return starts


@given(jobs=workloads())
def test_easy_equals_the_published_algorithm(jobs: list[SimulatedJob]) -> None:
    starts = {job: time for time, kind, job in happenings(jobs, "easy") if kind == "start"}
    assert starts == easy_by_the_second(jobs)


# On 8 CPUs: 1 runs to 10 (its walltime is 20), 2 needs all. 3 is short enough and 4 is not; extra CPUs are of no
# use to 2.
EXAMPLE = [make(1, 0, 6, 10, 20), make(2, 1, 8, 5), make(3, 2, 2, 8), make(4, 3, 2, 30), make(5, 4, 1, 3)]


def test_fcfs_equals_manual_schedule() -> None:
    starts = {job: time for time, kind, job in happenings(EXAMPLE, "fcfs") if kind == "start"}
    assert starts == {"1": 0, "2": 10, "3": 15, "4": 15, "5": 15}


def test_easy_equals_manual_schedule() -> None:
    starts = {job: time for time, kind, job in happenings(EXAMPLE, "easy") if kind == "start"}
    assert starts == {"1": 0, "3": 2, "2": 10, "4": 15, "5": 15}


def test_easy_gives_extra_cpus_to_one_job_only() -> None:
    # At 20 job 1 ends and 2 leaves two of eight CPUs free: one long job of two CPUs gets them, a second one does not.
    jobs = [make(1, 0, 4, 20), make(2, 1, 6, 5), make(3, 2, 2, 99), make(4, 3, 1, 99), make(5, 4, 2, 16)]
    starts = {job: time for time, kind, job in happenings(jobs, "easy") if kind == "start"}
    assert starts == {"1": 0, "3": 2, "5": 4, "2": 20, "4": 25}


def test_easy_counts_ends_at_the_reservation_as_free() -> None:
    # 1 and 2 both end at 20: the head then leaves three CPUs free, not one.
    jobs = [make(1, 0, 4, 20), make(2, 0, 2, 20), make(3, 1, 5, 5), make(4, 2, 2, 99)]
    starts = {job: time for time, kind, job in happenings(jobs, "easy") if kind == "start"}
    assert starts == {"1": 0, "2": 0, "4": 2, "3": 20}


def test_events_of_one_second_are_in_defined_order() -> None:
    jobs = [
        make(1, 0, 8, 30, 10),
        make(2, 1, 8, 5, patience=9),
        make(3, 2, 4, 5),
        make(4, 10, 4, 1),
        make(5, 10, 4, 1),
    ]
    events = list(run_changing(jobs, CPUS, "a", "fcfs"))
    at_ten = [event for event in events if event.time == 10]
    assert at_ten[0] == End(site="a", time=10.0, job="1", state="timeout")
    assert at_ten[1] == Cancel(site="a", time=10.0, job="2")
    assert at_ten[2] == Start(site="a", time=10.0, job="3", cpus=4)
    assert [(event.kind, getattr(event, "job", "")) for event in at_ten[3:]] == [
        ("submit", "4"),
        ("start", "4"),
        ("submit", "5"),
    ]


@every
@settings(max_examples=30)
@given(jobs=workloads(), steps=st.lists(st.integers(0, 20), max_size=60))
def test_stepping_gives_the_same_events_as_a_run(policy: str, jobs: list[SimulatedJob], steps: list[int]) -> None:
    site = SCHEDULERS[policy]("a", CPUS, jobs[0].submit)
    events: list[AnyEvent] = [site.capacity()]
    for job, step in zip(jobs, chain(steps, repeat(0)), strict=False):
        events += site.advance(min(site.now + step, job.submit))
        events += site.submit(job)
    for step in steps:
        events += site.advance(site.now + step)
    events += site.finish()
    assert events == list(run_changing(jobs, CPUS, "a", policy))


@every
@settings(max_examples=30)
@given(jobs=workloads(), after=st.integers(0, 40))
def test_scheduler_copy_continues_identically_and_independently(
    policy: str, jobs: list[SimulatedJob], after: int
) -> None:
    site = SCHEDULERS[policy]("a", CPUS, jobs[0].submit)
    before = [event for job in jobs[:after] for event in site.submit(job)]
    copied = fork(site)

    def rest(scheduler: Scheduler) -> list[AnyEvent]:
        return [event for job in jobs[after:] for event in scheduler.submit(job)] + scheduler.finish()

    in_copy, here = rest(copied), rest(site)
    assert [Capacity(site="a", time=float(jobs[0].submit), cpus=CPUS), *before, *here] == list(
        run_changing(jobs, CPUS, "a", policy)
    )
    if not site.estimates.learns:  # a copy does not learn
        assert in_copy == here


@every
def test_generated_workload_is_deterministic_and_encodable(policy: str) -> None:
    def encoded() -> list[bytes]:
        jobs = generate(seed=9, jobs=1_500, cpus=64, load=0.5, start_time=1_700_000_000)
        return [msgspec.json.encode(event) for event in run_changing(jobs, 64, "alpha", policy)]

    lines = encoded()
    assert lines == encoded()
    events = [msgspec.json.decode(line, type=AnyEvent) for line in lines]
    assert [msgspec.json.encode(event) for event in events] == lines
    assert all(event.time.is_integer() for event in events)
    kinds = Counter(event.kind for event in events)
    assert kinds["submit"] == 1_500 == kinds["start"] + kinds["cancel"] and kinds["end"] == kinds["start"]
    assert 0 < kinds["cancel"] < 300
    assert 20 < sum(isinstance(event, End) and event.state == "timeout" for event in events) < 120


def test_waits_grow_with_the_load_and_shrink_with_backfilling() -> None:
    def mean_wait(load: float, policy: str) -> float:
        return float(np.mean(waits(list(run_changing(generate(2, 6_000, 256, load), 256, "a", policy)))))

    light, heavy = mean_wait(0.5, "easy"), mean_wait(0.9, "easy")
    assert heavy > 2 * light
    assert 3_600 < heavy < 5 * 86_400
    assert mean_wait(0.5, "fcfs") > 1.5 * light


def test_submit_rejects_late_too_large_or_duplicate_jobs() -> None:
    site = Easy("a", CPUS, start_time=10)
    with pytest.raises(ValueError, match="before now"):
        site.submit(make(1, 9, 1, 1))
    with pytest.raises(ValueError, match="requests 9 of 8"):
        site.submit(make(1, 10, CPUS + 1, 1))
    site.submit(make(1, 10, CPUS, 50))
    site.submit(make(2, 10, 1, 50))
    with pytest.raises(ValueError, match="queued already"):
        site.submit(make(2, 11, 1, 1))
    assert [event.kind for event in site.finish()] == ["end", "start", "end"]


def test_empty_workload_has_no_events() -> None:
    assert list(run_changing([], CPUS, "a")) == []
    with pytest.raises(KeyError):
        list(run_changing(EXAMPLE, CPUS, "a", "lottery"))


def test_policy_change_keeps_queued_and_running_jobs() -> None:
    # At 5, 1 runs until 10 and 2 and 3 queue: 3 has less work, and its patience still counts from 2.
    jobs = [make(1, 0, 8, 10), make(2, 1, 8, 20), make(3, 2, 8, 5), make(4, 20, 1, 1), make(5, 21, 8, 1, patience=2)]
    events = list(run_changing(jobs, CPUS, "a", "fcfs", [(5, "lwf")]))
    assert {event.job: event.time for event in events if isinstance(event, Start)} == {
        "1": 0,
        "3": 10,
        "2": 15,
        "4": 35,
    }
    assert [event.time for event in events if isinstance(event, End)] == [10, 15, 35, 36]
    assert [event.job for event in events if isinstance(event, Cancel)] == ["5"]


@given(jobs=workloads(), at=st.integers(90, 300), policy=st.sampled_from(["easy", "conservative", "fcfs", "lwf"]))
def test_change_to_the_same_policy_has_no_effect(jobs: list[SimulatedJob], at: int, policy: str) -> None:
    def started(changes: list[tuple[int, str]]) -> list[tuple[float, str]]:
        return [
            (event.time, event.job)
            for event in run_changing(jobs, CPUS, "a", policy, changes)
            if isinstance(event, Start)
        ]

    assert sorted(started([(at, policy)])) == sorted(started([]))
