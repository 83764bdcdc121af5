"""Scores of grid estimates and answers by the start of a matching job."""

import asyncio
from functools import partial
from typing import Any

import msgspec
import pytest
from prometheus_client import generate_latest

from models.engine.asking.engine_answers import answer
from models.engine.engine import Engine
from models.engine.settings import EngineSettings
from models.records import WaitAnswer, WaitQuestion
from models.site.shapes import Shape
from streams.settings import Settings
from streams.worker.answers import answer_scores as answer_scores
from streams.worker.answers.answer_scores import MAX_ANSWER_AGE_S, AnswerScores, KindScores, PublishedWait
from streams.worker.metrics.site_metrics import SiteFamilies
from tests.support import events
from tests.support.events import end, start, submit
from tests.support.fakes import Process
from tests.support.memory_servers import World

HOUR = 3600.0
SMALL, LARGE = Shape(4, HOUR, "batch"), Shape(16, HOUR, "batch")
ESTIMATES = {
    SMALL: PublishedWait(100.0, 500.0),
    LARGE: PublishedWait(1000.0, None),
    Shape(32, HOUR, "batch"): PublishedWait(None, None),
}


outcome = partial(events.outcome, predicted_run_s=1.0)


def came(scores: AnswerScores, job: str, cpus: int = 4, time: float = 0.0, **fields: Any) -> None:
    scores.add_submission(submit(job, time, cpus=cpus, walltime=fields.pop("walltime", 600.0), queue="batch", **fields))


def ask(scores: AnswerScores, wait_s: float | None = 50.0, made_at: float = 0.0, **fields: Any) -> None:
    job = {"cpus": 4, "walltime": 600.0, "queue": "batch"} | fields
    engine = Engine("s", EngineSettings(method="median"))
    estimate = answer(WaitQuestion(id="1", site="s"), engine, made_at)
    assert isinstance(estimate, WaitAnswer)
    scores.answered(
        WaitQuestion(id="1", **{"site": "s"} | job),
        msgspec.structs.replace(estimate, predicted_wait_s=wait_s, bounds={"0.9": 200.0}),
    )


def test_grid_estimate_is_scored_by_the_next_job_of_its_shape() -> None:
    scores = AnswerScores()
    came(scores, "before")
    scores.published("s", ESTIMATES)
    came(scores, "1")
    came(scores, "2", cpus=9)
    came(scores, "none", cpus=20)  # no estimate of this shape
    came(scores, "large", cpus=99)
    scores.published("s", {SMALL: PublishedWait(9e9, None)})  # after the estimates expired
    for job, waited_s in (("before", 9.0), ("1", 400.0), ("2", 400.0), ("none", 9.0), ("large", 9.0)):
        scores.job_dequeued(outcome(job, waited_s))
        scores.job_dequeued(outcome(job, waited_s, actual_run_s=5.0))  # the end event repeats the outcome
    [found] = scores.accuracy("s")
    assert (found.kind, found.jobs, found.mean_error_s) == ("grid", 2, (300.0 + 600.0) / 2)
    assert found.predicted_error_s == 340.0
    assert found.coverage == {"0.9": 1.0} and found.within_factor_2 == 0.0
    assert scores.accuracy("other") == []


def test_answer_is_scored_by_matching_job_of_user() -> None:
    scores = AnswerScores()
    ask(scores, 50.0, user="ada")
    ask(scores, 10.0)  # has no user
    came(scores, "1", time=60.0, user="ada")
    came(scores, "2", time=60.0, user="bob")
    came(scores, "3", time=60.0, user="ada", cpus=5)
    came(scores, "4", time=MAX_ANSWER_AGE_S + 1.0, user="ada")
    for job in "1234":
        scores.job_dequeued(outcome(job, 150.0))
    [found] = scores.accuracy("s")
    assert (found.kind, found.jobs, found.mean_error_s) == ("query", 2, (100.0 + 140.0) / 2)


def test_regret_uses_the_estimates_of_the_other_queried_sites() -> None:
    scores = AnswerScores()
    for site, wait_s in (("s", 50.0), ("t", 80.0), ("v", 70.0), ("not here", 1.0)):
        ask(scores, wait_s, site=site)
        if site != "not here":
            scores.published(site, {})
    came(scores, "1")
    came(scores, "2", cpus=5)
    ask(scores, cpus=5)
    came(scores, "3", cpus=5)  # no other site was queried
    for job in "123":
        scores.job_dequeued(outcome(job, 150.0))
    [found] = scores.accuracy("s")
    assert (found.kind, found.jobs, found.regret_s) == ("query", 2, 150.0 - 70.0)


def test_missing_estimate_is_not_scored() -> None:
    scores = AnswerScores()
    ask(scores, None)
    scores.published("s", {SMALL: PublishedWait(None, None)})
    came(scores, "1")
    scores.job_dequeued(outcome("1", 9.0))
    assert scores.accuracy("s") == []


def test_answer_scores_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_scores, "MAX_NOTED_JOBS", 3)
    monkeypatch.setattr(answer_scores, "MAX_ANSWERS", 2)
    scores = AnswerScores()
    scores.published("s", ESTIMATES)
    for number in range(10):
        came(scores, str(number))
        ask(scores, user=f"u{number}")
    for number in range(10):
        scores.job_dequeued(outcome(str(number), 100.0))
    [found] = scores.accuracy("s")
    assert found.jobs == 3
    scores.forget("s")
    came(scores, "11", user="u9")
    came(scores, "12", user="u0")
    for job in ("11", "12"):
        scores.job_dequeued(outcome(job, 100.0))
    assert [(one.kind, one.jobs) for one in scores.accuracy("s")] == [("grid", 3), ("query", 1)]


def test_answer_scores_are_exported_to_prometheus() -> None:
    engine, scores, families = Engine("s", EngineSettings(method="median")), AnswerScores(), SiteFamilies()
    scores.published("s", ESTIMATES)
    came(scores, "1")
    scores.job_dequeued(outcome("1", 400.0))
    engine.scores.accuracy["median"].add_wait(7.0, 10.0, None)
    scores.sites["s"]["query"] = KindScores()
    scores.sites["s"]["query"].regrets, scores.sites["s"]["query"].regret_s = 2, -90.0
    engine.scores.later.add_wait(100.0, 150.0, {"0.9": 100.0})
    families.add_answers(engine, scores)
    shown = generate_latest(families).decode()
    assert 'queuecast_answer_error_seconds_sum{kind="grid",site="s"} 300.0' in shown
    assert 'queuecast_answer_error_seconds_sum{kind="what-if",site="s"} 3.0' in shown
    assert 'queuecast_answer_regret_seconds{site="s"} -45.0' in shown
    assert 'queuecast_answer_error_seconds_count{kind="expected",site="s"} 1.0' in shown
    assert 'queuecast_answer_within_factor_2_jobs_total{kind="expected",site="s"} 1.0' in shown
    assert 'queuecast_answer_bound_covered_jobs_total{bound="0.9",kind="grid",site="s"} 1.0' in shown
    assert 'queuecast_answer_bound_covered_jobs_total{bound="0.9",kind="expected",site="s"} 0.0' in shown


def test_worker_scores_grid_estimates_while_reading_events() -> None:
    world = World()
    process = Process(world, Settings(engine=EngineSettings(method="median", shadows=(), bounds="")))
    process.scores.published("s", ESTIMATES)
    came = submit("1", 10.0, cpus=4, walltime=600.0, queue="batch")
    world.publish_events([came, start("1", 510.0), end("1", 900.0)])
    asyncio.run(process.live())
    [found] = process.scores.accuracy("s")
    assert (found.kind, found.jobs, found.mean_error_s, found.predicted_error_s) == ("grid", 1, 400.0, 500.0)
