"""A process compiles while the servers start."""

import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from models import kernels
from models.engine.settings import EngineSettings
from streams import python_process
from streams.process import early_start, first_start
from streams.process.early_start import compiling_early

SETTINGS = EngineSettings(method="median", shadows=())
PATIENCE_S = 60.0


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[bytes]]:
    """Let another program start instead, which waits as a compilation does."""
    found: list[subprocess.Popen[bytes]] = []
    begin = subprocess.Popen

    def popen(command: list[str], **options: object) -> subprocess.Popen[bytes]:
        assert command[:-1] == python_process.command(early_start.__name__)
        found.append(begin([sys.executable, "-c", "import sys; sys.stdin.read()"], **options))
        return found[-1]

    monkeypatch.setattr(subprocess, "Popen", popen)
    return found


def test_early_process_ends_with_the_block(started: list[subprocess.Popen[bytes]]) -> None:
    with pytest.raises(KeyError), compiling_early(SETTINGS):
        assert started[0].poll() is None
        raise KeyError
    assert started[0].returncode is not None


@pytest.mark.parametrize(("compiled", "expected"), [(False, [SETTINGS]), (True, [])], ids=["cold", "warm"])
def test_early_start_compiles_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, compiled: bool, expected: list[EngineSettings]
) -> None:
    done: list[EngineSettings] = []

    def is_compiled(file: str) -> bool:
        assert Path(file).is_file()
        return compiled

    monkeypatch.setattr(kernels, "is_compiled", is_compiled)
    monkeypatch.setattr(first_start, "compile_kernels", done.append)
    monkeypatch.setattr(early_start, "signal", lambda *_: None)
    monkeypatch.setattr(early_start, "_stop_at_end", lambda: None)
    early_start.main(['{"method": "median", "shadows": []}'])
    assert done == expected


def test_early_process_ends_with_its_starter(tmp_path: Path) -> None:
    folder = tmp_path / "kernels"
    folder.mkdir()
    program = (
        "import fcntl, os, psutil\n"
        f"fcntl.flock(os.open({str(folder)!r}, os.O_RDONLY), fcntl.LOCK_EX)\n"  # it waits for this lock
        "from models.engine.settings import EngineSettings\n"
        "from streams.process.early_start import compiling_early\n"
        "with compiling_early(EngineSettings()):\n"
        "    print(*(one.pid for one in psutil.Process().children()), flush=True)\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    environment = {"NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(Path(early_start.__file__).parents[2])}
    run = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert run.stdout.strip().isdigit(), run.stderr
    deadline = time.monotonic() + PATIENCE_S
    while psutil.pid_exists(int(run.stdout)):
        assert time.monotonic() < deadline
        time.sleep(0.05)
