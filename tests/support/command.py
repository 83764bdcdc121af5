"""A command that runs as a process of its own, with everything that it starts and writes under watch."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Self

import psutil

ROOT = Path(__file__).parents[2]
PATIENCE_S = 240.0
"""Seconds after which what has not come is not waited for any longer."""


def with_us(**environment: str) -> dict[str, str]:
    """This process's environment, in which Python finds us from any directory."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    return os.environ | {"PYTHONPATH": path, **environment}


def python(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Run Python to its end."""
    command = [sys.executable, *arguments]
    return subprocess.run(command, env=with_us(**environment), text=True, capture_output=True, timeout=PATIENCE_S)


def imported(main: str, *arguments: str) -> set[str]:
    """The modules that a command imports, by the `main` of this module."""
    code = f"import sys; from {main} import main; main({list(arguments)}); print('', *sys.modules)"
    return set(python("-c", code).stdout.split())


def alive(pid: int) -> bool:
    """Whether a process runs."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


class Command:
    """`queuecast …` without a terminal, with `tmp` as its directory for temporary files."""

    def __init__(self, tmp: Path, *arguments: str, **environment: str) -> None:
        self.tmp = tmp / "tmp"
        self.tmp.mkdir(exist_ok=True)
        number = len(list(tmp.glob("*.out")))
        self._out, self._err = tmp / f"{number}.out", tmp / f"{number}.err"
        own = {name: value for name, value in os.environ.items() if not name.startswith("QUEUECAST_")}
        kept = {name: os.environ[name] for name in ("QUEUECAST_CACHE",) if name in os.environ}
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = psutil.Popen(
                [sys.executable, "-m", "queuecast", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                cwd=tmp,
                env={**own, **kept, "TMPDIR": str(self.tmp), **environment},
            )

    @property
    def out(self) -> str:
        """What it has written so far."""
        return self._out.read_text()

    @property
    def err(self) -> str:
        """The same, to stderr."""
        return self._err.read_text()

    def until(self, text: str) -> None:
        """Wait until it has written this."""
        deadline = time.monotonic() + PATIENCE_S
        while text not in self.out:
            assert self.process.poll() is None, f"ended with {self.process.returncode}: {self.out}{self.err}"
            assert time.monotonic() < deadline, f"no {text!r} in {self.out}{self.err}"
            time.sleep(0.05)

    def children(self) -> list[psutil.Process]:
        """Everything that it has started and that runs."""
        found: list[psutil.Process] = self.process.children(recursive=True)
        return [child for child in found if _runs(child)]

    def child(self, *words: str) -> psutil.Process:
        """The one of them with these words in its command line."""
        (found,) = (child for child in self.children() if set(words) <= set(child.cmdline()))
        return found

    def ended(self, number: signal.Signals | None = None) -> int:
        """Send it a signal, wait for its end, and make sure that nothing of it runs any longer; gives its exit code."""
        children = self.children()
        if number is not None:
            self.process.send_signal(number)
        code: int = self.process.wait(PATIENCE_S)
        psutil.wait_procs(children, timeout=PATIENCE_S)
        assert not any(map(_runs, children))
        return code

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def _runs(process: psutil.Process) -> bool:
    return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
