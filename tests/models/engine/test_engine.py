import gc
import os
import random
import subprocess
import sys
import zlib
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.engine.checkpoint import STATE_VERSION, Changes, decode_array, encode_array, kept_runs, read_saved
from models.engine.engine import MIN_JOBS_TO_RECOVER, Engine
from models.engine.outgoing import Anomaly, Record
from models.engine.settings import Settings
from models.measures import Accuracy, RunAccuracy
from models.method import SiteContext, WaitMethod
from models.records import (
    Alter,
    AnyEvent,
    Cancel,
    Capacity,
    End,
    Hold,
    Outcome,
    Prediction,
    Release,
    Requeue,
    Start,
    Submit,
)
from models.registry import DEFAULT, DEFAULT_RUN, METHODS, RUN_METHODS, TRIVIAL
from models.simulation import generate, run
from models.site.features import features_of
from models.site.history import Started
from models.site.rows import Row
from models.site.runs import Run
from models.site.state import SITE, Estimate, Job, Phase
from tests.support.golden import first_version

MEDIAN = Settings(method="median", shadows=("zero",), runtimes="closest", bounds="")
SMALL = Settings(history=30, remembered=40, publish_shadows=True)
"""The usual methods, published, with windows that a short workload fills several times."""

EVERY = msgspec.structs.replace(SMALL, shadows=tuple(METHODS), run_shadows=tuple(RUN_METHODS))
"""Every method there is."""


def submit(job: str, time: float, **fields: Any) -> Submit:
    return Submit(site="s", job=job, time=time, **fields)


def start(job: str, time: float) -> Start:
    return Start(site="s", job=job, time=time)


def end(job: str, time: float) -> End:
    return End(site="s", job=job, time=time)


def capacity(time: float, nodes: int | None = 10, down_nodes: int = 0) -> Capacity:
    return Capacity(site="s", time=time, cpus=80, nodes=nodes, down_nodes=down_nodes)


def engine_after(*events: AnyEvent, settings: Settings = MEDIAN) -> Engine:
    engine = Engine("s", settings)
    for event in events:
        engine.apply(event)
    return engine


def predicted(engine: Engine, event: Submit) -> Prediction:
    [record] = engine.apply(event)
    assert isinstance(record, Prediction)
    return record


def outcome(engine: Engine, event: AnyEvent) -> Outcome:
    [record] = engine.apply(event)
    assert isinstance(record, Outcome)
    return record


def encoded(records: list[Record]) -> bytes:
    return msgspec.json.encode([(type(record).__name__, record) for record in records])


@cache
def workload(seed: int, jobs: int = 120) -> list[AnyEvent]:
    """A simulated site whose jobs are also held, altered and requeued; events are lost, doubled and swapped."""
    dice = random.Random(seed)
    events: list[AnyEvent] = []
    held: set[str] = set()
    for event in run(generate(seed, jobs, cpus=64, load=0.9, start_time=10**9), cpus=64, site="s"):
        if isinstance(event, Capacity):
            events.append(msgspec.structs.replace(event, nodes=16))
            continue
        key: dict[str, Any] = {"site": "s", "job": event.job, "time": event.time}
        if isinstance(event, Start) and event.job in held:
            events.append(Release(**key))
        if isinstance(event, End) and dice.random() < 0.1:
            events += [Requeue(**key), Start(**key, attempt=1), End(**key | {"time": event.time + 100.1}, attempt=1)]
        else:
            events.append(event)
        if isinstance(event, Submit) and dice.random() < 0.1:
            held.add(event.job)
            events.append(Hold(**key))
        if dice.random() < 0.1:
            events.append(Alter(**key, cpus=dice.randint(1, 64), walltime=dice.choice([None, 0.1, 7200.0])))
        if dice.random() < 0.02:
            events.append(Capacity(site="s", time=event.time, cpus=64, nodes=16, down_nodes=dice.randint(0, 12)))
        if dice.random() < 0.05:
            events.append(dice.choice(events))
        if dice.random() < 0.03:
            events.pop()
        if dice.random() < 0.05 and len(events) > 1:
            events[-2:] = events[:-3:-1]
    return events


def kinds(records: list[Record]) -> list[str]:
    return [type(record).__name__ for record in records]


# What an event does.


def test_a_submit_is_predicted_from_the_state_it_finds_and_enters_it() -> None:
    engine = engine_after(submit("1", 0.0, user="ada", cpus=4, walltime=60.0), start("1", 100.0))
    before = engine.context.state.totals(SITE, Phase.QUEUED)
    prediction = predicted(engine, submit("2", 200.0, user="ada", cpus=8, walltime=3600.0))
    assert prediction == Prediction(
        site="s",
        job="2",
        attempt=0,
        made_at=200.0,
        predicted_wait_s=100.0,
        predicted_run_s=None,
        predicted_start=300.0,
        method="median",
        reason="median of the last 1 jobs to start",
    )
    job = engine.context.state.jobs["2", 0]
    assert (before.count, engine.context.state.totals(SITE, Phase.QUEUED).count) == (0, 1)
    alone = engine_after(submit("1", 0.0, user="ada", cpus=4, walltime=60.0), start("1", 100.0))
    np.testing.assert_array_equal(job.features, features_of(job, alone.context.state, 200.0))


def test_a_start_tells_the_wait_to_everybody() -> None:
    engine = engine_after(submit("1", 10.0, user="ada", cpus=4))
    assert outcome(engine, start("1", 70.0)) == Outcome(
        site="s",
        job="1",
        attempt=0,
        made_at=10.0,
        method="median",
        predicted_wait_s=None,
        predicted_run_s=None,
        observed_at=70.0,
        actual_wait_s=60.0,
        error_s=-60.0,
    )
    assert engine.context.history.waits.tolist() == [60.0]
    assert {name: accuracy.jobs for name, accuracy in engine.scores.accuracy.items()} == {"median": 1, "zero": 1}
    assert engine.context.state.totals(("user", "ada"), Phase.RUNNING).cpus == 4


def test_an_end_tells_the_run_time() -> None:
    engine = Engine("s", MEDIAN)
    for number in range(2):
        engine.apply(submit(str(number), 0.0, walltime=100.0))
        engine.apply(start(str(number), 50.0))
        told = outcome(engine, end(str(number), 90.0))
    assert (told.actual_wait_s, told.actual_run_s, told.predicted_run_s, told.run_error_s) == (50.0, 40.0, None, None)
    assert predicted(engine, submit("4", 100.0, walltime=200.0)).predicted_run_s == 80.0
    engine.apply(start("4", 100.0))
    told = outcome(engine, end("4", 130.0))
    assert (told.observed_at, told.actual_run_s, told.run_error_s) == (130.0, 30.0, 50.0)
    accuracy = engine.scores.run_accuracy["closest"]
    assert (accuracy.jobs, accuracy.missing, accuracy.error.total, accuracy.run_s) == (3, 2, 40.0 + 40.0 + 50.0, 110.0)
    assert engine.scores.accuracy["median"].responses == 3
    assert not engine.context.state.jobs


def test_a_cancel_leaves_the_queue_at_once() -> None:
    engine = engine_after(submit("1", 0.0, walltime=60.0))
    told = outcome(engine, Cancel(site="s", job="1", time=30.0))
    assert (told.censored, told.actual_wait_s, told.observed_at) == (True, 30.0, 30.0)
    assert not engine.context.state.jobs and len(engine.context.history) == len(engine.context.runs) == 0


def test_held_jobs_are_not_in_the_queue_that_others_find() -> None:
    engine = engine_after(submit("1", 0.0, cpus=4))
    assert engine.apply(Hold(site="s", job="1", time=1.0)) == []
    assert engine.context.state.totals(SITE, Phase.QUEUED).cpus == 0
    assert engine.apply(Release(site="s", job="1", time=2.0)) == []
    assert engine.context.state.totals(SITE, Phase.QUEUED).cpus == 4


def test_the_wait_and_the_predicted_start_count_from_when_the_job_is_eligible() -> None:
    engine = engine_after(submit("0", 0.0), start("0", 40.0))
    assert predicted(engine, submit("1", 100.0, eligible=500.0)).predicted_start == 540.0
    told = outcome(engine, start("1", 560.0))
    assert (told.wait_from, told.actual_wait_s, told.error_s) == ("eligible", 60.0, -20.0)


def test_a_job_that_starts_before_it_is_eligible_has_not_waited() -> None:
    engine = engine_after(submit("1", 100.0, eligible=500.0))
    assert outcome(engine, start("1", 200.0)).actual_wait_s == 0.0


@pytest.mark.parametrize(("walltime", "planned_run_s"), [(60.0, 60.0), (None, 100.0), (0.0, 100.0)])
def test_the_run_time_is_estimated_from_the_request_or_else_the_history(
    walltime: float | None, planned_run_s: float
) -> None:
    engine = Engine("s", MEDIAN)
    for number in range(2):
        for event in (submit(str(number), 0.0), start(str(number), 0.0), end(str(number), 100.0)):
            engine.apply(event)
    engine.apply(submit("3", 200.0, walltime=walltime))
    assert engine.context.state.jobs["3", 0].planned_run_s == planned_run_s
    engine.apply(Alter(site="s", job="3", time=201.0, walltime=walltime))
    assert engine.context.state.jobs["3", 0].planned_run_s == planned_run_s


def test_nothing_is_learnt_of_a_job_before_it_starts() -> None:
    engine = Engine("s", MEDIAN)
    for number in range(5):
        assert predicted(engine, submit(str(number), float(number))).reason == "no history"


def test_the_counters_count() -> None:
    engine = engine_after(submit("1", 0.0), submit("1", 0.0), start("1", 5.0), start("2", 5.0), capacity(6.0))
    assert engine.events == 5
    assert engine.anomalies == {"duplicate_submit": 1, "start_without_submit": 1}
    assert engine.scores.predictions == {"median": 1, "zero": 1}


class Recorder(WaitMethod):
    """Notes what it is shown, and what was known then."""

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


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Engine:
    monkeypatch.setitem(METHODS, Recorder.name, Recorder)
    return Engine("s", Settings(method=Recorder.name, shadows=(), bounds=""))


def test_a_method_is_shown_what_is_known_and_no_more(recorder: Engine) -> None:
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


def test_bounds_go_out_with_predictions_and_outcomes_and_are_measured(recorder: Engine) -> None:
    assert predicted(recorder, submit("1", 0.0)).bounds == {"0.5": 7.0, "0.9": 70.0}
    assert outcome(recorder, start("1", 10.0)).bounds == {"0.5": 7.0, "0.9": 70.0}
    bounds = recorder.scores.accuracy[Recorder.name].bounds
    assert {q: (bound.jobs, bound.held) for q, bound in bounds.items()} == {"0.5": (1, 0), "0.9": (1, 1)}


def test_bounds_are_withheld_with_the_wait(recorder: Engine) -> None:
    recorder.apply(capacity(0.0, down_nodes=6))
    prediction = predicted(recorder, submit("1", 1.0))
    assert (prediction.predicted_wait_s, prediction.bounds, prediction.reason) == (None, None, "nodes down")
    assert outcome(recorder, start("1", 10.0)).bounds is None
    assert recorder.scores.accuracy[Recorder.name].bounds == {}


def test_the_garbage_collector_passes_over_what_is_kept_of_jobs(recorder: Engine) -> None:
    for event in (submit("1", 0.0), start("1", 1.0), end("1", 2.0), submit("2", 3.0)):
        recorder.apply(event)
    [job] = recorder.context.state.jobs.values()
    _, changes = recorder.checkpoint()
    for each in (job, job.estimates, *job.estimates.values(), *changes.started, *changes.runs):
        assert not gc.is_tracked(each)


# Which methods run, and which are heard.


def test_shadows_run_and_are_silent_unless_they_are_to_be_published() -> None:
    for published, heard in ((False, ["median"]), (True, ["median", "zero"])):
        engine = Engine("s", msgspec.structs.replace(MEDIAN, publish_shadows=published))
        records = [*engine.apply(submit("1", 0.0)), *engine.apply(start("1", 9.0)), *engine.apply(end("1", 9.0))]
        assert [record.method for record in records if not isinstance(record, Anomaly)] == heard * 3
        assert {name: accuracy.jobs for name, accuracy in engine.scores.accuracy.items()} == {"median": 1, "zero": 1}


def test_a_method_that_is_its_own_shadow_runs_once() -> None:
    assert Settings(method="zero", shadows=("zero", "median"), bounds="zero").methods == ("zero", "median")
    assert Settings().method == DEFAULT and set(Settings().methods) > {"zero", "median"}


def test_an_unknown_method_is_refused() -> None:
    with pytest.raises(ValueError, match="no method 'oracle'"):
        Engine("s", Settings(method="oracle"))


def test_accuracy_is_that_of_the_outcomes() -> None:
    engine = Engine("s", EVERY)
    accuracy = {name: Accuracy() for name in engine.methods.waits}
    cancelled = {name: Accuracy() for name in engine.methods.waits}
    runs: dict[str, dict[tuple[str, int], tuple[float | None, float, tuple[float, float] | None]]] = {}
    for event in workload(1):
        for record in engine.apply(event):
            if not isinstance(record, Outcome):
                continue
            if record.actual_run_s is not None:
                mine_run = runs.setdefault(record.method if record.method in RUN_METHODS else DEFAULT_RUN, {})
                mine_run[record.job, record.attempt] = (
                    record.predicted_run_s,
                    record.actual_run_s,
                    record.run_interval,
                )
            if record.method not in METHODS:
                continue
            wait_s, predicted_s = record.actual_wait_s, record.predicted_wait_s
            assert record.error_s == (predicted_s or 0.0) - wait_s
            mine = (cancelled if record.censored else accuracy)[record.method]
            if record.actual_run_s is None:
                mine.add_wait(predicted_s, wait_s, record.bounds)
            if record.censored or record.actual_run_s is not None:
                mine.add_response(predicted_s, wait_s, record.actual_run_s or 0.0)
    assert accuracy == engine.scores.accuracy
    assert cancelled == engine.scores.cancelled
    for name, told in runs.items():
        of_runs = RunAccuracy()
        for predicted_s, run_s, interval in told.values():
            of_runs.add(predicted_s, run_s, interval)
        assert of_runs == engine.scores.run_accuracy[name]
    assert min(accuracy["zero"].jobs, cancelled["zero"].jobs) > 0


# Nodes that are down.


@pytest.mark.parametrize(("down_nodes", "withheld"), [(0, False), (5, False), (6, True), (10, True)])
def test_no_wait_is_predicted_while_too_many_nodes_are_down(down_nodes: int, withheld: bool) -> None:
    engine = engine_after(submit("1", 0.0), start("1", 60.0), capacity(70.0, down_nodes=down_nodes))
    prediction = predicted(engine, submit("2", 100.0))
    if withheld:
        assert (prediction.predicted_wait_s, prediction.predicted_start, prediction.bounds) == (None, None, None)
        assert prediction.reason == "nodes down"
    else:
        assert prediction.predicted_wait_s == 60.0
    assert prediction.degraded == (f"{down_nodes} of 10 nodes down" if down_nodes else None)
    told = outcome(engine, start("2", 110.0))
    assert told.error_s == (-10.0 if withheld else 50.0)
    assert engine.scores.accuracy["median"].missing == 1 + withheld
    assert engine.scores.accuracy["zero"].missing == withheld


@pytest.mark.parametrize(("share", "withheld"), [(0.0, True), (0.25, False), (0.2, True), (1.0, False)])
def test_the_share_that_may_be_down_can_be_set(share: float, withheld: bool) -> None:
    some = msgspec.structs.replace(MEDIAN, method="zero", withhold_down=share)
    engine = engine_after(capacity(0.0, nodes=16, down_nodes=4), settings=some)
    assert (predicted(engine, submit("1", 1.0)).predicted_wait_s is None) == withheld


def test_predictions_come_back_with_the_nodes() -> None:
    engine = engine_after(capacity(0.0, down_nodes=9), settings=msgspec.structs.replace(MEDIAN, method="zero"))
    assert predicted(engine, submit("1", 1.0)).predicted_wait_s is None
    engine.apply(capacity(2.0))
    prediction = predicted(engine, submit("2", 3.0))
    assert (prediction.predicted_wait_s, prediction.degraded) == (0.0, None)


def test_nodes_down_out_of_an_unknown_number_are_told_but_withhold_nothing() -> None:
    zero = msgspec.structs.replace(MEDIAN, method="zero")
    for nodes in (None, 0):
        prediction = predicted(engine_after(capacity(0.0, nodes, down_nodes=3), settings=zero), submit("1", 1.0))
        assert (prediction.predicted_wait_s, prediction.degraded) == (0.0, "3 of unknown nodes down")


# The fold.


@cache
def said(seed: int, every: bool = False) -> list[bytes]:
    """What an engine that is never interrupted says of each event of a workload."""
    engine = Engine("s", EVERY if every else SMALL)
    return [encoded(engine.apply(event)) for event in workload(seed)]


def contents(engine: Engine) -> dict[str, Any]:
    """All that an engine would save, but for which rows are to be deleted."""
    found: dict[str, Any] = msgspec.msgpack.decode(engine.checkpoint()[0])
    del found["forgotten"]
    return found


def test_the_workload_has_every_kind_of_event_and_of_record() -> None:
    assert {event.kind for event in workload(1)} == {kind.kind for kind in AnyEvent.__args__}
    engine = Engine("s", SMALL)
    records = {kind for event in workload(1) for kind in kinds(engine.apply(event))}
    assert records == {"Prediction", "Outcome", "Anomaly"}
    assert len(engine.anomalies) >= 5 and engine.context.history.count > 2 * SMALL.history


@pytest.mark.parametrize("seed", [1, 2])
def test_the_same_events_give_the_same_bytes(seed: int) -> None:
    one, other = Engine("s", SMALL), Engine("s", SMALL)
    for place, event in enumerate(workload(seed)):
        on_the_wire = msgspec.json.decode(msgspec.json.encode(event), type=AnyEvent)
        assert encoded(one.apply(event)) == encoded(other.apply(on_the_wire)) == said(seed)[place]
    assert one.checkpoint()[0] == other.checkpoint()[0]


def test_the_bytes_do_not_depend_on_the_process() -> None:
    script = """
import msgspec, sys
from models.engine.engine import Engine
from models.engine.settings import Settings
from models.records import AnyEvent
engine = Engine("s", msgspec.json.decode(sys.argv[1], type=Settings))
for event in msgspec.json.decode(sys.stdin.buffer.read(), type=list[AnyEvent]):
    sys.stdout.buffer.write(msgspec.json.encode([(type(record).__name__, record) for record in engine.apply(event)]))
sys.stdout.buffer.write(engine.checkpoint()[0])
"""
    answer = subprocess.run(
        [sys.executable, "-c", script, msgspec.json.encode(SMALL)],
        cwd=Path(__file__).parents[3],
        env=os.environ | {"PYTHONHASHSEED": "1"},
        input=msgspec.json.encode(workload(1)),
        check=True,
        capture_output=True,
    )
    state, _ = engine_after(*workload(1), settings=SMALL).checkpoint()
    assert answer.stdout == b"".join(said(1)) + state


class Disk:
    """What is durable: rows in a store, a state, and the place in the stream that the state includes."""

    def __init__(self, settings: Settings = SMALL) -> None:
        self.settings = settings
        self.started: dict[int, bytes] = {}
        self.runs: dict[int, bytes] = {}
        self.own: dict[str, dict[int, Row]] = {}
        self.state: bytes | None = None
        self.place = 0
        self.trimmed = 0

    def settle(self, engine: Engine, place: int, steps: int = 3) -> None:
        """Write an engine's rows, then its state, then trim the rows: as many of these steps as the machine lives."""
        state, changes = engine.checkpoint()
        if steps >= 1:
            self._write(changes)
        if steps >= 2:
            self.state, self.place = state, place
        if steps >= 3:
            self._trim(changes, engine.context.history.oldest)

    def _write(self, changes: Changes) -> None:
        self.started |= {row.number: msgspec.msgpack.encode(row, enc_hook=encode_array) for row in changes.started}
        self.runs |= {row.number: msgspec.msgpack.encode(row) for row in changes.runs}
        for name, rows in changes.rows.items():
            self.own.setdefault(name, {}).update((row.number, row) for row in rows)

    def _trim(self, changes: Changes, oldest: int) -> None:
        self.started = {number: row for number, row in self.started.items() if number >= oldest}
        for row in changes.forgotten_runs:
            del self.runs[row.number]
        for name, oldest_row in changes.oldest.items():
            self.own[name] = {number: row for number, row in self.own[name].items() if number >= oldest_row}
        self.trimmed += len(changes.forgotten_runs)

    def rows(self) -> tuple[list[Started], list[Run]]:
        """Everything that is in the store."""
        started = [
            msgspec.msgpack.decode(row, type=Started, dec_hook=decode_array) for row in reversed(self.started.values())
        ]
        return started, [msgspec.msgpack.decode(row, type=Run) for row in reversed(self.runs.values())]

    def own_rows(self) -> dict[str, list[Row]]:
        """The methods' own."""
        return {name: list(reversed(rows.values())) for name, rows in self.own.items()}

    def recover(self) -> tuple[Engine, int]:
        """An engine from what is there, and where it goes on; what it does not need is deleted."""
        if self.state is None:
            self.started, self.runs, self.own = {}, {}, {}
            return Engine("s", self.settings), 0
        started, runs = self.rows()
        saved = read_saved(self.state)
        engine = Engine.load(self.state, started, runs, self.settings, self.own_rows())
        self.started = {number: row for number, row in self.started.items() if number < saved.started}
        self.runs = {run.number: self.runs[run.number] for run in kept_runs(saved, runs)}
        return engine, self.place


@pytest.mark.parametrize(("every", "with_"), [(1, SMALL), (7, EVERY), (50, SMALL), (200, EVERY)])
def test_an_engine_that_is_saved_and_loaded_goes_on_as_if_nothing_had_happened(every: int, with_: Settings) -> None:
    disk = Disk(with_)
    engine = Engine("s", with_)
    for place, event in enumerate(workload(2)):
        assert encoded(engine.apply(event)) == said(2, with_ is EVERY)[place]
        if place % every == every - 1:
            disk.settle(engine, place)
            engine, _ = disk.recover()
    assert disk.trimmed > 0 or with_ is EVERY  # whose categories are deeper than the workload
    assert contents(engine) == contents(engine_after(*workload(2), settings=with_))


@settings(deadline=None, max_examples=25)
@given(st.integers(1, 3), st.lists(st.tuples(st.integers(1, 120), st.integers(0, 4)), max_size=12))
def test_after_any_crash_the_same_events_lead_to_the_same_bytes(seed: int, lives: list[tuple[int, int]]) -> None:
    """A life is how many events are applied, and how far their settling gets before the end (4: no end)."""
    disk = Disk()
    engine, place = disk.recover()
    for events, steps in [*lives, (len(workload(seed)), 4)]:
        for event in workload(seed)[place : place + events]:
            assert encoded(engine.apply(event)) == said(seed)[place]
            place += 1
        disk.settle(engine, place, steps)
        if steps < 4:
            engine, place = disk.recover()
    while place < len(workload(seed)):
        assert encoded(engine.apply(workload(seed)[place])) == said(seed)[place]
        place += 1
    assert contents(engine) == contents(engine_after(*workload(seed), settings=SMALL))


def test_a_store_that_is_far_ahead_is_read_as_of_the_state() -> None:
    disk = Disk()
    engine = Engine("s", SMALL)
    half = len(workload(1)) // 2
    for place, event in enumerate(workload(1)):
        engine.apply(event)
        if place == half:
            disk.settle(engine, half + 1, steps=2)
        elif place > half:
            disk.settle(engine, place, steps=1)
    assert disk.state is not None
    assert max(disk.started) >= read_saved(disk.state).started + SMALL.history
    engine, place = disk.recover()
    for event in workload(1)[place:]:
        assert encoded(engine.apply(event)) == said(1)[place]
        place += 1


# How much there may be.


def test_no_more_jobs_are_taken_in_than_can_be_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("models.engine.live.MAX_LIVE_BYTES", 20 * 400)
    engine = Engine("s", MEDIAN)

    for place in range(50):
        engine.apply(submit(str(place), 1.0, user="u" * 100))
    jobs = len(engine.context.state)
    assert 10 < jobs < 50
    assert engine.anomalies == {"state_full": 50 - jobs}
    full = engine.checkpoint()[0]
    for event in (submit("new", 2.0), start("never seen", 2.0), Alter(site="s", time=2.0, job="1", queue="q" * 256)):
        assert [record.reason for record in engine.apply(event) if isinstance(record, Anomaly)] == ["state_full"]
    assert len(engine.checkpoint()[0]) < len(full) + 100
    for event in (start("1", 3.0), end("1", 4.0), start("2", 3.0), end("2", 4.0)):
        engine.apply(event)
    assert isinstance(engine.apply(submit("new", 5.0))[0], Prediction)


def test_what_is_stored_of_a_job_is_within_what_is_counted_for_it() -> None:
    dice = random.Random(1)
    engine = Engine("s", Settings())
    for event in workload(1):
        engine.apply(event)
    before, counted = zlib.compress(engine.checkpoint()[0], 1), engine.context.state.text_bytes

    def name() -> str:
        return "".join(chr(dice.randrange(0x4E00, 0x9FFF)) for _ in range(dice.randrange(1, 60)))

    fields = ("user", "group", "account", "queue", "executable", "script", "arguments")
    for place in range(500):
        names = {field: name() for field in fields}
        walltime, time = dice.uniform(1, 1e6), 1e9 + dice.random() * 1e6
        engine.apply(submit(f"{place}", time, cpus=dice.randrange(1, 10**9), walltime=walltime, **names))
    after = zlib.compress(engine.checkpoint()[0], 1)
    methods = len(engine.methods.waits) + len(engine.methods.runs)
    assert len(after) - len(before) < engine.context.state.text_bytes - counted + 500 * (128 + 48 * methods)


# What cannot be loaded.


@cache
def kept() -> Disk:
    disk = Disk()
    disk.settle(engine_after(*workload(1), settings=SMALL), len(workload(1)))
    return disk


def test_every_row_is_needed() -> None:
    state, (started, runs) = kept().state, kept().rows()
    assert state is not None and len(started) == SMALL.history and runs
    for missing in range(len(started)):
        with pytest.raises(ValueError, match="29 of the last 30 jobs"):
            Engine.load(state, started[:missing] + started[missing + 1 :], runs, SMALL, kept().own_rows())
    for missing in range(0, len(runs), 17):
        with pytest.raises(ValueError, match=f"{len(runs) - 1} of {len(runs)} entries"):
            Engine.load(state, started, runs[:missing] + runs[missing + 1 :], SMALL, kept().own_rows())
    Engine.load(state, started, runs, SMALL, kept().own_rows())


def test_a_state_of_a_later_version_is_refused() -> None:
    state = msgspec.msgpack.encode({"v": STATE_VERSION + 1, "something": ["quite", "different"]})
    with pytest.raises(ValueError, match=f"version {STATE_VERSION + 1}, of a later queuecast; this one reads up to"):
        Engine.load(state, [], [], SMALL)


def test_the_state_of_the_first_version_is_read_and_gone_on_with() -> None:
    golden = first_version()
    events = golden.decoded
    old = Engine.load(golden.state, *golden.entries, Settings(history=64, runtimes="closest"))
    new = Engine("alder", Settings(history=64, runtimes="closest"))
    for event in events[: golden.applied]:
        new.apply(event)
    assert (len(old.context.state), len(old.context.history)) == (30, 64)
    for name in ("qespera", *TRIVIAL):
        mine, theirs = (engine.scores.accuracy[name].measures() for engine in (new, old))
        assert mine == pytest.approx(theirs)  # the last bits of a sum depend on the machine
    assert not old.lost

    def told(engine: Engine) -> list[tuple[str, float | None, float | None]]:
        records = [record for event in events[golden.applied :] for record in engine.apply(event)]
        predictions = [record for record in records if isinstance(record, Prediction)]
        return [(said.job, said.predicted_wait_s, said.predicted_run_s) for said in predictions]

    assert told(old) == told(new) != []


@settings(deadline=None)
@given(st.binary(max_size=200), st.integers(0, 10**6))
def test_garbage_is_refused(garbage: bytes, cut: int) -> None:
    whole = kept().state
    assert whole is not None
    for state in (garbage, whole[: cut % len(whole)]):
        with pytest.raises(ValueError, match=r"not a saved state|state of version"):
            Engine.load(state, [], [], SMALL)


@pytest.mark.parametrize("features", [b"", b"1234567", b"12345678", "text", [0.0] * 16])
def test_features_of_another_shape_are_refused(features: Any) -> None:
    engine = engine_after(submit("1", 0.0))
    saved = msgspec.msgpack.decode(engine.checkpoint()[0])
    place = [field.name for field in msgspec.structs.fields(Job)].index("features")
    assert len(saved["jobs"][0][place]) == 16 * 8
    saved["jobs"][0][place] = features
    with pytest.raises(ValueError, match="not a saved state"):
        Engine.load(msgspec.msgpack.encode(saved), [], [], MEDIAN)


# Settings that changed in between.


def test_a_method_that_is_new_predicts_what_comes_from_then_on() -> None:
    state, changes = engine_after(
        submit("1", 0.0), settings=Settings(method="zero", shadows=(), bounds="")
    ).checkpoint()
    engine = Engine.load(state, changes.started, changes.runs, MEDIAN)
    assert engine.apply(start("1", 60.0)) == []  # it was submitted before this method ran
    assert predicted(engine, submit("2", 100.0)).predicted_wait_s == 60.0
    assert {name: accuracy.jobs for name, accuracy in engine.scores.accuracy.items()} == {"median": 0, "zero": 1}


def test_a_method_that_runs_no_longer_is_dropped() -> None:
    state, changes = engine_after(submit("1", 0.0)).checkpoint()
    engine = Engine.load(state, changes.started, changes.runs, Settings(method="zero", shadows=(), bounds=""))
    assert outcome(engine, start("1", 60.0)).method == "zero"
    assert outcome(engine, end("1", 70.0)).method == "zero"
    assert set(engine.scores.accuracy) == set(engine.scores.predictions) == {"zero"}


# Histories that were lost.


def test_without_its_rows_an_engine_keeps_its_jobs_and_begins_its_histories_anew() -> None:
    engine = engine_after(submit("1", 0.0), start("1", 60.0), end("1", 90.0), submit("2", 95.0))
    engine = Engine.load(engine.checkpoint()[0], None, None, MEDIAN)
    assert [*engine.context.state.jobs] == [("2", 0)]
    assert (engine.context.history.count, len(engine.context.runs), engine.scores.accuracy["median"].jobs) == (0, 0, 1)
    prediction = predicted(engine, submit("3", 100.0))
    assert (prediction.reason, prediction.degraded) == ("no history", "history lost: begun anew")
    assert kinds(engine.apply(start("2", 120.0))) == ["Outcome"]


def test_an_engine_says_that_its_histories_were_lost_until_they_have_grown_again() -> None:
    state, _ = engine_after(capacity(0.0, down_nodes=1)).checkpoint()
    engine = Engine.load(state, None, None, MEDIAN)
    for number in range(MIN_JOBS_TO_RECOVER):
        prediction = predicted(engine, submit(str(number), float(number)))
        assert prediction.degraded is not None and "history lost" in prediction.degraded
        engine.apply(start(str(number), float(number)))
        if number == MIN_JOBS_TO_RECOVER // 2:
            state, changes = engine.checkpoint()
            engine = Engine.load(state, changes.started, changes.runs, MEDIAN)
    assert predicted(engine, submit("last", 1e6)).degraded == "1 of 10 nodes down"


def test_job_events_are_told_apart_by_job_and_attempt() -> None:
    engine = Engine("s", MEDIAN)
    events: list[AnyEvent] = [submit("1", 0.0), submit("2", 0.0), Submit(site="s", job="1", attempt=1, time=0.0)]
    for event in events:
        engine.apply(event)
    engine.apply(start("1", 5.0))
    assert {key: job.phase for key, job in engine.context.state.jobs.items()} == {
        ("1", 0): Phase.RUNNING,
        ("2", 0): Phase.QUEUED,
        ("1", 1): Phase.QUEUED,
    }
