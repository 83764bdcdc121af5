"""Answers equal the predictions of the same submissions and do not change the engine."""

from functools import cache

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.engine.asking.engine_answers import answer, grid_estimates, live_jobs, live_state, remaining_work_s
from models.engine.asking.state_text import state_text
from models.engine.engine import Engine
from models.engine.scores import Scores
from models.engine.settings import EngineSettings
from models.method_registry import METHODS
from models.records import (
    AnyEvent,
    Capacity,
    End,
    GridEstimate,
    Hold,
    JobAnswer,
    JobQuestion,
    JobsAnswer,
    JobsQuestion,
    Pool,
    Prediction,
    Release,
    Requeue,
    SiteAnswer,
    SiteQuestion,
    Start,
    Submit,
    WaitAnswer,
    WaitQuestion,
)
from models.simulation import generate, run
from models.site.job import Job
from models.site.shapes import WALLTIMES, Shape, covering, grid, sizes

SETTINGS = EngineSettings(history=60)


@cache
def workload(jobs: int = 150) -> list[AnyEvent]:
    return list(run(generate(4, jobs, cpus=64, load=0.9), 64, "alder"))


def after(events: list[AnyEvent], settings: EngineSettings = SETTINGS) -> Engine:
    engine = Engine("alder", settings)
    for event in events:
        engine.apply(event)
    return engine


SAME = ("predicted_wait_s", "predicted_run_s", "p_immediate_start")


def state_of(engine: Engine) -> bytes:
    engine.checkpoint()  # The first checkpoint clears the pending rows.
    return engine.checkpoint()[0]


@pytest.mark.parametrize("method", METHODS)
def test_wait_answer_equals_prediction_of_same_submit(method: str) -> None:
    settings = msgspec.structs.replace(SETTINGS, method=method, what_if_method=method)
    events = workload()
    places = [place for place, event in enumerate(events) if isinstance(event, Submit)][60:150:10]
    engine = after(events[: places[0]], settings)
    for place, following in zip(places, [*places[1:], len(events)], strict=True):
        event = events[place]
        assert isinstance(event, Submit)
        request = msgspec.structs.asdict(event)
        fields = {name: value for name, value in request.items() if name in WaitQuestion.__struct_fields__}
        reply = answer(WaitQuestion(**fields | {"id": "q", "v": 1}), engine, event.time)
        predictions = [record for record in engine.apply(event) if isinstance(record, Prediction)]
        # Skip jobs queued before.
        (prediction,) = (record for record in predictions if record.waited_s is msgspec.UNSET)
        assert isinstance(reply, WaitAnswer)
        for name in (*SAME, "predicted_start", "bounds", "made_at", "method", "reason"):
            assert getattr(reply, name) == getattr(prediction, name)
        for event in events[place + 1 : following]:
            engine.apply(event)


@pytest.mark.parametrize("method", METHODS)
def test_questions_do_not_change_the_engine_state(method: str) -> None:
    settings = msgspec.structs.replace(SETTINGS, shadows=(method,), what_if_method=method)
    events = workload()
    engine, quiet = after(events[:200], settings), after(events[:200], settings)
    for event in events[200:260]:
        list(grid_estimates(engine, grid(sizes(64), WALLTIMES[:2], ("batch",)), engine.time))
        answer(WaitQuestion(id="1", site="alder", cpus=9, user="u1"), engine, engine.time)
        answer(SiteQuestion(id="2", site="alder"), engine, engine.time)
        answer(JobsQuestion(id="3", site="alder", user="u1"), engine, engine.time)
        assert engine.apply(event) == quiet.apply(event)
    assert state_of(engine) == state_of(quiet)


@pytest.mark.parametrize("method", METHODS)
def test_wait_question_method_learns_and_is_scored(method: str) -> None:
    events = workload(100)
    runs = msgspec.structs.replace(SETTINGS, method="zero", shadows=(method,), bounds="", what_if_method=method)
    considered = msgspec.structs.replace(runs, shadows=())
    one, other = after(events[:200], runs), after(events[:200], considered)
    state, changes = other.checkpoint()
    other = Engine.load(state, changes.started, changes.runs, considered, changes.rows)
    for event in events[200:]:
        one.apply(event)
        other.apply(event)
    shapes = grid(sizes(64), WALLTIMES, ("batch",))
    assert list(grid_estimates(other, shapes, one.time)) == list(grid_estimates(one, shapes, one.time))
    assert other.scores.accuracy[method] == one.scores.accuracy[method]
    reply = answer(SiteQuestion(id="1", site="alder"), other, other.time)
    assert isinstance(reply, SiteAnswer)
    (what_if,) = (one for one in reply.answers if one.kind == "what-if")
    assert what_if.jobs == other.scores.accuracy[method].jobs > 50
    assert what_if.predicted_error_s == pytest.approx(other.scores.accuracy["zero"].error.total / what_if.jobs)


def test_wait_question_scores_compare_the_same_jobs() -> None:
    events, alone = workload(100), msgspec.structs.replace(SETTINGS, method="zero", shadows=(), bounds="")
    before = after(events[:200], alone)
    before_s = before.scores.accuracy["zero"].error.total
    state, changes = before.checkpoint()
    settings = msgspec.structs.replace(alone, what_if_method="median")
    engine = Engine.load(state, changes.started, changes.runs, settings, changes.rows)
    for event in events[200:]:
        engine.apply(event)
    reply = answer(SiteQuestion(id="1", site="alder"), engine, engine.time)
    assert isinstance(reply, SiteAnswer)
    (what_if,) = (one for one in reply.answers if one.kind == "what-if")
    zero, median = engine.scores.accuracy["zero"], engine.scores.accuracy["median"]
    assert zero.jobs > what_if.jobs == median.jobs > 20
    assert what_if.mean_error_s == pytest.approx(median.error.total / median.jobs)
    waited_s = zero.error.total - before_s  # Sum over all jobs that started since; the earlier ones have no answer.
    assert 0.0 < what_if.predicted_error_s * what_if.jobs <= waited_s
    assert what_if.predicted_error_s != pytest.approx(zero.error.total / zero.jobs)
    for method, kept in (("median", what_if.jobs), ("zero", 0)):  # A method that no longer answers keeps no scores.
        again = Scores.of("alder", msgspec.structs.replace(alone, what_if_method=method))
        again.restore(engine.scores)
        assert again.considered.jobs == again.considered_first.jobs == kept


def test_site_policy_is_its_wait_question_method() -> None:
    settings = msgspec.structs.replace(SETTINGS, policy_by_site={"alder": "lwf"})
    assert after([], settings).methods.what_if_method.name == "lwf"
    methods = Engine("birch", settings).methods
    assert methods.what_if_method is methods.counting


@cache
def busy(seed: int) -> tuple[Engine, tuple[GridEstimate, ...]]:
    engine, jobs = Engine("alder", SETTINGS), generate(seed, 150, cpus=64, load=0.95, users=8)
    for event in list(run(jobs, 64, "alder"))[: 200 + 10 * seed]:
        engine.apply(event)
    return engine, tuple(grid_estimates(engine, grid(sizes(64), WALLTIMES, engine.open_queues(3)), engine.time))


@given(st.integers(1, 4), st.data())
def test_grid_estimate_agrees_with_wait_answer_within_bounds(seed: int, data: st.DataObject) -> None:
    """Grid estimates lack the user, so they may differ from an answer, but only within the bounds of both."""
    engine, estimates = busy(seed)
    estimate = data.draw(st.sampled_from(estimates))
    users = sorted({job.user for job in engine.context.state.jobs.values() if job.user is not None})
    shape = {"cpus": estimate.cpus, "walltime": estimate.walltime, "queue": estimate.queue}
    user = data.draw(st.sampled_from([None, "new", *users]))
    reply = answer(WaitQuestion(id="1", site="alder", user=user, **shape), engine, engine.time)
    assert isinstance(reply, WaitAnswer) and reply.bounds is not None and estimate.bounds is not None
    assert reply.bounds["0.1"] <= estimate.bounds["0.95"] and estimate.bounds["0.1"] <= reply.bounds["0.95"]
    assert user is not None or reply.bounds == estimate.bounds


def test_job_larger_than_site_has_no_predicted_wait() -> None:
    engine = after(workload()[:100])
    reply = answer(WaitQuestion(id="1", site="alder", cpus=65), engine, engine.time)
    assert isinstance(reply, WaitAnswer) and reply.predicted_wait_s is None and reply.bounds is None
    assert reply.reason == "larger than the site: 65 of 64 CPUs"


def test_site_with_little_history_has_degraded_answer() -> None:
    engine = Engine("alder", SETTINGS)
    engine.apply(Submit(site="alder", time=1.0, job="1", cpus=8, walltime=60.0))
    engine.apply(Start(site="alder", time=2.0, job="1"))
    reply = answer(WaitQuestion(id="1", site="alder"), engine, 3.0)
    assert isinstance(reply, WaitAnswer)
    assert reply.degraded == "size guessed from the jobs that ran; only 1 of its jobs started so far"
    large = answer(WaitQuestion(id="1", site="alder", cpus=9), engine, 3.0)
    assert isinstance(large, WaitAnswer) and large.predicted_wait_s is None
    assert large.reason == "larger than the site, as far as known: no more than 8 CPUs were in use at once"
    known = after(workload()[:100])
    sure = answer(WaitQuestion(id="1", site="alder"), known, known.time)
    assert isinstance(sure, WaitAnswer) and sure.degraded is None


def test_most_nodes_down_withholds_wait_answer() -> None:
    engine = after(workload()[:100])
    engine.apply(Capacity(site="alder", time=engine.time, cpus=64, nodes=8, down_nodes=5))
    reply = answer(WaitQuestion(id="1", site="alder"), engine, engine.time)
    assert isinstance(reply, WaitAnswer) and (reply.predicted_wait_s, reply.reason) == (None, "nodes down")
    assert reply.degraded == "5 of 8 nodes down"


@pytest.mark.parametrize("what_if", [SETTINGS.what_if_method, "policy"])
def test_grid_estimate_equals_wait_answer_of_its_shape(what_if: str) -> None:
    engine = after(workload()[:180], msgspec.structs.replace(SETTINGS, what_if_method=what_if))
    for estimate in grid_estimates(engine, grid(sizes(64), WALLTIMES, ("batch", "long")), engine.time):
        question = WaitQuestion(
            id="1", site="alder", cpus=estimate.cpus, walltime=estimate.walltime, queue=estimate.queue
        )
        reply = answer(question, engine, engine.time)
        assert isinstance(reply, WaitAnswer)
        assert (reply.predicted_wait_s, reply.bounds) == (estimate.predicted_wait_s, estimate.bounds)
        assert (reply.live, reply.site_cpus) == (estimate.live, estimate.site_cpus) == (live_state(engine), 64)


def test_user_answer_lists_live_jobs_in_submission_order() -> None:
    engine = Engine("alder", SETTINGS)
    for number, user in enumerate(("ada", "bob", "ada", "ada", "ada")):
        engine.apply(Submit(site="alder", time=10.0 * number, job=str(number), user=user, cpus=2, walltime=60.0))
    engine.apply(Start(site="alder", time=50.0, job="0"))
    engine.apply(Start(site="alder", time=51.0, job="2"))
    engine.apply(End(site="alder", time=55.0, job="2"))
    reply = answer(JobsQuestion(id="1", site="alder", user="ada"), engine, 60.0)
    assert isinstance(reply, JobsAnswer)
    assert [(job.job, job.phase) for job in reply.jobs] == [("0", "running"), ("3", "queued"), ("4", "queued")]
    assert reply.more == 0 and reply.made_at == 60.0
    few = answer(JobsQuestion(id="1", site="alder", user="ada", limit=1), engine, 60.0)
    assert isinstance(few, JobsAnswer) and [job.job for job in few.jobs] == ["4"] and few.more == 2


def test_job_question_returns_answer_by_job_id() -> None:
    engine = after(workload()[:180])
    jobs = engine.context.state.jobs.values()
    answers = {job.id: answer(JobQuestion(id="1", site="alder", job=job.id), engine, engine.time) for job in jobs}
    listed = {job.job: job for job in live_jobs(engine, list(jobs), engine.time)}
    phases = set()
    for name, found in answers.items():
        assert isinstance(found, JobAnswer) and found.live is not None
        assert found.live == msgspec.structs.replace(listed[name], why=found.live.why)
        phases.add(found.live.phase)
        if found.live.phase == "queued":
            known = listed[name].expected_start or listed[name].predicted_start
            assert known is not None and found.expected_start == max(known, engine.time)
            submitted, bounds = found.live.submit, found.live.bounds or {}
            assert found.starts_by == pytest.approx({q: submitted + bound_s for q, bound_s in bounds.items()})
            assert found.text.startswith("starts ") and ("ahead" in found.text) == (found.ahead_jobs > 0)
        else:
            assert (found.expected_start, found.starts_by, found.text) == (None, {}, "runs already")
    assert phases == {"queued", "running"}


def test_held_requeued_or_missing_job_is_reported_in_answer() -> None:
    engine = Engine("alder", SETTINGS)
    about = {"site": "alder", "job": "7"}
    for event in (Submit(time=0.0, **about), Hold(time=1.0, **about)):
        list(engine.apply(event))
    held = answer(JobQuestion(id="1", site="alder", job="7"), engine, 2.0)
    assert isinstance(held, JobAnswer) and held.text == "is held: it may not start yet" and held.starts_by == {}
    for event in (Release(time=3.0, **about), Start(time=4.0, **about), Requeue(time=5.0, **about)):
        list(engine.apply(event))
    again = answer(JobQuestion(id="1", site="alder", job="7"), engine, 6.0)
    assert isinstance(again, JobAnswer) and again.live is not None
    assert (again.live.attempt, again.live.phase) == (1, "queued")
    gone = answer(JobQuestion(id="1", site="alder", job="8"), engine, 6.0)
    assert isinstance(gone, JobAnswer) and (gone.live, gone.expected_start) == (None, None)
    assert gone.text.startswith("no such job is pending or running here")


@pytest.mark.parametrize(
    ("phase", "left", "bounds", "ahead", "text"),
    [
        (
            "queued",
            2400.0,
            {"0.9": 7200.0},
            12,
            "starts in about 40m, 90 % within 2h; 12 jobs ahead",
        ),
        ("queued", 5.0, {"0.9": 20.0}, 0, "starts within a minute"),
        ("queued", 5.0, {"0.9": 600.0}, 1, "starts within a minute, 90 % within 10m; 1 job ahead"),
        ("queued", 3e5, {"0.9": -60.0}, 1234, "starts in about 3d11h; 1,234 jobs ahead"),
        ("queued", None, {}, 0, "no estimate: so"),
        ("suspended", None, {}, 0, "runs already, and is suspended"),
    ],
)
def test_state_text_summarizes_start_bounds_and_jobs_ahead(
    phase: str, left: float | None, bounds: dict[str, float], ahead: int, text: str
) -> None:
    assert state_text(phase, left, bounds, ahead, "so") == text


def test_site_question_returns_its_queue() -> None:
    engine = after(workload()[:180])
    reply = answer(SiteQuestion(id="1", site="alder", limit=3), engine, engine.time)
    assert isinstance(reply, SiteAnswer)
    queued = [job for job in engine.context.state.jobs.values() if job.phase == "queued"]
    assert reply.live == live_state(engine) and reply.live.queued_jobs == len(queued)
    assert [job.job for job in reply.queued] == [job.id for job in queued[:3]]
    assert reply.queues == sorted(
        {job.queue for job in engine.context.state.jobs.values() if job.queue} | set(reply.queues)
    )


def test_expected_start_of_pending_job_equals_that_of_a_copy() -> None:
    policy = msgspec.structs.replace(SETTINGS, what_if_method="policy")
    engine = after(workload()[:180], policy)
    reply = answer(SiteQuestion(id="1", site="alder", limit=1000), engine, engine.time)
    assert isinstance(reply, SiteAnswer) and len(reply.queued) > 3
    *_, last = reply.queued
    assert last.expected_start is not None and last.expected_start >= engine.time
    alone = after(workload()[:180], policy)
    job = alone.context.state.jobs[last.job, last.attempt]
    alone.context.state.leave(job)
    again = Job("", 0, alone.time, cpus=job.cpus, walltime=job.walltime, run_s=job.run_s)
    (estimate,) = alone.methods.what_if_method.what_ifs([again], alone.context)
    assert estimate.wait_s is not None
    assert last.expected_start == pytest.approx(alone.time + estimate.wait_s)
    assert all(job.expected_start is not None for job in reply.queued)


def test_expected_start_without_simulation_stays_the_same() -> None:
    engine = after(workload()[:180], msgspec.structs.replace(SETTINGS, what_if_method="median"))
    reply = answer(SiteQuestion(id="1", site="alder"), engine, engine.time)
    assert isinstance(reply, SiteAnswer) and reply.queued
    assert all(job.expected_start is None for job in reply.queued)


def test_remaining_work_is_work_divided_by_cpus() -> None:
    engine = Engine("alder", EngineSettings(runtimes="walltime"))
    assert remaining_work_s(engine, 0.0) is None
    engine.apply(Capacity(site="alder", time=0.0, cpus=10))
    engine.apply(Submit(site="alder", time=0.0, job="1", cpus=5, walltime=100.0))
    engine.apply(Start(site="alder", time=0.0, job="1"))
    engine.apply(Submit(site="alder", time=0.0, job="2", cpus=10, walltime=50.0))
    assert remaining_work_s(engine, 40.0) == (5 * 60.0 + 10 * 50.0) / 10


def test_weeks_and_queues_survive_a_checkpoint() -> None:
    engine = after(workload(300))
    engine.checkpoint()
    state, _ = engine.checkpoint()
    again = Engine.load(state, None, None, SETTINGS)
    assert list(again.scores.weeks) == list(engine.scores.weeks) and len(engine.scores.weeks) > 0
    assert again.queues.seen == engine.queues.seen and again.open_queues(8) == engine.open_queues(8)


def test_covering_returns_smallest_shape_that_fits_the_job() -> None:
    shapes = grid(sizes(100), WALLTIMES, ("batch", "long"))
    assert covering(shapes, 33, 3601.0, "long") == Shape(64, 14400.0, "long")
    assert covering(shapes, 65, None, "batch") == Shape(100, 86400.0, "batch")
    assert covering(shapes, 1, 1e6, "nowhere") == Shape(1, 86400.0, "batch")
    assert covering(shapes, 101, 60.0, "batch") is None
    assert Shape(4, 60.0, "batch").job(5.0) == Job("", 0, 5.0, queue="batch", cpus=4, walltime=60.0)


@pytest.mark.parametrize(
    ("known", "requested", "doubt"),
    [
        (("batch", "short"), "shrot", "unknown queue 'shrot': its queues are batch, short; did you mean 'short'?"),
        (("batch",), "batch", None),
        (("batch",), None, None),
        ((), "batch", "unknown queue 'batch': no job has named any"),
    ],
)
def test_unknown_queue_in_question_is_reported_as_degraded(
    known: tuple[str, ...], requested: str | None, doubt: str | None
) -> None:
    engine = Engine("alder", EngineSettings(method="median", shadows=(), bounds=""))
    engine.apply(Capacity(site="alder", time=0.0, cpus=8))
    for number, queue in enumerate(known):
        engine.apply(Submit(site="alder", time=1.0, job=str(number), queue=queue))
    reply = answer(WaitQuestion(id="q", site="alder", cpus=1, walltime=60.0, queue=requested), engine, 5.0)
    assert isinstance(reply, WaitAnswer)
    degraded = reply.degraded or ""
    assert doubt in degraded if doubt else "unknown queue" not in degraded
    assert reply.unverified == (doubt if doubt and known else msgspec.UNSET)


@pytest.mark.parametrize(
    "pools", [[], [Pool(name="card", nodes=1, cpus=8, gpus={"a100": 2})]], ids=["without pools", "with pools"]
)
def test_ranking_of_gpu_job_puts_site_without_gpu_data_last(pools: list[Pool]) -> None:
    engine = Engine("alder", EngineSettings(method="median", shadows=(), bounds=""))
    engine.apply(Capacity(site="alder", time=0.0, cpus=8, pools=pools))
    doubts = []
    for gpus in (0, 1):
        reply = answer(WaitQuestion(id="q", site="alder", cpus=1, gpus=gpus, walltime=60.0), engine, 5.0)
        assert isinstance(reply, WaitAnswer)
        doubts.append("whether it has such GPUs" in (reply.low_confidence or ""))
    assert doubts == [False, not pools]


def test_flux_job_id_is_accepted_in_ascii_spelling() -> None:
    engine = Engine("alder", EngineSettings(method="zero", shadows=()))
    list(engine.apply(Submit(site="alder", time=1.0, job="ƒ22")))
    for name, known in (("ƒ22", True), ("f22", True), ("f23", False)):
        found = answer(JobQuestion(id="1", site="alder", job=name), engine, 2.0)
        assert isinstance(found, JobAnswer) and (found.live is not None) == known
