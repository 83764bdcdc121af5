"""Simulated schedules in which jobs arrive as they did a week, or a day, ago."""

import numpy as np
import pytest

from models.durations import DAY_S
from models.engine.asking.what_if import consider
from models.engine.engine import Engine
from models.engine.settings import EngineSettings
from models.method import SiteContext
from models.records import AnyEvent, Capacity, End, Prediction, Start, Submit
from models.simulation import generate
from models.site.job import Job
from models.site.rows import Row
from models.waits.blend import guard
from models.waits.blend.blend import Blend
from models.waits.order import LearntOrder, arrivals, learnt_order
from models.waits.order.arrivals import KEPT, Arrivals
from models.waits.order.compiled_steps import SimulatedStart
from models.waits.order.inferred_limits import ALONE, REFUSED
from tests.simulation.schedulers import run_changing
from tests.support.engines import engine_after

HOUR_S = 3600.0
SETTINGS = EngineSettings(method="blend", shadows=(), bounds="", what_if_method="blend", history=200)


def job_at(time: float, **fields: object) -> Job:
    return Job("1", 0, time, walltime=60.0, **fields)  # type: ignore[arg-type]


def memory_of(times: list[float]) -> Arrivals:
    found = Arrivals()
    for nth, time in enumerate(times):
        found.ended(job_at(time, cpus=nth + 1, user=f"u{nth}"), 30.0, time + 30.0)
    return found


def cpus_after(memory: Arrivals, now: float, most_cpus: int = 10**6) -> list[int]:
    later = memory.after(now, most_cpus)
    return [] if later is None else later.cpus.tolist()


def test_arrivals_are_those_of_a_week_ago() -> None:
    later = memory_of([HOUR_S * hour for hour in range(24 * 8)]).after(7.5 * DAY_S + 60.0, 10**6)
    assert later is not None
    assert later.cpus.tolist() == [*range(14, 14 + 24 * 7)]
    assert later.arrive_s.tolist() == [HOUR_S * (1 + nth) - 60.0 for nth in range(24 * 7)]
    assert [later.names[number] for number in later.users[:2]] == ["u13", "u14"]
    assert {later.names[number] for number in later.queues} == {None}


def test_arrivals_are_those_of_yesterday_without_a_week_of_history() -> None:
    memory = memory_of([HOUR_S * hour for hour in range(48)])
    assert cpus_after(memory, 2 * DAY_S - 60.0) == [*range(25, 49)]
    assert cpus_after(memory, 2 * DAY_S - 60.0, most_cpus=26) == [25, 26]
    assert cpus_after(memory, 0.5 * DAY_S) == []


def test_job_that_waited_long_does_not_extend_the_memory() -> None:
    memory = Arrivals()
    memory.ended(job_at(0.0), 30.0, 8 * DAY_S)
    memory.ended(job_at(8 * DAY_S), 30.0, 8 * DAY_S + 60.0)
    assert cpus_after(memory, 8 * DAY_S + 120.0) == []


def test_arrivals_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrivals, "MOST", 3)
    assert len(cpus_after(memory_of([60.0 * minute for minute in range(2000)]), 1.1 * DAY_S)) == 3


def test_old_jobs_are_dropped_and_a_restart_changes_nothing() -> None:
    times = [300.0 * nth for nth in range(KEPT + 50)]
    memory, other, now = memory_of(times), Arrivals(), 300.0 * KEPT
    other.rows.restore([*memory.rows.numbered], memory.rows.count, memory.rows.oldest)
    other.load()
    assert cpus_after(other, now) == cpus_after(memory, now) != []
    assert cpus_after(memory, times[49] + DAY_S) == []  # the memory begins later
    for one in (memory, other):
        one.ended(job_at(now, cpus=1), 30.0, now)
    assert cpus_after(other, now) == cpus_after(memory, now)


def test_names_of_dropped_jobs_are_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrivals, "MOST_NAMES", KEPT + 100)
    memory = memory_of([30.0 * nth for nth in range(KEPT + 500)])
    assert len(memory._names) <= KEPT + 102
    later = memory.after(30.0 * KEPT + DAY_S, 10**6)
    assert later is not None and later.names[later.users[0]] == f"u{later.cpus[0] - 1}"


def test_job_with_absurd_predicted_run_time_can_be_read_again() -> None:
    memory = Arrivals()
    memory.ended(Job("1", 0, 0.0, run_s=9e11), 30.0, 60.0)  # no time limit, and a prediction that a stored job may have
    memory.load()


def test_invalid_row_is_an_error() -> None:
    memory = Arrivals()
    memory.rows.restore([Row(0, b"\xc0")], 1, 0)
    with pytest.raises(ValueError, match="row 0: not an ended job"):
        memory.load()


def order_of(engine: Engine) -> LearntOrder:
    blend = engine.methods.waits["blend"]
    assert isinstance(blend, Blend)
    found = blend.parts["order"]
    assert isinstance(found, LearntOrder)
    return found


def daily_jobs(days: int) -> list[AnyEvent]:
    """Return the events of one CPU: each day ada's job arrives at 0:00 and bob's, of 2 h, at 17:00.

    Ada's job of 22 h ends at 18:00. Then bob's job runs, and then ada's next one.
    """
    events: list[AnyEvent] = [Capacity(site="alder", time=0.0, cpus=1)]
    for day in range(days):
        begin, ada, bob = day * DAY_S, f"ada{day}", f"bob{day}"
        events += [
            Submit(site="alder", time=begin, job=ada, user="ada", cpus=1, walltime=22 * HOUR_S),
            Submit(site="alder", time=begin + 17 * HOUR_S, job=bob, user="bob", cpus=1, walltime=2 * HOUR_S),
        ]
        if day:
            events.append(End(site="alder", time=begin + 18 * HOUR_S, job=f"ada{day - 1}"))
        events += [
            Start(site="alder", time=begin + 18 * HOUR_S, job=bob),
            End(site="alder", time=begin + 20 * HOUR_S, job=bob),
            Start(site="alder", time=begin + 20 * HOUR_S, job=ada),
        ]
    return events


def test_schedule_with_arrivals_expects_the_job_of_yesterday(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, now = engine_after(*daily_jobs(4), settings=SETTINGS), 4 * DAY_S + 60.0
    order, job = order_of(engine), Job("", 0, now, user="cid", cpus=1, walltime=HOUR_S, run_s=HOUR_S)
    without = order.simulate(job, engine.context).start_s
    assert without == pytest.approx(18 * HOUR_S - 60.0)
    assert order.limits_with_arrivals(engine.context) is None  # too few pairs for a fit
    assert np.isnan(order.wait_with_arrivals(job, engine.context, without, None))
    monkeypatch.setattr(learnt_order, "MIN_FIT", 0.0)
    order._fit.site.pairs = order._fit.site.agreeing = 100.0
    limits = order.limits_with_arrivals(engine.context)
    assert limits is not None
    order.preference.weights[:] = 0.0
    order.preference.weights[6] = -1.0  # short jobs first: bob's job is longer than cid's
    assert order.wait_with_arrivals(job, engine.context, without, limits) == pytest.approx(without, rel=0.05)
    order.preference.weights[6] = 1.0
    assert order.wait_with_arrivals(job, engine.context, without, limits) == pytest.approx(
        without + 2 * HOUR_S, rel=0.05
    )
    assert np.isnan(order.wait_with_arrivals(job, engine.context, 0.0, limits))
    order._arrivals.ended(
        Job("wide", 0, now - DAY_S + 60.0, cpus=2, walltime=HOUR_S), HOUR_S, now
    )  # wider than the site
    assert order.wait_with_arrivals(job, engine.context, without, limits) == pytest.approx(
        without + 2 * HOUR_S, rel=0.05
    )


def test_arrivals_survive_a_restart_and_what_ifs_use_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learnt_order, "MIN_FIT", 0.0)
    monkeypatch.setattr(guard, "FIRST_ERRORS", (1.3, 1.3, 1.3, 1.3, 0.5))
    events = list(run_changing(generate(5, 500, cpus=64, load=0.95), 64, "alder", "multifactor"))
    half = int(len(events) * 0.7)
    whole = engine_after(*events[:half], settings=SETTINGS)
    state, changes = whole.checkpoint()
    again, seen = Engine.load(state, changes.started, changes.runs, SETTINGS, changes.rows), 0
    for event in events[half:]:
        asked = None
        if isinstance(event, Submit):
            job = Job("", 0, event.time, user=event.user, cpus=event.cpus, walltime=event.walltime, queue=event.queue)
            job.group, job.executable = event.group, event.executable
            (asked,) = consider(whole, [job])
        found = whole.apply(event)
        assert again.apply(event) == found
        told = [
            one.predicted_wait_s
            for one in found
            if isinstance(one, Prediction) and one.job == getattr(event, "job", "")
        ]
        if asked is not None and told:
            seen += "later arrivals" in (asked.reason or "")
            assert told[0] == pytest.approx(asked.predicted_wait_s)
    assert order_of(again).rows.count == order_of(whole).rows.count > 0
    assert seen


def test_refusals_at_a_submission_change_no_prediction_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, now, simulate = engine_after(*daily_jobs(4), settings=SETTINGS), 4 * DAY_S + 60.0, LearntOrder.simulate
    order = order_of(engine)
    monkeypatch.setattr(learnt_order, "MIN_FIT", 0.0)
    order._fit.site.pairs = order._fit.site.agreeing = 100.0
    order.preference.weights[:] = 0.0
    order.preference.weights[6] = 1.0  # bob's next job is before cid's

    def refused(self: LearntOrder, job: Job, context: SiteContext) -> SimulatedStart:
        found = simulate(self, job, context)
        self.limits.counts[REFUSED, ALONE, -1] += 1000.0  # users may hold less than a CPU
        return found

    (asked,) = consider(engine, [Job("", 0, now, user="cid", cpus=1, walltime=HOUR_S)])
    monkeypatch.setattr(LearntOrder, "simulate", refused)
    event = Submit(site="alder", time=now, job="cid", user="cid", cpus=1, walltime=HOUR_S)
    (predicted,) = (one for one in engine.apply(event) if isinstance(one, Prediction) and one.job == "cid")
    assert order.limits_at(1).alone < 1.0
    assert (predicted.predicted_wait_s, predicted.reason) == (asked.predicted_wait_s, asked.reason)
