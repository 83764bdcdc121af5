"""Jobs that still queue are estimated again."""

from typing import ClassVar

import msgspec
import pytest

from models.engine.asking.answers import answer
from models.engine.engine import Engine
from models.engine.outgoing import Record
from models.engine.reestimates import FIRST_LOOK_S, MAX_LOOKS_PER_EVENT, MAX_TAKEN_PER_EVENT, MIN_ENTRIES
from models.method import SiteContext, WaitMethod
from models.records import Alter, Hold, JobAnswer, JobQuestion, Outcome, Prediction, Release
from models.registry import METHODS
from models.site.job import MOST_LATER, Estimate, Job
from tests.support.engines import MEDIAN, encoded, nodes_at
from tests.support.events import start, submit

SETTINGS = msgspec.structs.replace(MEDIAN, method="pessimist", shadows=())


class Pessimist(WaitMethod):
    """Expects an hour, and of a job that queues as long again as it has waited."""

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
    """An event that changes none of the jobs of the test."""
    return engine.apply(nodes_at(time))


def test_a_job_that_queues_is_estimated_anew_where_its_start_has_moved() -> None:
    engine = Engine("s", SETTINGS)
    engine.apply(submit("1", 1000.0))
    assert again(tick(engine, 1000.0 + FIRST_LOOK_S - 1)) == []
    [told] = again(tick(engine, 1000.0 + FIRST_LOOK_S))
    assert (told.job, told.made_at, told.waited_s) == ("1", 1600.0, 600.0)
    assert (told.predicted_wait_s, told.predicted_start, told.bounds) == (1200.0, 2200.0, {"0.9": 1800.0})
    assert again(tick(engine, 2100.0)) == []  # its next turn comes later
    [later] = again(tick(engine, 2500.0))
    assert later.predicted_wait_s == 3000.0
    answered = answer(JobQuestion(id="1", site="s", job="1"), engine, 2600.0)
    assert isinstance(answered, JobAnswer)
    assert [(told.at, told.start, told.starts_by) for told in answered.told] == [
        (1000.0, 4600.0, {"0.9": 8200.0}),
        (1600.0, 2200.0, {"0.9": 2800.0}),
        (2500.0, 4000.0, {"0.9": 5500.0}),
    ]
    [outcome] = [record for record in engine.apply(start("1", 4000.0)) if isinstance(record, Outcome)]
    assert outcome.predicted_wait_s == 3600.0  # what was said at its submission is what is scored
    assert engine.scores.later_first.error.total == 600.0
    assert engine.scores.later.error.total == 0.0


def test_a_start_that_has_hardly_moved_is_left_out() -> None:
    engine = Engine("s", SETTINGS)
    engine.apply(submit("1", 1000.0))
    assert again(tick(engine, 1000.0 + 1700.0)) == []  # 3400 s instead of 3600
    assert again(tick(engine, 1000.0 + 2399.0)) == []  # its next turn comes later
    assert again(tick(engine, 1000.0 + 2400.0)) != []


def test_an_event_that_comes_twice_gives_no_job_its_turn() -> None:
    engine = Engine("s", SETTINGS)
    jobs = [submit(str(number), 1000.0) for number in range(MAX_LOOKS_PER_EVENT + 2)]
    for event in jobs:
        engine.apply(event)
    assert len(again(tick(engine, 10_000.0))) == MAX_LOOKS_PER_EVENT
    assert again(engine.apply(jobs[0])) == []
    assert len(again(tick(engine, 10_000.0))) == 2


def test_jobs_that_do_not_queue_have_no_turn() -> None:
    engine = Engine("s", SETTINGS)
    for job in ("1", "2", "3"):
        engine.apply(submit(job, 1000.0))
    engine.apply(Hold(site="s", job="1", time=1001.0))
    engine.apply(start("2", 1002.0))
    assert [told.job for told in again(tick(engine, 1600.0))] == ["3"]
    engine.apply(Release(site="s", job="1", time=1700.0))
    assert [told for told in again(tick(engine, 2200.0)) if told.job == "1"] == []
    assert [told.waited_s for told in again(tick(engine, 2300.0)) if told.job == "1"] == [600.0]


def test_a_job_that_becomes_eligible_later_is_looked_at_later() -> None:
    engine = Engine("s", SETTINGS)
    engine.apply(submit("1", 1000.0))
    engine.apply(Alter(site="s", job="1", time=1001.0, eligible=5000.0))
    assert again(tick(engine, 5599.0)) == []
    [told] = again(tick(engine, 5600.0))
    assert (told.waited_s, told.predicted_start) == (600.0, 6200.0)


def test_a_job_whose_wait_begins_anew_again_and_again_keeps_some_of_its_estimates(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def now_and_then(_self: Pessimist, _job: Job, _context: SiteContext, now: float) -> Estimate:
        return Estimate(3600.0 if now // 7000 % 2 else 108_000.0, "")

    monkeypatch.setattr(Pessimist, "re_estimate", now_and_then)
    engine = Engine("s", SETTINGS)
    engine.apply(submit("1", 1000.0))
    for number in range(1100):
        begins = 2000.0 + 7000.0 * number
        engine.apply(Alter(site="s", job="1", time=begins - 10.0, eligible=begins))
        assert again(tick(engine, begins + FIRST_LOOK_S))
    engine.checkpoint()
    answered = answer(JobQuestion(id="1", site="s", job="1"), engine, begins + FIRST_LOOK_S)
    assert isinstance(answered, JobAnswer)
    assert len(answered.told) == 1 + MOST_LATER
    assert [told.at for told in answered.told[-2:]] == [begins + FIRST_LOOK_S - 7000.0, begins + FIRST_LOOK_S]


def test_after_one_event_only_some_jobs_have_their_turn() -> None:
    engine = Engine("s", SETTINGS)
    for number in range(MAX_LOOKS_PER_EVENT + 2):
        engine.apply(submit(str(number), 1000.0 + number))
    jobs = [str(number) for number in range(MAX_LOOKS_PER_EVENT + 2)]
    assert [told.job for told in again(tick(engine, 1700.0))] == jobs[:-2]
    assert [told.job for told in again(tick(engine, 1700.0))] == jobs[-2:]


def test_while_nodes_are_down_nothing_is_told() -> None:
    engine = Engine("s", SETTINGS)
    engine.apply(submit("1", 1000.0))
    assert again(engine.apply(nodes_at(1700.0, down_nodes=9))) == []
    assert [told.made_at for told in again(tick(engine, 1800.0))] == [1800.0]


def test_a_site_that_is_read_back_goes_on_as_if_nothing_had_happened() -> None:
    engine = Engine("s", SETTINGS)
    for number in range(9):
        engine.apply(submit(str(number), 1000.0 + 100.0 * number))
    tick(engine, 1650.0)
    saved, changes = engine.checkpoint()
    other = Engine.load(saved, changes.started, changes.runs, SETTINGS, changes.rows)
    assert any(job.later is not None for job in other.context.state.jobs.values())
    for event in [nodes_at(1700.0 + 50.0 * n) for n in range(60)] + [start("3", 6000.0)]:
        assert encoded(engine.apply(event)) == encoded(other.apply(event))
    assert engine.checkpoint()[0] == other.checkpoint()[0]


def test_of_the_looks_that_are_due_only_some_are_taken_after_one_event() -> None:
    engine = Engine("s", SETTINGS)
    jobs = MAX_TAKEN_PER_EVENT // 2
    for number in range(jobs):
        engine.apply(submit(f"{number:03}", 1000.0))  # at the same time
    told, events = [], 0
    while len(told) < jobs:  # each is due three times by then: at 1600, 2200 and 3400
        told += [record.job for record in again(tick(engine, 4000.0))]
        engine, events = restored(engine), events + 1
    assert len(set(told)) == jobs
    assert events == 1 + jobs // MAX_LOOKS_PER_EVENT  # after the first one the earlier looks were passed over
    assert again(tick(engine, 4000.0)) == []


def test_a_look_that_tells_nothing_leaves_the_job_as_it_is_stored() -> None:
    engine = Engine("s", SETTINGS)
    engine.apply(submit("1", 1000.0))
    engine.cut()
    assert again(tick(engine, 1000.0 + 1700.0)) == []
    assert engine.cut().jobs == {}
    assert again(tick(engine, 1000.0 + 2400.0)) != []
    assert len(engine.cut().jobs) == 1


def restored(engine: Engine) -> Engine:
    saved, changes = engine.checkpoint()
    return Engine.load(saved, changes.started, changes.runs, SETTINGS, changes.rows)


def test_a_job_that_is_altered_all_the_time_takes_no_more_room() -> None:
    engine = Engine("s", SETTINGS)
    engine.apply(submit("1", 1000.0))
    for number in range(3 * MIN_ENTRIES):
        engine.apply(Alter(site="s", job="1", time=1001.0 + number / 100, walltime=60.0 + number))
    assert len(engine.parts.reestimates._due) <= MIN_ENTRIES + 2
    assert [told.job for told in again(tick(engine, 1600.0))] == ["1"]


def test_a_method_that_estimates_nothing_anew_keeps_nothing() -> None:
    engine = Engine("s", MEDIAN)
    engine.apply(submit("1", 1000.0))
    assert again(tick(engine, 9000.0)) == []
    assert engine.parts.reestimates._due == []
