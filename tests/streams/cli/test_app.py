import os
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path

import pytest
import typer

from streams.cli.app import app, main
from streams.cli.options import known_sites
from streams.errors import UserError
from streams.settings import Settings
from tests.support.command import PATIENCE_S, imported, python, with_us

Capture = pytest.CaptureFixture[str]
Fails = Callable[..., str]

COMMANDS = list(typer.main.get_group(app).commands)


@pytest.mark.parametrize("command", COMMANDS)
def test_command_help_contains_example(capsys: Capture, command: str) -> None:
    assert main([command, "--help"]) == 0
    shown = capsys.readouterr().out
    assert f"queuecast {command}" in shown
    assert "Example:" in shown


def test_help_lists_all_commands_and_no_secrets(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUEUECAST_KAFKA_PASSWORD", "hunter2")
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(command in shown for command in COMMANDS)
    assert "hunter2" not in shown


ENGINE = {"numba", "scipy", "models.engine.engine"}
SLOW = {"numpy", "numba", "lightgbm", "faust", "kafka", "redis", "deploy", "pydantic", "rich", "tenacity", "aiohttp"}


@pytest.mark.parametrize(
    ("arguments", "not_needed"),
    [
        (["--help"], {"numpy", "numba", "faust", "kafka", "redis", "deploy"}),
        (["watch"], ENGINE | {"faust", "redis", "deploy"}),
        (["ask", "--cpus", "4", "--url", "http://127.0.0.1:1"], SLOW),
    ],
)
def test_command_skips_unneeded_imports(closed_port: int, arguments: list[str], not_needed: set[str]) -> None:
    found = imported("streams.cli.app", *arguments)
    assert "streams.cli.app" in found and not not_needed & found


def test_version_option_prints_version(capsys: Capture) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("queuecast")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["replay"], "Missing argument 'FILE...'. See `queuecast replay --help`."),
        (["dance"], "No such command 'dance'."),
        (["replay", "t.swf", "--rows", "1"], "Option '--rows' requires 2 arguments."),
        (["replay", "t.swf", "--ids", "1", "x"], "--ids"),
        (["replay", "t.swf", "--ids", "1", "2", "--rows", "1", "2"], "--ids and --rows are mutually exclusive."),
        (
            ["replay", "t.swf", "--since", "2024-05-01", "--rows", "1", "2"],
            "--rows and --since are mutually exclusive.",
        ),
        (["replay", "t.swf", "--map", "lumo"], "there is no such column mapping or file"),
        (["replay", "t.swf", "--since", "May"], "does not match the formats"),
        (["replay", "t.swf", "--rows", "5", "1"], "--rows 5 1: expected the first not to exceed the last."),
        (["topics", "create", "--partitions", "0"], "--partitions"),
        (["ingest", "t.swf", "--speed", "slow"], "--speed is 'slow'; expected max, 1 for real time"),
        (["ingest", "t.swf", "--speed", "0"], "--speed is '0'"),
        (["ingest", "t.swf", "--speed", "nan"], "--speed is 'nan'"),
        (
            ["worker", "--log-level", "loud"],
            "'--log-level': 'loud' is not valid; expected one of debug, info, warning, error.",
        ),
        (["watch", "--count", "0"], "'--count': 0 is not 1 or more."),
        (["tune", "t.swf", "--method", "x"], "'--method': 'x' is not valid; expected one of qespera, ibl."),
        (["replay", "t.swf", "--shift-time", "5d"], "--shift-time requires --anonymise."),
        (["replay", "t.swf", "--key", "key"], "--key requires --anonymise."),
        (["ask", "--mem", "64"], "--mem 64 has no unit; expected 64M, 64G"),
        (["watch", "--count", "many"], "'--count': 'many' is not an integer."),
    ],
)
def test_invalid_arguments_exit_2_with_one_line(fails: Fails, arguments: list[str], message: str) -> None:
    assert message in fails(2, *arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["replay", "made.swf", "--method", "oracle"], "queuecast: no method 'oracle'; there are: zero, median"),
        (["compare", "not.there", "--method", "oracle"], "queuecast: no method 'oracle'; there are: zero, median"),
        (["replay", "made.swf", "--site", ""], "site '': a name has 1 to 256 characters"),
        (["schema", "weather"], "queuecast: no record 'weather'"),
        (["ingest", "made.swf", "made.swf"], "two traces for site made"),
        (["ingest", "made.swf", "--site", "a", "--site", "b"], "2 sites for 1 traces"),
        (["ask", "--walltime", "4"], "walltime: '4' is not a valid duration without a unit"),
        (["ask", "--nodes", "0"], "nodes: expected a whole number >= 1"),
        (["ask", "--tasks", "0"], "tasks: expected a whole number >= 1"),
        (["doctor", "--source", "x"], "--source: 'x': expected HOST:PORT"),
        (["doctor", "--notify", "127.0.0.1:99999"], "--notify: '127.0.0.1:99999': expected HOST:PORT"),
        (["ask", "--run", "soon"], "--run: 'soon' is not a valid duration"),
        (["notify", "--before", "4"], "--before: '4' is not a valid duration without a unit"),
        (["notify", "--user", ""], "'--user': expected a name"),
        (["notify", "--webhook", "chat.example.org"], "--webhook: expected an address that begins with http://"),
        (["watch", "--sites"], "No such option: --sites"),
    ],
)
def test_invalid_option_value_exits_2(fails: Fails, trace: Path, arguments: list[str], message: str) -> None:
    assert message in fails(2, *arguments)


def test_invalid_setting_exits_2(fails: Fails, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUEUECAST_SERVE_WEB_PORT", "high")
    assert "QUEUECAST_SERVE_WEB_PORT" in fails(2, "watch")


def test_help_omits_option_types(capsys: Capture) -> None:
    for command in COMMANDS:
        main([command, "--help"])
    assert "<" not in capsys.readouterr().out


def test_shell_completion_lists_commands_and_options() -> None:
    def completed(words: str, at: str) -> list[str]:
        variables = {"_QUEUECAST_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": at}
        return python("-m", "queuecast", **variables).stdout.split()

    assert completed("queuecast as", "1") == ["ask"]
    assert completed("queuecast ask --wall", "2") == ["--walltime"]
    assert set(completed("queuecast compare --method b", "3")) == {"boosted", "blend"}
    assert completed("queuecast source sl", "2") == ["slurm"]


def test_missing_command_prints_help(capsys: Capture) -> None:
    assert main([]) == 2
    assert "Usage: queuecast" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["replay", "gone.swf"], "queuecast: gone.swf: cannot be read: No such file or directory"),
        (["replay", "made.swf", "--ids", "900", "999"], "no job with these numbers; they are 1 to 120"),
        (["replay", "made.swf", "--out", "no/such"], "queuecast: no/such: cannot be written"),
        (
            ["replay", "made.swf", "--html", "no/such"],
            "queuecast: no/such: cannot be written; do you have write access to no?",
        ),
        (["--config", "gone.toml", "replay", "made.swf"], "queuecast: gone.toml: cannot be read"),
    ],
)
def test_runtime_error_exits_1_with_one_line(fails: Fails, trace: Path, arguments: list[str], message: str) -> None:
    assert message in fails(1, *arguments)


@pytest.mark.parametrize(
    "command", [["topics", "create"], ["ingest", "made.swf"], ["watch"], ["watch", "--outcomes", "--json"]]
)
def test_unreachable_broker_exits_1_with_one_line(
    fails: Fails, trace: Path, command: list[str], closed_port: int
) -> None:
    assert f"no broker answers at 127.0.0.1:{closed_port}" in fails(1, *command)


def raising(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def run_worker(_: Settings) -> None:
        raise error

    monkeypatch.setitem(sys.modules, "streams.worker.startup", types.SimpleNamespace(run_worker=run_worker))


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (UserError("redis at h:1: refused\nreally\x1b[2J"), "queuecast: redis at h:1: refused really\\u001b[2J"),
        (OSError(28, "No space left on device", "/var/x"), "queuecast: /var/x: No space left on device"),
        (KeyError("oh"), "queuecast: internal error: KeyError: 'oh'; set QUEUECAST_DEBUG=1 for the traceback"),
    ],
)
def test_exception_in_command_is_printed_in_one_line(
    fails: Fails, monkeypatch: pytest.MonkeyPatch, error: BaseException, message: str
) -> None:
    raising(monkeypatch, error)
    assert fails(1, "worker") == message


def test_debug_variable_raises_internal_error(monkeypatch: pytest.MonkeyPatch) -> None:
    raising(monkeypatch, KeyError("oh"))
    monkeypatch.setenv("QUEUECAST_DEBUG", "1")
    with pytest.raises(KeyError):
        main(["worker"])


def test_keyboard_interrupt_exits_130_silently(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    raising(monkeypatch, KeyboardInterrupt())
    assert main(["worker"]) == 130
    assert capsys.readouterr() == ("", "")


def test_system_exit_of_worker_keeps_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    raising(monkeypatch, SystemExit(3))
    with pytest.raises(SystemExit) as left:
        main(["worker"])
    assert left.value.code == 3


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_closed_stdout_pipe_prints_no_error(unbuffered: str) -> None:
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "queuecast", "schema", "dead-letter"]
    with os.fdopen(write, "wb") as pipe:
        environment = with_us(PYTHONUNBUFFERED=unbuffered)
        ran = subprocess.run(command, env=environment, stdout=pipe, stderr=subprocess.PIPE, timeout=PATIENCE_S)
    assert ran.stderr == b""
    assert ran.returncode != 0


def test_python_module_exits_1_with_one_line() -> None:
    ran = python("-m", "queuecast", "replay", "gone.swf")
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr == "queuecast: gone.swf: cannot be read: No such file or directory\n"


def test_completion_with_unreachable_broker_lists_no_sites(closed_port: int) -> None:
    context = types.SimpleNamespace(params={})
    context.find_root = lambda: context
    assert known_sites(context, "") == []
