"""Accuracy of estimates in force while jobs wait, and of notifications, on the first jobs of real traces.

`TESTS_WAITING_TRACES=KTH,OSC` selects traces. `TESTS_AGAINST` is the program `queuecast` of another version, in a
separate environment: the two are compared in pairs. `TESTS_WAITING_HEARTBEAT_S=0` measures without heartbeats, here
only.

The package's prior has seen these jobs, so the ratios are too low. `QUEUECAST_ENGINE_PRIOR=none` measures without one.

    .venv/bin/python -m pytest -m benchmark -s tests/benchmarks/test_waiting.py
"""

import json
import math
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.traces import first_jobs

pytestmark = pytest.mark.timeout(7200)

TRACES = "CTC,HPC2N,KTH,LANL-CM5,LPC-EGEE,METACENTRUM,OSC-Clust,RICC,SDSC-BLUE,SDSC-Par,SDSC-SP2,Sandia-Ross"
JOBS, FIRST_SCORED, MIN_JOBS = 9000, 2001, 50
SITE = "waiting"
RESAMPLED = 2000

Scores = Mapping[str, Any]


def scores(program: str | Path, log: Path, *options: str) -> Scores:
    """Replay the file, and return the scores."""
    words = [program, "replay", log, "--site", SITE, "--rows", str(FIRST_SCORED), str(JOBS), "--json", *options]
    done = subprocess.run(words, check=True, capture_output=True)
    found: Scores = json.loads(done.stdout)
    return found


def show(name: str, found: Scores) -> None:
    ages = {age: row for age, row in found["while_waiting"].items() if row["jobs"] >= MIN_JOBS}
    each = ", ".join(f"{age} {row['ratio']:.3f} ({row['cov_0.9']:.3f})" for age, row in ages.items())
    notices = ", ".join(f"{key} {value:.3g}" for key, value in found["notices"].items() if value is not None)
    print(f"\n{name}: ratio (coverage) {each}\n  {notices}", flush=True)


def compare(here: Mapping[str, Scores], there: Mapping[str, Scores]) -> None:
    """Print the mean change of the ratio by age, with a 90 % interval (bootstrap over traces)."""
    dice = np.random.default_rng(0)
    for age in next(iter(here.values()))["while_waiting"]:
        pairs = [
            (there[name]["while_waiting"][age], found["while_waiting"][age])
            for name, found in here.items()
            if found["while_waiting"].get(age, {}).get("jobs", 0) >= MIN_JOBS
        ]
        if pairs:
            changes = np.array([100.0 * math.log(after["ratio"] / before["ratio"]) for before, after in pairs])
            means = dice.choice(changes, (RESAMPLED, len(changes))).mean(axis=1)
            low, high = np.percentile(means, (5, 95))
            middle = [
                np.median([[row["ratio"], row["cov_0.9"]] for row in rows], axis=0) for rows in zip(*pairs, strict=True)
            ]
            medians = " to ".join(f"{ratio:.3f} ({coverage:.3f})" for ratio, coverage in middle)
            print(f"{age}: {len(pairs)} traces, {changes.mean():+.1f} % [{low:+.1f}, {high:+.1f}], median {medians}")


def test_waiting_estimates_and_notices_are_printed_by_trace(tmp_path: Path) -> None:
    against, heartbeat_s = os.environ.get("TESTS_AGAINST"), os.environ.get("TESTS_WAITING_HEARTBEAT_S")
    options = () if heartbeat_s is None else ("--heartbeat", heartbeat_s)
    here, there = dict[str, Scores](), dict[str, Scores]()
    for name in os.environ.get("TESTS_WAITING_TRACES", TRACES).split(","):
        log = first_jobs(name, tmp_path / f"{name}.swf", JOBS)
        here[name] = scores(Path(sys.executable).with_name("queuecast"), log, *options)
        show(name, here[name])
        if against:
            there[name] = scores(against, log)
            show(f"{name}, other version", there[name])
    if there:
        compare(here, there)
    assert all(found["while_waiting"] for found in here.values())
