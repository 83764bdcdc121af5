"""A server process on loopback: started, monitored, stopped by its process id, and never left behind."""

import atexit
import fcntl
import json
import os
import random
import signal
import socket
import subprocess
import time
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, ClassVar, Self

from deploy.local.stack.locks import make_private, write_private
from streams.errors import UserError

LOOPBACK = "127.0.0.1"

# Below the range of ephemeral ports, even with the 10,000 that a Redis Cluster adds for its bus port. In the ephemeral
# range, a client that retries the port of a stopped server can get that port as its source port, connect to itself,
# and keep the server from starting again.
_PORTS = range(12_000, 22_000)
_SHARE = 50

# The launcher waits for a line on standard input before it executes the server, so that the guard runs first.
_LAUNCH = 'umask 077 && read -r _ && exec "$@" </dev/null'
# The guard reads from a pipe that only this process writes to. However this process ends, the pipe closes, and the
# guard kills the process group of the server.
_GUARD = 'read -r _; kill -s KILL -- "-$0"'


PROGRESS_EVERY_S = 0.5  # how often the progress of a slow start is read


class StackError(UserError):
    """A server could not be started, or was used while it was stopped."""


class StackUnavailable(StackError):
    """A part of the stack is missing on this machine; the message is one line with the remedy."""


@dataclass(frozen=True)
class Progress:
    """A step of the start of the stack.

    Attributes:
        total: its size in bytes, 0 if unknown.
        lasting: whether its line stays in a terminal.
    """

    step: str
    done: int = 0
    total: int = 0
    lasting: bool = False


OnProgress = Callable[[Progress], None]


def ignore(_progress: Progress) -> None:
    """Show nothing."""


def held(port: int) -> socket.socket | None:
    """Return a socket that reserves this port of the loopback address; None if the port is in use.

    The socket listens, because on Linux two sockets with SO_REUSEADDR can share a port while neither listens.
    """
    try:
        return socket.create_server((LOOPBACK, port), backlog=0)
    except OSError:
        return None


def is_free(port: int) -> bool:
    """Return whether no process listens at this port of the loopback address."""
    if (found := held(port)) is not None:
        found.close()
    return found is not None


def _own_ports() -> Iterator[int]:
    """Yield ports that no other process of this program uses: the owner of the first port of a block owns the block."""
    held = []
    for first in random.SystemRandom().sample(_PORTS[::_SHARE], len(_PORTS) // _SHARE):
        guard = socket.socket()
        try:
            guard.bind((LOOPBACK, first))
        except OSError:  # another process holds it
            guard.close()
        else:
            held.append(guard)
            yield from range(first + 1, first + _SHARE)


_untried_ports = _own_ports()


def free_port() -> int:
    """Return a free port of the loopback address, a different one at each call and in each process."""
    try:
        return next(port for port in _untried_ports if is_free(port))
    except StopIteration:
        raise StackError(f"no free port left between {_PORTS.start} and {_PORTS.stop}") from None


def answers(url: str) -> bool:
    """Return whether this URL of the local machine responds; proxies of the environment are ignored."""
    try:
        urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=5.0).close()
    except OSError:  # connection refused, or an error during startup
        return False
    return True


class Server(ABC):
    """A server process with its own directory for all of its files: data, configuration, log, ports.

    A port that is not given is the previous one if that is still free, else a free one; it stays the same during the
    life of the object. `start` returns when the server is ready, and fails after `ready_within` seconds without a
    report of progress. `stop` sends SIGTERM, and SIGKILL after a timeout; `kill` sends SIGKILL. After either, `start`
    runs the server again at the same port with the same data.
    """

    name: ClassVar[str]
    at_first: ClassVar[str] = ""  # appended to the start message: why the start takes long

    def __init__(
        self,
        directory: Path,
        ports: Mapping[str, int | None],
        on_progress: OnProgress = ignore,
        ready_within: float = 120.0,
    ) -> None:
        self.directory = directory.absolute()
        self.log = self.directory / "server.log"
        self.ready_within = ready_within
        self._on_progress = on_progress
        self._ports = {name: port or self._usual_port(name) for name, port in ports.items()}
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._claim: IO[bytes] | None = None
        self._held: list[socket.socket] = []
        self._log_start = 0

    @abstractmethod
    def _prepare(self) -> Sequence[str]:
        """Write the configuration and return the command, which is run inside the directory."""

    @abstractmethod
    def _ready(self) -> bool:
        """Return whether the process accepts requests."""

    def _progress(self) -> str:
        """Return the latest report of a start that takes long; empty before the first."""
        return ""

    @property
    def port(self) -> int:
        """The port at which clients connect."""
        return self._ports["port"]

    @property
    def address(self) -> str:
        """`host:port` for clients."""
        return f"{LOOPBACK}:{self.port}"

    @property
    def running(self) -> bool:
        """Return whether the process exists; it may still be unhealthy."""
        if self._process is None:
            return False
        if self._process.poll() is None:
            return True
        self._forget()
        return False

    @property
    def pid(self) -> int:
        """The process id of the server.

        Raises:
            StackError: the server is not running.
        """
        if not self.running or self._process is None:
            raise StackError(f"{self.name} is not running")
        return self._process.pid

    def hold(self) -> None:
        """Reserve the directory and the ports until the start, unless they are reserved already.

        Raises:
            StackError: the directory or a port is in use.
        """
        if self._claim is not None:
            return
        self._take_directory()
        for port in self._ports.values():
            if (one := held(port)) is None:
                self._forget()
                raise StackError(f"{self.name}: port {port} of {LOOPBACK} is in use; free it or choose another")
            self._held.append(one)

    def start(self) -> None:
        """Start the server and wait until it is ready; do nothing if it is running.

        Raises:
            StackError: the server cannot be started; the message contains the cause.
        """
        if self.running:
            return
        self._on_progress(Progress(f"starting {self.name}{self.at_first}"))
        try:
            self.hold()
            self._write("ports.json", json.dumps(self._ports))  # for the next time
            self._launch(self._prepare())
            self._await_ready()
        except BaseException:
            self.kill()
            raise

    def stop(self, grace: float = 30.0) -> None:
        """Send SIGTERM to the process, and SIGKILL if it does not end within `grace` seconds."""
        try:
            if self.running and self._process:
                self._process.terminate()
                with suppress(subprocess.TimeoutExpired):
                    self._process.wait(grace)
        finally:
            self.kill()

    def kill(self) -> None:
        """Kill the process (SIGKILL), as in a crash."""
        if self.running and self._process:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._forget()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def _usual_port(self, name: str) -> int:
        try:
            port = json.loads((self.directory / "ports.json").read_text()).get(name)
        except (OSError, ValueError):
            port = None
        return port if isinstance(port, int) and is_free(port) else free_port()

    def _take_directory(self) -> None:
        """Lock the directory: two servers that append to one log would corrupt it."""
        make_private(self.directory)
        self._claim = (self.directory / "lock").open("wb")
        try:
            fcntl.flock(self._claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._forget()
            raise StackError(f"{self.name}: {self.directory} is in use by another running instance") from None

    def _write(self, name: str, text: str) -> Path:
        """Write a file that only its owner may read: configurations carry passwords."""
        path = self.directory / name
        write_private(path, text)
        return path

    def _launch(self, command: Sequence[str]) -> None:
        # A session of its own: the terminal's Ctrl-C is for the supervisor, which then stops the servers in order.
        with self.log.open("ab") as log:
            self._log_start = log.tell()
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", _LAUNCH, "sh", *command],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.directory,
                env={**os.environ, "LC_ALL": "C.UTF-8"},
                start_new_session=True,
            )
        self._guard = subprocess.Popen(
            ["/bin/sh", "-c", _GUARD, str(self._process.pid)], stdin=subprocess.PIPE, start_new_session=True
        )
        atexit.register(self.stop)
        assert self._process.stdin is not None
        self._let_go()
        with self._process.stdin as go:
            go.write(b"\n")

    def _await_ready(self) -> None:
        deadline, progress, looked = time.monotonic() + self.ready_within, "", time.monotonic()
        while not (self.running and self._ready()):
            if time.monotonic() > looked + PROGRESS_EVERY_S:
                looked, latest = time.monotonic(), self._progress()
                if latest not in ("", progress):
                    deadline, progress = looked + self.ready_within, latest
                    self._on_progress(Progress(latest))
            if not self.running:
                raise StackError(f"{self.name} ended during its start; {self.log} ends with\n{self._last_lines()}")
            if time.monotonic() > deadline:
                late = f"was not ready within {self.ready_within:g} s"
                raise StackError(f"{self.name} {late}; {self.log} ends with\n{self._last_lines()}")
            time.sleep(0.03)

    def _logged(self) -> str:
        with self.log.open("rb") as log:
            log.seek(self._log_start)
            return log.read().decode(errors="replace")

    def _last_lines(self, count: int = 15) -> str:
        return "\n".join(self._logged().splitlines()[-count:])

    def _let_go(self) -> None:
        while self._held:
            self._held.pop().close()

    def _forget(self) -> None:
        """Release the resources of an ended process, which was reaped: until then its process id cannot be reused."""
        atexit.unregister(self.stop)
        self._let_go()
        if self._guard is not None and self._guard.stdin is not None:
            self._guard.kill()
            self._guard.wait()
            self._guard.stdin.close()
        if self._claim is not None:
            self._claim.close()
        self._process = self._guard = self._claim = None
