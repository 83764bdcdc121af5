"""Replays that resume after an interruption, end after the last scored job, or use a sample."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from models.engine.settings import EngineSettings
from models.records import Start, Submit
from streams.bulk.event_log import EventLog, JobRange, jobs_in
from streams.bulk.reading import read_log
from streams.errors import UserError
from streams.offline import excerpt as excerpts
from streams.offline import scored
from streams.offline.excerpt import fast, until_scored, whole
from streams.offline.replay import settings_for
from streams.offline.scored import ScoredReplay
from tests.support.command import PATIENCE_S, with_us
from tests.support.traces import made_trace

FIRST = settings_for(EngineSettings(history=80), ())
LIGHT = settings_for(EngineSettings(), ["median"])


class Interrupted(Exception):
    """Interruption of a replay at any point."""


def after(jobs: int) -> Callable[[], None]:
    count = [0]

    def advance() -> None:
        count[0] += 1
        if count[0] == jobs:
            raise Interrupted

    return advance


@pytest.fixture
def log(tmp_path: Path) -> Iterator[EventLog]:
    with read_log([made_trace(tmp_path / "made.swf", jobs=400)]) as (found, _):
        yield found


def measures(run: ScoredReplay) -> Any:
    scores, waiting = run.scores, run.waiting.counted
    tables = scores.rows(), scores.run_rows(), scores.bound_rows(), waiting.accuracy, waiting.notices
    return tables, run.breakdowns.found, run.anomalies


def test_replay_interrupted_repeatedly_gives_same_bytes(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scored, "KEEP_EVERY", 100)
    straight, broken = (tmp_path / "sp", tmp_path / "so"), (tmp_path / "bp", tmp_path / "bo")
    once = ScoredReplay(whole(log), FIRST, JobRange(), files=straight)
    once.run()
    for jobs in (90, 250, 330):
        with pytest.raises(Interrupted):
            ScoredReplay(whole(log), FIRST, JobRange(), files=broken, resume=tmp_path / "r").run(after(jobs))
    last = ScoredReplay(whole(log), FIRST, JobRange(), files=broken, resume=tmp_path / "r")
    passed = last._passed
    last.run()
    assert passed > 600 and measures(last) == measures(once)
    assert [file.read_bytes() for file in broken] == [file.read_bytes() for file in straight]
    done = ScoredReplay(whole(log), FIRST, JobRange(), files=broken, resume=tmp_path / "r")
    assert done._passed == log.count and measures(done) == measures(once)


def test_scored_replay_rejects_state_of_other_replay(log: EventLog, tmp_path: Path) -> None:
    file = tmp_path / "r"
    ScoredReplay(whole(log), LIGHT, JobRange(), resume=file).run()
    for settings, jobs, cancelled in (
        (FIRST, JobRange(), True),
        (LIGHT, JobRange((1, 9)), True),
        (LIGHT, JobRange(), False),
    ):
        with pytest.raises(UserError, match="r: is the state of another replay"):
            ScoredReplay(whole(log), settings, jobs, cancelled, resume=file)
    file.write_text("no state" * 100)
    with pytest.raises(UserError, match="r: is not the state of a replay"):
        ScoredReplay(whole(log), LIGHT, JobRange(), resume=file)


def test_scored_replay_of_range_ends_after_its_jobs(log: EventLog) -> None:
    jobs = jobs_in(log, ids=(50, 120))
    shorter, longer = until_scored(log, jobs), whole(log)
    assert shorter.length < 0.6 * longer.length
    found = []
    for excerpt in (shorter, longer):
        run = ScoredReplay(excerpt, LIGHT, jobs)
        run.run()
        found.append(measures(run)[:4])
    assert found[0] == found[1]


def test_fast_replay_selects_jobs_by_count_alone(log: EventLog, monkeypatch: pytest.MonkeyPatch) -> None:
    assert fast(log).description == "" and fast(log).events().__next__() == next(log.events())
    monkeypatch.setattr(excerpts, "FAST_JOBS", 120)
    monkeypatch.setattr(excerpts, "FAST_PREDICTED", 40)
    excerpt = fast(log)
    assert (excerpt.skipped, excerpt.jobs, excerpt.every, excerpt.predicted) == (log.jobs - 120, 120, 3, 40)
    assert f"the last 120 of the log's {log.jobs:,} jobs, which predicts one in 3;" in excerpt.description
    submitted = [event for event in excerpt.events() if isinstance(event, Submit)]
    assert sum(not event.late and not event.old for event in submitted) == 40
    live = [event for event in submitted if event.time < submitted[-120].time]
    assert live and all(event.late for event in live)
    run = ScoredReplay(excerpt, FIRST, JobRange())
    run.run()
    assert run.scores.rows()[FIRST.method]["jobs"] == 40
    assert set(run.anomalies) <= {"end_without_start"}


@pytest.mark.long
def test_replay_command_resumes_after_kill(tmp_path: Path) -> None:
    trace = made_trace(tmp_path / "long.swf", jobs=5000)
    kept = tmp_path / "kept"

    def command(out: str, *more: str) -> list[str]:
        options = ["--method", "median", "--out", str(tmp_path / out), *more]
        return [sys.executable, "-m", "queuecast", "replay", str(trace), *options]

    killed = command("killed", "--resume", str(kept))
    with subprocess.Popen(killed, env=with_us(), stdout=subprocess.DEVNULL) as process:
        while process.poll() is None and not (kept.exists() and kept.stat().st_size > 40_000):
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    again, straight = (
        subprocess.run(one, env=with_us(), capture_output=True, timeout=PATIENCE_S, check=True).stdout
        for one in (killed, command("straight"))
    )
    assert again == straight
    assert (tmp_path / "killed").read_bytes() == (tmp_path / "straight").read_bytes()


def test_records_go_to_their_files_and_anomalies_are_counted(tmp_path: Path) -> None:
    events = [
        Submit(site="s", time=5.0, job="1"),
        Start(site="s", time=9.0, job="1"),
        Start(site="s", time=9.0, job="1"),
    ]
    settings = settings_for(EngineSettings(bounds=""), ["zero", "median"])
    excerpt: Any = SimpleNamespace(events=lambda: iter(events), log=SimpleNamespace(begin=5.0), jobs=1)
    run = ScoredReplay(excerpt, settings, JobRange(), files=(tmp_path / "p", tmp_path / "o"))
    run.run()
    assert run.anomalies == {"duplicate_start": 1}
    assert [json.loads(line)["method"] for line in (tmp_path / "p").read_text().splitlines()] == ["zero", "median"]
    assert [json.loads(line)["actual_wait_s"] for line in (tmp_path / "o").read_text().splitlines()] == [4.0, 4.0]
