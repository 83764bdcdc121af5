"""Stored states with changed values are rejected or loaded; no kernel ends the process."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.sizes import mostly_long

ROOT = Path(__file__).parents[3]


def run_mutations(first: int, last: int) -> None:
    command = [sys.executable, "-X", "faulthandler", "-m", "tests.support.mutated", str(first), str(last)]
    ran = subprocess.run(command, cwd=ROOT, text=True, capture_output=True)
    assert ran.returncode == 0, f"{ran.stdout[-200:]}\n{ran.stderr[-4000:]}"
    assert "'refused'" in ran.stdout and "'went on'" in ran.stdout


# Seed 3623 has a live job of -2**31 CPUs, which crashed the process.
@pytest.mark.parametrize(("first", "last"), mostly_long([(3580, 3640), (3500, 3700), (0, 1500)]))
def test_mutated_states_are_rejected_or_loaded(first: int, last: int) -> None:
    run_mutations(first, last)
