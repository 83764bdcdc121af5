"""Processes that a command starts find the same modules as the command."""

import subprocess
from pathlib import Path

import pytest

from streams import python_process


@pytest.mark.parametrize("hidden", ["random.py", "logging.py", "models/__init__.py"])
def test_process_ignores_modules_in_the_working_directory(tmp_path: Path, hidden: str) -> None:
    file = tmp_path / hidden
    file.parent.mkdir(exist_ok=True)
    file.write_text("raise SystemExit(3)")
    command = python_process.command("streams.process.early_start", '{"method": "median", "shadows": []}')
    done = subprocess.run(
        command, cwd=tmp_path, env=python_process.environment(), input=b"", capture_output=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, b"")
