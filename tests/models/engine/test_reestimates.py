"""Estimates of queued jobs are repeated when due or after changes, and published if they differ."""

from collections.abc import Sequence
from typing import ClassVar

import msgspec
import pytest

from models.engine.asking.engine_answers import answer
from models.engine.engine import Engine
from models.engine.outgoing import Record
from models.engine.reestimates import (
    FIRST_S,
    MAX_ESTIMATES,
    SECONDS_PER_ESTIMATE,
    worth_publishing,
)
from models.method import SiteContext, WaitMethod
from models.method_registry import METHODS
from models.records import Alter, AnyEvent, Hold, JobAnswer, JobQuestion, Outcome, Prediction, Release, Submit, Suspend
from models.site.job import MOST_LATER, Estimate, Job, LaterEstimate
from models.timers import MIN_STALE_ENTRIES
from tests.support.engines import MEDIAN, encoded, nodes_at, workload
from tests.support.events import cancel, capacity, start, submit
from tests.support.sizes import mostly_long

SETTINGS = msgspec.structs.replace(MEDIAN, method="pessimist", shadows=())


class Pessimist(WaitMethod):
    """Predict an hour at submission, and later as much again as the job has waited."""

    name = "pessimist"
    re_estimates: ClassVar[bool] = True

    def predict(self, job: Job, context: SiteContext) -> Estimate:
        return Estimate(3600.0, "an hour", {"0.9": 7200.0})

    def re_estimate(self, job: Job, context: SiteContext, now: float) -> Estimate | None:
        waited_s = now - job.ready
        return Estimate(2 * waited_s, "as long again", {"0.9": 3 * waited_s})


@pytest.fixture(autouse=True)
def pessimist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METHODS, "pessimist", Pessimist)


def again(records: list[Record]) -> list[Prediction]:
    return [record for record in records if isinstance(record, Prediction) and record.waited_s is not msgspec.UNSET]


def tick(engine: Engine, time: float) -> list[Record]:
    """Apply an event that changes neither the jobs of the test nor the site's resources."""
    return engine.apply(nodes_at(time))


def engine_with(*events: AnyEvent) -> Engine:
    engine = Engine("s", SETTINGS)
    engine.apply(nodes_at(1.0))
    for event in events:
        engine.apply(event)
    return engine


def restored(engine: Engine) -> Engine:
    saved, changes = engine.checkpoint()
    return Engine.load(saved, changes.started, changes.runs, SETTINGS, changes.rows)


def test_queued_job_is_estimated_again_and_scored_by_its_first() -> None:
    engine = engine_with(submit("1", 1000.0))
    assert again(tick(engine, 1000.0 + FIRST_S - 1)) == []
    [later] = again(tick(engine, 1000.0 + FIRST_S))
    assert (later.job, later.made_at, later.waited_s) == ("1", 1000.0 + FIRST_S, FIRST_S)
    assert (later.predicted_wait_s, later.predicted_start, later.bounds) == (360.0, 1360.0, {"0.9": 540.0})
    answered = answer(JobQuestion(id="1", site="s", job="1"), engine, 1200.0)
    assert isinstance(answered, JobAnswer)
    assert [(one.at, one.start, one.starts_by) for one in answered.estimates] == [
        (1000.0, 4600.0, {"0.9": 8200.0}),
        (1180.0, 1360.0, {"0.9": 1540.0}),
    ]
    [outcome] = [record for record in engine.apply(start("1", 1360.0)) if isinstance(record, Outcome)]
    assert outcome.predicted_wait_s == 3600.0
    assert engine.scores.later_first.error.total == 3240.0
    assert engine.scores.later.error.total == 0.0


def test_re_estimate_is_due_after_a_share_of_the_remaining_wait() -> None:
    engine = engine_with(submit("1", 1000.0))
    job = engine.context.state.jobs["1", 0]
    for wait_s, bound_s, interval_s in (
        (1100.0, 90_000.0, 400.0),  # soon: the minimum share of its age
        (2250.0, 90_000.0, 500.0),  # the share of the remaining 1250 s
        (90_000.0, 99_000.0, 800.0),  # late: the maximum share of its age
        (2000.0, 1200.0, 160.0),  # before its bound passes
    ):
        engine.parts.reestimates.plan(job, Estimate(wait_s, "", {"0.9": bound_s}), 2000.0)
        assert job.due - 2000.0 == pytest.approx(interval_s)


@pytest.mark.parametrize(
    ("wait_s", "bound_s", "now", "published"),
    [
        (3700.0, 7200.0, 600.0, False),
        (3600.0, 7200.0, 600.0, False),
        (7000.0, 7200.0, 600.0, True),  # the estimate moved
        (3600.0, 12_000.0, 600.0, True),  # the bound moved
        (7205.0, 7210.0, 7201.0, True),  # the bound passed
        (9000.0, 9100.0, 86_401.0, True),  # a day without a record
    ],
)
def test_estimate_that_moved_passed_or_aged_is_published(
    wait_s: float, bound_s: float, now: float, published: bool
) -> None:
    far = {"0.9": 1e6} if now > 86_400.0 else {"0.9": 7200.0}
    job = Job("1", 0, 0.0, estimates={"m": Estimate(1e6 if now > 86_400.0 else 3600.0, "", far)})
    last = job.estimates["m"]
    new = Estimate(last.wait_s if now > 86_400.0 else wait_s, "", far if now > 86_400.0 else {"0.9": bound_s})
    assert (worth_publishing(job, "m", new, now) is not None) == published


def test_budget_follows_the_time_of_the_site_and_saves_up() -> None:
    jobs = [submit(f"{number:03}", 1000.0) for number in range(2 * MAX_ESTIMATES)]
    engine = engine_with(*jobs)
    assert len(again(tick(engine, 5000.0))) == MAX_ESTIMATES  # The budget accumulated while no estimate was due.
    assert again(tick(engine, 5000.0)) == []
    assert len(again(tick(engine, 5000.0 + 3 * SECONDS_PER_ESTIMATE))) == 3


def test_re_estimates_ignore_duplicate_events() -> None:
    jobs = [submit(f"{number:03}", 1000.0) for number in range(2 * MAX_ESTIMATES)]
    once, twice = engine_with(*jobs), engine_with(*(job for job in jobs for _ in range(2)))
    assert again(twice.apply(jobs[0])) == []
    for _ in range(9):
        assert encoded(tick(once, 5000.0)) == encoded(tick(twice, 5000.0))
        assert again(twice.apply(jobs[0])) == []


def test_held_and_running_jobs_are_not_estimated() -> None:
    engine = engine_with(*(submit(job, 1000.0) for job in ("1", "2", "3")))
    engine.apply(start("2", 1002.0))
    engine.apply(Hold(site="s", job="1", time=1003.0))
    assert {record.job for number in range(9) for record in again(tick(engine, 1120.0 + 99.0 * number))} == {"3"}
    engine.apply(Release(site="s", job="1", time=2000.0))
    assert {record.job for record in again(tick(engine, 4400.0))} == {"1", "3"}


def taken(engine: Engine, now: float) -> set[str]:
    """Return the jobs that would be estimated now."""
    return {job.id for job in engine.parts.reestimates.take(now)}


def test_nearly_due_job_is_estimated_with_a_due_one() -> None:
    engine = engine_with(submit("1", 1000.0), submit("2", 1000.0))
    jobs, reestimates = engine.context.state.jobs, engine.parts.reestimates
    for job, wait_s in ("1", 1100.0), ("2", 2375.0):  # due after 400 s and 550 s
        reestimates.plan(jobs[job, 0], Estimate(wait_s, "", {"0.9": 90_000.0}), 2000.0)
    assert taken(engine, 2395.0) == set()
    assert taken(engine, 2400.0) == {"1", "2"}


def test_job_in_first_half_of_interval_is_not_estimated_early() -> None:
    engine = engine_with(submit("1", 1000.0), submit("2", 1000.0))
    jobs, reestimates = engine.context.state.jobs, engine.parts.reestimates
    for job, bound_s in ("1", 90_000.0), ("2", 1200.0):  # due after 400 s, and after 160 s as the bound passes soon
        reestimates.plan(jobs[job, 0], Estimate(2000.0, "", {"0.9": bound_s}), 2000.0)
    reestimates.watch(jobs["1", 0], 2075.0)
    assert taken(engine, 2075.0) == {"1"}


def test_new_job_is_not_estimated_early() -> None:
    engine = engine_with(submit("1", 1000.0), submit("2", 1150.0))
    assert taken(engine, 1000.0 + FIRST_S) == {"1"}


def test_changed_capacity_re_estimates_all_queued_jobs() -> None:
    engine = engine_with(*(submit(str(number), 1000.0) for number in range(5)))
    tick(engine, 1120.0)
    assert again(tick(engine, 1130.0)) == []
    assert {record.job for record in again(engine.apply(capacity(900, 2000.0)))} == set("01234")


def test_cancel_of_large_job_reestimates_all_pending_jobs() -> None:
    events = [submit(str(number), 1000.0, cpus=1, walltime=60.0) for number in range(3)]
    engine = engine_with(*events, submit("large", 1000.0, cpus=64, walltime=7200.0))
    tick(engine, 1120.0)
    jobs = engine.context.state.jobs
    later = max(jobs[key].due for key in jobs)
    engine.apply(cancel("0", later - 200.0))  # A small job does not affect the others.
    waiting = [jobs[key].due for key in jobs]
    engine.apply(cancel("large", later - 199.0))
    assert all(jobs[key].due > later - 199.0 for key in jobs)
    assert [jobs[key].due for key in jobs] != waiting


def test_job_eligible_later_is_estimated_from_then_on() -> None:
    engine = engine_with(submit("1", 1000.0))
    engine.apply(Alter(site="s", job="1", time=1001.0, eligible=5000.0))
    assert again(tick(engine, 4999.0)) == []
    [later] = again(tick(engine, 5600.0))
    assert (later.waited_s, later.predicted_start) == (600.0, 6200.0)


def test_latest_estimates_are_kept_up_to_a_limit() -> None:
    kept: LaterEstimate | None = None
    for number in range(3 * MOST_LATER):
        kept = LaterEstimate.after(kept, float(number), Estimate(1.0, ""))
    made = []
    while kept is not None:
        made.append(kept.made_at)
        kept = kept.before
    assert made == [float(number) for number in range(3 * MOST_LATER - 1, 2 * MOST_LATER - 1, -1)]


def test_re_estimates_are_not_published_while_nodes_are_down() -> None:
    engine = engine_with(submit("1", 1000.0))
    assert again(engine.apply(nodes_at(1700.0, down_nodes=9))) == []
    assert [record.made_at for record in again(engine.apply(nodes_at(1800.0)))] == [1800.0]


@pytest.mark.parametrize("seed", mostly_long(range(6)))
def test_restored_site_estimates_the_same_jobs_at_random_points(seed: int) -> None:
    events = _disordered(seed)
    for restart in range(seed, len(events), 37):
        engine = Engine("s", SETTINGS)
        for event in events[:restart]:
            engine.apply(event)
        other = restored(engine)
        for event in events[restart:]:
            assert encoded(engine.apply(event)) == encoded(other.apply(event)), (restart, event)


def _disordered(seed: int) -> Sequence[AnyEvent]:
    """Return a workload with late and historical submits, held and altered jobs."""
    events = list[AnyEvent]()
    for number, event in enumerate(workload(seed)):
        kind = (number * 31 + seed) % 13
        if isinstance(event, Submit) and kind in (1, 2):
            event = msgspec.structs.replace(
                event, **({"late": True} if kind == 1 else {"historical": True, "old": True})
            )
        events.append(event)
        if isinstance(event, Submit) and kind == 3:
            events += [
                Hold(site="s", job=event.job, time=event.time + 1.0),
                Release(site="s", job=event.job, time=event.time + 2.0),
            ]
        if isinstance(event, Submit) and kind == 4:
            events.append(Alter(site="s", job=event.job, time=event.time + 1.0, walltime=1234.0))
    return events


def test_stale_timers_change_no_suspended_job() -> None:
    """The suspended time is updated before re-estimates; timers of departed jobs must not cause one."""
    engine = engine_with(submit("1", 900.0), start("1", 950.0), submit("2", 1000.0))
    engine.apply(Suspend(site="s", job="1", time=1005.0, releases=False))
    engine.apply(start("2", 1010.0))
    other = restored(engine)
    states = []
    for one in (engine, other):
        tick(one, 1000.0 + FIRST_S)
        job = one.context.state.jobs["1", 0]
        states.append((job.progress, one.parts.reestimates.any_due(1e10)))
    assert states[0] == states[1]


def test_re_estimate_timers_of_an_altered_job_are_bounded() -> None:
    engine = engine_with(submit("1", 1000.0))
    for number in range(3 * MIN_STALE_ENTRIES):
        engine.apply(Alter(site="s", job="1", time=1001.0 + number / 100, walltime=60.0 + number))
    assert len(engine.parts.reestimates._timers) <= MIN_STALE_ENTRIES + 3
    assert [record.job for record in again(tick(engine, 1600.0))] == ["1"]


def test_re_estimates_need_a_method_that_re_estimates() -> None:
    engine = Engine("s", MEDIAN)
    engine.apply(submit("1", 1000.0))
    assert again(tick(engine, 9000.0)) == []
    assert not engine.parts.reestimates._timers
