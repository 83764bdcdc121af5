"""CPU time of a worker per event outside the engine, with a backlog, beside a bare Faust loop and quix-streams.

The worker predicts with the cheapest method, and the CPU time of the engine alone is subtracted. The two loops do a
stateful map with a changelog. All read the same events from the same broker, in turns. The CPU time is that of each
process, so other programs on the machine matter little. quix-streams is measured if it is installed
(`pip install quixstreams`).

By the environment: `TESTS_OVERHEAD_JOBS` is the number of jobs of each of the four sites, `TESTS_OVERHEAD_TURNS` the
number of turns. `TESTS_OVERHEAD_AGAINST` are other interpreters, whose workers are measured too. With
`TESTS_OVERHEAD_DEFAULT=1` the worker predicts with the default method; then nothing is subtracted.

    .venv/bin/python -m pytest -m benchmark -s tests/benchmarks/test_overhead.py
"""

import os
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import psutil
import pytest

from models.engine.engine import Engine
from models.engine.settings import EngineSettings
from models.records import AnyEvent, Capacity, Submit
from tests.benchmarks.test_worker_speed import SITES, Outputs, bare_loop
from tests.support.deployment import Deploy, Deployment, busy_sites

pytestmark = pytest.mark.timeout(3600)

JOBS = int(os.environ.get("TESTS_OVERHEAD_JOBS", "3000"))
TURNS = int(os.environ.get("TESTS_OVERHEAD_TURNS", "3"))
AGAINST = os.environ.get("TESTS_OVERHEAD_AGAINST", "").split()
IS_DEFAULT = os.environ.get("TESTS_OVERHEAD_DEFAULT") == "1"
CHEAPEST: dict[str, Any] = {"method": "zero", "shadows": (), "runtimes": "walltime", "prior": "none"}
ENGINE: dict[str, Any] = {"history": 6000} | ({} if IS_DEFAULT else CHEAPEST)
CHECKPOINTS = {"checkpoint_events": 1000, "checkpoint_seconds": 2.0}
WARM_UP = 0.15
"""Share of the outputs before the measurement begins."""

PATIENCE_S = 90.0
"""Timeout for the records of one measurement, seconds."""

MAX_OVERHEAD_US = 400.0
"""Upper bound of the overhead with room for noise; the target is 150."""


@pytest.fixture(scope="module")
def events() -> list[AnyEvent]:
    """Return the events of four busy sites, about three per job."""
    return busy_sites(SITES, JOBS)


def cpu_s(process: psutil.Process) -> float:
    """Return the CPU time of a process without its children, which train (s)."""
    return float(sum(process.cpu_times()[:2]))


def cpu_at(pid: int, outputs: Outputs, records: int) -> tuple[float, int]:
    """Wait for records; return the CPU time of a process then, and the number of records."""
    process, deadline = psutil.Process(pid), time.monotonic() + PATIENCE_S
    while (written := outputs.written) < records:
        assert time.monotonic() < deadline, f"{written} of {records} records"
        assert process.status() != psutil.STATUS_ZOMBIE, "the process has ended"
        time.sleep(0.02)
    return cpu_s(process), written


def engine_us(events: list[AnyEvent]) -> float:
    """Return the CPU time of the engines alone per event (µs), without the first share of the events."""
    settings = EngineSettings(**ENGINE)
    engines = {site: Engine(site, settings) for site in SITES}
    first, begin = int(WARM_UP * len(events)), 0.0
    for number, event in enumerate(events):
        if number == first:
            begin = time.thread_time()
        engines[event.site].apply(event)
        if number % 1000 == 0:
            for engine in engines.values():
                engine.take_changes()
    return (time.thread_time() - begin) / (len(events) - first) * 1e6


@contextmanager
def interpreter(program: str) -> Iterator[None]:
    """Start programs with another Python interpreter."""
    own, sys.executable = sys.executable, program
    try:
        yield
    finally:
        sys.executable = own


def loop_s(here: Deployment, events: list[AnyEvent], directory: Path, script: str) -> float:
    """Return the CPU time of a loop (s), from its start until all events are written."""
    here.send(events)
    with bare_loop(here, directory, script) as process:
        outputs = Outputs(here, f"{here.settings.kafka.prefix}bare-outputs")
        return cpu_at(process.pid, outputs, len(events))[0]


def worker_us(here: Deployment, events: list[AnyEvent], program: str) -> float:
    """Return the CPU time of a worker per event (µs), from `WARM_UP` of its records to the last one."""
    submitted = sum(isinstance(event, Submit) for event in events)
    left = sum(not isinstance(event, (Capacity, Submit)) for event in events)  # each has one outcome
    records = submitted + left
    here.send(events)
    with interpreter(program):
        here.worker.start()
    try:
        outputs = Outputs(here, here.topics.predictions, here.topics.outcomes)
        begin_s, before = cpu_at(here.worker.pid, outputs, int(WARM_UP * records))
        end_s, after = cpu_at(here.worker.pid, outputs, records)
    finally:
        here.worker.kill()
    return (end_s - begin_s) / (after - before) * records / len(events) * 1e6


def test_worker_overhead_per_event_is_small(deploy: Deploy, events: list[AnyEvent], tmp_path: Path) -> None:
    found: dict[str, list[float]] = defaultdict(list)
    loops = {"bare Faust loop": "bare_loop.py"}
    if find_spec("quixstreams") is not None:
        loops["quix-streams"] = "quix_loop.py"
    programs = {"worker": sys.executable} | {Path(program).name: program for program in AGAINST}
    print(f"\nµs of CPU time an event, {len(events)} events")

    def note(name: str, cost: float) -> None:
        found[name].append(cost)
        print(f"{name:<16}{cost:8.0f}", flush=True)

    def deployment() -> Deployment:
        return deploy(worker=CHECKPOINTS, **ENGINE)

    starts_s = {name: loop_s(deployment(), events[:1], tmp_path / script, script) for name, script in loops.items()}
    for turn in range(TURNS):
        for name, script in loops.items():
            spent_s = loop_s(deployment(), events, tmp_path / f"{turn}-{script}", script) - starts_s[name]
            note(name, spent_s / len(events) * 1e6)
        for name, program in programs.items():
            note(name, worker_us(deployment(), events, program))
        if not IS_DEFAULT:
            note("engine", engine_us(events))
    print(f"median of {TURNS}:")
    for name, costs in found.items():
        print(f"{name:<16}{median(costs):8.0f}")
    if IS_DEFAULT:
        return
    overhead_us = median(found["worker"]) - median(found["engine"])
    print(f"overhead of the worker: {overhead_us:.0f} µs")
    assert overhead_us <= MAX_OVERHEAD_US
