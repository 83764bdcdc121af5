"""Comparison of all methods on one trace."""

import json
from pathlib import Path

import msgspec
import pytest

from models.engine.settings import EngineSettings
from models.method_registry import METHODS, RUN_METHODS
from models.records import ExpectedStart, Submit
from models.simulation import generate, run
from streams.bulk.event_log import JobRange
from streams.bulk.reading import read_log
from streams.cli.app import main
from streams.offline.compare import compare
from streams.offline.excerpt import whole
from streams.offline.replay import replay, settings_for
from streams.offline.replay_scores import ReplayScores
from streams.sources.swf import events_of, read_swf
from tests.support.traces import made_trace

Capture = pytest.CaptureFixture[str]

OWN_BOUNDS = ("0.1", "0.5", "0.9", "0.95")
"""Bounds of the methods whose estimate is their median."""


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return made_trace(tmp_path / "made.swf", jobs=200)


def test_compare_json_has_all_methods_baselines_first(trace: Path, capsys: Capture) -> None:
    assert main(["compare", str(trace), "--json", "--rows", "50", "150"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found["waits"])[:2] == ["zero", "median"]
    assert set(found["waits"]) == set(METHODS)
    assert set(found["run_times"]) == set(RUN_METHODS)
    own = {"qbets": ("0.1", "0.5", "0.75", "0.9", "0.95")} | dict.fromkeys(("boosted", "blend"), OWN_BOUNDS)
    assert set(found["bounds"]) == {f"{name} {q}" for name, known in own.items() for q in known}
    assert {row["jobs"] for row in found["waits"].values()} == {found["waits"]["zero"]["jobs"]}


@pytest.mark.parametrize("workers", [1, 3])
def test_compare_with_any_processes_equals_replay(trace: Path, workers: int) -> None:
    read, methods = read_swf(trace), ["lwf", "ibl", "qespera", "gibbons", "walltime"]
    settings = EngineSettings(history=100)
    shares: list[int] = []
    with read_log([trace]) as (log, _):
        found = compare(whole(log), JobRange(), settings, methods, workers, advance=shares.append)
    chosen = settings_for(settings, methods[:3], ["closest", *methods[3:]])
    scores = ReplayScores(settings=chosen)
    for record in replay(events_of(read, read.site), chosen):
        if hasattr(record, "actual_wait_s"):
            scores.add(record)  # type: ignore[arg-type]
    expected = scores.rows()
    for name in ("zero", "median", "lwf", "ibl", "qespera"):
        assert found.waits[name] == expected[name]
    for name in ("gibbons", "walltime"):
        assert found.run_times[name] == scores.run_rows()[name]
    assert shares == sorted(shares) and shares[-1] > 900


def test_compare_prints_tables(trace: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    methods = [word for name in ("easy", "downey", "qbets") for word in ("--method", name)]
    assert main(["compare", str(trace), *methods, "--workers", "1"]) == 0
    _, tables, _ = capsys.readouterr().out.split("\n\n")
    heads = [line.split()[0] for line in tables.splitlines() if line[0].isalpha()]
    assert heads == ["waits", "zero", "median", "easy", "qbets", "run", "downey", "bounds", *["qbets"] * 5]


def test_compare_with_invalid_option_prints_error(trace: Path, capsys: Capture) -> None:
    assert main(["compare", str(trace), "--method", "oracle"]) != 0
    assert "no method 'oracle'; there are: zero, median" in capsys.readouterr().err
    assert main(["compare", str(trace), "--ids", "1", "2", "--rows", "1", "2"]) != 0
    assert "are mutually exclusive" in capsys.readouterr().err


def test_simulate_command_runs_each_scheduler_and_run_time(trace: Path, capsys: Capture) -> None:
    options = ["--scheduler", "fcfs,easy", "--runtimes", "actual,closest", "--cpus", "128"]
    assert main(["simulate", str(trace), *options, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [(row["scheduler"], row["runtimes"]) for row in rows] == [
        ("fcfs", "none"),
        ("easy", "actual"),
        ("easy", "closest"),
    ]
    assert main(["simulate", str(trace), *options]) == 0
    assert "easy" in capsys.readouterr().out
    assert main(["simulate", str(trace), "--scheduler", "magic"]) != 0
    assert "magic" in capsys.readouterr().err


@pytest.mark.long
def test_compare_has_row_of_scheduler_estimates(tmp_path: Path, capsys: Capture) -> None:
    events = []
    for event in run(generate(3, 60, cpus=64, load=0.9), 64, "alder"):
        events.append(event)
        if isinstance(event, Submit):
            events.append(ExpectedStart(site="alder", time=event.time, job=event.job, by="slurm", expected=event.time))
    path = tmp_path / "alder.json"
    path.write_bytes(b"\n".join(map(msgspec.json.encode, events)))
    assert main(["compare", str(path), "--method", "lwf", "--workers", "1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found["waits"]) == ["zero", "median", "slurm", "lwf"]
    same = {name: value for name, value in found["waits"]["zero"].items() if name != "jobs"}
    assert {name: value for name, value in found["waits"]["slurm"].items() if name != "jobs"} == pytest.approx(same)
    assert main(["compare", str(path), "--method", "lwf", "--workers", "1"]) == 0
    assert "slurm had an estimate of its own for " in " ".join(capsys.readouterr().out.split())
