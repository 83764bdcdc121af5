"""Long replays are measured by a process of their own, with the same result."""

import errno
import os
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from models.engine.settings import EngineSettings
from streams.bulk.event_log import EventLog, JobRange
from streams.bulk.reading import read_log
from streams.errors import UserError
from streams.offline import measuring_process, scored
from streams.offline.excerpt import whole
from streams.offline.measuring_process import MeasuringProcess
from streams.offline.replay import settings_for
from streams.offline.scored import ScoredReplay
from tests.support.command import PATIENCE_S, with_us
from tests.support.sizes import mostly_long
from tests.support.traces import made_trace

SETTINGS = settings_for(EngineSettings(history=80), ())
PARTIAL = struct.pack("!i", 1000) + b"ten bytes."  # of a message of 1000 bytes


@pytest.fixture
def log(tmp_path: Path) -> Iterator[EventLog]:
    with read_log([made_trace(tmp_path / "made.swf", jobs=400)]) as (found, _):
        yield found


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Measure in a process whatever the length and the machine; record the process ids."""
    found = list[int]()

    class Recorded(MeasuringProcess):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            found.append(self._process.pid)

    monkeypatch.setattr(scored, "MeasuringProcess", Recorded)
    monkeypatch.setattr(scored, "APART_JOBS", 0)
    monkeypatch.setattr(scored, "usable_cpus", lambda: 2)
    return found


def measures(run: ScoredReplay) -> bytes:
    return msgspec.msgpack.encode(run._measures.counted)


@pytest.mark.parametrize("jobs", mostly_long([JobRange(), JobRange(ids=(50, 300))]))
def test_measures_of_a_process_have_the_same_bytes(
    log: EventLog, jobs: JobRange, started: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    apart = ScoredReplay(whole(log), SETTINGS, jobs)
    apart.run()
    assert len(started) == 1 and not psutil.pid_exists(started[0])
    monkeypatch.setattr(scored, "APART_JOBS", log.jobs + 1)
    here = ScoredReplay(whole(log), SETTINGS, jobs)
    here.run()
    assert len(started) == 1
    assert measures(apart) == measures(here)
    assert apart.scores.rows() == here.scores.rows() != {}


def test_killed_measuring_process_raises_user_error(log: EventLog, started: list[int]) -> None:
    def kill() -> None:
        if psutil.pid_exists(started[0]):
            os.kill(started[0], signal.SIGKILL)

    with pytest.raises(UserError, match="the replay was killed by SIGKILL, possibly for lack of memory"):
        ScoredReplay(whole(log), SETTINGS, JobRange()).run(kill)


@pytest.mark.parametrize("records", [0, 20_000])
def test_hanging_measuring_process_raises_user_error(monkeypatch: pytest.MonkeyPatch, records: int) -> None:
    monkeypatch.setattr(measuring_process, "MAX_WAIT_S", 1)
    record: Any = b"one that is never read, so that the pipe is full"
    with MeasuringProcess(0.0, SETTINGS) as process:
        os.kill(process._process.pid, signal.SIGSTOP)
        with pytest.raises(UserError, match="the replay has not responded for 1 s; start the replay again"):
            for _ in range(records):
                process.add(record)
            process.finish()
    assert not psutil.pid_exists(process._process.pid)


def test_process_that_closes_its_pipe_but_runs_raises_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring_process, "MAX_WAIT_S", 1)
    with MeasuringProcess(0.0, SETTINGS) as process, process._pipe:
        os.kill(process._process.pid, signal.SIGSTOP)
        process._pipe, theirs = Pipe()
        theirs.close()
        with pytest.raises(UserError, match="the replay has not responded for 1 s"):
            process.finish()
    assert not psutil.pid_exists(process._process.pid)


def test_process_that_refuses_its_settings_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    children: list[int] = []

    def refuse(*_: object) -> None:
        children.extend(child.pid for child in psutil.Process().children())
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    monkeypatch.setattr(Connection, "send", refuse)
    earlier = {child.pid for child in psutil.Process().children()}
    with pytest.raises(BrokenPipeError):
        MeasuringProcess(0.0, SETTINGS)
    (child,) = set(children) - earlier
    assert not psutil.pid_exists(child)


def test_replay_measures_itself_if_no_process_starts(
    log: EventLog, started: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    monkeypatch.setattr(scored, "MeasuringProcess", refuse)
    run = ScoredReplay(whole(log), settings_for(EngineSettings(), ["median"]), JobRange())
    run.run()
    assert started == [] and run.scores.rows() != {}


def test_failed_measuring_process_raises_user_error() -> None:
    invalid: Any = [b"no record"]
    with MeasuringProcess(0.0, SETTINGS) as process:
        process._waiting = invalid
        with pytest.raises(UserError, match="the replay ended with status 1; its error is above"):
            process.finish()


def test_process_ignores_packages_in_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("models", "streams"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
    monkeypatch.chdir(tmp_path)
    with MeasuringProcess(0.0, SETTINGS) as process:
        assert process.finish().scores.accuracy == {}


def die_within_result(pipe: Connection) -> None:
    for _ in ("the last records", "the request for the result"):
        pipe.recv_bytes()
    os.write(pipe.fileno(), PARTIAL)
    pipe.close()


def test_process_killed_within_its_result_raises_user_error() -> None:
    with MeasuringProcess(0.0, SETTINGS) as process, process._pipe:
        os.kill(process._process.pid, signal.SIGKILL)
        process._pipe, theirs = Pipe()
        threading.Thread(target=die_within_result, args=[theirs]).start()
        with pytest.raises(UserError, match="the process that measures the replay was killed by SIGKILL"):
            process.finish()


def test_process_ends_silently_if_its_parent_dies_in_a_message() -> None:
    ours, theirs = Pipe()
    command = [sys.executable, "-m", measuring_process.__name__, str(theirs.fileno())]
    process = subprocess.Popen(command, pass_fds=[theirs.fileno()], env=with_us(), stderr=subprocess.PIPE)
    with theirs, ours:
        ours.send((0.0, SETTINGS))
        os.write(ours.fileno(), PARTIAL)
    assert process.communicate(timeout=PATIENCE_S)[1] == b""
    assert process.returncode == 0


def test_interrupted_replay_ends_its_measuring_process(log: EventLog, started: list[int]) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ScoredReplay(whole(log), SETTINGS, JobRange()).run(interrupt)
    assert not psutil.pid_exists(started[0])


def test_resumable_replay_measures_in_its_own_process(log: EventLog, started: list[int], tmp_path: Path) -> None:
    ScoredReplay(whole(log), settings_for(EngineSettings(), ["median"]), JobRange(), resume=tmp_path / "r").run()
    assert started == []
