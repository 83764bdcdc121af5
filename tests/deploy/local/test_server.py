import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import pytest

from deploy.local.stack import (
    StackError,
    process,
)
from deploy.local.stack.process import LOOPBACK, Server, free_port, is_free
from tests.support.command import alive
from tests.support.deployment import until


class Toy(Server):
    """A shell script as a server that is ready after it prints "ready"."""

    name = "Toy"
    script: ClassVar[str] = "echo ready; exec sleep 600"

    def __init__(
        self, directory: Path, script: str = script, port: int | None = None, ready_within: float = 30
    ) -> None:
        super().__init__(directory, {"port": port}, ready_within=ready_within)
        self.script_text = script

    def _prepare(self) -> Sequence[str]:
        return ["/bin/sh", "-c", self.script_text]

    def _ready(self) -> bool:
        return "ready" in self._logged()


def test_server_starts_stops_and_starts_again(tmp_path: Path) -> None:
    toy = Toy(tmp_path)
    pids, ports = set(), set()
    for end in (toy.stop, toy.kill, toy.stop):
        toy.start()
        toy.start()  # nothing to do
        pid = toy.pid
        assert os.getsid(pid) == pid  # not reached by the terminal's Ctrl-C
        pids.add(pid)
        ports.add(toy.port)
        end()
        assert not alive(pid)
    assert (len(pids), len(ports)) == (3, 1)
    assert not toy.running
    with pytest.raises(StackError, match="not running"):
        _ = toy.pid


def test_crashed_server_is_noticed_and_can_be_started(tmp_path: Path) -> None:
    with Toy(tmp_path) as toy:
        os.kill(toy.pid, signal.SIGKILL)
        until(lambda: not toy.running)
        toy.start()
        assert toy.running


def test_server_crash_at_start_reports_last_log_lines(tmp_path: Path) -> None:
    with pytest.raises(StackError, match=r"ended during its start(?s:.*)no luck today"):
        Toy(tmp_path, "echo no luck today; exit 3").start()


def test_server_not_ready_in_time_is_stopped(tmp_path: Path) -> None:
    class Never(Toy):
        seen = 0

        def _ready(self) -> bool:
            self.seen = self.pid
            return False

    toy = Never(tmp_path, ready_within=0.5)
    with pytest.raises(StackError, match=r"not ready within 0\.5 s"):
        toy.start()
    assert not alive(toy.seen)


def test_server_start_with_progress_extends_time_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(Toy):
        def _progress(self) -> str:
            return self._last_lines(1).replace("step 4", "")  # nothing is compiled for a moment

    monkeypatch.setattr(process, "PROGRESS_EVERY_S", 0.1)
    slow, steps = (
        Slow(
            tmp_path,
            "for n in 1 2 3 4 5 6; do echo step $n; sleep 0.5; done; echo ready; exec sleep 600",
            ready_within=1.5,
        ),
        list[str](),
    )
    slow._on_progress = lambda progress: steps.append(progress.step)
    with slow:
        assert slow.running
    assert {"step 1", "step 3", "step 5"} <= set(steps) and "" not in steps


def test_server_ignoring_sigterm_is_killed_with_children(tmp_path: Path) -> None:
    toy = Toy(tmp_path, "trap '' TERM; sleep 600 & echo $!; echo ready; while true; do wait; done")
    toy.start()
    pids = [toy.pid, int(toy.log.read_text().split()[0])]
    toy.stop(grace=0.2)
    until(lambda: not any(map(alive, pids)))


def test_busy_port_is_one_clear_error(tmp_path: Path, busy_port: int) -> None:
    with pytest.raises(StackError, match=f"port {busy_port} of 127.0.0.1 is in use"):
        Toy(tmp_path, port=busy_port).start()


def test_held_port_stays_reserved_until_the_server_binds(tmp_path: Path) -> None:
    class Listening(Toy):
        """A server that listens on its port."""

        def _prepare(self) -> Sequence[str]:
            serve = (
                f"import socket, time; s = socket.create_server(('127.0.0.1', {self.port})); print('ready', flush=True)"
            )
            return [sys.executable, "-c", f"{serve}; time.sleep(600)"]

    toy = Listening(tmp_path)
    toy.hold()
    toy.hold()  # nothing to do
    assert not is_free(toy.port)
    with toy:
        assert not is_free(toy.port)
    assert is_free(toy.port)
    toy.hold()
    toy.kill()
    assert is_free(toy.port)


def test_ports_stay_with_the_directory_while_they_are_free(tmp_path: Path) -> None:
    with Toy(tmp_path) as toy:
        port = toy.port
    assert Toy(tmp_path).port == port
    with socket.create_server((LOOPBACK, port)):
        other = Toy(tmp_path).port
    assert other != port
    assert is_free(other)


def test_processes_are_never_given_the_same_port() -> None:
    code = "from deploy.local.stack import free_port; print([free_port() for _ in range(120)]); input()"
    command = [sys.executable, "-c", code]
    others = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(3)]
    given = [free_port() for _ in range(120)]
    for other in others:
        assert other.stdout is not None
        given += json.loads(other.stdout.readline())
    for other in others:
        other.communicate(b"\n")
    assert len(set(given)) == 480


def test_server_directory_in_use_raises_stack_error(tmp_path: Path) -> None:
    with Toy(tmp_path), pytest.raises(StackError, match="in use by another"):
        Toy(tmp_path, port=free_port()).start()


def test_server_ports_file_is_readable_by_owner_only(tmp_path: Path) -> None:
    with Toy(tmp_path):
        assert (tmp_path / "ports.json").stat().st_mode & 0o077 == 0
