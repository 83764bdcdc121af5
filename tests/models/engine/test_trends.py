"""A site's trends by hour, day and week: bounded, and equal after a crash."""

import msgspec
import pytest

from models.engine.asking.engine_answers import answer
from models.engine.engine import Engine
from models.engine.trends import MAX_DAYS, MAX_HOURS, MAX_WEEKS, SavedTrends, Trends
from models.engine.wait_counts import BEGINS, WaitCounts
from models.records import Outcome, SiteAnswer, SiteQuestion, SiteTrends
from models.site.state import SiteState
from tests.support.engines import SMALL, engine_after, nodes_at, workload
from tests.support.events import cancel, capacity, end, start, submit

HOUR, DAY = 3600.0, 86_400.0
MONDAY = 1_767_571_200.0


def past_of(engine: Engine) -> SiteTrends:
    reply = answer(SiteQuestion(id="1", site="s", trends=True), engine, engine.time)
    assert isinstance(reply, SiteAnswer) and reply.trends
    return reply.trends


def test_trends_without_weeks_are_decoded() -> None:
    assert msgspec.convert({"hours": [], "days": []}, SiteTrends).weeks == []


def test_trends_note_the_queue_at_the_first_event_of_an_hour() -> None:
    engine = engine_after(
        capacity(64, MONDAY),
        submit("1", MONDAY + 60, cpus=4),
        start("1", MONDAY + 120),
        submit("2", MONDAY + HOUR + 5, cpus=8),
        submit("3", MONDAY + HOUR + 9, cpus=8),
        nodes_at(MONDAY + 5 * HOUR),
    )
    noted = [(hour.time - MONDAY, hour.queued_jobs, hour.running_jobs) for hour in past_of(engine).hours]
    assert noted == [(0.0, 0, 0), (HOUR + 5, 1, 1), (5 * HOUR, 2, 1)]
    last = past_of(engine).hours[-1]
    assert (last.queued_cpus, last.running_cpus) == (16, 4)


def test_trends_sum_predicted_and_actual_waits_by_day() -> None:
    engine = engine_after(capacity(64, MONDAY))
    for number, waited_s in enumerate((100.0, 300.0)):
        engine.apply(submit(str(number), MONDAY + HOUR * number))
        engine.apply(start(str(number), MONDAY + HOUR * number + waited_s))
        engine.apply(end(str(number), MONDAY + HOUR * number + 900))
    engine.apply(submit("gone", MONDAY + DAY))
    engine.apply(cancel("gone", MONDAY + DAY + 50))
    first, second = past_of(engine).days
    assert (first.begin, first.jobs, first.waited_s) == (MONDAY, 2, 400.0)
    assert first.predicted_s == 100.0 and first.error_s == 100.0 + 200.0  # the first job had no history
    assert (second.begin, second.jobs, second.waited_s) == (MONDAY + DAY, 1, 50.0)
    [week] = past_of(engine).weeks
    assert (week.begin, week.jobs, week.waited_s, week.error_s) == (MONDAY, 3, 450.0, first.error_s + second.error_s)


def test_medians_of_both_sides_can_be_compared() -> None:
    """Medians of skewed waits are below the mean wait and match the median wait."""
    past = Trends()
    for _ in range(3):
        for waited_s in (300.0, 900.0, 1000.0, 1100.0, 40_000.0):
            past.job_dequeued(MONDAY + HOUR, 1000.0, None, waited_s)
    [day] = past.kept.days
    assert day.waited_s / day.jobs > 8 * day.predicted_s / day.jobs
    assert (day.predicted_median_s, day.waited_median_s) == pytest.approx((1000.0, 1000.0), rel=0.13)
    again = Trends()
    again.restore(msgspec.msgpack.decode(msgspec.msgpack.encode(past.save()), type=SavedTrends))
    assert again.kept == past.kept and again.save() == past.save()


@pytest.mark.parametrize("wait_s", [0.0, 0.5, 10.0, 59.0, 60.0, 3600.0, 86_400.0, 1e9])
def test_median_of_one_wait_is_near_it(wait_s: float) -> None:
    counts = WaitCounts()
    assert counts.median_s() is None
    for _ in range(7):
        counts.add(wait_s)
    assert counts.median_s() == pytest.approx(min(wait_s, BEGINS[-1]), rel=0.13, abs=8.0)


def test_trends_count_bounded_and_covered_jobs() -> None:
    past = Trends()
    past.job_dequeued(MONDAY, 10.0, 60.0, 50.0)
    past.job_dequeued(MONDAY, 10.0, 60.0, 70.0)
    past.job_dequeued(MONDAY, None, None, 70.0)
    [day] = past.kept.days
    assert (day.jobs, day.bounded, day.covered) == (3, 2, 1)


def test_trends_are_bounded_and_recover_from_a_wrong_clock() -> None:
    past, state = Trends(), SiteState()
    for hour in range(400 * 24):
        past.pass_to(MONDAY + hour * HOUR, state)
        past.job_dequeued(MONDAY + hour * HOUR, 1.0, 1.0, 1.0)
    assert (len(past.kept.hours), len(past.kept.days), len(past.kept.weeks)) == (MAX_HOURS, MAX_DAYS, MAX_WEEKS)
    assert {week.begin % (7 * DAY) for week in past.kept.weeks} == {MONDAY % (7 * DAY)}
    assert {week.jobs for week in past.kept.weeks[:-1]} == {7 * 24}
    earlier = MONDAY + 395 * DAY
    past.pass_to(earlier, state)
    assert past.kept.hours[-1].time == earlier
    assert [hour.time for hour in past.kept.hours] == sorted(hour.time for hour in past.kept.hours)


def test_trends_sums_equal_sums_of_outcomes() -> None:
    """A replay of the same events gives these outcomes, so its report and the pages agree."""
    engine, by_job = Engine("s", SMALL), {}
    for event in workload(3):
        for record in engine.apply(event):
            if isinstance(record, Outcome) and record.method == SMALL.method and record.actual_run_s is None:
                by_job[record.job, record.attempt] = record
    weeks = past_of(engine).weeks
    assert sum(week.jobs for week in weeks) == len(by_job) > 100
    for name, field in (("predicted_s", "predicted_wait_s"), ("waited_s", "actual_wait_s")):
        every = sum(getattr(record, field) or 0.0 for record in by_job.values())
        assert sum(getattr(week, name) for week in weeks) == pytest.approx(every)


def test_trends_are_equal_after_a_crash() -> None:
    engine = Engine("s", SMALL)
    for event in workload(3)[:200]:
        engine.apply(event)
    state, changes = engine.checkpoint()
    again = Engine.load(state, changes.started, changes.runs, SMALL, changes.rows)
    later = nodes_at(engine.time + 2 * HOUR)
    for one in (engine, again):
        one.apply(later)
        one.trends.job_dequeued(later.time, 60.0, 90.0, 100.0)
    assert again.trends.save() == engine.trends.save()
    assert len(past_of(again).hours) > 1 and past_of(again).days and past_of(again).weeks
