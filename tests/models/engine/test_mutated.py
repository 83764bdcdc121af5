"""Stored states with changed values are rejected or loaded; no kernel ends the process."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def run_mutations(first: int, last: int) -> None:
    command = [sys.executable, "-X", "faulthandler", "-m", "tests.support.mutated", str(first), str(last)]
    ran = subprocess.run(command, cwd=ROOT, text=True, capture_output=True)
    assert ran.returncode == 0, f"{ran.stdout[-200:]}\n{ran.stderr[-4000:]}"
    assert "'refused'" in ran.stdout and "'went on'" in ran.stdout


def test_mutated_states_are_rejected_or_loaded() -> None:
    run_mutations(3500, 3700)  # Seed 3623 has a live job of -2**31 CPUs, which crashed the process.


@pytest.mark.long
def test_many_mutated_states_are_rejected_or_loaded() -> None:
    run_mutations(0, 1500)
