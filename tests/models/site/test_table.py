"""The columns equal the live jobs, in the same order, after any change."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.engine.engine import Engine
from models.site import table
from models.site.job import Extras, Job, Phase
from models.site.state import SiteState
from models.site.table import DEAD, HELD, NO_NAME, QUEUED, RUNNING, LiveTable
from tests.support.engines import MEDIAN, workload

PHASES = {Phase.QUEUED: QUEUED, Phase.HELD: HELD, Phase.RUNNING: RUNNING, Phase.ENDED_BEFORE_START: DEAD}
PHASES[Phase.SUSPENDED] = PHASES[Phase.UNCONFIRMED] = DEAD  # other jobs have the CPUs
NAMES = st.sampled_from([None, "ada", "bob", "eve"])
SECONDS = st.sampled_from([None, 0.1, 60.0, 3600.0, 86400.1])


def described(job: Job) -> tuple[Any, ...]:
    """Return a job's row by the definitions, with names for codes."""
    run_s = 3600.0 if job.run_s is None and not job.walltime else (job.walltime if job.run_s is None else job.run_s)
    assert run_s is not None
    start = job.shifted_start if job.phase is Phase.RUNNING else 0.0
    expected_s = min(run_s, job.walltime or run_s)
    times = (job.submit, job.ready, start, job.walltime or 0.0, job.planned_run_s, expected_s)
    cpus = job.cpus if job.phase is Phase.SUSPENDED else job.counted_cpus
    return (PHASES[job.phase], cpus, *times, job.user, job.queue, job.account)


def rows(table: LiveTable, jobs: list[Job]) -> list[tuple[Any, ...]]:
    """Return the rows of live jobs, with names for codes; these jobs have all the names in the table."""
    columns = table.columns()
    kinds = ("user", "queue", "account")
    names: dict[str, dict[int, str | None]] = {
        kind: {table.code(kind, getattr(job, kind)): getattr(job, kind) for job in jobs} for kind in kinds
    }
    assert all(code >= 0 or name is None for kind in kinds for code, name in names[kind].items())
    assert all(table.names(kind)[code] == name for kind in kinds for code, name in names[kind].items() if code >= 0)
    assert all(len(column) == max(len(table.keys), 2) for column in columns)
    assert all(columns.phase[row] == DEAD for row, key in enumerate(table.keys) if key is None)
    return [
        (*(column[row].item() for column in columns[:8]), *(names[kind][getattr(columns, kind)[row]] for kind in kinds))
        for row, key in enumerate(table.keys)
        if key is not None
    ]


def assert_true(state: SiteState) -> None:
    """Check that the table equals the jobs and has at most the allowed number of rows."""
    jobs = list(state.jobs.values())
    assert [key for key in state.table.keys if key is not None] == list(state.jobs)
    assert rows(state.table, jobs) == [described(job) for job in jobs]
    assert len(state.table) == len(jobs)
    assert len(state.table.keys) <= 2 * max(len(jobs), 64)
    assert all(state.table.keys[state.table.row(key)] == key for key in state.jobs)


def copy_of(state: SiteState) -> SiteState:
    """Return the same jobs in a new state, as after a restart."""
    restored = SiteState()
    for job in state.jobs.values():
        restored.enter(job)
    return restored


def new_job(draw: st.DrawFn, number: int) -> Job:
    job = Job(str(number), 0, draw(st.sampled_from([0.1, 5.0, 1e9])), user=draw(NAMES), queue=draw(NAMES))
    job.account, job.walltime, job.run_s = draw(NAMES), draw(SECONDS), draw(SECONDS)
    job.cpus, job.planned_run_s = draw(st.integers(1, 1000)), job.walltime or job.run_s or 0.0
    return job


@given(st.data())
def test_table_equals_the_live_jobs_after_any_change(data: st.DataObject) -> None:
    state = SiteState()
    for number in range(data.draw(st.integers(1, 40))):
        jobs = list(state.jobs.values())
        fate = data.draw(st.sampled_from(["enter", "enter", "move", "alter", "leave"])) if jobs else "enter"
        if fate == "enter":
            state.enter(data.draw(st.composite(new_job)(number)))
        else:
            job = data.draw(st.sampled_from(jobs))
            if fate == "leave":
                state.leave(job)
            elif fate == "alter":
                state.alter(job, queue=data.draw(NAMES), cpus=data.draw(st.integers(1, 9)), walltime=data.draw(SECONDS))
            else:
                job.allocated = data.draw(st.sampled_from([None, 7]))
                state.move(
                    job, data.draw(st.sampled_from([phase for phase in Phase if phase is not Phase.SUSPENDED])), 77.5
                )
        assert_true(state)
    assert_true(copy_of(state))


@given(st.data())
def test_job_enters_before_a_given_job(data: st.DataObject) -> None:
    """With and without dead rows, and while half of the rows have been moved."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table, "MOVED_ROWS", 2)
        patch.setattr(table, "_MIN_ROWS", 4)
        state, order = SiteState(), []
        for number in range(data.draw(st.integers(1, 40))):
            if order and data.draw(st.booleans()):
                state.leave(state.jobs[order.pop(data.draw(st.integers(0, len(order) - 1)))])
            else:
                job, place = data.draw(st.composite(new_job)(number)), data.draw(st.integers(0, len(order)))
                state.enter(job, before=order[place] if place < len(order) else None)
                order.insert(place, job.key)
            assert list(state.jobs) == order
            assert [key for key in state.table.keys if key is not None] == order
            assert rows(state.table, list(state.jobs.values())) == [described(job) for job in state.jobs.values()]
            seen = state.table.visible_rows().rows
            assert set(seen) <= {state.table.row(key) for key in order}


def test_table_matches_engine_after_all_events_and_restart() -> None:
    engine = Engine("s", MEDIAN)
    for place, event in enumerate(workload(3)):
        engine.apply(event)
        assert_true(engine.context.state)
        if place % 50 == 0:
            restored = copy_of(engine.context.state)
            before, after = engine.context.state.table, restored.table
            live = [row for row, key in enumerate(before.keys) if key is not None]
            for one, other in zip(before.columns()[:8], after.columns()[:8], strict=True):
                np.testing.assert_array_equal(one[live], other[: len(live)])
    assert len(engine.context.state.table.keys) <= 2 * max(len(engine.context.state), 64)


def test_rows_and_names_of_departed_jobs_are_reused() -> None:
    state = SiteState()
    kept = Job("kept", 0, 0.0, user="ada")
    state.enter(kept)
    for number in range(10_000):
        job = Job(str(number), 0, float(number), user=f"u{number}", queue="batch", account=f"a{number}")
        state.enter(job)
        assert state.table.code("user", job.user) != state.table.code("user", "ada") != NO_NAME
        state.leave(job)
        assert state.table.code("user", job.user) == state.table.code("queue", "batch") == NO_NAME
    assert len(state.table.keys) <= 128 and state.table.keys[0] == kept.key
    assert state.table.columns().user.max() <= 1


def test_columns_are_views_of_the_table() -> None:
    state = SiteState()
    job = Job("1", 0, 0.0, cpus=4)
    state.enter(job)
    columns = state.table.columns()
    state.move(job, Phase.RUNNING, 5.0)
    assert (columns.phase[0], columns.start[0]) == (RUNNING, 5.0)
    with pytest.raises(KeyError):
        state.table.row(("2", 0))


def test_job_with_own_pending_reason_is_barred() -> None:
    state, limit = SiteState(), Extras(pending_reason="AssocGrpCpuLimit")
    job = Job("1", 0, 0.0, extras=limit)
    state.enter(job)
    columns = state.table.columns()
    assert columns.barred.tolist() == [True, False]
    for reason, barred in ((None, False), ("Priority", False), ("Dependency", True), ("Elsewhere", False)):
        state.alter(job, extras=Extras(pending_reason=reason))
        assert columns.barred[0] == barred
    state.alter(job, extras=limit)
    state.move(job, Phase.RUNNING, 5.0)
    assert not columns.barred[0]


def test_expected_run_time_is_limited_by_the_walltime() -> None:
    state = SiteState()
    for number, (walltime, run_s, expected) in enumerate(
        [(None, None, 3600.0), (60.0, None, 60.0), (60.0, 90.0, 60.0), (None, 90.0, 90.0), (0.0, 0.0, 0.0)]
    ):
        state.enter(Job(str(number), 0, 0.0, walltime=walltime, run_s=run_s))
        assert state.table.columns().run_s[number] == expected


def test_rows_are_moved_in_steps_and_stay_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "MOVED_ROWS", 7)
    state, dice, number = SiteState(), np.random.default_rng(3), 0
    for stay in (0.9, 0.1, 0.5, 0.05, 0.8):
        for _ in range(400):
            if dice.random() < stay or not state.jobs:
                state.enter(Job(str(number), 0, float(number), user=f"u{number % 5}", cpus=1 + number % 9))
                number += 1
            else:
                state.leave(state.jobs[list(state.jobs)[int(dice.integers(len(state.jobs)))]])
            jobs = list(state.jobs.values())
            assert [key for key in state.table.keys if key is not None] == list(state.jobs)
            assert all(state.table.keys[state.table.row(key)] == key for key in state.jobs)
            assert rows(state.table, jobs) == [described(job) for job in jobs]
            assert len(state.table.visible_rows().rows) == len(jobs)
    assert len(state.table.keys) < 3 * max(len(state.jobs), 64)
