import json
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from models.engine.settings import EngineSettings
from models.papers.search.tuning import TuningResult, aae_s
from models.records import Outcome
from streams.cli.app import main
from streams.errors import UserError
from streams.offline import tune
from streams.offline.output_files import save
from streams.offline.replay import replay
from streams.offline.replay_scores import ReplayScores
from streams.offline.tune import TuningInput, stretch_of
from streams.settings import load_settings
from streams.sources.swf import SwfJob, Trace, events_of

Capture = pytest.CaptureFixture[str]
Range = tuple[int, int] | None
ROWS = (120, 180)
ENGINE = EngineSettings(method="qespera", history=120)


def tuned(trace: Trace, every: int = 2) -> tuple[TuningInput, TuningResult]:
    stretch = stretch_of(trace, None, ROWS, every)
    return stretch, tune.tune(stretch, ENGINE)


def test_tune_profile_gives_reported_error(trace: Trace) -> None:
    stretch, found = tuned(trace)
    save(tune.profile(found.profile), Path("made.toml"))
    engine = load_settings(Path("made.toml"), {}).engine
    assert (engine.method, engine.history) == (found.profile.method, found.profile.history)
    assert engine.parameters == {engine.method: found.profile.parameters[engine.method]}
    assert engine.parameters[engine.method]
    scores = ReplayScores()
    published = msgspec.structs.replace(engine, shadows=())
    for item in replay(events_of(trace, "made"), published):
        if isinstance(item, Outcome) and item.job in stretch.jobs:
            scores.add(item)
    row = scores.rows()[engine.method]
    assert row["jobs"] == len(stretch.jobs)
    assert (row["AAE"] * 3600, row["PPE"]) == pytest.approx((aae_s(found.together), found.together.measures()["PPE"]))


@pytest.mark.long
def test_tune_ignores_jobs_after_range(trace: Trace, capsys: Capture) -> None:
    shown = []
    later = [msgspec.structs.replace(job, wait=job.wait + 9e5, run=1.0, user=1) for job in trace.jobs[ROWS[1] :]]
    for jobs in (trace.jobs, [*trace.jobs[: ROWS[1]], *later], trace.jobs[: ROWS[1]]):
        stretch, found = tuned(msgspec.structs.replace(trace, jobs=jobs))
        tune.show(found, stretch)
        shown.append((capsys.readouterr().out, tune.profile(found.profile)))
    assert len(later) > 50
    assert shown[0] == shown[1] == shown[2]


def test_tune_depends_on_jobs_within_range(trace: Trace) -> None:
    jobs = [*trace.jobs]
    jobs[ROWS[1] - 1] = msgspec.structs.replace(jobs[ROWS[1] - 1], wait=9e5)
    one, other = (tuned(msgspec.structs.replace(trace, jobs=kept), every=1)[1] for kept in (trace.jobs, jobs))
    assert aae_s(one.before) != aae_s(other.before)


def job(number: int, **changes: Any) -> SwfJob:
    fields: dict[str, Any] = dict.fromkeys(SwfJob.__struct_fields__, -1)
    return SwfJob(**fields | {"number": number, "submit": float(number), "wait": 5.0, "run": 60.0} | changes)


def test_tune_range_predicts_every_third_job() -> None:
    jobs = [job(number) for number in range(1, 21)]
    jobs[9] = job(10, run=-1.0, status=5)
    trace = Trace(Path("t.swf"), {}, jobs, 0)
    stretch = stretch_of(trace, (10, 16), None, 3)
    assert {name: (truth.wait_s, truth.run_s) for name, truth in stretch.jobs.items()} == {
        "10": (5.0, 0.0),
        "13": (5.0, 60.0),
        "16": (5.0, 60.0),
    }
    assert (stretch.in_range, len(stretch.trace.jobs), stretch.steps) == (7, 16, 48)
    assert list(stretch_of(trace, None, (19, 99), 1).jobs) == ["19", "20"]
    assert list(stretch_of(trace, None, (-3, 2), 1).jobs) == ["1", "2"]


@pytest.mark.parametrize(
    ("ids", "rows", "message"),
    [
        (None, None, "no job with these numbers; they are 1 to 20"),
        ((5, 3), None, "no job with these numbers; they are 1 to 20"),
        (None, (21, 30), "no job at these positions; they are 1 to 20"),
        (None, (-3, 0), "no job at these positions; they are 1 to 20"),
    ],
)
def test_tune_range_without_job_raises_user_error(ids: Range, rows: Range, message: str) -> None:
    with pytest.raises(UserError, match=f"t.swf: {message}"):
        stretch_of(Trace(Path("t.swf"), {}, [job(number) for number in range(1, 21)], 0), ids, rows, 1)


def test_tune_reports_planned_number_of_steps(trace: Trace) -> None:
    stretch, steps = stretch_of(trace, None, (40, 60), 4), []
    tune.tune(stretch, ENGINE, lambda: steps.append(1))
    assert len(steps) == stretch.steps


def test_tune_command_prints_tables_and_saves_profile(trace: Trace, capsys: Capture) -> None:
    Path("queuecast.toml").write_text("[engine]\nhistory = 120\n")
    arguments = ["tune", "made.swf", "--rows", "120", "180", "--every", "2", "--save", "made.toml"]
    assert main(arguments) == 0
    output = capsys.readouterr()
    _, found = tuned(trace)
    lines = [line.split() for line in output.out.splitlines()]
    assert f"{aae_s(found.statistics['qespera']):.2f}" in lines[2]
    assert lines[2][-3:] == ["31", "of", "61"]
    rows = [line for line in lines if line and line[-1] == "*"]
    assert len(rows) == sum(row.chosen for row in found.rows)
    assert lines[-1][-2:] == [f"{aae_s(found.together):.2f}", f"{found.together.measures()['PPE']:.3f}"]
    assert "only 31 jobs were predicted" in output.err
    assert Path("made.toml").read_text() == tune.profile(found.profile)
    assert main(["--config", "made.toml", "replay", "made.swf", "--rows", "200", "240"]) == 0
    assert found.profile.method in capsys.readouterr().out


def test_tune_command_prints_json_result(trace: Trace, capsys: Capture) -> None:
    _, found = tuned(trace)
    Path("in-force.toml").write_text('[engine]\nmethod = "qespera"\nhistory = 120\n')
    arguments = ["tune", "made.swf", "--rows", *map(str, ROWS), "--every", "2", "--json"]
    assert main(["--config", "in-force.toml", *arguments]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["method"] == "qespera"
    assert result["settings"] == tomllib.loads(tune.profile(found.profile))
    assert result["errors"] == tune.errors(found)
    assert result["errors"]["found_s"] == aae_s(found.together)
    assert [one["value"] for one in result["errors"]["tried"]] == [row.value for row in found.rows]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--ids", "1", "2", "--rows", "1", "2"], 2, "--ids and --rows are mutually exclusive."),
        (["--every", "0"], 2, "--every"),
        (["--seed", "3"], 2, "--seed does not apply to qespera."),
        (["--method", "ibl", "--jobs", "3"], 2, "--jobs does not apply to ibl."),
        (["--method", "ibl", "--resume", "no/s.json"], 1, "no/s.json: cannot be written: no such directory"),
        ([], 1, "made.swf: no job with these numbers; they are 1 to 240"),
        (["--rows", "1", "9", "--save", "no/such.toml"], 1, "no/such.toml: cannot be written: no such"),
    ],
)
def test_tune_command_reports_invalid_option(
    trace: Trace, capsys: Capture, arguments: list[str], code: int, message: str
) -> None:
    assert main(["tune", "made.swf", *arguments]) == code
    assert message in capsys.readouterr().err
