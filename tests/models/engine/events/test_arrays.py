"""A job array queues as one row; each array task leaves it and runs as its own job."""

from typing import Any

import msgspec
import pytest

from models.engine.asking.engine_answers import answer
from models.engine.engine import Engine
from models.engine.settings import EngineSettings
from models.records import AnyEvent, Cancel, End, JobAnswer, JobQuestion, Prediction, Requeue, Submit, Suspend
from models.site.job import Phase
from models.site.state import SITE
from tests.support.events import cancel, capacity, end, start, submit
from tests.support.stories import anomalies, applied, assert_sound, new_engine, outcomes

ROW = submit("7", 100.0, user="ada", cpus=2, walltime=60.0, array_size=3, array_limit=2, qos="high")


def begun(task: int, time: float, **fields: Any) -> AnyEvent:
    return start(f"7_{task}", time, array="7", **fields)


def jobs(engine: Engine) -> dict[str, tuple[str, int]]:
    """Return the phase and the number of remaining tasks of each live job."""
    assert_sound(engine)
    return {job.id: (job.phase.value, job.tasks_remaining) for job in engine.context.state.jobs.values()}


def counted(engine: Engine) -> dict[str, tuple[int, int]]:
    totals = {phase.value: engine.context.state.totals(SITE, phase) for phase in Phase}
    return {phase: (total.count, total.cpus) for phase, total in totals.items() if total.count}


def test_array_row_departs_with_its_last_task() -> None:
    engine = new_engine()
    assert not anomalies(applied(engine, [ROW]))
    assert jobs(engine) == {"7": ("queued", 3)} and counted(engine) == {"queued": (1, 6)}
    assert not anomalies(applied(engine, [begun(1, 150.0), begun(2, 160.0)]))
    assert jobs(engine) == {"7": ("queued", 1), "7_1": ("running", 1), "7_2": ("running", 1)}
    assert counted(engine) == {"queued": (1, 2), "running": (2, 4)}
    assert not anomalies(applied(engine, [end("7_1", 200.0), begun(3, 201.0, cpus=4)]))
    assert jobs(engine) == {"7_2": ("running", 1), "7_3": ("running", 1)}
    assert counted(engine) == {"running": (2, 6)}
    task = engine.context.state.jobs["7_3", 0]
    assert (task.user, task.cpus, task.walltime, task.submit, task.extras.qos) == ("ada", 2, 60.0, 100.0, "high")
    assert (task.extras.array, task.extras.array_size, task.extras.array_limit) == ("7", None, None)


def test_answer_about_array_counts_pending_and_running_tasks() -> None:
    engine = new_engine()

    def answered(event: AnyEvent) -> JobAnswer:
        applied(engine, [event])
        found = answer(JobQuestion(id="1", site="s", job="7"), engine, 300.0)
        assert isinstance(found, JobAnswer)
        return found

    tasks = []
    for event in (ROW, begun(1, 150.0), begun(2, 160.0), begun(3, 170.0), end("7_1", 200.0)):
        found = answered(event)
        assert found.live is not None
        tasks.append((found.live.tasks_remaining, found.live.tasks_running))
    assert tasks == [(3, 0), (2, 1), (1, 2), (0, 3), (0, 2)]
    assert (found.job, found.text, found.live and found.live.job) == ("7", "runs already", "7_3")
    answered(end("7_2", 200.0))
    found = answered(Suspend(site="s", time=210.0, job="7_3"))
    assert found.live is not None and found.text == "runs already, and is suspended"
    assert (found.live.job, found.live.tasks_remaining, found.live.tasks_running) == ("7_3", 0, 0)
    assert answered(end("7_3", 220.0)).live is None


@pytest.mark.parametrize(
    ("row", "task", "other"), [("7", "7_2", "7_1"), ("7", "7[2]", "7[1]"), ("7[].pbs", "7[2].pbs", "7[1].pbs")]
)
def test_answer_about_pending_task_is_that_of_its_array(row: str, task: str, other: str) -> None:
    engine = new_engine()
    begin = start(other, 150.0, array=row)
    applied(engine, [msgspec.structs.replace(ROW, job=row), begin, end(other, 200.0)])

    def answered(job: str) -> JobAnswer:
        found = answer(JobQuestion(id="1", site="s", job=job), engine, 300.0)
        assert isinstance(found, JobAnswer)
        return found

    found = answered(task)
    assert found.live is not None and (found.job, found.live.job, found.live.tasks_remaining) == (task, row, 2)
    assert found.text.startswith(f"pending in the array {row}; its next task: ")
    assert answered(other).live is None, "this task has ended"
    assert answered("70_2").live is None and answered("7_x").live is None


def test_array_is_scored_by_first_task_and_all_train_run_times() -> None:
    engine = new_engine()
    events = [ROW, begun(2, 150.0), begun(1, 190.0), end("7_1", 200.0), end("7_2", 210.0), begun(3, 220.0)]
    found = outcomes(applied(engine, [*events, end("7_3", 230.0)]))
    assert [(outcome.job, outcome.actual_wait_s, outcome.actual_run_s) for outcome in found] == [
        ("7", 50.0, None),
        ("7", 50.0, 60.0),
    ]
    assert sorted(run.run_s for run in engine.context.runs if run.category[0] == "user") == [10.0, 10.0, 60.0]
    accuracy = engine.scores.accuracy["median"]
    assert (accuracy.jobs, engine.context.history.count, len(engine.context.state)) == (1, 1, 0)


LIVE = {"7": ("queued", 2), "7_1": ("running", 1)}


@pytest.mark.parametrize(
    ("events", "reasons", "left"),
    [
        ([ROW, begun(1, 150.0), begun(1, 150.0)], "duplicate_start", LIVE),
        ([ROW, begun(1, 150.0), ROW], "duplicate_submit", LIVE),
        ([ROW, begun(1, 150.0), end("7_1", 200.0), begun(1, 150.0)], "duplicate_start", {"7": ("queued", 2)}),
        (
            [ROW, end("7_1", 200.0, array="7"), begun(1, 150.0)],
            "end_without_start duplicate_start",
            {"7": ("queued", 2)},
        ),
        ([ROW, begun(1, 30.0)], "start_before_submit", LIVE),
        ([begun(1, 150.0), ROW], "start_without_submit submit_after_start", LIVE),
        ([ROW, cancel("7", 140.0)], "", {}),
        ([ROW, begun(1, 150.0), cancel("7", 160.0)], "", {"7_1": ("running", 1)}),
        ([ROW, begun(1, 150.0), end("7", 160.0)], "end_of_array", {"7_1": ("running", 1)}),
        ([ROW, cancel("7_1", 140.0, array="7")], "", {"7": ("queued", 2)}),
        ([ROW, *[cancel("7_1", 140.0, array="7")] * 2], "duplicate_cancel", {"7": ("queued", 2)}),
        ([ROW, cancel("7_1", 140.0, array="7"), begun(1, 150.0)], "duplicate_start", {"7": ("queued", 2)}),
        ([ROW, submit("7_1", 140.0, array="7")], "", {"7": ("queued", 2), "7_1": ("queued", 1)}),
        ([ROW, *[submit("7_1", 140.0, array="7")] * 2], "duplicate_submit", {"7": ("queued", 2), "7_1": ("queued", 1)}),
        ([ROW, begun(1, 150.0, attempt=1)], "start_without_submit", {"7": ("queued", 3), "7_1": ("running", 1)}),
        ([begun(1, 150.0)], "start_without_submit", {"7_1": ("running", 1)}),
    ],
)
def test_array_events_late_or_repeated_take_each_task_once(
    events: list[AnyEvent], reasons: str, left: dict[str, tuple[str, int]]
) -> None:
    engine = new_engine()
    found = anomalies(applied(engine, events))
    assert " ".join(anomaly.reason for anomaly in found) == reasons
    assert jobs(engine) == left


def test_cancelled_array_has_censored_wait_unless_a_task_started() -> None:
    def waits_of(*events: AnyEvent) -> list[tuple[float, bool]]:
        found = outcomes(applied(new_engine(), [ROW, *events]))
        return [(outcome.actual_wait_s, outcome.censored) for outcome in found]

    tasks: list[Cancel] = [cancel(f"7_{task}", 130.0 + task, array="7") for task in (1, 2, 3)]
    assert waits_of(cancel("7", 140.0)) == [(40.0, True)]
    assert waits_of(*tasks) == [(33.0, True)]
    assert waits_of(begun(1, 150.0), cancel("7", 160.0)) == [(50.0, False)]
    assert waits_of(begun(1, 150.0), *tasks[1:]) == [(50.0, False)]


def test_array_task_requeued_queues_as_its_own_job() -> None:
    engine = new_engine()
    again = Requeue(site="s", time=170.0, job="7_1", state="preempted")
    records = applied(engine, [ROW, begun(1, 150.0), again])
    [*_, prediction] = records
    assert isinstance(prediction, Prediction) and (prediction.job, prediction.attempt) == ("7_1", 1)
    assert jobs(engine) == {"7": ("queued", 2), "7_1": ("queued", 1)}
    [outcome, *rest] = outcomes(applied(engine, [begun(1, 200.0, attempt=1), end("7_1", 230.0, attempt=1)]))
    assert (outcome.job, outcome.actual_wait_s, len(rest)) == ("7_1", 30.0, 1)


def last_task_wait_s(row: Submit, *before: AnyEvent) -> Any:
    engine = Engine("s", EngineSettings(method="easy", shadows=(), runtimes="walltime"))
    applied(engine, [capacity(8), *before])
    [prediction] = engine.apply(row)
    assert isinstance(prediction, Prediction)
    return prediction.predicted_wait_s, prediction.last_task_wait_s


def array(size: int, limit: int | None = None, cpus: int = 2) -> Submit:
    return submit("7", 0.0, cpus=cpus, walltime=60.0, array_size=size, array_limit=limit)


@pytest.mark.parametrize(
    ("row", "waits"),
    [
        (array(1), (0.0, 0.0)),
        (array(4), (0.0, 0.0)),
        (array(5), (0.0, 60.0)),
        (array(12), (0.0, 120.0)),
        (array(12, 1), (0.0, 660.0)),
        (array(12, 2), (0.0, 300.0)),
        (array(12, 100), (0.0, 120.0)),
        (array(4000), (0.0, 59940.0)),
        (array(2, cpus=9), (None, msgspec.UNSET)),
        (submit("7", 0.0, cpus=2, walltime=60.0), (0.0, msgspec.UNSET)),
    ],
)
def test_array_prediction_reports_start_of_last_task(row: Submit, waits: tuple[Any, Any]) -> None:
    assert last_task_wait_s(row) == waits


def test_array_last_task_waits_for_running_and_queued_jobs() -> None:
    runs = [submit("1", 0.0, cpus=8, walltime=600.0), start("1", 0.0)]
    assert last_task_wait_s(array(8), *runs) == (600.0, 660.0)


def test_array_resumes_from_checkpoint_with_equal_records() -> None:
    events: list[AnyEvent] = [ROW, begun(1, 150.0), begun(2, 160.0), End(site="s", time=200.0, job="7_1")]
    rest: list[AnyEvent] = [begun(3, 210.0), end("7_2", 220.0), end("7_3", 230.0)]
    whole = new_engine()
    expected = applied(whole, [*events, *rest])
    for place in range(1, len(events)):
        engine = new_engine()
        first = applied(engine, events[:place])
        state, changes = engine.checkpoint()
        again = Engine.load(state, changes.started, changes.runs, engine.settings, changes.rows)
        assert [*first, *applied(again, [*events[place:], *rest])] == expected
        assert again.checkpoint()[0] == whole.checkpoint()[0]


@pytest.mark.parametrize(
    "events",
    [
        [submit("7", 0.0, array="7", array_limit=1), start("7", 10.0, array="7")],  # the job is its own array
        [ROW, begun(1, 150.0), begun(2, 150.0), Requeue(site="s", time=160.0, job="7"), end("7_1", 170.0)],
    ],
)
def test_array_limit_survives_save_and_load(events: list[AnyEvent]) -> None:
    engine = new_engine()
    applied(engine, events)
    state, changes = engine.checkpoint()
    again = Engine.load(state, changes.started, changes.runs, engine.settings, changes.rows)
    barred, there = (
        {key: table.columns().barred[row] for row, key in enumerate(table.keys) if key is not None}
        for table in (one.context.state.table for one in (engine, again))
    )
    assert barred and barred == there
