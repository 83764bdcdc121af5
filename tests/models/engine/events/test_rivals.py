"""External start estimates of queued jobs are scored next to the methods, under their own names."""

from collections.abc import Iterator

import msgspec

from models.durations import DAY_S, WEEK_S
from models.engine.asking.accuracy import weeks
from models.engine.engine import EVENTS_PER_SWEEP, Engine
from models.engine.scores import MAX_RIVALS
from models.records import AnyEvent, ExpectedStart
from tests.support.events import cancel, capacity, end, start, submit
from tests.support.stories import SETTINGS, anomalies, applied, contents, event, new_engine, outcomes

PUBLISHED = msgspec.structs.replace(SETTINGS, publish_shadows=True)


def expected(wait_s: float, by: str = "slurm", job: str = "1") -> AnyEvent:
    """Return an external estimate for a job submitted at 100."""
    return ExpectedStart(site="s", time=110.0, job=job, by=by, expected=100.0 + wait_s)


def errors(engine: Engine, name: str) -> tuple[int, float]:
    accuracy = engine.scores.accuracy[name]
    return accuracy.jobs, accuracy.error.total


def test_external_estimate_first_of_each_source_is_scored() -> None:
    engine = new_engine()
    events = [expected(80.0), expected(50.0), expected(20.0, by="maui"), event("start@150")]
    assert not anomalies(applied(engine, [event("submit@100"), *events]))
    assert errors(engine, "slurm") == (1, 30.0) and errors(engine, "maui") == (1, 30.0)
    assert engine.scores.rivals["slurm"].jobs == 1
    applied(engine, [event("end@200")])
    assert engine.scores.accuracy["slurm"].ppe.total == 0.3


def test_external_estimate_and_method_are_scored_on_same_jobs() -> None:
    engine = new_engine()
    for job, has_estimate in enumerate([True, False, True]):
        applied(engine, [submit(str(job), 100.0), *([expected(90.0, job=str(job))] if has_estimate else [])])
        applied(engine, [start(str(job), 160.0)])
    assert errors(engine, "slurm") == (2, 60.0) and errors(engine, "median")[0] == 3
    ours = engine.scores.rivals["slurm"]
    assert (ours.jobs, ours.missing, ours.error.total) == (2, 1, 60.0)


def test_past_external_estimate_is_zero_wait_from_eligible_time() -> None:
    engine = new_engine()
    expectation = ExpectedStart(site="s", time=200.0, job="1", by="slurm", expected=90.0)
    applied(engine, [event("submit@100", eligible=180.0), expectation])
    assert engine.context.state.jobs["1", 0].estimates["slurm"].wait_s == 0.0
    engine = new_engine()
    applied(engine, [event("submit@100", eligible=180.0), expected(120.0)])
    assert engine.context.state.jobs["1", 0].estimates["slurm"].wait_s == 40.0


def test_external_estimate_that_is_invalid_is_only_counted() -> None:
    names = [f"rival{number}" for number in range(MAX_RIVALS + 1)]
    engine = new_engine()
    applied(engine, [event("submit@100")])
    found = anomalies(applied(engine, [expected(1.0, by=name) for name in [*names, "fcfs", "closest"]]))
    reasons = [anomaly.reason for anomaly in found]
    assert reasons == ["too_many_external_estimates", "expected_start_by_a_method", "expected_start_by_a_method"]
    assert [*engine.scores.rivals] == names[:-1]
    before = contents(engine)
    found = anomalies(applied(engine, [expected(1.0, job="2")]))
    assert [anomaly.reason for anomaly in found] == ["expected_start_of_job_not_queued"]
    assert contents(engine) == before
    far = ExpectedStart(site="s", time=110.0, job="1", by="rival1", expected=110.0 + 500 * DAY_S)
    assert [anomaly.reason for anomaly in anomalies(engine.apply(far))] == ["implausible_time"]


def test_external_estimate_repeated_changes_no_state() -> None:
    engine = new_engine()
    applied(engine, [event("submit@100"), expected(80.0)])
    before = contents(engine)
    assert engine.apply(expected(80.0)) == [] and engine.apply(expected(10.0)) == []
    assert contents(engine) == before


def test_external_estimate_of_cancelled_job_is_scored() -> None:
    engine = new_engine()
    applied(engine, [event("submit@100"), expected(80.0), event("cancel@150")])
    cancelled = engine.scores.cancelled["slurm"]
    assert (cancelled.jobs, cancelled.error.total) == (1, 30.0)


def test_external_estimate_has_shadow_outcomes_but_no_prediction() -> None:
    def scored_waits(engine: Engine) -> list[tuple[str, float | None]]:
        found = applied(engine, [event("submit@100"), expected(80.0), event("start@150"), event("end@200")])
        assert sum("Prediction" in type(record).__name__ for record in found) == len(published(engine))
        return [(one.method, one.predicted_wait_s) for one in outcomes(found)]

    def published(engine: Engine) -> tuple[str, ...]:
        return engine.settings.methods if engine.settings.publish_shadows else (engine.settings.method,)

    assert scored_waits(new_engine()) == [("median", None)] * 2
    assert scored_waits(Engine("s", PUBLISHED)) == [("median", None), ("zero", 0.0), ("slurm", 80.0)] * 2


def test_external_estimate_has_no_bounds() -> None:
    engine = Engine("s", msgspec.structs.replace(PUBLISHED, bounds="qbets"))
    for number in range(80):
        applied(engine, [submit(str(number), 100.0), start(str(number), 130.0)])
    found = applied(engine, [submit("x", 100.0), expected(80.0, job="x"), start("x", 150.0)])
    bounds = {outcome.method: outcome.bounds for outcome in outcomes(found)}
    assert bounds["median"] is not None or bounds["qbets"] is not None
    assert bounds["slurm"] is None and not engine.scores.accuracy["slurm"].bounds


def test_external_estimates_survive_a_restart() -> None:
    events: list[AnyEvent] = [event("submit@100"), expected(80.0), submit("2", 120.0), event("start@150")]
    events += [event("end@170"), expected(90.0, job="2"), start("2", 190.0)]
    whole = Engine("s", PUBLISHED)
    records = applied(whole, events)
    for place in range(len(events)):
        engine = Engine("s", PUBLISHED)
        first = applied(engine, events[:place])
        state, changes = engine.checkpoint()
        again = Engine.load(state, changes.started, changes.runs, PUBLISHED, changes.rows)
        assert [*first, *applied(again, events[place:])] == records
        assert again.checkpoint()[0] == whole.checkpoint()[0]


def some_weeks() -> Iterator[AnyEvent]:
    for number in range(3 * EVENTS_PER_SWEEP):
        time = number * 3 * WEEK_S / (3 * EVENTS_PER_SWEEP)
        job = str(number)
        yield submit(job, time)
        yield ExpectedStart(site="s", time=time, job=job, by="slurm", expected=time + 60.0)
        yield start(job, time + 90.0)
        yield end(job, time + 120.0)


def test_external_estimate_is_scored_in_accuracy_by_week() -> None:
    engine = new_engine()
    applied(engine, [capacity(8), *some_weeks()])
    last = weeks(engine, engine.time)[-1]
    assert {one.method: one.mean_error_s for one in last.methods}["slurm"] == 30.0


def test_external_estimate_of_unscored_job_is_not_scored() -> None:
    engine = new_engine()
    applied(engine, [event("submit@100"), expected(80.0), event("start@20"), event("end@200")])
    applied(engine, [submit("2", 300.0), cancel("2", 100.0)])
    assert errors(engine, "slurm") == (0, 0.0)
