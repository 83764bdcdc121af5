"""Fixtures for commands that run in an empty directory with default settings."""

import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from streams.cli.app import main
from streams.settings import sections
from tests.support.traces import made_trace


@pytest.fixture(autouse=True)
def in_an_empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sections, "BOOTSTRAP_MS", 200)
    monkeypatch.setenv("COLUMNS", "200")
    for name in [name for name in os.environ if name.startswith("QUEUECAST_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return made_trace(tmp_path / "made.swf", jobs=120)


@pytest.fixture
def fails(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run a command that must fail with an exit code; return its single line on stderr."""

    def run(code: int, *arguments: str) -> str:
        assert main(arguments) == code
        output = capsys.readouterr()
        assert output.out == ""
        assert output.err.startswith("queuecast: ")
        assert output.err.count("\n") == 1
        return output.err.removesuffix("\n")

    return run


@pytest.fixture
def closed_port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Reserve a Kafka port that accepts no connections."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port: int = bound.getsockname()[1]
        monkeypatch.setenv("QUEUECAST_KAFKA_BOOTSTRAP", f"127.0.0.1:{port}")
        yield port
