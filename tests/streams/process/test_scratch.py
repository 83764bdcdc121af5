"""Temporary directories: those of a killed process are deleted at the next start."""

import subprocess
import sys
from pathlib import Path

import pytest

from streams.process.scratch import PREFIX, scratch

KEEP = """
from streams.process.scratch import scratch
with scratch() as directory:
    (directory / "secret").write_text("x")
    print(directory, flush=True)
    input()
"""
READ = """
import sys
from pathlib import Path
from streams.bulk.reading import read_log
with read_log([Path(sys.argv[1])]) as (log, _):
    print(log.path.parent, flush=True)
    input()
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def started(code: str, *arguments: str) -> tuple[subprocess.Popen[str], Path]:
    command = [sys.executable, "-c", code, *arguments]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


@pytest.mark.parametrize("reads_log", [False, True])
def test_scratch_of_killed_process_is_deleted_at_next_start(place: Path, reads_log: bool) -> None:
    log = place / "a.jsonl"
    log.write_text('{"v":1,"site":"s","type":"submit","time":1.0,"job":"1"}\n')
    process, left = started(READ, str(log)) if reads_log else started(KEEP)
    with scratch() as own:
        assert left.exists() and own != left  # its process runs
    process.kill()
    process.wait()
    assert left.exists()
    with scratch() as own:
        assert not left.exists() and own.exists()
    assert not list(place.glob(f"{PREFIX}*"))


def test_scratch_keeps_foreign_directories(place: Path) -> None:
    (place / f"{PREFIX}without-lock").mkdir()
    (place / "elsewhere").mkdir()
    (place / "elsewhere" / ".lock").touch()
    (place / f"{PREFIX}link").symlink_to(place / "elsewhere")
    with scratch(), scratch():
        pass
    assert sorted(path.name for path in place.iterdir()) == ["elsewhere", f"{PREFIX}link", f"{PREFIX}without-lock"]
    assert (place / "elsewhere" / ".lock").exists()
