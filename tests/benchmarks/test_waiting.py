"""Accuracy of estimates in force while jobs wait, and of notifications, on the first jobs of real traces.

`TESTS_WAITING_TRACES=KTH,OSC` selects traces. `TESTS_AGAINST` is the program `queuecast` of another version, in a
separate environment: the two are compared in pairs. `TESTS_WAITING_SILENCE_S=300` repeats the capacity of a site
after this time without an event, in both versions or, with `TESTS_WAITING_AGAINST_SILENT=1`, here only.

    .venv/bin/python -m pytest -m benchmark -s tests/benchmarks/test_waiting.py
"""

import json
import math
import os
import subprocess
import sys
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from models.records import Capacity, Submit
from streams.sources.swf import events_of, read_swf
from tests.support.traces import first_jobs

pytestmark = pytest.mark.timeout(7200)

TRACES = "CTC,HPC2N,KTH,LANL-CM5,LPC-EGEE,METACENTRUM,OSC-Clust,RICC,SDSC-BLUE,SDSC-Par,SDSC-SP2,Sandia-Ross"
JOBS, FIRST_SCORED, MIN_JOBS = 9000, 2001, 50
SITE = "waiting"
RESAMPLED = 2000

Scores = Mapping[str, Any]


def silence(log: Path, limit_s: float) -> Path:
    """Write the site's capacity again for each `limit_s` without an event; return the file."""
    events = list(events_of(read_swf(log), SITE))
    first = next(event for event in events if isinstance(event, Capacity))
    assert any(isinstance(event, Submit) for event in events)
    times = [
        before.time + turn * limit_s
        for before, after in pairwise(events)
        for turn in range(1, math.ceil((after.time - before.time) / limit_s))
    ]
    found = log.with_suffix(".jsonl")
    found.write_bytes(b"".join(msgspec.json.encode(msgspec.structs.replace(first, time=at)) + b"\n" for at in times))
    return found


def scores(program: str | Path, *logs: Path) -> Scores:
    """Replay the files, and return the scores."""
    rows = ["--rows", str(FIRST_SCORED), str(JOBS)]
    done = subprocess.run([program, "replay", *logs, "--site", SITE, *rows, "--json"], check=True, capture_output=True)
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
    against, limit_s = os.environ.get("TESTS_AGAINST"), float(os.environ.get("TESTS_WAITING_SILENCE_S", "0"))
    here, there = dict[str, Scores](), dict[str, Scores]()
    for name in os.environ.get("TESTS_WAITING_TRACES", TRACES).split(","):
        log = first_jobs(name, tmp_path / f"{name}.swf", JOBS)
        repeated = [silence(log, limit_s)] if limit_s else []
        here[name] = scores(Path(sys.executable).with_name("queuecast"), log, *repeated)
        show(name, here[name])
        if against:
            silent = os.environ.get("TESTS_WAITING_AGAINST_SILENT") == "1"
            there[name] = scores(against, log, *([] if silent else repeated))
            show(f"{name}, other version", there[name])
    if there:
        compare(here, there)
    assert all(found["while_waiting"] for found in here.values())
