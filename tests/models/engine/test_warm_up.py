"""Warm-up compiles all kernels of a worker before its first event, each for one signature."""

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.support.compiled import ROOT


def kernels(which: str) -> Any:
    command = [sys.executable, "-m", "tests.support.kernels", which]
    run = subprocess.run(command, capture_output=True, cwd=ROOT, check=False)
    assert run.returncode == 0, run.stderr.decode()
    return json.loads(run.stdout)


@pytest.mark.parametrize("which", ["several", pytest.param("late", marks=pytest.mark.long)])
def test_warm_up_compiles_each_kernel_for_one_signature(which: str) -> None:
    assert kernels(which) == {}
