"""The boosted method in an engine: training data, the use of a new model, and restarts."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from models.engine.engine import Engine
from models.engine.settings import EngineSettings
from models.records import AnyEvent, Prediction, Submit
from models.site.job import Job
from models.waits.boosted.alone import BoostedAlone
from tests.support.engines import encoded, workload
from tests.support.events import cancel, start, submit

FAST: dict[str, Any] = {"window": 300, "every": 100, "trees": 8, "leaf_rows": 5}
SETTINGS = EngineSettings(
    method="boosted", shadows=(), bounds="", what_if_method="boosted", runtimes="closest", parameters={"boosted": FAST}
)


def method_of(engine: Engine) -> BoostedAlone:
    method = engine.methods.waits["boosted"]
    assert isinstance(method, BoostedAlone)
    return method


def events() -> list[AnyEvent]:
    """Return enough events to train several models in sequence."""
    return workload(5, jobs=500)


class Worker:
    """An engine and its durable data."""

    def __init__(self) -> None:
        self.engine = Engine("s", SETTINGS)
        self._rows: dict[str, dict[int, Any]] = {}
        self._started: list[Any] = []

    def restart(self) -> None:
        """Continue from the durable data."""
        state, changes = self.engine.checkpoint()
        runs = list(self.engine.context.runs)
        for name, rows in changes.rows.items():
            self._rows.setdefault(name, {}).update({row.number: row for row in rows})
        self._started += changes.started
        rows = {name: list(found.values()) for name, found in self._rows.items()}
        self.engine = Engine.load(state, self._started, runs, SETTINGS, rows)


def records_by_event(restarts: Sequence[int] = ()) -> list[bytes]:
    """Return the records of each event from a worker that is restarted before these events."""
    worker, found = Worker(), []
    for place, event in enumerate(events()):
        if place in restarts:
            worker.restart()
        found.append(encoded(worker.engine.apply(event)))
    return found


@pytest.fixture(scope="module")
def expected() -> list[bytes]:
    return records_by_event()


def test_boosted_is_deterministic_for_the_same_events(expected: list[bytes]) -> None:
    assert records_by_event() == expected


def test_boosted_restart_during_training_changes_no_record(expected: list[bytes]) -> None:
    engine, begun, counts = Engine("s", SETTINGS), [], []
    for event in events():
        engine.apply(event)
        state = method_of(engine).training._state
        begun.append(state.start_rows)
        counts.append(state.counts)
    begins = [place for place, (old, new) in enumerate(pairwise(begun)) if old < new]
    swaps = [place for place, (old, new) in enumerate(pairwise(counts)) if old < new]
    assert len(begins) >= 3 and len(swaps) >= 3
    restarts = [begins[0] + 2, begins[1] + 5, swaps[1] + 1, swaps[1] + 2, swaps[2] + 40]
    assert records_by_event(restarts) == expected


def test_boosted_saved_state_is_small() -> None:
    engine = Engine("s", SETTINGS)
    for event in events():
        engine.apply(event)
    assert len(method_of(engine).save()) < 30_000  # the order model has at most 21,000 of these


def test_boosted_without_prior_has_no_estimate_until_first_model() -> None:
    alone = msgspec.structs.replace(SETTINGS, prior="none")
    engine, made = Engine("s", alone), []
    for event in events():
        predictions = (record for record in engine.apply(event) if isinstance(record, Prediction))
        made += [prediction for prediction in predictions if prediction.reason != "nodes down"]
    first = next(place for place, prediction in enumerate(made) if prediction.predicted_wait_s is not None)
    assert 50 <= first <= 200
    assert {prediction.reason for prediction in made[:first]} == {"no model yet"}
    for prediction in made[first:]:
        assert prediction.bounds is not None and prediction.predicted_wait_s == prediction.bounds["0.5"]
        bounds = [prediction.bounds[q] for q in ("0.1", "0.5", "0.9", "0.95")]
        assert bounds == sorted(bounds) and bounds[0] >= 0.0


def test_considered_job_has_same_estimate_and_no_effect() -> None:
    engine, compared = Engine("s", SETTINGS), 0
    for event in events():
        if isinstance(event, Submit) and event.job not in {key[0] for key in engine.context.state.jobs}:
            method, job = method_of(engine), Job.of(event)
            engine.parts.live.keep_still(event.time)  # as before each prediction
            engine.methods.predict_run(job, engine.context)
            saved = method.save(), method._notes.count
            [considered] = method.what_ifs([job], engine.context)
            assert (method.save(), method._notes.count) == saved
            before = method.training.model
            predictions = [record for record in engine.apply(event) if isinstance(record, Prediction)]
            withheld = any(prediction.reason == "nodes down" for prediction in predictions)
            if predictions and not withheld and before is method_of(engine).training.model:
                assert predictions[0].predicted_wait_s == considered.wait_s
                compared += considered.wait_s is not None
        else:
            engine.apply(event)
    assert compared > 100


def two_kinds(cancelled_share: float) -> Iterator[AnyEvent]:
    """Yield jobs of one CPU that start after a minute and larger ones that start after an hour or are cancelled."""
    for number in range(400):
        time, large = 10_000.0 * number, number % 2
        yield submit(str(number), time, cpus=8 if large else 1, user="ada", walltime=600.0)
        if large and number % 100 < 100 * cancelled_share:
            yield cancel(str(number), time + 1.0)
        else:
            yield start(str(number), time + (3600.0 if large else 60.0))


@pytest.mark.parametrize(("weight", "large_s"), [(0.0, 3600.0), (1.0, 1.0)])
def test_cancelled_jobs_count_by_the_weight_parameter(weight: float, large_s: float) -> None:
    parameters = {"boosted": FAST | {"cancelled": weight, "trees": 60, "rate": 0.3, "features": 1.0, "rows": 1.0}}
    engine = Engine("s", msgspec.structs.replace(SETTINGS, parameters=parameters, prior="none"))
    for event in two_kinds(cancelled_share=0.8):
        engine.apply(event)
    jobs = [Job("", 0, 4e6, user="ada", cpus=cpus, walltime=600.0, planned_run_s=600.0) for cpus in (1, 8)]
    small, large = (estimate.wait_s for estimate in method_of(engine).what_ifs(jobs, engine.context))
    assert small == pytest.approx(60.0, abs=30.0) and large == pytest.approx(large_s, rel=0.3, abs=30.0)


def test_model_due_soon_is_awaited() -> None:
    engine = Engine("s", SETTINGS)
    for event in events():
        waiting = engine.pending()
        if waiting is not None:
            waiting.result()
            assert engine.pending() is None
        engine.apply(event)
        assert method_of(engine).degraded is None
    assert method_of(engine).training.model is not None


def test_boosted_load_rejects_an_invalid_state() -> None:
    with pytest.raises(ValueError, match="not a saved state"):
        BoostedAlone().load(b"x")
