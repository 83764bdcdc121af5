"""Longest step of an event loop that applies events of a site with many live jobs, by kind of event.

`TESTS_LIVE_JOBS` is the number of live jobs, 100,000 by default. A step is one call of `Engine.apply`, or one turn of a
reset; a worker loads a stored site in a thread, so `load` is printed and not bounded.

    .venv/bin/python -m pytest -m benchmark -s tests/benchmarks/test_longest_step.py
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import islice

import msgspec
import pytest

from models.engine.engine import Engine
from models.engine.operator_commands import restarted
from models.engine.settings import EngineSettings
from models.engine.warm_up import warm_up
from models.records import AnyEvent, Cancel, Capacity, End, Partition, Pool, Start, Submit
from models.site.history import features_of
from models.site.job import Estimate, Job
from models.waits.order.learnt_order import LearntOrder
from streams.worker.process import collect_seldom

pytestmark = pytest.mark.timeout(7200)

LIVE = int(os.environ.get("TESTS_LIVE_JOBS", "100000"))
POOLS, TURNS, RESET_TURNS = 40, 12, 5000
WANTED_MS, SLACK = 100.0, 5.0
"""The longest step, and the factor that other work on the machine may add; printed figures are as measured."""

FEW = {"0.1": 1.0, "0.5": 100.0, "0.9": 10_000.0, "0.95": 30_000.0}
BEGIN = 1_700_000_000.0
SHAPES = {
    "queued": (0.002, False),
    "running": (1.0, False),
    "running, 40 pools": (1.0, True),
    "half queued, 40 full pools": (0.5, True),
}
"""Share of running jobs among live jobs, and True for a site with pools."""


def capacity(running: int, pools: bool, at: float) -> Capacity:
    """Return a machine whose CPUs are filled by running jobs of 2 CPUs on average."""
    nodes = max(running * 2 // (POOLS * 64), 1)
    if not pools:
        return Capacity(site="s", time=at, cpus=2 * running)
    names = [f"p{number}" for number in range(POOLS)]
    return Capacity(
        site="s",
        time=at,
        cpus=POOLS * nodes * 64,
        pools=[Pool(name=name, nodes=nodes, cpus=64) for name in names],
        partitions=[Partition(name="all", pools=names), *(Partition(name=name, pools=[name]) for name in names)],
    )


def submitted(name: str, at: float, number: int, pools: bool) -> Submit:
    queue = f"p{number % POOLS}" if number % 4 else "all"
    return Submit(
        site="s",
        time=at,
        job=name,
        user=f"u{number % 50}",
        cpus=1 + number % 3,
        walltime=3600.0 * (1 + number % 97),
        queue=queue if pools else "ab"[number % 2],
    )


class Steps:
    """Time of each step (ms) by kind."""

    def __init__(self) -> None:
        self.spent: dict[str, list[float]] = {}

    def measure(self, kind: str, step: Callable[[], object]) -> None:
        """Measure one step by the thread's CPU time, as other processes share the machine."""
        begin = time.thread_time()
        step()
        self.spent.setdefault(kind, []).append((time.thread_time() - begin) * 1e3)

    def each(self, kind: str, steps: Iterator[object]) -> None:
        with suppress(StopIteration):
            while True:
                self.measure(kind, lambda: next(steps))


def filled(share: float, pools: bool, monkeypatch: pytest.MonkeyPatch) -> Engine:
    """Return a site with `LIVE` jobs. To save time, most jobs get no prediction and no training."""
    engine, running = Engine("s", EngineSettings()), int(LIVE * share)
    engine.apply(capacity(running, pools, BEGIN))
    predict = engine.methods.predict_wait

    def same(job: Job, _: object) -> None:
        job.features = features_of(job, engine.context.state, job.submit)
        job.estimates.update(dict.fromkeys(engine.methods.waits, Estimate(100.0, "the same", FEW)))

    engine.methods.predict_wait = same  # type: ignore[method-assign]
    monkeypatch.setattr(LearntOrder, "_started", lambda *_: None)
    for number in range(LIVE):
        name, at = f"r{number}" if number < running else f"q{number}", BEGIN + 1.0 + 0.01 * number
        engine.apply(msgspec.structs.replace(submitted(name, at, number, pools), late=number < running))
        if number < running:
            engine.apply(Start(site="s", time=at, job=name))
        if number % 1000 == 0:
            engine.take_changes()
    engine.methods.predict_wait = predict  # type: ignore[method-assign]
    monkeypatch.undo()
    assert len(engine.context.state) == LIVE
    return engine


def events(turn: int, now: float, share: float, pools: bool) -> dict[str, AnyEvent]:
    running, name = int(LIVE * share), f"p{turn}"
    found: dict[str, AnyEvent] = {
        "submit": submitted(name, now, turn, pools),
        "end": End(site="s", time=now + 0.2, job=f"r{turn}"),
        "start": Start(site="s", time=now + 0.3, job=f"q{running + turn}" if share < 1.0 else name),
        "cancel": Cancel(site="s", time=now + 0.4, job=f"q{LIVE - 1 - turn}" if share < 1.0 else name),
    }
    if turn % 3 == 0:
        found["capacity"] = capacity(running + 64 * POOLS * turn, pools, now + 0.5)  # more nodes in each pool
    return found


@pytest.mark.parametrize("shape", SHAPES)
def test_longest_step_of_event_loop_is_bounded(shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    warm_up()
    collect_seldom()  # as in a worker
    steps, (share, pools) = Steps(), SHAPES[shape]
    engine = filled(share, pools, monkeypatch)
    for turn in range(TURNS):
        for kind, event in events(turn, engine.time + 60.0, share, pools).items():
            if (prepared := engine.prepare(event)) is not None:
                steps.each("preparation of a capacity, a turn", prepared)
            steps.measure(kind, partial(engine.apply, event))
        steps.measure("changes", engine.take_changes)
    state, _ = engine.checkpoint()
    settings = engine.settings
    steps.measure("load, in a thread", lambda: Engine.load(state, None, None, settings))
    steps.each("reset, a turn", islice(restarted(engine), RESET_TURNS))
    print(f"\n{LIVE:,} live jobs, {shape}: ms of processor time{'':>10}median{'':>6}longest")
    for kind, spent in steps.spent.items():
        print(f"  {kind:<52}{sorted(spent)[len(spent) // 2]:>12.1f}{max(spent):>12.1f}")
    longest = max((max(spent), kind) for kind, spent in steps.spent.items() if "thread" not in kind)
    print(f"  longest step: {longest[0]:.0f} ms, {longest[1]}")
    assert longest[0] < SLACK * WANTED_MS, longest[1]
