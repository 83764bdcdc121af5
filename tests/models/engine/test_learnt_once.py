"""A job trains the engine once, even if its events are repeated."""

import pytest

from models.engine.components import LEARNT_ROWS
from models.engine.engine import Engine
from models.engine.outgoing import Anomaly
from models.engine.salvage import salvage
from models.engine.saved_state import read_saved
from models.engine.settings import EngineSettings
from models.records import AnyEvent, Outcome
from models.site.learnt import LearntJobs
from tests.support.events import end, start, submit

SETTINGS = EngineSettings(method="median", shadows=(), runtimes="closest", bounds="", history=50)


def jobs(first: int, last: int, every_s: float = 100.0) -> list[AnyEvent]:
    found: list[AnyEvent] = []
    for job in range(first, last):
        time = 1.7e9 + every_s * job
        found += [submit(str(job), time), start(str(job), time + 30.0), end(str(job), time + 90.0)]
    return found


def learnt(engine: Engine, events: list[AnyEvent]) -> int:
    return sum(isinstance(record, Outcome) for event in events for record in engine.apply(event))


def test_repeated_events_of_5000_jobs_are_learned_once() -> None:
    engine = Engine("s", SETTINGS)
    assert learnt(engine, jobs(0, 5000)) == 2 * 5000
    assert learnt(engine, jobs(0, 5000)) == 0
    assert engine.context.history.count == engine.scores.accuracy["median"].jobs == 5000
    assert learnt(engine, jobs(4990, 5010)) == 2 * 10


def test_learned_jobs_survive_a_restart() -> None:
    engine = Engine("s", SETTINGS)
    learnt(engine, jobs(0, 700))
    state, changes = engine.checkpoint()
    assert len(state) < 30_000 and len(changes.rows[LEARNT_ROWS]) == 700 // 128
    engine = Engine.load(state, changes.started[-50:], changes.runs, SETTINGS, changes.rows)
    assert learnt(engine, jobs(0, 700)) == 0 and learnt(engine, jobs(700, 720)) == 40


@pytest.mark.long
def test_job_older_than_all_learned_jobs_is_not_new() -> None:
    engine = Engine("s", SETTINGS)
    engine.parts.live.learnt = LearntJobs(most=1)
    assert learnt(engine, jobs(0, 10_000)) == 20_000
    assert learnt(engine, jobs(0, 10_000)) == 0
    assert engine.anomalies["forgotten_job"] > 1000 and engine.context.history.count == 10_000
    (anomaly,) = engine.apply(start("0", 1.7e9 + 30.0))
    assert isinstance(anomaly, Anomaly) and anomaly.rejected
    assert learnt(engine, jobs(10_000, 10_010)) == 20


def test_lost_rows_make_unknown_job_over_an_hour_old_not_new() -> None:
    engine = Engine("s", SETTINGS)
    learnt(engine, jobs(0, 200))
    state, _ = engine.checkpoint()
    again = Engine.load(state, None, None, SETTINGS)
    assert learnt(again, jobs(0, 200)) == 0
    assert again.anomalies["forgotten_job"] > 100
    assert learnt(again, jobs(200, 210)) == 20


@pytest.mark.parametrize("some_left", [False, True])
def test_lost_rows_do_not_relearn_departures_of_the_last_hour(some_left: bool) -> None:
    engine = Engine("s", SETTINGS)
    learnt(engine, jobs(0, 600, every_s=1.0))
    state, changes = engine.checkpoint()
    if some_left:
        rows = {**changes.rows, LEARNT_ROWS: changes.rows[LEARNT_ROWS][1:3]}
        again = salvage(read_saved(state), list(changes.started), list(changes.runs), rows, SETTINGS)
    else:
        again = Engine.load(state, None, None, SETTINGS)
    assert learnt(again, jobs(0, 600, every_s=1.0)) == 0
    assert learnt(again, jobs(700, 710, every_s=1.0)) == 20


@pytest.mark.parametrize(("late_s", "is_taken"), [(0.0, True), (59.0, True), (61.0, False)])
def test_lost_rows_accept_a_slightly_late_submit_as_new(late_s: float, is_taken: bool) -> None:
    engine = Engine("s", SETTINGS)
    learnt(engine, jobs(0, 200))
    again = Engine.load(engine.checkpoint()[0], None, None, SETTINGS)
    again.apply(submit("new", again.time - late_s))
    assert (("new", 0) in again.context.state.jobs) is is_taken
    assert again.anomalies.get("forgotten_job", 0) == (not is_taken)
