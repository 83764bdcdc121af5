"""The same events from the same state give the same bytes, at any time of saving and loading."""

import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.engine.engine import Engine
from models.engine.histories import MIN_JOBS_TO_RECOVER, Changes
from models.engine.saved_state import STATE_VERSION, decode_array, encode_array, read_saved
from models.engine.settings import EngineSettings
from models.records import AnyEvent
from models.site.history import StartedJob
from models.site.job import Job
from models.site.rows import Row
from models.site.runs import Run
from models.waits.boosted.boosted import Boosted
from tests.support.deployment import simulated
from tests.support.engines import (
    EVERY,
    MEDIAN,
    SMALL,
    encoded,
    engine_after,
    kinds,
    nodes_at,
    predicted,
    workload,
)
from tests.support.events import end, start, submit


@cache
def expected_records(seed: int, every: bool = False) -> list[bytes]:
    """Return the records for each event of a workload from an engine without interruption."""
    engine = Engine("s", EVERY if every else SMALL)
    return [encoded(engine.apply(event)) for event in workload(seed)]


def contents(engine: Engine) -> dict[str, Any]:
    """Return all that an engine saves, except the list of rows to delete."""
    found: dict[str, Any] = msgspec.msgpack.decode(engine.checkpoint()[0])
    del found["histories"]["forgotten"]
    return found


def test_workload_contains_each_event_and_record_kind() -> None:
    assert {event.kind for event in workload(1)} == {kind.kind for kind in AnyEvent.__args__}
    engine = Engine("s", SMALL)
    records = {kind for event in workload(1) for kind in kinds(engine.apply(event))}
    assert records == {"Prediction", "Outcome", "Anomaly"}
    assert len(engine.anomalies) >= 5 and engine.context.history.count > 2 * SMALL.history


@pytest.mark.parametrize("seed", [1, 2])
def test_engine_is_deterministic_for_the_same_events(seed: int) -> None:
    one, other = Engine("s", SMALL), Engine("s", SMALL)
    for place, event in enumerate(workload(seed)):
        on_the_wire = msgspec.json.decode(msgspec.json.encode(event), type=AnyEvent)
        assert encoded(one.apply(event)) == encoded(other.apply(on_the_wire)) == expected_records(seed)[place]
    assert one.checkpoint()[0] == other.checkpoint()[0]


def test_engine_bytes_are_equal_across_processes() -> None:
    script = """
import msgspec, sys
from models.engine.engine import Engine
from models.engine.settings import EngineSettings
from models.records import AnyEvent
engine = Engine("s", msgspec.json.decode(sys.argv[1], type=EngineSettings))
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
    assert answer.stdout == b"".join(expected_records(1)) + state


class Disk:
    """Durable data: rows in a store, a state, and the position in the stream that the state includes."""

    def __init__(self, settings: EngineSettings = SMALL) -> None:
        self.settings = settings
        self.started: dict[int, bytes] = {}
        self.runs: dict[int, bytes] = {}
        self.own: dict[str, dict[int, Row]] = {}
        self.state: bytes | None = None
        self.place = 0
        self.trimmed = 0

    def settle(self, engine: Engine, place: int, steps: int = 3) -> None:
        """Write an engine's rows, then its state, then trim the rows; stop after this many steps."""
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
            self.runs.pop(row.number, None)
        for name, oldest_row in changes.oldest.items():
            self.own[name] = {number: row for number, row in self.own[name].items() if number >= oldest_row}
        self.trimmed += len(changes.forgotten_runs)

    def rows(self) -> tuple[list[StartedJob], list[Run]]:
        """Return all rows in the store."""
        started = [
            msgspec.msgpack.decode(row, type=StartedJob, dec_hook=decode_array)
            for row in reversed(self.started.values())
        ]
        return started, [msgspec.msgpack.decode(row, type=Run) for row in reversed(self.runs.values())]

    def own_rows(self) -> dict[str, list[Row]]:
        """Return the rows of the methods."""
        return {name: list(reversed(rows.values())) for name, rows in self.own.items()}

    def recover(self) -> tuple[Engine, int]:
        """Return an engine from the stored data and its position in the stream; delete unused rows."""
        if self.state is None:
            self.started, self.runs, self.own = {}, {}, {}
            return Engine("s", self.settings), 0
        started, runs = self.rows()
        saved = read_saved(self.state)
        engine = Engine.load(self.state, started, runs, self.settings, self.own_rows())
        self.started = {number: row for number, row in self.started.items() if number < saved.histories.started}
        self.runs = {run.number: self.runs[run.number] for run in saved.histories.kept_runs(runs)}
        return engine, self.place


OFTEN = [pytest.param(*one, marks=pytest.mark.long) for one in ((1, SMALL), (3, SMALL), (7, EVERY), (17, EVERY))]
"""More saves than `make test` has time for."""


@pytest.mark.parametrize(("every", "with_"), [(50, SMALL), (200, EVERY), *OFTEN])
def test_saved_and_loaded_engine_continues_identically(every: int, with_: EngineSettings) -> None:
    disk = Disk(with_)
    engine = Engine("s", with_)
    for place, event in enumerate(workload(2)):
        assert encoded(engine.apply(event)) == expected_records(2, with_ is EVERY)[place]
        if place % every == every - 1:
            disk.settle(engine, place)
            engine, _ = disk.recover()
    assert disk.trimmed > 0 or with_ is EVERY  # The categories of EVERY are deeper than the workload.
    assert contents(engine) == contents(engine_after(*workload(2), settings=with_))


@pytest.mark.long
@settings(max_examples=25)
@given(st.integers(1, 3), st.lists(st.tuples(st.integers(1, 120), st.integers(0, 4)), max_size=12))
def test_engine_recovers_to_the_same_bytes_after_any_crash(seed: int, lives: list[tuple[int, int]]) -> None:
    """Each life is a number of events and the steps of the checkpoint before its crash (4: no crash)."""
    disk = Disk()
    engine, place = disk.recover()
    for events, steps in [*lives, (len(workload(seed)), 4)]:
        for event in workload(seed)[place : place + events]:
            assert encoded(engine.apply(event)) == expected_records(seed)[place]
            place += 1
        disk.settle(engine, place, steps)
        if steps < 4:
            engine, place = disk.recover()
    while place < len(workload(seed)):
        assert encoded(engine.apply(workload(seed)[place])) == expected_records(seed)[place]
        place += 1
    assert contents(engine) == contents(engine_after(*workload(seed), settings=SMALL))


def test_engine_loaded_from_checkpoint_has_no_rows_to_store() -> None:
    saved, changes = (engine := engine_after(*workload(1), settings=SMALL)).checkpoint()
    assert len(engine.context.state) > 3
    cut = Engine.load(saved, changes.started, changes.runs, SMALL, changes.rows).cut()
    assert (cut.jobs, cut.departed) == ({}, [])


def test_store_newer_than_state_is_read_as_of_the_state() -> None:
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
    assert max(disk.started) >= read_saved(disk.state).histories.started + SMALL.history
    engine, place = disk.recover()
    for event in workload(1)[place:]:
        assert encoded(engine.apply(event)) == expected_records(1)[place]
        place += 1


# Limits on sizes.


@cache
def kept() -> Disk:
    disk = Disk()
    disk.settle(engine_after(*workload(1), settings=SMALL), len(workload(1)))
    return disk


def test_load_raises_for_each_missing_row() -> None:
    state, (started, runs) = kept().state, kept().rows()
    assert state is not None and len(started) == SMALL.history and runs
    for missing in range(len(started)):
        with pytest.raises(ValueError, match="29 of the last 30 jobs"):
            Engine.load(state, started[:missing] + started[missing + 1 :], runs, SMALL, kept().own_rows())
    for missing in range(0, len(runs), 17):
        with pytest.raises(ValueError, match=f"{len(runs) - 1} entries; expected {len(runs)}"):
            Engine.load(state, started, runs[:missing] + runs[missing + 1 :], SMALL, kept().own_rows())
    Engine.load(state, started, runs, SMALL, kept().own_rows())


@pytest.mark.parametrize("version", [STATE_VERSION - 1, STATE_VERSION + 1])
def test_load_rejects_state_of_another_version(version: int) -> None:
    state = msgspec.msgpack.encode({"v": version, "something": ["quite", "different"]})
    with pytest.raises(ValueError, match=f"version {version}, of another queuecast release; expected {STATE_VERSION}"):
        Engine.load(state, [], [], SMALL)


@given(st.binary(max_size=200), st.integers(0, 10**6))
def test_load_rejects_invalid_bytes(garbage: bytes, cut: int) -> None:
    whole = kept().state
    assert whole is not None
    for state in (garbage, whole[: cut % len(whole)]):
        with pytest.raises(ValueError, match=r"invalid saved state|state has version"):
            Engine.load(state, [], [], SMALL)


@pytest.mark.parametrize("features", [b"", b"1234567", b"12345678", "text", [0.0] * 16])
def test_load_rejects_features_of_another_shape(features: Any) -> None:
    engine = engine_after(submit("1", 0.0))
    saved = msgspec.msgpack.decode(engine.checkpoint()[0])
    place = [field.name for field in msgspec.structs.fields(Job)].index("features")
    assert len(saved["live"]["jobs"][0][place]) == 16 * 8
    saved["live"]["jobs"][0][place] = features
    with pytest.raises(ValueError, match="invalid saved state"):
        Engine.load(msgspec.msgpack.encode(saved), [], [], MEDIAN)


# Settings changed between save and load.


def test_engine_without_rows_keeps_jobs_and_resets_histories() -> None:
    engine = engine_after(submit("1", 0.0), start("1", 60.0), end("1", 90.0), submit("2", 95.0))
    engine = Engine.load(engine.checkpoint()[0], None, None, MEDIAN)
    assert [*engine.context.state.jobs] == [("2", 0)]
    assert (engine.context.history.count, len(engine.context.runs), engine.scores.accuracy["median"].jobs) == (0, 0, 1)
    prediction = predicted(engine, submit("3", 100.0))
    assert (prediction.reason, prediction.degraded) == ("no history", "history lost: learning restarted")
    assert kinds(engine.apply(start("2", 120.0))) == ["Outcome"]


def test_load_resets_forests_if_training_rows_are_lost() -> None:
    """The position of a training is stored as row numbers, which are lost with the rows."""
    settings = EngineSettings()
    engine = Engine("alder", settings)
    for event in simulated("alder", 250):
        engine.apply(event)
    assert training_of(engine)["counts"] > 0
    lost = Engine.load(engine.checkpoint()[0], None, None, settings)
    assert training_of(lost) == training_of(Engine("alder", settings))


def training_of(engine: Engine) -> dict[str, Any]:
    """Return the state of the training of the default method's forests."""
    (boosted,) = (part for part in engine.methods.counting.parts.values() if isinstance(part, Boosted))
    return msgspec.structs.asdict(boosted.training._state)


def test_engine_reports_lost_histories_until_they_are_refilled() -> None:
    state, _ = engine_after(nodes_at(0.0, down_nodes=1)).checkpoint()
    engine = Engine.load(state, None, None, MEDIAN)
    for number in range(MIN_JOBS_TO_RECOVER):
        prediction = predicted(engine, submit(str(number), float(number)))
        assert prediction.degraded is not None and "history lost" in prediction.degraded
        engine.apply(start(str(number), float(number)))
        if number == MIN_JOBS_TO_RECOVER // 2:
            state, changes = engine.checkpoint()
            engine = Engine.load(state, changes.started, changes.runs, MEDIAN)
    assert predicted(engine, submit("last", 1e6)).degraded == "1 of 10 nodes down"


def test_loaded_jobs_share_equal_values() -> None:
    events = [submit(str(number), 60.0 * number, cpus=1) for number in range(5)]
    state, changes = engine_after(*events, settings=EngineSettings(method="median", shadows=())).checkpoint()
    engine = Engine.load(
        state, changes.started, changes.runs, EngineSettings(method="median", shadows=()), changes.rows
    )
    live = engine.parts.live
    jobs = [engine.context.state.jobs[key] for key in live.numbers]
    assert len({id(estimate) for job in jobs for estimate in job.estimates.values()}) == len(jobs[0].estimates)
    for one, other, key in zip(live.numbers, engine.context.state.jobs, engine.context.state.table.keys, strict=True):
        assert one is other is key
