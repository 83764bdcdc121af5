"""Answers at a site that runs one job of each user at a time, a limit that it does not report."""

import msgspec
import pytest

from models.engine.asking.blocked_by import OVERDUE
from models.engine.asking.engine_answers import answer
from models.engine.engine import Engine
from models.engine.settings import EngineSettings
from models.records import (
    Alter,
    AnyEvent,
    JobAnswer,
    JobQuestion,
    JobsAnswer,
    JobsQuestion,
    LiveJob,
    Pool,
    SiteAnswer,
    SiteQuestion,
    WaitAnswer,
    WaitQuestion,
)
from tests.support.engines import MEDIAN
from tests.support.events import capacity, end, start, submit

HOUR, DAY = 3600.0, 86_400.0
EASY = msgspec.structs.replace(MEDIAN, what_if_method="easy")
BLEND = EngineSettings(history=100)
HELD = "held back by a limit or a priority"


def capped(settings: EngineSettings) -> Engine:
    """Build a site with ada's long job on 4 of 64 CPUs and her second job pending; other jobs start immediately."""
    events: list[AnyEvent] = [capacity(64)]
    for number in range(60):
        at = 100.0 * number
        job = {"user": f"u{number % 7}", "queue": "batch", "cpus": 4, "walltime": HOUR}
        name = str(number)
        events += [submit(name, at, **job), start(name, at + 1.0), end(name, at + 90.0)]
    ada = {"user": "ada", "queue": "batch", "cpus": 4}
    events += [submit("long", 6000.0, walltime=9 * DAY, **ada), start("long", 6001.0)]
    events += [submit("second", 6100.0, walltime=HOUR, **ada)]
    engine = Engine("s", settings)
    for event in events:
        engine.apply(event)
    return engine


@pytest.fixture(params=[EASY, BLEND], ids=["easy", "blend"])
def site(request: pytest.FixtureRequest) -> Engine:
    return capped(request.param)


def job_answer(engine: Engine, job: str, now: float) -> JobAnswer:
    reply = answer(JobQuestion(id="1", site="s", job=job), engine, now)
    assert isinstance(reply, JobAnswer)
    return reply


def queued(engine: Engine, now: float) -> list[LiveJob]:
    reply = answer(SiteQuestion(id="1", site="s"), engine, now)
    assert isinstance(reply, SiteAnswer)
    return reply.queued


def wait_answer(engine: Engine, now: float, **job: object) -> WaitAnswer:
    reply = answer(WaitQuestion(id="1", site="s", cpus=4, walltime=HOUR, queue="batch", **job), engine, now)  # type: ignore[arg-type]
    assert isinstance(reply, WaitAnswer)
    return reply


def test_job_answer_promises_start_before_job_is_overdue(site: Engine) -> None:
    reply = job_answer(site, "second", 6101.0)
    assert reply.text.startswith(("starts within", "starts in about")) and reply.expected_start is not None
    assert reply.live is not None and reply.live.blocked_by is msgspec.UNSET


@pytest.mark.parametrize("days", [0.5, 1.0, 3.0])
def test_job_answer_of_overdue_job_is_blocked_without_start(site: Engine, days: float) -> None:
    now = 6100.0 + days * DAY
    reply = job_answer(site, "second", now)
    assert reply.text == f"no start can be promised: {HELD}"
    assert reply.expected_start is None and reply.starts_by == {}
    [job] = queued(site, now)
    assert (job.blocked_by, job.why, job.expected_start) == (HELD, HELD, None)


@pytest.mark.parametrize("days", [0.5, 1.0, 3.0])
def test_overdue_job_without_room_has_a_stable_later_start(site: Engine, days: float) -> None:
    site.apply(submit("large", 6200.0, user="bob", queue="batch", cpus=62, walltime=HOUR))
    now = 6200.0 + days * DAY
    reply = job_answer(site, "large", now)
    if reply.expected_start is None:
        assert reply.text == f"no start can be promised: {OVERDUE}" and reply.starts_by == {}
        assert reply.live is not None and reply.live.why == OVERDUE
    else:  # The method can compute when enough CPUs become free.
        assert reply.expected_start > now + HOUR / 4


def test_pending_reason_of_scheduler_replaces_guessed_blocker(site: Engine) -> None:
    site.apply(Alter(site="s", time=6200.0, job="second", pending_reason="QOSMaxJobsPerUserLimit"))
    [job] = queued(site, 6100.0 + DAY)
    assert job.blocked_by == "held back by a limit of the QOS on your running jobs" == job.why


def test_other_jobs_of_a_blocked_user_have_no_expected_start(site: Engine) -> None:
    now = 6100.0 + DAY
    site.apply(submit("third", now, user="ada", queue="batch", cpus=4, walltime=HOUR))
    site.apply(submit("other", now, user="u1", queue="batch", cpus=4, walltime=HOUR))
    reply = answer(JobsQuestion(id="1", site="s", user="ada"), site, now + 10)
    assert isinstance(reply, JobsAnswer)
    third = next(job for job in reply.jobs if job.job == "third")
    assert third.expected_start is None
    assert str(third.blocked_by).startswith(f"1 other job of ada in batch is {HELD}, for 23h")
    assert str(third.blocked_by).endswith("although there is room")
    other = next(job for job in queued(site, now + 10) if job.job == "other")
    assert other.expected_start is not None and other.blocked_by is msgspec.UNSET


def test_wait_answer_of_blocked_user_has_low_confidence(site: Engine) -> None:
    now = 6100.0 + DAY
    assert HELD in (wait_answer(site, now, user="ada").degraded or "")
    for other in ({"user": "u1"}, {}):
        assert HELD not in (wait_answer(site, now, **other).degraded or "")


def test_blocked_user_is_promised_starts_again_after_a_start(site: Engine) -> None:
    now = 6100.0 + DAY
    site.apply(end("long", now))
    site.apply(submit("third", now, user="ada", queue="batch", cpus=4, walltime=HOUR))
    site.apply(start("second", now + 1))
    reply = job_answer(site, "third", now + 2)
    assert reply.expected_start is not None and reply.text.startswith(("starts within", "starts in about"))
    assert HELD not in (wait_answer(site, now + 2, user="ada").degraded or "")


def test_late_job_that_does_not_fit_is_only_overdue(site: Engine) -> None:
    now = 6100.0 + DAY
    site.apply(submit("all", now - 60, user="bob", queue="batch", cpus=60, walltime=HOUR))
    site.apply(start("all", now - 50))
    [job] = queued(site, now)
    assert job.blocked_by == OVERDUE


@pytest.mark.parametrize(("tasks", "held"), [(1, OVERDUE), (6, HELD)])
def test_free_cpus_on_two_nodes_fit_only_several_tasks(tasks: int, held: object) -> None:
    engine = Engine("s", EngineSettings(method="order", shadows=(), bounds="", runtimes="walltime"))
    events: list[AnyEvent] = [capacity(16, pools=[Pool(name="thin", nodes=2, cpus=8)])]
    for name in ("one", "other"):
        events += [submit(name, cpus=5, walltime=HOUR), start(name)]
    for event in (*events, submit("third", cpus=6, tasks=tasks, walltime=HOUR)):
        engine.apply(event)
    [job] = queued(engine, DAY)
    assert job.blocked_by == held
