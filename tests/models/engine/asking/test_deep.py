"""Answers of a site whose queue is too deep to simulate all of it."""

import pytest

from models.engine.asking.blocked_by import OVERDUE, UNKNOWN, BlockedBy
from models.engine.asking.engine_answers import answer, remaining_work_s
from models.engine.engine import Engine
from models.records import (
    Capacity,
    JobAnswer,
    JobQuestion,
    JobsAnswer,
    JobsQuestion,
    Requeue,
    SiteAnswer,
    SiteQuestion,
    Start,
    Submit,
    Suspend,
    WaitAnswer,
    WaitQuestion,
)
from models.site import seen
from models.site.job import Estimate, Job

QUEUED, HOUR_S = 6000, 3600.0
BOUNDS = {"0.1": 0.1, "0.5": 0.5, "0.9": 1.5, "0.95": 2.0}
"""Bounds as multiples of the predicted wait."""


@pytest.fixture(scope="module")
def engine() -> Engine:
    """A site with 8 CPUs, all in use, and jobs queued one second apart that start one after the other."""
    engine = Engine("alder")
    engine.apply(Capacity(site="alder", time=0.0, cpus=8))
    engine.apply(Submit(site="alder", time=0.0, job="runs", user="eve", cpus=8, walltime=HOUR_S))
    engine.apply(Start(site="alder", time=0.0, job="runs"))
    for number in range(QUEUED):
        job = Job(f"{number}.alder", 0, float(number), user=f"u{number % 10}", cpus=8, walltime=60.0, run_s=60.0)
        job.planned_run_s, job.queue, wait_s = 60.0, "batch", HOUR_S + 60.0 * number
        bounds = {share: wait_s * times for share, times in BOUNDS.items()}
        job.estimates["blend"] = Estimate(bounds["0.5"], "by hand", bounds)
        engine.context.state.enter(job)
    return engine


@pytest.fixture(autouse=True)
def soon_deep(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("MOST_WAITING", 1000), ("FIRST", 200), ("LAST", 100), ("MIDDLE", 256)):
        monkeypatch.setattr(seen, name, value)


def test_pending_job_in_deep_queue_has_start_and_jobs_ahead(engine: Engine) -> None:
    looked_at, others = engine.context.state.table.visible_rows(), 0
    for number in (0, 1000, 3001, 3002, 3003, 3004, QUEUED - 1):
        job = engine.context.state.jobs[f"{number}.alder", 0]
        others += engine.context.state.table.row(job.key) not in looked_at.rows
        reply = answer(JobQuestion(id="1", site="alder", job=job.id), engine, job.ready)
        assert isinstance(reply, JobAnswer) and reply.live is not None
        assert reply.expected_start == pytest.approx(job.ready + 0.5 * (HOUR_S + 60.0 * number))
        assert reply.ahead_jobs == pytest.approx(number, rel=0.15, abs=20.0)
    assert others


def test_remaining_work_of_deep_queue_is_about_correct(engine: Engine) -> None:
    assert remaining_work_s(engine, HOUR_S) == pytest.approx(60.0 * QUEUED, rel=0.01)
    reply = answer(SiteQuestion(id="1", site="alder"), engine, float(QUEUED))
    assert isinstance(reply, SiteAnswer) and reply.live.queued_jobs == QUEUED
    assert [job.job for job in reply.queued] == [f"{number}.alder" for number in range(20)]


def test_explanation_of_deep_queue_covers_the_simulated_jobs(engine: Engine) -> None:
    reply = answer(WaitQuestion(id="1", site="alder", cpus=8, walltime=60.0, why=True), engine, float(QUEUED))
    assert isinstance(reply, WaitAnswer) and reply.why is not None
    assert f"of {QUEUED + 1:,} live jobs used" in reply.reason
    assert reply.why.ahead_cpu_hours == pytest.approx(reply.why.ahead_jobs * 8 / 60.0, rel=0.01)


def test_jobs_question_lists_the_last_jobs_of_a_user(engine: Engine) -> None:
    reply = answer(JobsQuestion(id="1", site="alder", user="u3", limit=5), engine, float(QUEUED))
    assert isinstance(reply, JobsAnswer)
    assert [job.job for job in reply.jobs] == [f"{number}.alder" for number in range(QUEUED - 47, QUEUED, 10)]
    assert reply.more == QUEUED // 10 - 5
    empty = answer(JobsQuestion(id="1", site="alder", user="nobody"), engine, float(QUEUED))
    assert isinstance(empty, JobsAnswer) and (empty.jobs, empty.more) == ([], 0)


def test_blocked_jobs_are_counted_among_jobs_that_fit(engine: Engine) -> None:
    late = 0.5 * HOUR_S * QUEUED
    job = engine.context.state.jobs["7.alder", 0]
    assert BlockedBy(engine, late).of(job, late) == OVERDUE  # All CPUs are in use.
    engine.apply(Capacity(site="alder", time=10.0, cpus=16))
    assert BlockedBy(engine, late).of(job, late) == UNKNOWN
    reason = BlockedBy(engine, late).blocked_reason(job) or ""
    assert int(reason.split()[0]) == pytest.approx(QUEUED // 10, rel=0.3)
    engine.apply(Capacity(site="alder", time=11.0, cpus=8))


def test_job_list_has_the_last_attempt_and_suspended_jobs() -> None:
    engine = Engine("alder")
    for number in range(3):
        engine.apply(Submit(site="alder", time=float(number), job=str(number), user="ada"))
        engine.apply(Start(site="alder", time=10.0, job=str(number)))
    engine.apply(Suspend(site="alder", time=20.0, job="1"))
    engine.apply(Requeue(site="alder", time=30.0, job="2"))
    reply = answer(JobQuestion(id="1", site="alder", job="2"), engine, 40.0)
    assert isinstance(reply, JobAnswer) and reply.live is not None and reply.live.attempt == 1
    assert [job.attempt for job in engine.context.state.attempts_of("2")] == [1]
    own = answer(JobsQuestion(id="1", site="alder", user="ada"), engine, 40.0)
    assert isinstance(own, JobsAnswer)
    assert [(job.job, job.phase) for job in own.jobs] == [("0", "running"), ("1", "suspended"), ("2", "queued")]
