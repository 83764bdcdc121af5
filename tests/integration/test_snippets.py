"""The documentation's examples run unchanged after `queuecast up`, without a settings file."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local.stack import free_port
from streams.running import service_url
from streams.settings import load_settings
from tests.support.command import PATIENCE_S, Command
from tests.support.snippets import ROOT, Snippet, snippets
from tests.support.traces import trace_path

pytestmark = [pytest.mark.usefixtures("require_stack"), pytest.mark.long]

USUAL_SERVICE = "http://127.0.0.1:6067"


class Shell:
    """A user's directory with a running `queuecast up`; only the page's port differs from the documentation."""

    def __init__(self, tmp: Path) -> None:
        self._tmp = tmp
        self._running: list[subprocess.Popen[str]] = []
        (tmp / "bin").mkdir()
        script = tmp / "bin" / "queuecast"
        script.write_text(f'#!/bin/sh\nexec {sys.executable} -m queuecast "$@"\n')
        script.chmod(0o755)
        for trace in map(trace_path, ("KTH", "CTC")):
            (tmp / trace.name).symlink_to(trace)
        own = {name: value for name, value in os.environ.items() if not name.startswith("QUEUECAST_CONFIG")}
        path = {"PATH": f"{tmp / 'bin'}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
        self._environment = {**own, **path, "XDG_STATE_HOME": str(tmp / "state"), "TMPDIR": str(tmp)}
        ports = [word for name in ("kafka", "redis", "serve") for word in (f"--{name}-port", str(free_port()))]
        state = {"XDG_STATE_HOME": str(tmp / "state")}
        self.up = Command(tmp, "up", "--data-dir", str(tmp / "data"), *ports, **state)
        self.up.until("Ctrl-C stops it.")
        self.service = service_url(load_settings(tmp / "data" / "queuecast.toml", {}).serve)

    def run(self, *command: str) -> subprocess.Popen[str]:
        """Start a command with its stderr in a file."""
        with (self._tmp / "stderr").open("ab") as errors:
            pipes = {"stdout": subprocess.PIPE, "stderr": errors, "stdin": subprocess.DEVNULL}
            started = subprocess.Popen(
                command, cwd=self._tmp, env=self._environment, text=True, start_new_session=True, **pipes
            )
        self._running.append(started)
        return started

    @property
    def errors(self) -> str:
        """Return the stderr of all commands up to now."""
        return (self._tmp / "stderr").read_text()

    def close(self) -> None:
        """Stop all processes."""
        for started in self._running:
            if started.poll() is None:
                os.killpg(started.pid, signal.SIGKILL)
                started.wait()
        self.up.ended(signal.SIGTERM)


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    made = Shell(tmp_path_factory.mktemp("user"))
    yield made
    made.close()


def first_line(started: subprocess.Popen[str]) -> str:
    """Return the first line of a program; empty if it ends without one."""
    assert started.stdout is not None
    return started.stdout.readline()


def run_line(shell: Shell, line: str) -> None:
    """Run a shell line as a user does: interrupt endless commands, and repeat it while there is no data."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        started = shell.run("sh", "-c", line.replace(USUAL_SERVICE, shell.service))
        if " ingest " in line:
            return
        if " watch " in line:
            assert "  job " in first_line(started), shell.errors
            return
        output, _ = started.communicate(timeout=PATIENCE_S)
        if started.returncode == 0 and not ("curl" in line and "status_code" in json.loads(output)):
            return
        assert time.monotonic() < deadline, f"{line}: {output}{shell.errors}"
        time.sleep(1)


def run_program(shell: Shell, text: str) -> None:
    """Run a program until it ends, or until its first output if it never ends."""
    started = shell.run(sys.executable, "-c", text)
    if "for message in consumer" in text and "consumer_timeout_ms" not in text:
        line = first_line(started)
        assert " starts " in line or " no estimate: " in line, shell.errors
    else:
        assert started.wait(PATIENCE_S) == 0, shell.errors


SNIPPETS = snippets()


@pytest.mark.parametrize(
    "snippet", SNIPPETS, ids=[f"{number}, of {one.document}" for number, one in enumerate(SNIPPETS)]
)
def test_documented_snippet_runs_unchanged(shell: Shell, snippet: Snippet) -> None:
    if snippet.language == "python":
        run_program(shell, snippet.text)
    else:
        for line in filter(None, snippet.text.splitlines()):
            run_line(shell, line)
