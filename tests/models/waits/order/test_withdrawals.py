"""Withdrawals of queued jobs: times by user and age, and the effect on jobs behind them."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from models.engine.asking.what_if import consider
from models.engine.engine import Engine
from models.engine.settings import EngineSettings
from models.records import Requeue
from models.site.job import Job
from models.stored_values import encode, reader
from models.waits.order import LearntOrder, ordered_queue
from models.waits.order.ordered_queue import OrderedQueue
from models.waits.order.withdrawals import MOST_USERS, SavedWithdrawals, Withdrawals, _see, leaves
from tests.support.events import cancel, capacity, end, start, submit
from tests.support.sizes import mostly_long

STORM, PATIENCE_S, RUN_S = 40, 900, 36_000

JAM = 40_000
"""The time from which the machine is full for long, Unix seconds."""


def leaving(seen: Withdrawals, users: list[str | None], age_s: float = 0.0) -> list[float]:
    codes = {user: code for code, user in enumerate(dict.fromkeys([None, *users]))}
    slots = np.array([seen.slots.slot_of(user) for user in codes])
    ages = np.full(len(users), age_s)
    of = np.array([codes[user] for user in users])
    return list(leaves(ages, of, np.ones(len(users)), seen.seen, seen.users[slots]).tolist())


def test_withdrawals_are_not_expected_if_no_job_was_withdrawn() -> None:
    seen = Withdrawals()
    for wait_s in range(0, 100_000, 500):
        seen.see("ada", wait_s, False, 1.0)
    assert leaving(seen, ["ada", None]) == [np.inf, np.inf]


def test_withdrawals_of_a_user_match_the_observed_rate() -> None:
    seen = Withdrawals()
    for nth in range(400):
        seen.see("ada", 2000.0, nth % 2 == 0, 1.0)
    gone = np.array(leaving(seen, ["ada"] * 100))
    assert 0.35 < np.mean(gone < 2000.0) < 0.65
    assert np.isfinite(leaving(seen, ["bob"])[0])  # a user without history is treated as the average user


def test_user_without_withdrawals_stays_longer() -> None:
    seen = Withdrawals()
    for _ in range(60):
        seen.see("ada", 600.0, True, 1.0)
        seen.see("bob", 50_000.0, False, 1.0)
    ada, bob, unknown = leaving(seen, ["ada", "bob", "eve"])
    assert ada < 1200.0 < unknown < bob


def test_withdrawals_survive_a_restart_and_limit_users() -> None:
    seen, other = Withdrawals(), Withdrawals()
    users: list[str | None] = [None, "u0", "u140", "u149", "v3"]
    for nth in range(MOST_USERS + 50):
        seen.see(f"u{nth}", 10.0 * nth, nth % 3 == 0, 0.5)
    other.restore(reader(SavedWithdrawals, "withdrawals")(encode(seen.saved())))
    assert leaving(seen, users) == leaving(other, users)
    for nth in range(MOST_USERS - 5):
        for kept in (seen, other):
            kept.see(f"v{nth}", 100.0 * nth, nth % 2 == 0, 0.5, tasks=1 + nth % 3)
        assert leaving(seen, users) == leaving(other, users)
    assert encode(seen.saved()) == encode(other.saved())
    assert seen.slots.slot_of("u0") == MOST_USERS


def test_withdrawals_of_a_single_job_are_forgotten() -> None:
    seen = Withdrawals()
    seen.see("ada", 100.0, True, 1.0)
    assert np.isfinite(leaving(seen, ["bob"])).all()
    for _ in range(1_500_000):
        _see(seen.seen, seen.users[0], 5.0, False, 1.0, 1)
    assert leaving(seen, ["bob", None], 1e6) == [np.inf, np.inf]


def test_tasks_withdrawn_together_count_as_one_after_another() -> None:
    seen, other = Withdrawals(), Withdrawals()
    for kept in (seen, other):
        kept.see("bob", 700.0, True, 1.0)
    seen.see("ada", 1000.0, True, 0.0, tasks=20)
    for _ in range(20):
        other.see("ada", 1000.0, True, 0.0)
    assert seen.users[seen.slots.slot_of("ada"), 0] == pytest.approx(
        other.users[other.slots.slot_of("ada"), 0], rel=1e-5
    )


def jammed() -> Engine:
    """Build a site where jobs start within seconds, until one job fills it for long."""
    engine = Engine("made", EngineSettings(method="order", shadows=()))
    engine.apply(capacity(64))
    for nth in range(500):
        engine.apply(submit(f"before-{nth}", 100 + 60 * nth, user=f"v{nth % 20}", cpus=1, walltime=30))
        engine.apply(start(f"before-{nth}", 105 + 60 * nth))
        engine.apply(end(f"before-{nth}", 130 + 60 * nth))
    engine.apply(submit("long", JAM, user="ada", cpus=64, walltime=RUN_S))
    engine.apply(start("long", JAM + 5))
    return engine


def order_of(engine: Engine) -> LearntOrder:
    method = engine.methods.waits["order"]
    assert isinstance(method, LearntOrder)
    return method


def last_wait_s(engine: Engine, now: int) -> float:
    """Return the predicted wait of a job behind all others."""
    (estimate,) = consider(engine, [Job.of(submit("last", now, user="zoe", cpus=64, walltime=600))])
    assert estimate.predicted_wait_s is not None
    return estimate.predicted_wait_s


@pytest.mark.parametrize("users", [300, 100, 10])
@pytest.mark.parametrize("gone", mostly_long([10, 3]))
def test_few_withdrawals_from_a_jam_predict_no_others(users: int, gone: int) -> None:
    engine, jobs, run_s = jammed(), 300, 3000
    for nth in range(jobs):
        engine.apply(submit(f"jam-{nth}", JAM + 10, user=f"u{nth % users}", cpus=64, walltime=run_s))
    for nth in range(gone):
        engine.apply(cancel(f"jam-{nth}", JAM + 4210 + nth))
    wait_s = last_wait_s(engine, JAM + 4300)
    assert 0.8 * run_s * (jobs - gone) < wait_s <= RUN_S + run_s * (jobs - gone)


def test_ineligible_job_cancelled_is_not_a_withdrawal() -> None:
    engine, now = jammed(), JAM + 20
    for nth in range(STORM):
        engine.apply(submit(f"held-{nth}", now, user="eve", cpus=32, walltime=RUN_S, dependency="afterok:long"))
        engine.apply(submit(f"later-{nth}", now, user="eve", cpus=32, walltime=RUN_S, eligible=now + 10_000.0))
    for nth in range(STORM):
        engine.apply(cancel(f"held-{nth}", now + PATIENCE_S))
        engine.apply(cancel(f"later-{nth}", now + PATIENCE_S))
    assert withdrawn(engine) == 0.0


def withdrawn(engine: Engine) -> float:
    """Return the number of withdrawn jobs; a burst counts as one."""
    return float(order_of(engine)._sums.withdrawals.seen[0].sum())


@pytest.mark.parametrize("one_by_one", [False, True])
def test_tasks_of_an_array_are_withdrawn_as_they_start(one_by_one: bool) -> None:
    engine, now = jammed(), JAM + 20
    engine.apply(submit("array", now, user="eve", cpus=1, walltime=60, array_size=100))
    for nth in range(50):
        engine.apply(start(f"array_{nth}", now + 1000, array="array"))
    whole = [("array", None)]
    for name, array in [(f"array_{nth}", "array") for nth in range(50, 100)] if one_by_one else whole:
        engine.apply(cancel(name, now + 2000, array=array))
    assert 0.9 < withdrawn(engine) < 5.0
    withdrawals = order_of(engine)._sums.withdrawals
    assert withdrawals.users[withdrawals.slots.slot_of("eve"), 0] > 20.0  # of about the last 33


def test_requeue_without_a_start_is_not_a_withdrawal() -> None:
    engine = jammed()
    engine.apply(submit("again", JAM + 20, user="eve", cpus=1, walltime=60))
    engine.apply(Requeue(site="s", time=JAM + 900, job="again"))
    assert withdrawn(engine) == 0.0


def storm(engine: Engine, number: int, at: int) -> int:
    """Submit jobs of one user behind a long one and cancel all of them later; return the time of that."""
    for nth in range(STORM):
        engine.apply(submit(f"{number}-{nth}", at + nth, user="eve", cpus=32, walltime=RUN_S))
    for nth in range(STORM):
        engine.apply(cancel(f"{number}-{nth}", at + nth + PATIENCE_S))
    return at + STORM + PATIENCE_S


@pytest.mark.parametrize("storms", [0, 3])
def test_jobs_behind_a_storm_wait_less_if_storms_were_withdrawn(storms: int) -> None:
    engine, now = Engine("made", EngineSettings(method="order", shadows=())), 10_000
    engine.apply(capacity(64))
    engine.apply(submit("long", 10, user="ada", cpus=64, walltime=RUN_S))
    engine.apply(start("long", 20))
    for number in range(storms):
        now = storm(engine, number, now)
    for nth in range(STORM):
        engine.apply(submit(f"last-{nth}", now + nth, user="eve", cpus=32, walltime=RUN_S))
    job = Job.of(submit("last", now + STORM, user="bob", cpus=64, walltime=600))
    (estimate,) = consider(engine, [job])
    assert estimate.predicted_wait_s is not None
    whole_s = STORM // 2 * RUN_S
    assert (estimate.predicted_wait_s < whole_s / 4) == (storms > 0)


def after_storms(engine: Engine) -> float:
    """Submit and withdraw storms of jobs, then queue another one; return the time of that."""
    now = JAM + 20
    for number in range(3):
        now = storm(engine, number, now)
    for nth in range(6):
        engine.apply(submit(f"last-{nth}", now + nth, user="eve", cpus=64, walltime=RUN_S))
    return now + 10.0


def with_stays(ordered: OrderedQueue, places: Any, stays_s: float) -> OrderedQueue:
    """Return the same queue where some jobs stay for `stays_s`."""
    queued = ordered.sight.queued._replace(stays_s=ordered.sight.queued.stays_s.copy())
    queued.stays_s[places] = stays_s
    return replace(ordered, sight=ordered.sight._replace(queued=queued))


def test_job_start_is_predicted_without_its_own_withdrawal() -> None:
    engine = jammed()
    ordered = order_of(engine).ordered(engine.context, after_storms(engine))
    rows, starts_s = ordered.starts()
    assert ordered.is_gone.any()
    for place, start_s in zip(np.searchsorted(ordered.sight.rows, rows), starts_s, strict=True):
        stayed = with_stays(ordered, place, np.inf)
        assert start_s == stayed.starts_s[list(stayed.simulated).index(place)] < np.inf


def test_deep_schedule_does_not_end_at_a_withdrawn_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ordered_queue, "MAX_SIMULATED", 4)
    engine = jammed()
    now = after_storms(engine)
    ordered = with_stays(order_of(engine).ordered(engine.context, now), slice(None), 60.0)
    assert ordered.is_gone.all()
    job = Job.of(submit("last", now, user="bob", cpus=64, walltime=600))
    ahead = order_of(engine).ahead(job, engine.context, ordered)
    assert ahead.place > 4
    assert ahead.start_s == pytest.approx(ahead.work / 64 * (ahead.place - 4) / ahead.place)
