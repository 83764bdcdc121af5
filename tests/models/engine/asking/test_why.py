"""Explanations of a wait and alternatives that start sooner."""

from typing import Any

import msgspec
import pytest

from models.engine.asking import why as why_module
from models.engine.asking.engine_answers import answer, passed
from models.engine.asking.why import Orders, explained
from models.engine.engine import Engine
from models.engine.settings import EngineSettings
from models.records import JobsAnswer, JobsQuestion, Partition, Pool, SiteQuestion, WaitAnswer, WaitQuestion, Why
from models.site.job import Job
from tests.support.engines import MEDIAN
from tests.support.events import capacity, start, submit

EASY = msgspec.structs.replace(MEDIAN, what_if_method="easy")
HOUR = 3600.0


@pytest.fixture
def busy() -> Engine:
    return line("batch", "batch", "long")


def line(*queues: str) -> Engine:
    """Occupy 48 of 64 CPUs for another hour; queue one job of 64 CPUs and 2 h in each of these queues."""
    engine = Engine("s", EASY)
    engine.apply(capacity(64))
    engine.apply(submit("r", 0.0, cpus=48, walltime=2 * HOUR, queue="batch"))
    engine.apply(start("r", 0.0))
    for number, queue in enumerate(queues):
        engine.apply(submit(f"q{number}", 10.0 + number, cpus=64, walltime=2 * HOUR, queue=queue, user="ada"))
    engine.apply(capacity(64, HOUR))
    return engine


def wait_answer(engine: Engine, **job: Any) -> WaitAnswer:
    reply = answer(WaitQuestion(id="1", site="s", **job), engine, HOUR)
    assert isinstance(reply, WaitAnswer)
    return reply


def why(engine: Engine, **job: Any) -> Why:
    reply = wait_answer(engine, **job, why=True)
    assert reply.why is not None
    return reply.why


def test_jobs_ahead_are_counted_with_their_work(busy: Engine) -> None:
    explanation = why(busy, cpus=64, walltime=2 * HOUR, queue="batch")
    assert (explanation.ahead_jobs, explanation.ahead_in_queue, explanation.free_cpus) == (3, 2, 16)
    assert explanation.ahead_cpu_hours == 3 * 64 * 2
    assert explanation.ahead_work_s == 6 * HOUR
    assert explanation.text == (
        "3 jobs ahead of it, 2 of them in batch, need 384 CPU-hours, about 6h of the machine; 16 CPUs are free"
    )


def test_explanation_counts_jobs_ahead_in_own_queue_once() -> None:
    explanation = why(line("batch", "batch"), cpus=64, walltime=2 * HOUR, queue="batch")
    assert explanation.text.startswith("2 jobs ahead of it, all in batch, need 256 CPU-hours")


def test_explanation_lists_alternatives_with_time_saved(busy: Engine) -> None:
    explanation = why(busy, cpus=16, walltime=2 * HOUR, queue="batch")
    [best, *_] = explanation.instead
    assert (best.walltime, best.cpus, best.queue) == (HOUR, None, None)  # ends before the first of them starts
    assert (best.predicted_wait_s, best.sooner_s) == (0.0, 7 * HOUR)
    assert all(one.sooner_s >= 0.2 * 7 * HOUR for one in explanation.instead)


def test_explanation_omits_alternatives_that_start_no_sooner(busy: Engine) -> None:
    assert why(busy, cpus=64, walltime=2 * HOUR).instead == []


def test_explanation_of_immediate_start_has_no_alternatives(busy: Engine) -> None:
    explanation = why(busy, cpus=16, walltime=0.5 * HOUR)
    assert explanation.text == "16 CPUs are free: it starts immediately"
    assert explanation.instead == []


def test_explanation_of_empty_queue_names_running_jobs() -> None:
    engine = Engine("s", EASY)
    engine.apply(capacity(64))
    engine.apply(submit("r", 0.0, cpus=48, walltime=2 * HOUR))
    engine.apply(start("r", 0.0))
    explanation = why(engine, cpus=32, walltime=HOUR)
    assert explanation.text == (
        "no job is ahead of it; it requests 32 CPUs and 16 are free: running jobs must end first"
    )


def test_explanation_reports_that_work_ahead_is_not_the_cause(busy: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    def text(cpus: int, wait_s: float) -> str:
        return explained(Orders(busy, HOUR), Job("x", 0, HOUR, cpus=cpus, walltime=HOUR), wait_s).text

    ahead = "3 jobs ahead of it need 384 CPU-hours, about 6h of the machine; 16 CPUs are free"
    assert text(16, 20 * HOUR) == f"{ahead}, but few jobs have started here yet, so how long it waits is a guess"
    monkeypatch.setattr(why_module, "EVIDENCE_JOBS", 1)
    assert text(16, 20 * HOUR) == (
        f"{ahead}, but jobs like it have waited longer: a limit or a priority may hold it back"
    )
    assert text(32, 20 * HOUR) == f"{ahead}, so running jobs must end first"
    assert text(16, 8 * HOUR) == ahead


@pytest.mark.parametrize(("wait_s", "then"), [(0.0, "start then"), (7 * HOUR, "wait 7h from then on")])
def test_explanation_before_eligible_time_contains_it(busy: Engine, wait_s: float, then: str) -> None:
    later = Job("x", 0, HOUR, cpus=16, walltime=HOUR, eligible=241 * HOUR)
    assert explained(Orders(busy, HOUR), later, wait_s).text == (
        f"it becomes eligible in 10d, and is expected to {then}"
    )


def test_explanation_of_job_too_large_equals_its_reason(busy: Engine) -> None:
    explanation = why(busy, cpus=128)
    assert explanation.text == "larger than the site: 128 of 64 CPUs"


def test_wait_answer_has_explanation_only_on_request(busy: Engine) -> None:
    assert wait_answer(busy, cpus=64).why is None


def test_explanation_does_not_change_the_engine_state(busy: Engine) -> None:
    before = busy.checkpoint()[0]
    wait_answer(busy, cpus=16, walltime=2 * HOUR, queue="batch", why=True)
    assert busy.checkpoint()[0] == before


def test_queued_job_is_listed_with_its_explanation(busy: Engine) -> None:
    reply = answer(JobsQuestion(id="1", site="s", user="ada"), busy, HOUR)
    assert isinstance(reply, JobsAnswer)
    first, second, third = (job.why or "" for job in reply.jobs)
    assert first.startswith("no job is ahead of it; it requests 64 CPUs and 16 are free")
    assert second.startswith("1 job ahead of it needs 128 CPU-hours, about 2h of the machine")
    assert third.startswith("2 jobs ahead of it need 256 CPU-hours")
    site = answer(SiteQuestion(id="1", site="s"), busy, HOUR)
    assert [job.why for job in site.queued] == [first, second, third]  # type: ignore[union-attr]


def test_explanation_counts_nodes_of_the_job_partitions() -> None:
    pools = [Pool(name="thin", nodes=4, cpus=8), Pool(name="fat", nodes=2, cpus=8, gpus={"a100": 4})]
    partitions = [Partition(name="cpu", pools=["thin"]), Partition(name="gpu", pools=["fat"])]
    engine = Engine("s", EngineSettings(method="order", shadows=(), runtimes="walltime"))
    engine.apply(capacity(48, nodes=6, pools=pools, partitions=partitions))
    requests: list[dict[str, Any]] = [
        {"cpus": 32, "queue": "cpu"},
        {"cpus": 32, "queue": "cpu"},
        {"gpus": 8, "queue": "gpu"},
    ]
    for job, request in enumerate(requests):
        engine.apply(submit(str(job), walltime=3 * HOUR, **request))
    engine.apply(start("0"))
    engine.apply(start("2"))
    explanation = why(engine, cpus=8, walltime=HOUR, queue="cpu")
    assert (explanation.ahead_jobs, explanation.free_cpus, explanation.ahead_work_s) == (1, 0, 3 * HOUR)
    explanation = why(engine, cpus=1, gpus=1, walltime=HOUR, queue="gpu")
    assert (explanation.ahead_jobs, explanation.free_cpus) == (0, 15)  # CPUs are free, GPUs are not.
    assert (
        explanation.text
        == "no job is ahead of it, but the resources it requests are not free: running jobs must end first"
    )


def partitioned(*running: dict[str, Any]) -> Engine:
    """Build partitions cpu and debug on four shared nodes and gpu on two; run the given jobs."""
    gigabyte = 2**30
    pools = [
        Pool(name="thin", nodes=4, cpus=8, memory=32 * gigabyte),
        Pool(name="fat", nodes=2, cpus=8, gpus={"a100": 4}, memory=32 * gigabyte),
    ]
    partitions = [Partition(name=name, pools=["thin"]) for name in ("cpu", "debug")]
    engine = Engine("s", EngineSettings(method="order", shadows=(), runtimes="walltime"))
    engine.apply(capacity(48, nodes=6, pools=pools, partitions=[*partitions, Partition(name="gpu", pools=["fat"])]))
    for job, request in enumerate(running):
        engine.apply(submit(str(job), walltime=3 * HOUR, **request))
        engine.apply(start(str(job)))
    return engine


def test_explanation_separates_free_cpus_of_partitions_and_site() -> None:
    engine = partitioned({"cpus": 24, "queue": "cpu"})
    reply = wait_answer(engine, cpus=16, walltime=HOUR, queue="cpu", why=True)
    assert reply.why is not None
    assert (reply.live.free_cpus, reply.why.free_cpus) == (24, 8)
    assert reply.why.text == (
        "no job is ahead of it; it requests 16 CPUs and 8 are free in cpu and debug: running jobs must end first"
    )
    engine.apply(submit("queued", walltime=2 * HOUR, cpus=32, queue="cpu"))
    assert why(engine, cpus=32, walltime=HOUR, queue="cpu").text == (
        "1 job ahead of it needs 64 CPU-hours, about 2h of cpu and debug; 8 CPUs are free in cpu and debug"
    )


def test_explanation_with_scarce_memory_counts_free_cpus() -> None:
    engine = partitioned({"cpus": 2, "memory": 120 * 2**30, "queue": "cpu"})
    assert why(engine, cpus=16, walltime=HOUR, queue="cpu").text == (
        "30 CPUs are free in cpu and debug: it starts immediately"
    )
    explanation = why(engine, cpus=16, walltime=HOUR, queue="cpu", memory=64 * 2**30)
    assert explanation.free_cpus == 30
    assert (
        explanation.text
        == "no job is ahead of it, but the resources it requests are not free: running jobs must end first"
    )


def test_explanation_of_many_partitions_names_the_first() -> None:
    names = ["a", "b", "c", "d"]
    pools = [Pool(name="thin", nodes=4, cpus=8), Pool(name="other", nodes=1, cpus=8)]
    partitions = [Partition(name=name, pools=["thin"]) for name in names]
    engine = Engine("s", EngineSettings(method="order", shadows=(), runtimes="walltime"))
    engine.apply(capacity(40, nodes=5, pools=pools, partitions=[*partitions, Partition(name="alone", pools=["other"])]))
    text = why(engine, cpus=8, walltime=HOUR, queue="a").text
    assert text == "32 CPUs are free in a, b and 2 other partitions: it starts immediately"
    text = why(engine, cpus=8, walltime=HOUR, queue="alone").text
    assert text == "8 CPUs are free in alone: it starts immediately"


@pytest.mark.parametrize(("hours", "share"), [(0.5, 0.0), (1.5, 0.5), (2.5, 0.9), (3.5, 0.95)])
def test_passed_returns_largest_bound_the_wait_exceeds(hours: float, share: float) -> None:
    bounds = {"0.5": HOUR, "0.9": 2 * HOUR, "0.95": 3 * HOUR}
    assert passed(Job("x", 0, 0.0, cpus=1), bounds, hours * HOUR) == share
    assert passed(Job("x", 0, 0.0, cpus=1), None, hours * HOUR) == 0.0
