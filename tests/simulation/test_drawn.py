from collections import defaultdict

import msgspec
import pytest

from models.records import AnyEvent, End, Start
from models.simulation.workload import SimulatedJob, generate
from tests.simulation.drawn import HOUR, TURNS, Drawn, Rules, draw
from tests.simulation.schedulers import fork

CPUS = 64


def load(seed: int = 1, count: int = 300) -> list[SimulatedJob]:
    return generate(seed, count, CPUS, 0.8, start_time=0, impatient=0.0)


def ran(rules: Rules, jobs: list[SimulatedJob]) -> list[AnyEvent]:
    scheduler = Drawn("alder", CPUS, 0, rules)
    events: list[AnyEvent] = []
    for job in jobs:
        events += scheduler.submit(job)
    return events + scheduler.finish()


def test_drawn_rules_are_deterministic_and_distinct() -> None:
    assert [draw(seed) for seed in range(50)] == [draw(seed) for seed in range(50)]
    assert len({draw(seed) for seed in range(50)}) == 50


@pytest.mark.parametrize("rules", [TURNS, *map(draw, range(12))])
def test_drawn_scheduler_runs_all_jobs_within_cpus(rules: Rules) -> None:
    jobs = {job.job: job for job in load()}
    held = 0
    begun: set[str] = set()
    for event in ran(rules, list(jobs.values())):
        if isinstance(event, Start):
            held, begun = held + jobs[event.job].cpus, begun | {event.job}
        elif isinstance(event, End):
            held -= jobs[event.job].cpus
        assert 0 <= held <= CPUS
    assert begun == jobs.keys()


def test_turns_rules_limit_jobs_per_user_and_long_jobs() -> None:
    jobs = {job.job: job for job in load()}
    runs: defaultdict[str | None, int] = defaultdict(int)
    long = most = 0
    for event in ran(TURNS, list(jobs.values())):
        if isinstance(event, Start | End):
            job, sign = jobs[event.job], 1 if isinstance(event, Start) else -1
            runs[job.user] += sign
            most = max(most, runs[job.user])
            long += sign * job.cpus * ((job.walltime or 0) > HOUR)
            assert long <= 0.8 * CPUS or long == job.cpus
    assert most == 6


def test_turns_rules_start_user_with_least_cpus_first() -> None:
    whole = SimulatedJob(
        job="", submit=0, user="ada", group=None, queue=None, executable=None, cpus=CPUS, run=HOUR, walltime=2 * HOUR
    )
    half = msgspec.structs.replace(whole, cpus=CPUS // 2)
    jobs = [
        msgspec.structs.replace(job, job=name, user=user, run=run)
        for job, name, user, run in (
            (half, "a1", "ada", 3 * HOUR),
            (half, "b1", "bob", HOUR),
            (half, "a2", "ada", HOUR),
            (half, "b2", "bob", HOUR),
        )
    ]
    rules = Rules(turns=10.0)
    assert [event.job for event in ran(rules, jobs) if isinstance(event, Start)] == ["a1", "b1", "b2", "a2"]


def test_drawn_scheduler_with_interval_starts_jobs_at_interval() -> None:
    starts = [event.time for event in ran(Rules(every_s=600), load()) if isinstance(event, Start)]
    assert starts and all(time % 600 == 0 for time in starts)


def test_drawn_scheduler_without_backfill_keeps_order() -> None:
    events = ran(Rules(backfill="none"), load())
    order = [event.job for event in events if isinstance(event, Start)]
    assert order == [job.job for job in load()]


def test_forked_drawn_scheduler_gives_same_events() -> None:
    scheduler = Drawn("alder", CPUS, 0, msgspec.structs.replace(TURNS, lottery=1.0))
    jobs = load(count=100)
    for job in jobs:
        scheduler.submit(job)
    copied = fork(scheduler)
    assert copied.finish() == scheduler.finish()
