"""Any event valid by the schema is processed, stored, answered and exported without error."""

from functools import cache
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import generate_latest

from models.engine.asking.engine_answers import answer, grid_estimates, remaining_work_s
from models.engine.engine import Engine
from models.engine.histories import Changes
from models.engine.saved_state import read_saved
from models.engine.settings import EngineSettings
from models.records import (
    AnyAnswer,
    AnyEvent,
    AnyQuestion,
    Capacity,
    End,
    GridEstimate,
    Outcome,
    Prediction,
    SiteQuestion,
    Start,
    Submit,
)
from streams.settings import EstimateSettings
from streams.worker.answers.estimate_grid import EstimateGrids
from streams.worker.checkpoint.checkpoint import SiteSnapshot, compressed
from streams.worker.checkpoint.stored_site import SiteHandle
from streams.worker.metrics.site_metrics import SiteFamilies
from tests.support.extremes import extreme, read

NOW = 1e6
NAMES = st.sampled_from(["a", "b", "ada"])
COMMON: dict[str, st.SearchStrategy[Any]] = {
    "v": st.just(1),
    "site": st.just("s"),
    "job": NAMES,
    "attempt": st.sampled_from([0, 0, 0, 0, 1, 1_000_000_000]),
    "time": st.sampled_from([NOW, NOW, NOW + 60.0, NOW + 3600.0, NOW + 86_400.0, 0.0, 1e11]),
}
SIZES: dict[str, st.SearchStrategy[Any]] = {
    "Requeue.attempt": st.sampled_from([0, 0, 0, 0, 1, 999_999_999]),
    "Submit.cpus": st.sampled_from([1, 1, 8, 4000, 1_000_000, 10_000_000, 1_000_000_000]),
    "Capacity.cpus": st.sampled_from([0, 1, 64, 1_000_000, 10_000_000, 1_000_000_000]),
    "Pool.name": NAMES,
    "Pool.nodes": st.sampled_from([0, 1, 2, 64, 65, 10_000_000, 1_000_000_000]),
    "Pool.cpus": st.sampled_from([0, 1, 64, 10_000, 1_000_000_000]),
    "Partition.name": NAMES,
    "Partition.pools": st.lists(NAMES, max_size=3),
    "Reservation.name": NAMES,
    "Reservation.pools": st.lists(NAMES, max_size=3),
    "Reservation.start": st.sampled_from([0.0, NOW, NOW + 3600.0]),
    "Reservation.end": st.sampled_from([0.0, NOW + 60.0, NOW + 7200.0, 1e11]),
}
LIKELY = [extreme(kind, COMMON | SIZES) for kind in (Submit, Start, Capacity)]
EVENTS = st.lists(st.one_of(*LIKELY, extreme(AnyEvent, COMMON | SIZES)), min_size=1, max_size=12)
QUESTIONS = st.lists(extreme(AnyQuestion, COMMON), max_size=2)


@cache
def begun() -> tuple[bytes, Changes]:
    """Return a site with some started jobs, so that sizes are checked."""
    engine = Engine("s", EngineSettings())
    for number in range(40):
        job, time = f"usual{number}", NOW - 10_000.0 + 100.0 * number
        engine.apply(Submit(site="s", time=time, job=job, user="ada", queue="a", cpus=1 + number % 7, walltime=3600.0))
        engine.apply(Start(site="s", time=time + number % 5, job=job))
        if number % 3:
            engine.apply(End(site="s", time=time + 99.0, job=job))
    return engine.checkpoint()


def loaded(state: bytes, changes: Changes) -> Engine:
    return Engine.load(state, changes.started, changes.runs, EngineSettings(), changes.rows)


@given(events=EVENTS, questions=QUESTIONS, known=st.booleans())
def test_site_accepts_any_valid_events_and_questions(events: list[Any], questions: list[Any], known: bool) -> None:
    engine = loaded(*begun()) if known else Engine("s", EngineSettings())
    handle = SiteHandle(engine, 0)
    for one in events:
        for record in engine.apply(read(AnyEvent, one)):
            if isinstance(record, Prediction | Outcome):
                read(type(record), record)
    handle.offset = len(events)
    compressed([SiteSnapshot.of(handle)], 0)
    assert read_saved(engine.checkpoint()[0]).events == engine.events
    for question in [SiteQuestion(id="1", site="s", trends=True), *questions]:
        read(AnyAnswer, answer(read(AnyQuestion, question), engine, engine.time))
    remaining_work_s(engine, engine.time)
    shapes = EstimateGrids({}, EstimateSettings(), send=lambda *_: None).shapes(engine)  # type: ignore[arg-type, return-value]
    for estimate in grid_estimates(engine, shapes[:: max(len(shapes) // 8, 1)], engine.time):
        read(GridEstimate, estimate)
    families = SiteFamilies()
    families.add_engine(handle.engine)
    assert generate_latest(families)
