"""The answer about a queued job reflects drains, cancels and reservations immediately."""

import pytest

from models.engine.asking.engine_answers import answer
from models.engine.engine import Engine
from models.engine.settings import EngineSettings
from models.records import Cancel, Capacity, JobAnswer, JobQuestion, Partition, Pool, Reservation, Submit
from tests.support.events import start

BLEND = EngineSettings(method="blend", shadows=(), bounds="", what_if_method="blend")


def machine(time: float, drained: int = 0, *reservations: Reservation) -> Capacity:
    pool = Pool(name="batch", nodes=2, cpus=4, drained_nodes=drained)
    partition = Partition(name="batch", pools=["batch"])
    return Capacity(
        site="s",
        time=time,
        cpus=8,
        nodes=2,
        down_nodes=drained,
        pools=[pool],
        partitions=[partition],
        reservations=list(reservations),
    )


def submitted(job: str, time: float, nodes: int, walltime: float) -> Submit:
    return Submit(site="s", time=time, job=job, cpus=4 * nodes, nodes=nodes, walltime=walltime, queue="batch", user="u")


@pytest.fixture
def engine() -> Engine:
    """Build a site with a large running job, a larger one at the head of the queue, and a small one behind it."""
    engine = Engine("s", BLEND)
    for event in (
        machine(0.0),
        submitted("running", 1.0, nodes=2, walltime=3600.0),
        start("running", 2.0),
        submitted("large", 10.0, nodes=2, walltime=36_000.0),
        submitted("small", 20.0, nodes=1, walltime=1800.0),
    ):
        engine.apply(event)
    return engine


def job_answer(engine: Engine) -> JobAnswer:
    found = answer(JobQuestion(id="1", site="s", job="small"), engine, engine.time + 1.0)
    assert isinstance(found, JobAnswer) and found.live is not None
    return found


def start_of(engine: Engine) -> float:
    expected = job_answer(engine).expected_start
    assert expected is not None
    return expected


def test_cancel_of_a_large_job_ahead_brings_the_start_forward(engine: Engine) -> None:
    before = start_of(engine)
    engine.apply(Cancel(site="s", time=60.0, job="large"))
    assert start_of(engine) < before - 1800.0


def test_reservation_delays_the_start_until_its_end(engine: Engine) -> None:
    engine.apply(Cancel(site="s", time=60.0, job="large"))
    upkeep = Reservation(name="upkeep", start=3000.0, end=50_000.0, pools=["batch"], maintenance=True)
    engine.apply(machine(70.0, 0, upkeep))
    assert start_of(engine) >= 50_000.0
    engine.apply(machine(80.0))
    assert start_of(engine) < 50_000.0


def test_drain_of_all_nodes_gives_no_start_until_they_return(engine: Engine) -> None:
    engine.apply(Cancel(site="s", time=60.0, job="large"))
    engine.apply(machine(70.0, 2))
    drained = job_answer(engine)
    assert drained.live is not None
    assert drained.expected_start is None or isinstance(drained.live.blocked_by, str)
    engine.apply(machine(80.0))
    assert start_of(engine) < 36_000.0
