import json
import os
import signal
import socket
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from models.records import Prediction
from streams import settings
from streams.cli import cli
from streams.cli.cli import main
from streams.errors import UserError
from streams.settings import Settings
from tests.support.traces import made_trace, swf_line

Capture = pytest.CaptureFixture[str]
ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def in_an_empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(settings, "BOOTSTRAP_MS", 200)
    for name in [name for name in os.environ if name.startswith("QUEUECAST_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return made_trace(tmp_path / "made.swf", jobs=120)


def fails(capture: Capture, code: int, *arguments: str) -> str:
    """Run a command that must fail; gives its one line on stderr."""
    assert main(arguments) == code
    said = capture.readouterr()
    assert said.out == ""
    assert said.err.startswith("queuecast: ")
    assert said.err.count("\n") == 1
    return said.err.removesuffix("\n")


def called(*arguments: str, **more: Any) -> subprocess.CompletedProcess[str]:
    """Run the command line in a process of its own."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-m", "streams", *arguments]
    return subprocess.run(command, env=environment, text=True, capture_output=True, timeout=60, **more)


COMMANDS = [command.callback.__name__ for command in cli.app.registered_commands if command.callback]


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_help_with_an_example(capsys: Capture, command: str) -> None:
    assert main([command, "--help"]) == 0
    shown = capsys.readouterr().out
    assert f"queuecast {command}" in shown
    assert "Example:" in shown


def test_help_tells_of_all_commands_and_no_secrets(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUEUECAST_KAFKA_PASSWORD", "hunter2")
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(command in shown for command in COMMANDS)
    assert "hunter2" not in shown


def test_help_is_quick_since_it_imports_little() -> None:
    code = "import sys; from streams.cli.cli import main; main(['--help']); print(*sys.modules)"
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    shown = subprocess.check_output([sys.executable, "-c", code], env=environment, text=True)
    assert not {"numpy", "numba", "faust", "kafka", "redis", "deploy"} & set(shown.split())


def test_the_version_is_printed(capsys: Capture) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("queuecast")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["replay"], "Missing argument 'TRACE'. See `queuecast replay --help`."),
        (["dance"], "No such command 'dance'."),
        (["replay", "t.swf", "--rows", "1"], "Option '--rows' requires 2 arguments."),
        (["replay", "t.swf", "--ids", "1", "x"], "--ids"),
        (["replay", "t.swf", "--ids", "1", "2", "--rows", "1", "2"], "--ids and --rows exclude each other."),
        (["topics", "--partitions", "0"], "--partitions"),
        (["feed", "t.swf", "--speed", "slow"], "--speed is 'slow'; expected max, 1 for real time"),
        (["feed", "t.swf", "--speed", "0"], "--speed is '0'"),
        (["feed", "t.swf", "--speed", "nan"], "--speed is 'nan'"),
        (["worker", "--log-level", "loud"], "'loud' is not one of 'debug', 'info', 'warning', 'error'"),
        (["watch", "--count", "0"], "--count"),
    ],
)
def test_a_command_that_is_not_understood_is_told_in_one_line(capsys: Capture, arguments: list[str], said: str) -> None:
    assert said in fails(capsys, 2, *arguments)


def test_without_a_command_there_is_help(capsys: Capture) -> None:
    assert main([]) == 2
    assert "Usage: queuecast" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["replay", "gone.swf"], "queuecast: gone.swf: cannot be read: No such file or directory"),
        (["replay", "made.swf", "--method", "oracle"], "queuecast: no method 'oracle'; there are: zero, median"),
        (["replay", "made.swf", "--ids", "900", "999"], "no job in that range; there are"),
        (["replay", "made.swf", "--out", "no/such"], "queuecast: no/such: cannot be written"),
        (["replay", "made.swf", "--site", ""], "site '': a name has 1 to 256 characters"),
        (["--config", "gone.toml", "replay", "made.swf"], "queuecast: gone.toml: cannot be read"),
        (["schema", "weather"], "queuecast: no record 'weather'"),
        (["feed", "made.swf", "made.swf"], "two traces for site made"),
        (["feed", "made.swf", "--site", "a", "--site", "b"], "2 sites for 1 traces"),
    ],
)
def test_what_is_wrong_outside_is_told_in_one_line(
    capsys: Capture, trace: Path, arguments: list[str], said: str
) -> None:
    assert said in fails(capsys, 1, *arguments)


@pytest.mark.parametrize("command", [["topics"], ["feed", "made.swf"], ["watch"], ["watch", "--outcomes", "--json"]])
def test_without_a_broker_there_is_one_line(capsys: Capture, trace: Path, command: list[str], closed_port: int) -> None:
    assert f"no broker answers at 127.0.0.1:{closed_port}" in fails(capsys, 1, *command)


@pytest.fixture
def closed_port(monkeypatch: pytest.MonkeyPatch) -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    monkeypatch.setenv("QUEUECAST_KAFKA_BOOTSTRAP", f"127.0.0.1:{port}")
    return port


def test_a_replay_prints_the_table_and_writes_the_records(capsys: Capture, trace: Path, tmp_path: Path) -> None:
    wanted = [
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
    assert main(["replay", str(trace), *wanted]) == 0
    head, _, *lines, of_runs, _, run_times = (line.split() for line in capsys.readouterr().out.splitlines() if line)
    assert " ".join(head) == "waits AAE h median_min PPE PPE600 PPE1200 x2 x3 1min 10min missing jobs"
    assert [line[0] for line in lines] == ["zero", "median", "qbets"]
    assert {line[11] for line in lines} == {"71"}
    assert " ".join(of_runs) == "run times missing jobs MAE_min share"
    assert run_times[0] == "closest"
    said = [json.loads(line) for line in Path("p.ndjson").read_text().splitlines()]
    assert len(said) > 100
    assert {(record["site"], record["method"]) for record in said} == {("here", "median")}
    assert {json.loads(line)["method"] for line in Path("o.ndjson").read_text().splitlines()} == {"median"}


def test_every_method_is_written_where_wanted(trace: Path) -> None:
    assert main(["replay", str(trace), "--method", "median", "--shadows", "--out", "p.ndjson"]) == 0
    said = [json.loads(line) for line in Path("p.ndjson").read_text().splitlines()]
    assert {record["method"] for record in said} == {"zero", "median", "qbets"}
    assert {record["site"] for record in said} == {"made"}


def replayed(capture: Capture, *arguments: str) -> dict[str, Any]:
    assert main(["replay", *arguments, "--json"]) == 0
    document: dict[str, Any] = json.loads(capture.readouterr().out)
    return document


def test_the_table_as_json(capsys: Capture, trace: Path) -> None:
    every, started = (replayed(capsys, "made.swf", "--method", "zero", *more) for more in ([], ["--started"]))
    assert list(every["methods"]) == ["zero", "median", "qbets"]
    assert every["methods"]["zero"]["jobs"] == every["jobs"]
    assert every["jobs"] + every["without_wait"] == 120
    assert started["methods"]["zero"]["jobs"] < every["jobs"]


def test_the_settings_file_counts(capsys: Capture, trace: Path) -> None:
    Path("mine.toml").write_text('[engine]\nmethod = "median"\nshadows = []\n')
    assert main(["--config", "mine.toml", "replay", "made.swf", "--out", "p.ndjson"]) == 0
    assert json.loads(Path("p.ndjson").read_text().splitlines()[0])["method"] == "median"


def test_anomalies_are_counted(capsys: Capture) -> None:
    Path("twice.swf").write_text(swf_line(1, 0, 5, 10) + swf_line(1, 2, 5, 10))
    assert replayed(capsys, "twice.swf")["anomalies"] == {
        "duplicate_submit": 1,
        "duplicate_start": 1,
        "duplicate_end": 1,
    }
    assert main(["replay", "twice.swf"]) == 0
    assert "1 × duplicate_submit\n" in capsys.readouterr().err


def test_broken_lines_are_an_error_or_are_reported(capsys: Capture) -> None:
    Path("broken.swf").write_text(swf_line(1) + "oops\n" + swf_line(2))
    assert "broken.swf, line 2: 1 fields; expected 18" in fails(capsys, 1, "replay", "broken.swf")
    assert main(["replay", "broken.swf", "--skip-broken", "--json"]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["jobs"] == 2
    assert said.err.startswith("broken.swf, line 2: ")


def test_a_schema_is_printed(capsys: Capture) -> None:
    assert main(["schema", "outcome"]) == 0
    assert json.loads(capsys.readouterr().out)["$id"] == "urn:queuecast:outcome:v1"
    assert main(["schema"]) == 0
    assert json.loads(capsys.readouterr().out)["$id"] == "urn:queuecast:records:v1"


def test_records_are_watched_until_enough_have_come(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    from streams.client import watch

    said = Prediction(
        site="ctc",
        job="\x1b[2J",
        attempt=0,
        made_at=835823160.0,
        predicted_wait_s=60.0,
        predicted_run_s=None,
        predicted_start=None,
        method="median",
        reason="so",
    )
    asked: list[Any] = []

    def records(*arguments: Any) -> Iterator[tuple[Any, bytes]]:
        asked.append(arguments)
        yield watch.Skipped("p, partition 1, offset 5: no JSON"), b"", None
        while True:
            yield said, msgspec.json.encode(said), 75

    monkeypatch.setattr(watch, "watch", records)
    assert main(["watch", "--count", "2", "--site", "ctc", "--outcomes"]) == 0
    shown = capsys.readouterr()
    assert shown.err == "skipped: p, partition 1, offset 5: no JSON\n"
    assert shown.out == "1996-06-26 21:06:00  ctc  job \\u001b[2J  waits 1m0s  (median: so)  [left 1m15s late]\n" * 2
    assert asked[0][1:] == (watch.Wanted(site="ctc"), True, False)
    assert main(["watch", "--count", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["job"] == "\x1b[2J"


def test_a_worker_gets_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Settings] = []
    monkeypatch.setitem(sys.modules, "streams.worker.app", types.SimpleNamespace(run_worker=given.append))
    Path("queuecast.toml").write_text('[worker]\nweb_port = 7000\ninstance = "blue"\n')
    assert main(["worker", "--web-port", "7001", "--log-level", "debug"]) == 0
    assert main(["worker"]) == 0
    assert [(each.worker.web_port, each.worker.log_level) for each in given] == [(7001, "debug"), (7000, "info")]
    assert {each.worker.instance for each in given} == {"blue"}


def raising(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def run_worker(_: Settings) -> None:
        raise error

    monkeypatch.setitem(sys.modules, "streams.worker.app", types.SimpleNamespace(run_worker=run_worker))


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (UserError("redis at h:1: refused\nreally\x1b[2J"), "queuecast: redis at h:1: refused really\\u001b[2J"),
        (OSError(28, "No space left on device", "/var/x"), "queuecast: /var/x: No space left on device"),
        (KeyError("oh"), "queuecast: internal error: KeyError: 'oh'; QUEUECAST_DEBUG=1 in the environment says where"),
    ],
)
def test_an_error_in_a_command_is_one_line(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, error: BaseException, said: str
) -> None:
    raising(monkeypatch, error)
    assert fails(capsys, 1, "worker") == said


def test_an_error_within_can_be_looked_into(monkeypatch: pytest.MonkeyPatch) -> None:
    raising(monkeypatch, KeyError("oh"))
    monkeypatch.setenv("QUEUECAST_DEBUG", "1")
    with pytest.raises(KeyError):
        main(["worker"])


def test_an_error_of_the_local_stack_is_one_line(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    from deploy.local.stack import StackUnavailable

    raising(monkeypatch, StackUnavailable("no Java for this machine"))
    assert fails(capsys, 1, "worker") == "queuecast: no Java for this machine"


def test_an_interrupt_is_quiet(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    raising(monkeypatch, KeyboardInterrupt())
    assert main(["worker"]) == 130
    assert capsys.readouterr() == ("", "")


def test_a_worker_that_leaves_with_a_code_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    raising(monkeypatch, SystemExit(3))
    with pytest.raises(SystemExit) as left:
        main(["worker"])
    assert left.value.code == 3


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_has_had_enough_is_no_trouble(unbuffered: str) -> None:
    read, write = os.pipe()
    os.close(read)
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": unbuffered}
    command = [sys.executable, "-m", "streams", "schema", "dead-letter"]
    with os.fdopen(write, "wb") as pipe:
        ran = subprocess.run(command, env=environment, stdout=pipe, stderr=subprocess.PIPE, timeout=60)
    assert ran.stderr == b""
    assert ran.returncode != 0


def test_as_a_module_it_gives_its_code_and_one_line(tmp_path: Path) -> None:
    ran = called("replay", "gone.swf")
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr == "queuecast: gone.swf: cannot be read: No such file or directory\n"


def test_ctrl_c_ends_a_replay_quietly(tmp_path: Path) -> None:
    trace = made_trace(tmp_path / "long.swf", jobs=60_000)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    out = tmp_path / "p.ndjson"
    command = [sys.executable, "-m", "streams", "replay", str(trace), "--method", "median", "--out", str(out)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        while process.poll() is None and not (out.exists() and out.stat().st_size):
            pass
        process.send_signal(signal.SIGINT)
        said, told = process.communicate(timeout=60)
    assert (process.returncode, said, told) == (130, b"", b"")


def test_a_bar_is_shown_at_a_terminal_only(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    with cli._progress("jobs", 1000) as advance:
        for _ in range(1000):
            advance()
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    with cli._progress("jobs", 1000) as advance:
        for _ in range(1000):
            advance()
    assert "1000/1000" in capsys.readouterr().err
