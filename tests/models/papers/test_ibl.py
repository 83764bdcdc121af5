import math
from collections.abc import Iterable

import msgspec
import numpy as np
import pytest

from models.engine.engine import Engine
from models.engine.settings import EngineSettings
from models.method import SiteContext
from models.papers.ibl import Ibl, IblRuns
from models.papers.ibl.distance import MAX_EXACT_INTEGER, POLICY, Request, request_of, state_of
from models.records import AnyEvent, Prediction
from models.runtimes.closest import Closest
from models.site.history import History
from models.site.job import Job, Phase
from models.site.runs import RunHistory
from models.site.state import SiteState
from tests.support.events import cancel, capacity, end, start, submit


def site_of(*jobs: Job, cpus: int | None = None) -> SiteContext:
    site = SiteContext(SiteState(), History(8), RunHistory(), Closest())
    for job in jobs:
        site.state.enter(job)
    if cpus is not None:
        site.capacity = capacity(cpus)
    return site


def running(name: str, user: str, queue: str, cpus: int, start: float, run_s: float | None) -> Job:
    job = Job(name, 0, start, user=user, group="g", queue=queue, cpus=cpus, phase=Phase.RUNNING, start=start)
    job.run_s = run_s
    return job


def queued(
    name: str, user: str, queue: str, cpus: int, submit: float, run_s: float | None, planned_run_s: float = 0.0
) -> Job:
    return Job(name, 0, submit, user=user, group="g", queue=queue, cpus=cpus, run_s=run_s, planned_run_s=planned_run_s)


# Attributes and states.


def test_state_vectors_equal_manual_computation() -> None:
    site = site_of(
        running("1", "ada", "day", 4, 100.0, 500.0),
        running("2", "ada", "day", 2, 0.0, 50.0),  # longer than predicted: no run time remains
        running("3", "bob", "night", 8, 150.0, 100.0),
        queued("4", "bob", "day", 16, 120.0, 1000.0),
        queued("5", "bob", "night", 1, 200.0, None, planned_run_s=30.0),  # not predicted: the requested time
        Job("6", 0, 0.0, user="bob", queue="day", cpus=99, phase=Phase.HELD),
        cpus=32,
    )
    by_queue = state_of(site, 200.0, ["queue"])
    assert by_queue.policy == ("queue",)
    assert by_queue.free_cpus == 32 - 14
    assert dict(zip(by_queue.categories, by_queue.values, strict=True)) == {
        ("day",): [2, 1, 4 * 100 + 2 * 200, 4 * 400, 16 * 80, 16 * 1000],
        ("night",): [1, 1, 8 * 50, 8 * 50, 0, 30],
    }
    assert state_of(site, 200.0, []).values == [[3, 2, 1200, 2000, 1280, 16_030]]


@pytest.mark.parametrize("policy", [(), ("user",), ("group", "queue"), ("user", "queue"), POLICY])
def test_merged_state_equals_the_state_by_that_policy(policy: tuple[str, ...]) -> None:
    site = site_of(
        running("1", "ada", "day", 4, 100.0, 500.0),
        running("2", "bob", "day", 2, 0.0, 50.0),
        queued("3", "bob", "night", 16, 120.0, 1000.0),
        cpus=32,
    )
    assert state_of(site, 200.0).merged(policy) == state_of(site, 200.0, policy)  # type: ignore[arg-type]


def test_state_values_are_bounded() -> None:
    absurd = queued("1", "ada", "day", 1_000_000_000, 0.0, 1e11)
    assert max(state_of(site_of(absurd), 1e11).values[0]) == MAX_EXACT_INTEGER


def test_free_cpus_without_site_size_are_missing() -> None:
    assert state_of(site_of(), 0.0).free_cpus is None


def test_request_of_job_has_its_attributes() -> None:
    job = Job("1", 0, 86_400.0 * 3 + 60.0, user="ada", cpus=4, walltime=0.0)
    assert request_of(job) == Request(None, "ada", None, None, 4, None, 60.0)


# Methods.


def ended(job: Job, run_s: float, method: IblRuns) -> None:
    method.learn(job, run_s, RunHistory())


def test_ibl_estimate_equals_manual_computation() -> None:
    jobs = {"ada": 100.0, "bob": 900.0}
    for neighbours, middle, expected in (
        (1, "mean", 100.0),
        (2, "mean", (100.0 + math.exp(-1.0) * 900.0) / (1.0 + math.exp(-1.0))),
        (2, "median", 100.0),
    ):
        method = Ibl(attributes=("user",), job_share=1.0, neighbours=neighbours, middle=middle)
        site = site_of()
        assert method.predict(Job("0", 0, 0.0, user="ada"), site).reason == "no history"
        for name, wait_s in jobs.items():
            job = Job(name, 0, 0.0, user=name)
            method.predict(job, site)
            method.learn(job, wait_s, site)
        assert method.predict(Job("9", 0, 0.0, user="ada"), site).wait_s == pytest.approx(expected)


def test_ibl_predicts_equal_waits_in_similar_states() -> None:
    method = Ibl(policy=("queue",), state=("queued_jobs",), attributes=("user",), neighbours=3, job_share=0.5)
    idle, full = site_of(), site_of(*[queued(f"q{n}", "eve", "day", 1, 0.0, 60.0) for n in range(9)])
    for number in range(6):
        site, wait_s = (full, 7200.0) if number % 2 else (idle, 0.0)
        job = Job(str(number), 0, 10.0, user="ada")
        method.predict(job, site)
        method.learn(job, wait_s, site)
    assert method.predict(Job("8", 0, 20.0, user="ada"), idle).wait_s == 0.0
    found = method.predict(Job("9", 0, 20.0, user="ada"), full)
    assert (found.wait_s, found.reason) == (7200.0, "median of 3 jobs within distance 0")


def test_cancelled_or_unobserved_jobs_are_not_learned() -> None:
    method, site = Ibl(), site_of()
    seen, unseen = Job("1", 0, 0.0, user="ada"), Job("2", 0, 0.0, user="ada")
    method.predict(seen, site)
    method.forget(seen.key)
    for job in (seen, unseen):
        method.learn(job, 99.0, site)
    assert method.predict(Job("3", 0, 0.0, user="ada"), site).wait_s is None


def test_job_is_learned_only_after_its_start() -> None:
    method, site = Ibl(attributes=("user",), neighbours=3, middle="mean"), site_of()
    first, second, third = (Job(name, 0, float(name), user="ada") for name in "123")
    assert [method.predict(job, site).wait_s for job in (first, second)] == [None, None]
    method.learn(second, 80.0, site)
    assert method.predict(third, site).wait_s == 80.0
    method.learn(first, 100.0, site)
    assert method.predict(Job("4", 0, 4.0, user="ada"), site).wait_s == pytest.approx(90.0)


def test_run_times_come_from_like_jobs() -> None:
    method = IblRuns(run_attributes=("user",), run_neighbours=2, run_middle="mean")
    assert method.predict(Job("0", 0, 0.0, user="ada"), RunHistory()).run_s is None
    for run_s in (50.0, 100.0, 200.0):
        ended(Job("1", 0, 0.0, user="ada"), run_s, method)
        ended(Job("2", 0, 0.0, user="bob"), 10 * run_s, method)
    job = Job("3", 0, 0.0, user="ada")
    assert method.predict(job, RunHistory()).run_s == 150.0
    job.walltime = 120.0
    assert method.predict(job, RunHistory()).run_s == 120.0


def test_running_job_is_predicted_from_longer_runs_only() -> None:
    method = IblRuns(run_attributes=("user",), run_neighbours=2, run_middle="mean")
    job = Job("1", 0, 0.0, user="ada")
    for run_s in (300.0, 100.0, 200.0, 10.0):
        ended(job, run_s, method)
    assert method.predict(job, RunHistory(), 150.0).run_s == 250.0
    assert method.predict(job, RunHistory(), 1000.0).run_s == 1000.0


def test_ibl_names_of_old_jobs_are_forgotten() -> None:
    method = IblRuns(run_history=4)
    for number in range(200):
        ended(Job("1", 0, 0.0, user=f"u{number}"), float(number), method)
    assert method._learnt.names < 50
    assert method.predict(Job("1", 0, 0.0, user="u198"), RunHistory()).run_s is not None


# In the engine.


def story(jobs: int = 400) -> list[AnyEvent]:
    """Return a site with queues of varying length: jobs arrive in bursts, some are cancelled."""
    random = np.random.default_rng(5)
    events: list[AnyEvent] = [capacity(16)]
    time = 0.0
    for number in range(jobs):
        time += float(random.exponential(400.0))
        user, cpus = f"u{random.integers(5)}", int(random.integers(1, 9))
        begin = time + float(random.exponential(600.0))
        job = str(number)
        events.append(submit(job, time, user=user, queue="day", cpus=cpus, walltime=600.0))
        if number % 9 == 0:
            events.append(cancel(job, begin))
        else:
            events.append(start(job, begin))
            events.append(end(job, begin + float(random.exponential(900.0))))
    return sorted(events, key=lambda event: event.time)


SETTINGS = EngineSettings(
    method="ibl",
    shadows=(),
    runtimes="ibl",
    parameters={"ibl": {"history": 100, "run_history": 60, "policy": ["user"], "run_attributes": ["user", "cpus"]}},
)


def predictions(engine: Engine, events: Iterable[AnyEvent]) -> list[tuple[str, float | None, float | None]]:
    return [
        (record.job, record.predicted_wait_s, record.predicted_run_s)
        for event in events
        for record in engine.apply(event)
        if isinstance(record, Prediction)
    ]


def test_policy_change_keeps_the_history_of_jobs() -> None:
    events = story()
    begun = Engine("s", SETTINGS)
    predictions(begun, events[:600])
    saved, changes = begun.checkpoint()
    changed = msgspec.structs.replace(SETTINGS, parameters={"ibl": {"history": 50, "policy": ["queue"]}})
    restored = Engine.load(saved, changes.started, changes.runs, changed, changes.rows)
    assert all(wait_s is not None for _, wait_s, _ in predictions(restored, events[600:]))


def test_load_rejects_an_invalid_saved_row() -> None:
    method = IblRuns()
    method.rows.append(b"\xc1")
    with pytest.raises(ValueError, match="row 0"):
        method.load(b"")
