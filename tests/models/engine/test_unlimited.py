"""Jobs without a time limit, with a missing one, and with the default limit of their partition."""

from typing import Any

import pytest

from models.engine.asking.engine_answers import answer
from models.engine.engine import Engine
from models.records import Alter, AnyEvent, Capacity, Partition, Pool, Prediction, Reservation, WaitAnswer, WaitQuestion
from models.runtimes.walltime import Walltime
from models.site.expiry import MAX_LIVE_S, due
from models.site.job import NO_LIMIT_S, Job, Phase
from models.site.runs import RunHistory
from tests.support.engines import MEDIAN
from tests.support.events import end, start, submit

HOUR_S = 3600.0
SUBMITTED = 10 * HOUR_S
RESERVED, RESERVED_UNTIL = 12 * HOUR_S, 16 * HOUR_S
MUST_WAIT_S = RESERVED_UNTIL - SUBMITTED


def site(default_walltime: float | None = None, max_walltime: float | None = None) -> Capacity:
    """Build four nodes in one partition, all reserved for maintenance in two hours."""
    part = Partition(
        name="day", pools=["n"], default=True, default_walltime=default_walltime, max_walltime=max_walltime
    )
    maintenance = Reservation(name="m", start=RESERVED, end=RESERVED_UNTIL, maintenance=True)
    pool = Pool(name="n", nodes=4, cpus=8)
    return Capacity(site="s", time=0.0, cpus=32, pools=[pool], partitions=[part], reservations=[maintenance])


def engine_of(capacity: Capacity) -> Engine:
    """Build a site whose jobs have run for some minutes."""
    engine = Engine("s", MEDIAN)
    engine.apply(capacity)
    for number in range(20):
        at = 100.0 + number * 1000
        job: dict[str, Any] = {"user": "ada", "cpus": 8, "nodes": 1, "walltime": 600.0}
        events: tuple[AnyEvent, ...] = (
            submit(f"{number}", at, **job),
            start(f"{number}", at + 5),
            end(f"{number}", at + 305),
        )
        for event in events:
            engine.apply(event)
    return engine


def wait_of(engine: Engine, **request: Any) -> float | None:
    """Return the wait predicted for a job at its submission."""
    records = engine.apply(submit("x", SUBMITTED, user="ada", cpus=8, nodes=1, **request))
    (prediction,) = [record for record in records if isinstance(record, Prediction) and record.method == "median"]
    return prediction.predicted_wait_s


@pytest.mark.parametrize("request_", [{"unlimited": True}, {"walltime": 1000 * 86400.0}, {"walltime": 8 * HOUR_S}])
def test_job_without_limit_waits_for_maintenance(request_: dict[str, Any]) -> None:
    wait_s = wait_of(engine_of(site()), **request_)
    assert wait_s is not None and wait_s >= MUST_WAIT_S


def test_job_of_unknown_limit_uses_predicted_run_time() -> None:
    wait_s = wait_of(engine_of(site()))
    assert wait_s is not None and wait_s < HOUR_S


@pytest.mark.parametrize(("default_s", "waits"), [(8 * HOUR_S, True), (HOUR_S, False)])
def test_partition_default_applies_to_unknown_limit(default_s: float, waits: bool) -> None:
    engine = engine_of(site(default_s))
    wait_s = wait_of(engine)
    assert wait_s is not None and (wait_s >= MUST_WAIT_S) is waits
    assert engine.context.state.jobs[("x", 0)].walltime == default_s


def test_unlimited_job_in_limited_partition_never_starts() -> None:
    engine = engine_of(site(HOUR_S, 24 * HOUR_S))
    (prediction,) = engine.apply(submit("x", SUBMITTED, user="ada", cpus=8, nodes=1, unlimited=True))
    assert isinstance(prediction, Prediction) and prediction.predicted_wait_s is None
    assert "no time limit: at most 1d in day" in str(prediction.degraded or prediction.reason)


def test_altered_to_unlimited_waits_for_maintenance() -> None:
    engine = engine_of(site())
    wait_of(engine, walltime=600.0)
    engine.apply(Alter(site="s", time=SUBMITTED + 1, job="x", unlimited=True))
    job = engine.context.state.jobs[("x", 0)]
    assert (job.walltime, job.planned_run_s, job.limit_s) == (NO_LIMIT_S, NO_LIMIT_S, None)


@pytest.mark.parametrize(("fields", "waits"), [({"unlimited": True}, True), ({"walltime": HOUR_S}, False)])
def test_unlimited_wait_question_waits_for_maintenance(fields: dict[str, Any], waits: bool) -> None:
    engine = engine_of(site())
    reply = answer(WaitQuestion(id="q", site="s", cpus=8, nodes=1, user="ada", **fields), engine, SUBMITTED)
    assert isinstance(reply, WaitAnswer) and reply.predicted_wait_s is not None
    assert (reply.predicted_wait_s >= MUST_WAIT_S) is waits


def test_run_methods_predict_no_run_time_for_no_limit() -> None:
    job = Job(id="1", attempt=0, submit=0.0, walltime=NO_LIMIT_S)
    assert Walltime().predict(job, RunHistory()).run_s is None
    running = Job(id="1", attempt=0, submit=0.0, start=0.0, walltime=NO_LIMIT_S, phase=Phase.RUNNING)
    assert due(running) == MAX_LIVE_S
