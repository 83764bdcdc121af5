import random
from collections import defaultdict

import msgspec
import pytest

from models.records import Submit
from models.site.job import Job, Phase
from models.site.state import MICRO, SITE, Scope, SiteState, Totals, micros

UGLY = (0.1, 0.2, 0.3, 0.7, 1.1, 1 / 3, 1e-7, 86400.1, 835823160.123456)


def recount(state: SiteState) -> dict[tuple[Scope, Phase], Totals]:
    """Compute the totals by their definition from the list of jobs."""
    counted: dict[tuple[Scope, Phase], Totals] = defaultdict(Totals)
    for job in state.jobs.values():
        since = job.start if job.phase is Phase.RUNNING else job.submit
        assert since is not None
        names = (("user", job.user), ("group", job.group), ("queue", job.queue))
        for scope in (SITE, *((kind, name) for kind, name in names if name is not None)):
            totals = counted[scope, job.phase]
            totals.count += 1
            totals.cpus += job.cpus
            totals.planned_run_us += round(job.planned_run_s * MICRO)
            totals.tasks += job.tasks_remaining
            totals.work += job.cpus * round(job.planned_run_s * MICRO)
            totals.since += round(since * MICRO)
    return dict(counted)


def new_job(dice: random.Random, number: int, users: int = 30) -> Job:
    return Job(
        id=str(number),
        attempt=0,
        submit=835823160.0 + number * 0.1,
        user=dice.choice([None, f"u{dice.randrange(users)}"]),
        group=dice.choice([None, f"g{dice.randrange(5)}"]),
        queue=dice.choice([None, "batch", "long"]),
        cpus=dice.randint(1, 1024),
        planned_run_s=dice.choice(UGLY) * dice.randint(0, 1000),
    )


def change(state: SiteState, job: Job, dice: random.Random) -> None:
    """Apply a random change to a live job."""
    match dice.randrange(5):
        case 0:
            state.move(job, Phase.HELD if job.phase is Phase.QUEUED else Phase.QUEUED)
        case 1:
            state.move(job, Phase.RUNNING, job.submit + dice.choice(UGLY))
        case 2:
            state.alter(
                job, cpus=dice.randint(1, 64), planned_run_s=dice.choice(UGLY), queue=dice.choice(["batch", "short"])
            )
        case 3:
            state.move(job, Phase.ENDED_BEFORE_START)
        case _:
            state.leave(job)


def test_totals_are_those_of_a_recount_after_many_events() -> None:
    dice = random.Random(1)
    state = SiteState()
    jobs: list[Job] = []
    for number in range(150_000):
        if not jobs or dice.random() < 0.3:
            jobs.append(new_job(dice, number))
            state.enter(jobs[-1])
        else:
            place = dice.randrange(len(jobs))
            change(state, jobs[place], dice)
            if jobs[place].key not in state.jobs:
                jobs[place] = jobs[-1]
                jobs.pop()
        if number % 10_000 == 0:
            assert state._totals == recount(state)
    assert state._totals == recount(state)


def test_totals_return_to_zero_after_a_million_jobs() -> None:
    totals = Totals()
    totals.add(3, micros(0.1), micros(0.2))
    before = repr(totals)
    amounts = [(cpus, micros(cpus * 0.1), micros(1e9 + cpus * 0.1)) for cpus in range(1, 1001)]
    for _ in range(1000):
        for cpus, planned_run_us, since in amounts:
            totals.add(cpus, planned_run_us, since)
        for cpus, planned_run_us, since in reversed(amounts):
            totals.add(cpus, planned_run_us, since, -1)
    assert repr(totals) == before
    totals.add(3, micros(0.1), micros(0.2), -1)
    assert totals == Totals()


def test_totals_of_unused_names_are_removed() -> None:
    state = SiteState()
    for number in range(1000):
        job = Job(id="1", attempt=number, submit=0.0, user=f"u{number}", group=f"g{number}", queue=f"q{number}")
        state.enter(job)
        state.move(job, Phase.HELD)
        state.move(job, Phase.QUEUED)
        state.move(job, Phase.RUNNING, 1.0)
        assert len(state._totals) == 4
        state.leave(job)
    assert not state._totals and not state.jobs


def test_job_counts_in_its_current_phase_only() -> None:
    state = SiteState()
    job = Job(id="1", attempt=0, submit=10.0, user="ada", group="g", queue="q", cpus=4, planned_run_s=60.0)
    state.enter(job)
    for phase in (Phase.HELD, Phase.QUEUED, Phase.ENDED_BEFORE_START, Phase.RUNNING):
        state.move(job, phase, 30.0)
        for scope in (SITE, ("user", "ada"), ("group", "g"), ("queue", "q")):
            assert [other for other in Phase if state.totals(scope, other).count] == [phase]
        assert [*state.in_phase(phase)] == [job]
    assert state.totals(SITE, Phase.RUNNING).since == micros(30.0)
    assert state.totals(("user", "nobody"), Phase.RUNNING) == Totals()


def test_altered_job_moves_between_queues_with_all_its_sums() -> None:
    state = SiteState()
    job = Job(id="1", attempt=0, submit=10.0, queue="short", cpus=4, planned_run_s=60.0)
    state.enter(job)
    state.alter(job, queue="long", cpus=8, planned_run_s=0.1)
    assert state.totals(("queue", "short"), Phase.QUEUED) == Totals()
    long = state.totals(("queue", "long"), Phase.QUEUED)
    assert (long.count, long.cpus, long.planned_run_us, long.work, long.since) == (1, 8, 100_000, 800_000, 10_000_000)


def test_jobs_in_a_phase_are_returned_in_order_of_entry() -> None:
    state = SiteState()
    jobs = [Job(id=str(number), attempt=0, submit=float(-number)) for number in range(5)]
    for job in jobs:
        state.enter(job)
    state.move(jobs[0], Phase.HELD)
    state.move(jobs[0], Phase.QUEUED)
    assert [job.id for job in state.in_phase(Phase.QUEUED)] == ["0", "1", "2", "3", "4"]


def test_totals_elapsed_time_is_a_sum_and_never_negative() -> None:
    totals = Totals()
    for since in (10.5, 20.25):
        totals.add(1, 0, micros(since))
    assert totals.elapsed_s(30.0) == 19.5 + 9.75
    assert totals.elapsed_s(1.0) == 0.0
    assert Totals().elapsed_s(1e9) == 0.0


@pytest.mark.parametrize(
    ("eligible", "ready", "wait_from"),
    [(None, 100.0, "submit"), (50.0, 100.0, "submit"), (100.0, 100.0, "submit"), (150.0, 150.0, "eligible")],
)
def test_wait_begins_when_the_job_is_eligible(eligible: float | None, ready: float, wait_from: str) -> None:
    job = Job(id="1", attempt=0, submit=100.0, eligible=eligible)
    assert (job.ready, job.wait_from) == (ready, wait_from)


def test_job_of_submit_copies_all_its_fields() -> None:
    event = Submit(
        site="s",
        time=1.0,
        job="7",
        attempt=2,
        user="u",
        group="g",
        account="a",
        queue="q",
        executable="x",
        cpus=5,
        nodes=6,
        gpus=7,
        memory=8,
        walltime=9.0,
        eligible=10.0,
    )
    job = Job.of(event)
    assert (job.key, job.submit, job.phase, job.requested) == (("7", 2), 1.0, Phase.QUEUED, True)
    request = msgspec.structs.asdict(event)
    for field in ("user", "group", "account", "queue", "executable", "cpus", "nodes", "gpus", "memory", "walltime"):
        assert getattr(job, field) == request[field]
    assert job.eligible == 10.0
