"""The input of the methods at a site, and the selection of methods."""

import gc
import sys
import weakref

import msgspec
import pytest

from models.engine.engine import Engine
from models.engine.outgoing import Anomaly
from models.engine.settings import EngineSettings
from models.method import SiteContext, WaitMethod
from models.method_registry import DEFAULT, METHODS, RUN_METHODS
from models.records import JobKey
from models.site.job import Estimate, Job
from tests.support.engines import (
    MEDIAN,
    engine_after,
    nodes_at,
    outcome,
    predicted,
)
from tests.support.events import cancel, end, start, submit


class Recorder(WaitMethod):
    """Record each call and the state at that time."""

    name = "recorder"

    def __init__(self) -> None:
        self.shown: list[tuple[str, str, float | None, int, int]] = []

    def _note(self, what: str, job: str, wait_s: float | None, context: SiteContext) -> None:
        self.shown.append((what, job, wait_s, len(context.state), context.history.count))

    def predict(self, job: Job, context: SiteContext) -> Estimate:
        self._note("predict", job.id, None, context)
        return Estimate(7.0, "because", {"0.5": 7.0, "0.9": 70.0})

    def learn(self, job: Job, wait_s: float, context: SiteContext) -> None:
        self._note("learn", job.id, wait_s, context)

    def cancelled(self, job: Job, waited_s: float, context: SiteContext) -> None:
        self._note("cancelled", job.id, waited_s, context)

    def forget(self, key: JobKey) -> None:
        self.shown.append(("forget", key[0], None, 0, 0))


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Engine:
    monkeypatch.setitem(METHODS, Recorder.name, Recorder)
    return Engine("s", EngineSettings(method=Recorder.name, shadows=(), bounds=""))


def test_method_receives_only_past_events(recorder: Engine) -> None:
    for event in (submit("1", 0.0), submit("2", 1.0), start("1", 10.0), end("1", 20.0), start("2", 30.0)):
        recorder.apply(event)
    method = recorder.methods.waits[Recorder.name]
    assert isinstance(method, Recorder)
    assert method.shown == [
        ("predict", "1", None, 0, 0),
        ("predict", "2", None, 1, 0),
        ("learn", "1", 10.0, 2, 0),
        ("learn", "2", 29.0, 1, 1),
    ]


def test_method_receives_elapsed_wait_of_cancelled_job(recorder: Engine) -> None:
    for event in (submit("1", 0.0), cancel("1", 60.0), cancel("1", 60.0), submit("2", 100.0), cancel("2", 0.0)):
        recorder.apply(event)
    method = recorder.methods.waits[Recorder.name]
    assert isinstance(method, Recorder)
    assert [shown for shown in method.shown if shown[0] != "predict"] == [
        ("cancelled", "1", 60.0, 1, 0),  # The job is still queued because its records are stored with it.
        ("forget", "1", None, 0, 0),
        ("forget", "2", None, 0, 0),  # Cancelled long before its submit, so its wait is unknown.
    ]


def test_bounds_are_in_predictions_and_outcomes_and_scored(recorder: Engine) -> None:
    assert predicted(recorder, submit("1", 0.0)).bounds == {"0.5": 7.0, "0.9": 70.0}
    assert outcome(recorder, start("1", 10.0)).bounds == {"0.5": 7.0, "0.9": 70.0}
    bounds = recorder.scores.accuracy[Recorder.name].bounds
    assert {q: (bound.jobs, bound.held) for q, bound in bounds.items()} == {"0.5": (1, 0), "0.9": (1, 1)}


def test_bounds_are_withheld_with_the_wait(recorder: Engine) -> None:
    recorder.apply(nodes_at(0.0, down_nodes=6))
    prediction = predicted(recorder, submit("1", 1.0))
    assert (prediction.predicted_wait_s, prediction.bounds, prediction.reason) == (None, None, "nodes down")
    assert outcome(recorder, start("1", 10.0)).bounds is None
    assert recorder.scores.accuracy[Recorder.name].bounds == {}


def test_garbage_collector_does_not_track_job_records(recorder: Engine) -> None:
    for event in (submit("1", 0.0), start("1", 1.0), end("1", 2.0), submit("2", 3.0)):
        recorder.apply(event)
    [job] = recorder.context.state.jobs.values()
    _, changes = recorder.checkpoint()
    dicts = [job.estimates] if sys.version_info < (3, 14) else []  # Python 3.14 tracks all dicts.
    for each in (job, *dicts, *job.estimates.values(), *changes.started, *changes.runs):
        assert not gc.is_tracked(each)


def test_engine_is_freed_when_its_last_reference_is_deleted() -> None:
    settings = EngineSettings(shadows=tuple(METHODS), run_shadows=tuple(RUN_METHODS))
    engine = engine_after(submit("1", 0.0), start("1", 1.0), end("1", 2.0), submit("2", 3.0), settings=settings)
    freed = weakref.ref(engine)
    gc.disable()  # A collection would be late: a site of 100 MB has few objects.
    try:
        del engine
        assert freed() is None
    finally:
        gc.enable()


# Selection of methods.


def test_shadow_methods_publish_only_if_configured() -> None:
    for published, heard in ((False, ["median"]), (True, ["median", "zero"])):
        engine = Engine("s", msgspec.structs.replace(MEDIAN, publish_shadows=published))
        records = [*engine.apply(submit("1", 0.0)), *engine.apply(start("1", 9.0)), *engine.apply(end("1", 9.0))]
        assert [record.method for record in records if not isinstance(record, Anomaly)] == heard * 3
        assert {name: accuracy.jobs for name, accuracy in engine.scores.accuracy.items()} == {"median": 1, "zero": 1}


def test_method_listed_as_own_shadow_runs_once() -> None:
    assert EngineSettings(method="zero", shadows=("zero", "median"), bounds="zero").methods == ("zero", "median")
    assert EngineSettings().method == DEFAULT and set(EngineSettings().methods) > {"zero", "median"}


def test_method_new_in_settings_predicts_later_submits() -> None:
    state, changes = engine_after(
        submit("1", 0.0), settings=EngineSettings(method="zero", shadows=(), bounds="")
    ).checkpoint()
    engine = Engine.load(state, changes.started, changes.runs, MEDIAN)
    assert engine.apply(start("1", 60.0)) == []  # It was submitted before this method was added.
    assert predicted(engine, submit("2", 100.0)).predicted_wait_s == 60.0
    assert {name: accuracy.jobs for name, accuracy in engine.scores.accuracy.items()} == {"median": 0, "zero": 1}


def test_method_removed_from_settings_is_dropped() -> None:
    state, changes = engine_after(submit("1", 0.0)).checkpoint()
    engine = Engine.load(state, changes.started, changes.runs, EngineSettings(method="zero", shadows=(), bounds=""))
    assert outcome(engine, start("1", 60.0)).method == "zero"
    assert outcome(engine, end("1", 70.0)).method == "zero"
    assert set(engine.scores.accuracy) == set(engine.scores.predictions) == {"zero"}


# Lost histories.
