import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streams.cli.app import main
from tests.support.command import PATIENCE_S, with_us
from tests.support.traces import made_trace, swf_line

Capture = pytest.CaptureFixture[str]
Fails = Callable[..., str]


def test_replay_prints_tables_and_writes_records(capsys: Capture, trace: Path, tmp_path: Path) -> None:
    options = [
        "--method",
        "median",
        "--out",
        "p.ndjson",
        "--outcomes",
        "o.ndjson",
        "--site",
        "here",
        "--rows",
        "20",
        "90",
    ]
    assert main(["replay", str(trace), *options]) == 0
    found, tables = capsys.readouterr().out.split("\n\n", 1)
    assert found.startswith("read:\n  ") and "\nkept:\n  1" in found and "\nmachine:\n  64 cpus on 16 nodes" in found
    tables, worth = tables.split("\n\n")
    tables, while_they_wait = tables.split("while they wait", 1)
    assert " ".join(while_they_wait.split("\n", 1)[0].split()).startswith(
        "jobs in force h at submission h starts now h"
    )
    assert "\n10m " in while_they_wait
    head, _, *lines, of_runs, _, run_times = (line.split() for line in tables.splitlines())
    assert " ".join(head) == "waits AAE h median h PPE PPE600 PPE1200 x2 x3 1min 10min missing jobs"
    assert [line[0] for line in lines] == ["zero", "median"]
    assert {line[11] for line in lines} == {"71"}
    assert " ".join(of_runs) == "run times AAE h share missing jobs within"
    assert run_times[0] == "closest"
    assert worth.startswith("what it would have been worth:\n  3 of 120 records (2.5 %) gave no event, ")
    assert "\n  71 jobs are scored; they waited " in worth
    records = [json.loads(line) for line in Path("p.ndjson").read_text().splitlines()]
    assert len(records) > 100
    assert {(record["site"], record["method"]) for record in records} == {("here", "median")}
    assert {json.loads(line)["method"] for line in Path("o.ndjson").read_text().splitlines()} == {"median"}


def test_replay_with_shadows_writes_all_methods(trace: Path) -> None:
    assert main(["replay", str(trace), "--method", "median", "--shadows", "--out", "p.ndjson"]) == 0
    records = [json.loads(line) for line in Path("p.ndjson").read_text().splitlines()]
    assert {record["method"] for record in records} == {"zero", "median"}
    assert {record["site"] for record in records} == {"made"}


def replayed(capture: Capture, *arguments: str) -> dict[str, Any]:
    assert main(["replay", *arguments, "--json"]) == 0
    document: dict[str, Any] = json.loads(capture.readouterr().out)
    return document


def test_replay_splits_table_wider_than_terminal(capsys: Capture, trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["replay", str(trace), "--method", "median", "--site", "a site of a long name"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    heads = [line.split() for line in lines if line.startswith("waits ")]
    assert len(heads) == 2 and heads[0][-1] != "jobs" and heads[1][-1] == "jobs"
    assert sum(line.startswith("zero ") for line in lines) == 2


def test_replay_json_contains_methods_and_job_counts(capsys: Capture, trace: Path) -> None:
    every, started = (replayed(capsys, "made.swf", "--method", "zero", *more) for more in ([], ["--started"]))
    assert list(every["methods"]) == ["zero", "median"]
    assert every["methods"]["zero"]["jobs"] == every["jobs"]
    assert every["jobs"] + every["without_wait"] == 120
    assert started["methods"]["zero"]["jobs"] < every["jobs"]


def test_replay_uses_settings_file(capsys: Capture, trace: Path) -> None:
    Path("mine.toml").write_text('[engine]\nmethod = "median"\nshadows = []\n')
    assert main(["--config", "mine.toml", "replay", "made.swf", "--out", "p.ndjson"]) == 0
    assert json.loads(Path("p.ndjson").read_text().splitlines()[0])["method"] == "median"


def test_replay_counts_anomalies(capsys: Capture) -> None:
    Path("twice.swf").write_text(swf_line(1, 0, 5, 10) + swf_line(1, 2, 5, 10))
    assert replayed(capsys, "twice.swf")["anomalies"] == {
        "duplicate_submit": 1,
        "duplicate_start": 1,
        "duplicate_end": 1,
    }
    assert main(["replay", "twice.swf"]) == 0
    assert "1 × duplicate_submit\n" in capsys.readouterr().err


def test_replay_reports_invalid_lines(capsys: Capture, fails: Fails) -> None:
    Path("broken.swf").write_text(swf_line(1) + "oops\n" * 5 + swf_line(2))
    assert main(["replay", "broken.swf", "--method", "zero"]) == 0
    printed = capsys.readouterr().out
    assert "\nskipped:\n  5 times: expected 18 or more: job number, submit time" in printed
    assert "found 1 fields first (broken.swf:2," in " ".join(printed.split())
    assert main(["replay", "broken.swf", "--skip-invalid", "--json"]) == 0
    output = capsys.readouterr()
    assert json.loads(output.out)["jobs"] == 2
    (parts,) = json.loads(output.out)["log"]["report"]["skipped"].values()
    assert parts["count"] == 5 and parts["places"] == [f"broken.swf:{line}" for line in (2, 3, 4)]
    assert output.err.startswith("broken.swf, line 2: ") and output.err.count("\n") == 5


def test_unknown_log_format_exits_2(fails: Fails) -> None:
    Path("what.log").write_text("oops\n")
    assert "what.log: the format is not recognised; there are: " in fails(2, "replay", "what.log")
    assert "; name it with --format NAME" in fails(2, "compare", "what.log")
    assert "what.log: no job with a wait time" in fails(2, "replay", "what.log", "--format", "swf")
    assert "'crystal' is not a source; there are: " in fails(2, "replay", "what.log", "--format", "crystal")


def test_replay_of_pending_jobs_only_exits_1(capsys: Capture) -> None:
    Path("queued.jsonl").write_text('{"type":"submit","v":1,"site":"s","time":100.0,"job":"1"}\n')
    assert main(["replay", "queued.jsonl", "--method", "zero"]) == 1
    assert "queued.jsonl: no job in it can be scored: none has a known wait" in capsys.readouterr().err
    assert main(["replay", "queued.jsonl", "--method", "zero", "--rows", "1", "1"]) == 1
    assert "queued.jsonl: no job of that range can be scored" in capsys.readouterr().err


def test_replay_merges_several_files(capsys: Capture) -> None:
    Path("new.swf").write_text(swf_line(3, 100, 5, 10))
    Path("old.swf").write_text(swf_line(1, 0, 5, 10) + swf_line(2, 2, 5, 10))
    both = replayed(capsys, "new.swf", "old.swf", "--method", "zero", "--site", "here")
    assert both["jobs"] == 3 and both["anomalies"] == {}
    assert both["log"]["sites"]["here"]["begin"] == 0


def test_replay_on_sigint_exits_130_silently(tmp_path: Path) -> None:
    trace = made_trace(tmp_path / "long.swf", jobs=60_000)
    out = tmp_path / "p.ndjson"
    command = [sys.executable, "-m", "queuecast", "replay", str(trace), "--method", "median", "--out", str(out)]
    with subprocess.Popen(command, env=with_us(), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        while process.poll() is None and not (out.exists() and out.stat().st_size):
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, errors) == (130, b"")
    assert output.startswith(b"read:") and b"zero" not in output
