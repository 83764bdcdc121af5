"""CPU time of a replay, trainings included, relative to another version, in turns.

`TESTS_AGAINST` is the program `queuecast` of that version, in a separate environment; `TESTS_REPLAY_JOBS` is the
number of first jobs of CTC (all: 0).
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.traces import first_jobs

pytestmark = pytest.mark.timeout(7200)

JOBS = int(os.environ.get("TESTS_REPLAY_JOBS", "8000"))
ROUNDS = 3
WARMING_JOBS = 1000
HERE = Path(sys.executable).with_name("queuecast")


def cpu_s(program: str | Path, log: Path) -> float:
    """Return the CPU time of a replay with all its processes (s)."""
    before = os.times()
    subprocess.run([program, "replay", log], check=True, capture_output=True)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def test_replay_takes_less_cpu_time_than_other_version(tmp_path: Path) -> None:
    against = os.environ.get("TESTS_AGAINST")
    if not against:
        pytest.skip("TESTS_AGAINST names no program to compare with")
    warming = first_jobs("CTC", tmp_path / "warming.swf", WARMING_JOBS)
    for program in (HERE, against):
        cpu_s(program, warming)  # compiles
    log, ratios = first_jobs("CTC", tmp_path / "first.swf", JOBS or None), []
    for _ in range(ROUNDS):
        now, then = cpu_s(HERE, log), cpu_s(against, log)
        ratios.append(now / then)
        print(f"\n{JOBS or 'all'} jobs of CTC: {now:.1f} s, there {then:.1f} s: {ratios[-1]:.2f} of it")
    assert min(ratios) < 1.0
