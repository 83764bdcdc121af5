"""Engines for tests: events by hand, a workload with every kind of event, and settings."""

import random
from functools import cache
from typing import Any

import msgspec

from models.engine.engine import Engine
from models.engine.outgoing import Record
from models.engine.settings import EngineSettings
from models.method_registry import METHODS, RUN_METHODS
from models.papers.template import DEFAULT
from models.records import (
    Alter,
    AnyEvent,
    Capacity,
    End,
    ExpectedStart,
    Heartbeat,
    Hold,
    Outcome,
    Prediction,
    Release,
    Requeue,
    Resume,
    Start,
    Submit,
    Suspend,
)
from models.simulation import generate, run
from tests.support.events import capacity

MEDIAN = EngineSettings(method="median", shadows=("zero",), runtimes="closest", bounds="")
SMALL = EngineSettings(history=30, publish_shadows=True)
"""The usual methods, published, with windows that a short workload fills several times."""

EVERY = msgspec.structs.replace(
    SMALL,
    shadows=tuple(METHODS),
    run_shadows=tuple(RUN_METHODS),
    parameters={
        "gibbons": {"depth": 40},
        "ibl": {"history": 40, "run_history": 30, "policy": ["user"]},
        "qbets": {"depth": 100},
        "template": {"templates": ["user,cpus/8 mean relative 16", "user linear absolute 64", *DEFAULT]},
    },
)
"""Every method there is, with windows that are as small."""


def nodes_at(time: float, nodes: int | None = 10, down_nodes: int = 0) -> Capacity:
    """The site has 80 CPUs, this many nodes, and this many of them are down."""
    return capacity(80, time, nodes=nodes, down_nodes=down_nodes)


def engine_after(*events: AnyEvent, settings: EngineSettings = MEDIAN) -> Engine:
    engine = Engine("s", settings)
    for event in events:
        engine.apply(event)
    return engine


def predicted(engine: Engine, event: Submit) -> Prediction:
    [record] = engine.apply(event)
    assert isinstance(record, Prediction)
    return record


def outcome(engine: Engine, event: AnyEvent) -> Outcome:
    [record] = engine.apply(event)
    assert isinstance(record, Outcome)
    return record


def encoded(records: list[Record]) -> bytes:
    return msgspec.json.encode([(type(record).__name__, record) for record in records])


@cache
def workload(seed: int, jobs: int = 120) -> list[AnyEvent]:
    """A simulated site whose jobs are also held, altered, suspended and requeued; events are lost, twice or swapped."""
    dice, rare, beats = random.Random(seed), random.Random(seed), random.Random(seed)
    events: list[AnyEvent] = []
    held: set[str] = set()
    for event in run(generate(seed, jobs, cpus=64, load=0.9, start_time=10**9), cpus=64, site="s"):
        if isinstance(event, Capacity):
            events.append(msgspec.structs.replace(event, nodes=16))
            continue
        key: dict[str, Any] = {"site": "s", "job": event.job, "time": event.time}
        if isinstance(event, Start) and event.job in held:
            events.append(Release(**key))
        if isinstance(event, End) and dice.random() < 0.1:
            events += [Requeue(**key), Start(**key, attempt=1), End(**key | {"time": event.time + 100.1}, attempt=1)]
        else:
            events.append(event)
        if isinstance(event, Submit) and dice.random() < 0.1:
            held.add(event.job)
            events.append(Hold(**key))
        if isinstance(event, Submit) and rare.random() < 0.2:
            events.append(ExpectedStart(**key, by=rare.choice("ab"), expected=event.time + 600.0 * rare.random()))
        if isinstance(event, Start) and rare.random() < 0.2:
            events.append(Suspend(**key, releases=rare.random() < 0.5))
            if rare.random() < 0.8:
                events.append(Resume(**key | {"time": event.time + 50.0}))
        if dice.random() < 0.1:
            events.append(Alter(**key, cpus=dice.randint(1, 64), walltime=dice.choice([None, 0.1, 7200.0])))
        if beats.random() < 0.1:
            events.append(Heartbeat(site="s", time=event.time + 300.0 * (beats.random() - 0.5)))
        if dice.random() < 0.02:
            events.append(Capacity(site="s", time=event.time, cpus=64, nodes=16, down_nodes=dice.randint(0, 12)))
        if dice.random() < 0.05:
            events.append(dice.choice(events))
        if dice.random() < 0.03:
            events.pop()
        if dice.random() < 0.05 and len(events) > 1:
            events[-2:] = events[:-3:-1]
    return events


def kinds(records: list[Record]) -> list[str]:
    return [type(record).__name__ for record in records]
