"""Compile the kernels of a worker in a process of its own, while the worker's servers start."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from signal import SIGTERM, signal
from typing import NoReturn

import msgspec

from models.engine.settings import EngineSettings
from streams import python_process

MODULE = "streams.process.early_start"


@contextmanager
def compiling_early(settings: EngineSettings) -> Iterator[None]:
    """Compile what these methods need in the block, unless it is in the cache.

    A worker that starts meanwhile waits for it, and loads the kernels. The process has no output: if it fails, the
    worker compiles, and reports the cause.
    """
    process = subprocess.Popen(
        python_process.command(MODULE, msgspec.json.encode(settings).decode()),
        stdin=subprocess.PIPE,  # closes however this process ends, and the other one then ends too
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=python_process.environment(),
        start_new_session=True,
    )
    with process:
        try:
            yield
        finally:
            process.terminate()


def main(arguments: Sequence[str]) -> None:
    """Compile the kernels for the settings in the argument, by default those of the default settings."""
    signal(SIGTERM, _leave)  # not at once: the second process has to end too
    if arguments:
        threading.Thread(target=_stop_at_end, name="lifeline", daemon=True).start()
    settings = msgspec.json.decode(arguments[0], type=EngineSettings) if arguments else EngineSettings()
    from models import kernels  # imports numba

    if not kernels.is_compiled(str(kernels.ROOT / "waits" / "order" / "compiled_steps.py")):
        from streams.process.first_start import compile_kernels

        compile_kernels(settings)


def _stop_at_end() -> None:
    os.read(sys.stdin.fileno(), 1)
    os.kill(os.getpid(), SIGTERM)


def _leave(*_: object) -> NoReturn:
    raise SystemExit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
