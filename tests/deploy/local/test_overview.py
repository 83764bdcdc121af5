import os
import signal
import sys
from pathlib import Path

import pytest

from deploy.local.up import command_as_called, overview


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create a script of an inactive virtual environment."""
    path = tmp_path / "my venv" / "bin" / "queuecast"
    path.parent.mkdir(parents=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    return path


def test_command_not_on_path_is_shown_with_full_path(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(script.parents[2])
    assert command_as_called("my venv/bin/queuecast") == f"'{script}'"


def test_command_on_path_is_shown_by_name(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(script.parent))
    assert command_as_called(str(script)) == "queuecast"
    other = script.with_name("other") / "queuecast"
    other.parent.mkdir()
    other.write_text("")
    assert command_as_called(str(other)) == f"'{other}'"


def test_command_only_on_this_path_is_shown_with_its_folder(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(script.parent))
    monkeypatch.setenv("VIRTUAL_ENV", str(script.parents[1]))
    assert command_as_called(str(script)) == f"'{script}'"


def test_command_of_module_is_shown_as_python_m() -> None:
    assert command_as_called("/x/queuecast/__main__.py") == f"{sys.executable} -m queuecast"


def test_overview_without_found_settings_prints_export_first(script: Path) -> None:
    def lines(found: bool) -> list[str]:
        text = overview(Path("/d"), {"Kafka": "k:1"}, ["Port 9092 is taken."], Path("/d/q.toml"), False, found)
        return [line.strip() for line in text.splitlines() if line]

    export = "export QUEUECAST_CONFIG=/d/q.toml"
    assert lines(True).index(export) > lines(True).index(next(line for line in lines(True) if "ask" in line))
    assert lines(False)[lines(False).index("Next, in another terminal:") + 1] == export
    assert lines(False).count(export) == lines(True).count(export) == 1
    assert "Port 9092 is taken." in lines(True)


def test_overview_in_background_explains_stop_by_kill() -> None:
    """Background jobs of a shell ignore SIGINT, the signal of Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        text = overview(Path("/d"), {}, [], Path("/d/q.toml"), False, True)
    finally:
        signal.signal(signal.SIGINT, before)
    assert text.splitlines()[-1] == f"`kill {os.getpid()}` stops it."
