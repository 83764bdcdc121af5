"""Queued jobs that will be withdrawn: when, by whose they are and how old, and what it means for those behind."""

import numpy as np
import pytest

from models.engine.asking.what_if import consider
from models.engine.engine import Engine
from models.engine.settings import EngineSettings
from models.site.job import Job
from models.waits.order.withdrawals import MOST_USERS, Withdrawals, leaves
from tests.support.events import cancel, capacity, start, submit

STORM, PATIENCE_S, RUN_S = 40, 900, 36_000


def leaving(seen: Withdrawals, users: list[str | None], age_s: float = 0.0) -> list[float]:
    codes = {user: code for code, user in enumerate(dict.fromkeys([None, *users]))}
    slots = np.array([seen.slot(user) for user in codes])
    ages = np.full(len(users), age_s)
    return list(leaves(ages, np.array([codes[user] for user in users]), seen.seen, seen.users[slots]).tolist())


def test_where_nobody_withdraws_a_job_none_is_expected_to_leave() -> None:
    seen = Withdrawals()
    for wait_s in range(0, 100_000, 500):
        seen.see("ada", wait_s, False, 1.0)
    assert leaving(seen, ["ada", None]) == [np.inf, np.inf]


def test_of_a_users_jobs_as_many_leave_as_have_left() -> None:
    seen = Withdrawals()
    for nth in range(400):
        seen.see("ada", 2000.0, nth % 2 == 0, 1.0)
    gone = np.array(leaving(seen, ["ada"] * 100))
    assert 0.35 < np.mean(gone < 2000.0) < 0.65
    assert np.isfinite(leaving(seen, ["bob"])[0])  # he is taken to be as all, before he has shown what he is


def test_who_withdraws_none_of_his_jobs_stays_longer_than_who_does() -> None:
    seen = Withdrawals()
    for _ in range(60):
        seen.see("ada", 600.0, True, 1.0)
        seen.see("bob", 50_000.0, False, 1.0)
    ada, bob, unknown = leaving(seen, ["ada", "bob", "eve"])
    assert ada < 1200.0 < unknown < bob


def test_a_restart_changes_nothing_and_few_users_are_kept() -> None:
    seen, other = Withdrawals(), Withdrawals()
    for nth in range(MOST_USERS + 50):
        seen.see(f"u{nth}", 10.0 * nth, nth % 3 == 0, 0.5)
    other.restore(seen.saved())
    users: list[str | None] = [None, "u0", "u140", "u149"]
    assert leaving(seen, users) == leaving(other, users)
    assert seen.slot("u0") == MOST_USERS


def storm(engine: Engine, number: int, at: int) -> int:
    """Jobs of one user behind a long one, all withdrawn after a while; gives when they are."""
    for nth in range(STORM):
        engine.apply(submit(f"{number}-{nth}", at + nth, user="eve", cpus=32, walltime=RUN_S))
    for nth in range(STORM):
        engine.apply(cancel(f"{number}-{nth}", at + nth + PATIENCE_S))
    return at + STORM + PATIENCE_S


@pytest.mark.parametrize("storms", [0, 3])
def test_jobs_behind_a_storm_wait_less_where_storms_have_been_withdrawn(storms: int) -> None:
    engine, now = Engine("made", EngineSettings(method="order", shadows=())), 10_000
    engine.apply(capacity(64))
    engine.apply(submit("long", 10, user="ada", cpus=64, walltime=RUN_S))
    engine.apply(start("long", 20))
    for number in range(storms):
        now = storm(engine, number, now)
    for nth in range(STORM):
        engine.apply(submit(f"last-{nth}", now + nth, user="eve", cpus=32, walltime=RUN_S))
    job = Job.of(submit("asked", now + STORM, user="bob", cpus=64, walltime=600))
    (told,) = consider(engine, [job])
    assert told.predicted_wait_s is not None
    whole_s = STORM // 2 * RUN_S
    assert (told.predicted_wait_s < whole_s / 4) == (storms > 0)
