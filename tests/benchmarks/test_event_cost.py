"""Cost of an event and a question with the default settings, by number of queued jobs.

`TESTS_DEPTHS` are the numbers of queued jobs, 100 1000 10000 100000 by default.
"""

import os
from collections.abc import Callable
from functools import partial
from time import thread_time

import numpy as np
import pytest

from models.engine.asking.engine_answers import answer, grid_estimates
from models.engine.engine import Engine
from models.engine.settings import EngineSettings
from models.engine.warm_up import warm_up
from models.records import (
    Alter,
    AnyEvent,
    AnyQuestion,
    Cancel,
    Capacity,
    End,
    Hold,
    JobQuestion,
    JobsQuestion,
    Release,
    SiteQuestion,
    Start,
    Submit,
    WaitQuestion,
)
from models.site.history import features_of
from models.site.job import Estimate, Job
from models.site.shapes import WALLTIMES, grid, sizes

DEPTHS = [int(depth) for depth in os.environ.get("TESTS_DEPTHS", "100 1000 10000 100000").split()]
REFERENCE = 1000
"""Number of queued jobs of the reference cost."""

RUNNING, CPUS, TURNS = 200, 1000, 60
MOST_MS, MOST_RATIO = 10.0, 2.5
"""Maximum time of a question, and maximum ratio of an event's time to that at `REFERENCE`, with room for noise."""

FEW = {"0.1": 1.0, "0.5": 100.0, "0.9": 10_000.0, "0.95": 30_000.0}


def submitted(name: str, time: float, number: int) -> Submit:
    """Return a job of one of 50 users and two queues."""
    cpus, walltime = 1 + number % 64, 600.0 * (1 + number % 20)
    queue = "ab"[number % 2]
    return Submit(site="s", time=time, job=name, user=f"u{number % 50}", cpus=cpus, walltime=walltime, queue=queue)


def engine_with(queued: int) -> Engine:
    """Return a site with queued jobs; to save time, most jobs of a deep queue get the same estimate."""
    engine = Engine("s", EngineSettings())
    engine.apply(Capacity(site="s", time=0.0, cpus=CPUS))
    for number in range(RUNNING):
        engine.apply(submitted(f"r{number}", float(number), number))
        engine.apply(Start(site="s", time=number + 30.0, job=f"r{number}"))
    predict, methods = engine.methods.predict_wait, engine.methods

    def predict_constant(job: Job, context: object) -> None:
        job.features = features_of(job, engine.context.state, job.submit)
        job.estimates.update(dict.fromkeys(methods.waits, Estimate(100.0, "the same", FEW)))

    for number in range(queued):
        predictor = predict_constant if queued > REFERENCE and number < queued - 200 else predict
        methods.predict_wait = predictor  # type: ignore[method-assign]
        engine.apply(submitted(f"q{number}", 300.0 + 0.01 * number, number))
        if number % 1000 == 0:
            engine.take_changes()
    methods.predict_wait = predict  # type: ignore[method-assign]
    assert len(engine.context.state) == queued + RUNNING
    return engine


class Costs:
    """CPU time (ms) by kind of work."""

    def __init__(self) -> None:
        self.spent: dict[str, list[float]] = {}

    def measure(self, what: str, do: Callable[[], object]) -> None:
        begin = thread_time()
        do()
        self.spent.setdefault(what, []).append((thread_time() - begin) * 1e3)

    def median(self, what: str) -> float:
        return float(np.median(self.spent[what]))


def events(turn: int, now: float) -> dict[str, AnyEvent]:
    """Return one event of each kind."""
    name = f"p{turn}"
    return {
        "submit": submitted(name, now, turn),
        "submit of a new user": Submit(site="s", time=now, job=f"{name}n", user=f"n{turn}", cpus=8, walltime=3600.0),
        "alter": Alter(site="s", time=now + 0.1, job=name, cpus=9),
        "hold": Hold(site="s", time=now + 0.2, job=name),
        "release": Release(site="s", time=now + 0.3, job=name),
        "end": End(site="s", time=now + 0.4, job=f"r{turn}"),
        "start": Start(site="s", time=now + 0.5, job=f"q{turn}"),
        "cancel": Cancel(site="s", time=now + 0.6, job=name),
    }


def questions(queued: int) -> dict[str, AnyQuestion]:
    """Return one question of each kind."""
    request = WaitQuestion(id="1", site="s", cpus=8, walltime=3600.0, user="u1", queue="a")
    return {
        "what-if": request,
        "what-if and why": WaitQuestion(id="1", site="s", cpus=8, walltime=3600.0, user="u1", queue="a", why=True),
        "job": JobQuestion(id="1", site="s", job=f"q{queued - 10}"),
        "a user's jobs": JobsQuestion(id="1", site="s", user="u3"),
        "the site": SiteQuestion(id="1", site="s"),
    }


def costs_with(queued: int) -> Costs:
    engine, costs = engine_with(queued), Costs()
    now = engine.time + 10.0
    for turn in range(TURNS):
        for what, event in events(turn, now + turn).items():
            costs.measure(what, partial(engine.apply, event))
        engine.take_changes()
        if turn % 6 == 0:
            for what, question in questions(queued).items():
                costs.measure(what, partial(answer, question, engine, now + turn))
    shapes = grid(sizes(CPUS, 8), WALLTIMES, ("a", "b"))
    estimates = iter(grid_estimates(engine, shapes, now + TURNS))
    costs.measure("the first grid estimate", lambda: next(estimates))
    for _ in shapes[1:]:
        costs.measure("each further one", lambda: next(estimates))
    return costs


def test_event_and_question_cost_is_independent_of_queue_depth() -> None:
    warm_up()
    costs = {queued: costs_with(queued) for queued in DEPTHS}
    print("\nms of CPU time" + "".join(f"{queued:>12,}" for queued in DEPTHS))
    for what in costs[DEPTHS[0]].spent:
        print(f"{what:<30}" + "".join(f"{costs[queued].median(what):12.2f}" for queued in DEPTHS))
    if REFERENCE not in costs:
        pytest.skip(f"no depth of {REFERENCE} to compare with")
    steps = [*questions(1), "the first grid estimate", "each further one"]
    for what in steps:
        assert costs[DEPTHS[-1]].median(what) <= MOST_MS, what
    for what in ("submit", "submit of a new user", "start"):
        assert costs[DEPTHS[-1]].median(what) <= MOST_RATIO * costs[REFERENCE].median(what), what
