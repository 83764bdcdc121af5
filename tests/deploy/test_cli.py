import re
from pathlib import Path

import pytest
import typer

from deploy.cli import app, main
from deploy.local.stack import Ports
from deploy.local.up import USUAL_PORTS
from streams.cli.app import app as app_of_streams
from tests.support.command import imported

Capture = pytest.CaptureFixture[str]
LOCAL = ("demo", "up")


def test_cli_has_commands_of_streams_and_local_stack() -> None:
    commands = typer.main.get_group(app).commands
    assert set(commands) - set(typer.main.get_group(app_of_streams).commands) == set(LOCAL)
    assert set(typer.main.get_group(app_of_streams).commands) < set(commands)


@pytest.mark.parametrize("command", LOCAL)
def test_local_command_help_has_example(capsys: Capture, command: str) -> None:
    assert main([command, "--help"]) == 0
    shown = capsys.readouterr().out
    assert f"queuecast {command}" in shown
    assert "Example:" in shown


def test_up_help_lists_default_port_of_each_server(capsys: Capture) -> None:
    assert main(["up", "--help"]) == 0
    shown = re.split(r"\n +--", capsys.readouterr().out)
    texts = {
        name: " ".join(text.split()) for text in shown for name in Ports._fields if text.startswith(f"{name}-port")
    }
    assert texts.keys() == set(Ports._fields)
    usual = {name: re.findall(r"Default: (\d+) if free", text) for name, text in texts.items()}
    assert {name: int(ports[0]) for name, ports in usual.items() if ports} == USUAL_PORTS


def test_cli_help_imports_no_heavy_modules() -> None:
    found = imported("deploy.cli", "--help")
    assert "deploy.cli" in found
    assert not {"numpy", "numba", "faust", "kafka", "redis", "deploy.local.stack"} & found


def test_local_stack_error_is_printed_in_one_line(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from deploy.local import up
    from deploy.local.stack import StackUnavailable

    def run_stack(*_: object) -> None:
        raise StackUnavailable("no Java for this machine\nat all")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(up, "up", run_stack)
    assert main(["up"]) == 1
    assert capsys.readouterr() == ("", "queuecast: no Java for this machine at all\n")
