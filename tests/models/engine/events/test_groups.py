"""Predictions of the members of a heterogeneous job, which start together."""

from models.engine.engine import Engine
from models.engine.settings import EngineSettings
from models.records import AnyEvent, Prediction
from tests.support.events import cancel, capacity, end, start, submit
from tests.support.stories import applied

SETTINGS = EngineSettings(method="fcfs", shadows=("zero",), runtimes="walltime")


def site(*events: AnyEvent) -> Engine:
    """Build a site where 4 of 8 CPUs are busy from 0 to 1000 s."""
    engine = Engine("s", SETTINGS)
    applied(engine, [capacity(8), submit("0", 0.0, cpus=4, walltime=1000.0), start("0", 0.0), *events])
    return engine


def prediction_of(engine: Engine, job: str, time: float, **fields: object) -> Prediction:
    [prediction] = engine.apply(submit(job, time, walltime=60.0, **fields))
    assert isinstance(prediction, Prediction)
    return prediction


def test_group_member_starts_no_sooner_than_known_members() -> None:
    engine = site()
    assert prediction_of(engine, "1", 10.0, cpus=8, het_group="g").predicted_wait_s == 990.0
    small = prediction_of(engine, "2", 20.0, cpus=1, het_group="g")
    assert (small.predicted_wait_s, small.predicted_start) == (980.0 + 60.0, 1060.0)
    engine = site()
    prediction_of(engine, "1", 10.0, cpus=8, het_group="g")
    engine.apply(cancel("1", 11.0))
    assert prediction_of(engine, "2", 20.0, cpus=1, het_group="g").predicted_wait_s == 0.0


def test_group_reason_names_the_latest_member() -> None:
    engine = site()
    prediction_of(engine, "1", 10.0, cpus=2, eligible=5000.0, het_group="g")
    small = prediction_of(engine, "2", 20.0, cpus=1, het_group="g")
    assert (small.predicted_wait_s, small.predicted_start) == (4980.0, 5000.0)
    assert small.reason.startswith("starts with job 1 of its group: fcfs: 1 running")
    assert engine.context.state.jobs["2", 0].estimates["zero"].wait_s == 4980.0
    assert prediction_of(engine, "3", 30.0, cpus=1, het_group="other").predicted_wait_s == 0.0


def test_group_members_survive_a_restart() -> None:
    engine = site()
    prediction_of(engine, "1", 10.0, cpus=2, eligible=5000.0, het_group="g")
    state, changes = engine.checkpoint()
    engine = Engine.load(state, changes.started, changes.runs, SETTINGS, changes.rows)
    assert prediction_of(engine, "2", 20.0, cpus=1, het_group="g").predicted_start == 5000.0


def test_group_ignores_members_that_started_or_ended() -> None:
    engine = site()
    prediction_of(engine, "1", 10.0, cpus=2, eligible=5000.0, het_group="g")
    applied(engine, [start("1", 20.0), end("1", 30.0)])
    assert prediction_of(engine, "2", 40.0, cpus=1, het_group="g").predicted_wait_s == 0.0
    assert [*engine.parts.groups._members["g"]] == [("2", 0)]
