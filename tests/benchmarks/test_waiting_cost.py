"""CPU time of a replay's engine with and without later estimates and heartbeats, trainings included, in turns.

`TESTS_WAITING_COST_JOBS` is the number of first jobs of each trace, 5000 by default.

    .venv/bin/python -m pytest -m benchmark -s tests/benchmarks/test_waiting_cost.py
"""

import os
import time
from pathlib import Path

import numpy as np
import pytest

from models import trainer
from models.engine.engine import Engine
from models.engine.settings import EngineSettings
from models.records import AnyEvent
from models.waits.blend import Blend
from streams.bulk.reading import read_log
from tests.support.traces import first_jobs

pytestmark = pytest.mark.timeout(3600)

JOBS = int(os.environ.get("TESTS_WAITING_COST_JOBS", "5000"))
TRACES, TURNS = ("KTH", "CTC", "OSC-Clust"), 3
HEARTBEAT_S = 300.0


def events_of(log: Path, heartbeat_s: float) -> list[AnyEvent]:
    with read_log([log], "s", heartbeat_s=heartbeat_s) as (found, _):
        return [*found.events()]


def cpu_s(events: list[AnyEvent]) -> float:
    """Return the CPU time of an engine for these events (s)."""
    engine, begin = Engine("s", EngineSettings()), time.process_time()
    for event in events:
        engine.apply(event)
        engine.take_changes()
    return time.process_time() - begin


@pytest.mark.parametrize("trace", TRACES)
def test_cpu_time_of_later_estimates_is_printed(trace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = first_jobs(trace, tmp_path / "first.swf", JOBS)
    without_events, with_events = events_of(log, 0.0), events_of(log, HEARTBEAT_S)
    before = trainer.trainer()
    trainer.use(trainer.SynchronousTrainer())
    cpu_s(with_events[:3000])  # compiles
    without, with_ = list[float](), list[float]()
    try:
        for _ in range(TURNS):
            with monkeypatch.context() as patch:
                patch.setattr(Blend, "re_estimates", False)
                without.append(cpu_s(without_events))
            with_.append(cpu_s(with_events))
    finally:
        trainer.use(before)
    ratio = float(np.median(np.divide(with_, without)))
    print(f"\n{trace}, {JOBS} jobs: {min(with_):.1f} s with later estimates, {min(without):.1f} s without: {ratio:.2f}")
    assert ratio > 1.0
