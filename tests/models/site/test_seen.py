"""A deep queue is simulated in part, up to a limit; other queues are simulated completely."""

from collections.abc import Iterator

import numpy as np
import pytest

from models.engine.asking.what_if import consider
from models.engine.engine import Engine
from models.engine.settings import EngineSettings
from models.records import Capacity, Start, Submit
from models.site import seen
from models.site.job import Job, Phase
from models.site.seen import FIRST, LAST, MIDDLE, MOST_WAITING, VisibleRows, level_of
from models.site.state import SiteState
from models.site.table import RUNNING
from models.waits import simulated
from models.waits.boosted.live_features import NAMES, live_features
from models.waits.order import LearntOrder
from models.waits.order.ordered_queue import MAX_SIMULATED_OF_PART

MOST = FIRST + LAST + 1.25 * MIDDLE
"""Maximum number of visible rows, which are selected by hash."""

FEW, FIRST_OF_FEW, LAST_OF_FEW, BETWEEN = 200, 40, 20, 64


@pytest.fixture
def soon_deep(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Make a queue of some hundred jobs deep and simulate one hundred of them."""
    for name, value in (
        ("MOST_WAITING", FEW),
        ("FIRST", FIRST_OF_FEW),
        ("LAST", LAST_OF_FEW),
        ("MIDDLE", BETWEEN),
    ):
        monkeypatch.setattr(seen, name, value)
    yield


def site(jobs: int) -> SiteState:
    """Build a site of jobs submitted one second apart; every 20th is running and every 30th is held."""
    state = SiteState()
    for number in range(jobs):
        job = Job(f"{number}.alder", 0, float(number), user=f"u{number % 7}", cpus=1 + number % 16, run_s=600.0)
        job.planned_run_s, job.queue = 60.0 * (1 + number % 11), ("a", "b")[number % 2]
        if number % 20 == 3:
            job.phase, job.start = Phase.RUNNING, float(number)
        elif number % 30 == 7:
            job.phase = Phase.HELD
        state.enter(job)
    return state


def left_at(state: SiteState) -> list[str]:
    """Return the names of the visible jobs."""
    keys = state.table.keys
    return [key[0] for key in (keys[row] for row in state.table.visible_rows().rows.tolist()) if key is not None]


@pytest.mark.parametrize("jobs", [0, 1, 500, MOST_WAITING])
def test_visible_rows_are_all_rows_of_a_short_queue(jobs: int) -> None:
    state = site(jobs)
    for number in range(0, jobs, 3):
        state.leave(state.jobs[f"{number}.alder", 0])
    looked = state.table.visible_rows()
    assert looked.whole and not looked.bound
    assert left_at(state) == [key[0] for key in state.jobs]
    assert (looked.stands_for == 1.0).all()


def waiting_and_running(state: SiteState, looked: VisibleRows) -> tuple[np.ndarray, np.ndarray]:
    runs = state.table.columns().phase[looked.rows] == RUNNING
    return looked.rows[~runs], looked.rows[runs]


@pytest.mark.parametrize("jobs", [9000, 30_000, 100_000])
def test_visible_rows_of_deep_queue_are_limited(jobs: int) -> None:
    state = site(jobs)
    looked = state.table.visible_rows()
    waiting, running = waiting_and_running(state, looked)
    assert not looked.whole and len(waiting) <= MOST
    assert len(running) == sum(1 for _ in state.in_phase(Phase.RUNNING))
    assert looked.stands_for.sum() == pytest.approx(jobs)
    exact = waiting[looked.stands_for[np.isin(looked.rows, waiting)] == 1.0]
    every = np.flatnonzero(state.table.columns().phase != RUNNING)
    assert exact.tolist() == [*every[:FIRST], *every[-LAST:]]
    assert f"{len(looked.rows):,} of {jobs:,} live jobs" in looked.bound


@pytest.mark.usefixtures("soon_deep")
def test_visible_rows_are_equal_after_a_restart() -> None:
    state = site(3000)
    for number in range(3000):
        if number % 5 and number % 20 != 3:
            state.leave(state.jobs[f"{number}.alder", 0])
    fresh = SiteState()
    for job in state.jobs.values():
        fresh.enter(job)
    assert len(state.table.keys) > len(fresh.table.keys)  # some rows are dead
    assert left_at(state) == left_at(fresh)
    assert state.table.visible_rows().stands_for.tolist() == fresh.table.visible_rows().stands_for.tolist()


def test_level_has_half_as_many_jobs_as_the_level_below() -> None:
    for names in ("{}", "q{}", "{}.alder.example.org", "job-{:08d}"):
        levels = np.array([level_of((names.format(number), 0)) for number in range(40_000)])
        for level in range(1, 6):
            assert (levels >= level).sum() == pytest.approx(40_000 / 2**level, rel=0.15)


def test_view_of_deep_queue_approximates_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    state = site(40_000)
    job = Job("new", 0, 50_000.0, user="u3", queue="a", cpus=8, planned_run_s=300.0)
    nearly, exact = np.zeros((2, len(NAMES)))
    live_features(job, state.table, 50_000.0, 5000, nearly)
    monkeypatch.setattr(seen, "MOST_WAITING", 100_000)
    state.move(state.jobs["0.alder", 0], Phase.QUEUED)
    live_features(job, state.table, 50_000.0, 5000, exact)
    for name, one, other in zip(NAMES, nearly, exact, strict=True):
        rough = 0.4 if name.startswith(("queued_own_similar", "held")) else 0.2
        assert one == pytest.approx(other, rel=rough), name


def engine_with(queued: int, method: str) -> Engine:
    """Build a site with 64 CPUs, all in use for 100 s, and `queued` jobs of ten users."""
    shadows = EngineSettings(method=method, shadows=(), bounds="", what_if_method=method, history=100)
    engine = Engine("alder", shadows)
    engine.apply(Capacity(site="alder", time=0.0, cpus=64))
    for number in range(8):
        name = f"runs{number}"
        engine.apply(Submit(site="alder", time=0.0, job=name, user="eve", cpus=8, walltime=100.0))
        engine.apply(Start(site="alder", time=0.0, job=name))
    state, job = engine.context.state, Job("", 0, 1.0)
    for number in range(queued):
        job = Job(f"{number}.alder", 0, 1.0, user=f"u{number % 10}", cpus=1 + number % 8, walltime=60.0 + number % 50)
        job.planned_run_s = job.walltime or 0.0
        state.enter(job)
    return engine


@pytest.mark.usefixtures("soon_deep")
def test_learned_order_simulates_a_part_of_a_deep_queue() -> None:
    engine = engine_with(10_000, "order")
    order = engine.methods.counting
    assert isinstance(order, LearntOrder)
    ordered = order.ordered(engine.context, 2.0)
    assert len(ordered.simulated) == MAX_SIMULATED_OF_PART and len(ordered.order) < 250
    assert ordered.jobs[-1] == 10_000
    queue_s = sum(job.cpus * (job.walltime or 0.0) for job in engine.context.state.in_phase(Phase.QUEUED)) / 64
    (last,) = consider(engine, [Job("", 0, 2.0, user="u1", cpus=1, walltime=60.0)])
    assert "place 10001 of 10001" in last.reason and "of 10,008 live jobs used" in last.reason
    assert last.predicted_wait_s == pytest.approx(queue_s, rel=0.1)


@pytest.mark.usefixtures("soon_deep")
@pytest.mark.parametrize("method", ["fcfs", "lwf", "easy", "conservative"])
def test_policy_simulates_a_part_of_a_deep_queue(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = engine_with(3000, method)
    job = Job("", 0, 2.0, user="u1", cpus=8, walltime=85.0)
    (nearly,) = consider(engine, [job])
    assert "3000 queued jobs" in nearly.reason and "of 3,008 live jobs used" in nearly.reason
    site_now = engine.methods.what_if_method.site(engine.context, 2.0)  # type: ignore[attr-defined]
    assert len(site_now.live.queued.cpus) == simulated.MAX_SIMULATED
    monkeypatch.setattr(seen, "MOST_WAITING", 100_000)
    engine.apply(Submit(site="alder", time=2.0, job="another", cpus=1, walltime=10.0))
    (exact,) = consider(engine, [Job("", 0, 2.0, user="u1", cpus=8, walltime=85.0)])
    assert "looked at" not in exact.reason
    assert nearly.predicted_wait_s == pytest.approx(exact.predicted_wait_s, rel=0.15)
