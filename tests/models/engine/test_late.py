"""Submits that the source learned of only at the start of the job are not predicted or scored."""

from typing import Any

import msgspec
import pytest

from models.engine.engine import Engine
from models.engine.settings import EngineSettings
from models.method_registry import METHODS
from models.records import AnyEvent, Submit
from tests.support.engines import EVERY
from tests.support.events import cancel, capacity, end, start, submit
from tests.support.stories import anomalies, applied, assert_sound, contents, outcomes

SETTINGS = EngineSettings(method="median", shadows=("zero", "qbets"), runtimes="last-two", publish_shadows=True)


def late(job: str, time: float, **fields: Any) -> Submit:
    return submit(job, time, user="ada", cpus=4, walltime=600.0, late=True, **fields)


def usual(count: int) -> list[AnyEvent]:
    """Return jobs whose events all arrive in time."""
    found: list[AnyEvent] = [capacity(64)]
    for number in range(count):
        time = 100.0 * number
        job = f"u{number}"
        found += [submit(job, time, user="bob", cpus=4, walltime=600.0), start(job, time + 30.0), end(job, time + 90.0)]
    return found


def test_late_submit_is_not_predicted_or_scored() -> None:
    engine = Engine("s", SETTINGS)
    records = applied(engine, [*usual(3), start("x", 400.0), late("1", 10.0), start("1", 500.0), end("1", 560.0)])
    assert [anomaly.reason for anomaly in anomalies(records)] == ["start_without_submit"]
    assert not [record for record in records if getattr(record, "job", "") == "1"]
    assert engine.scores.accuracy["median"].jobs == 3 == engine.context.history.count
    assert engine.scores.predictions["median"] == 3


def test_late_job_trains_methods_that_use_only_wait_and_run_time() -> None:
    engine = Engine("s", SETTINGS)
    for number in range(100):
        time = 1000.0 * number
        applied(engine, [late(str(number), time), start(str(number), time + 700.0), end(str(number), time + 790.0)])
        assert_sound(engine)
    records = applied(engine, [submit("new", 1e5, user="ada", cpus=4, walltime=600.0)])
    by_method = {record.method: record for record in records}  # type: ignore[union-attr]
    assert by_method["qbets"].predicted_wait_s == 700.0  # type: ignore[union-attr]
    assert by_method["median"].predicted_wait_s is None  # type: ignore[union-attr]
    assert by_method["median"].predicted_run_s == 90.0  # type: ignore[union-attr]


def test_late_job_does_not_train_methods_that_need_the_state() -> None:
    assert [name for name in METHODS if getattr(METHODS[name], "by_waits_alone", False)] == ["qbets"]
    engine = Engine("s", EVERY)
    applied(engine, usual(40))
    before = contents(engine)
    applied(engine, [late("1", 10.0), start("1", 3950.0)])
    after = contents(engine)
    waits = before["methods"]["waits"]
    changed = {name for name, saved in waits.items() if after["methods"]["waits"][name] != saved}
    counted, counted_after = before["histories"], after["histories"]
    rows = {name for name, kept in counted["rows"].items() if counted_after["rows"][name] != kept}
    # The order model tracks the usage of users, and so do the two methods that use it.
    assert changed <= {"qbets", "order", "boosted", "blend"} and rows == {"qbets"}
    assert {**counted, "rows": None} == {**counted_after, "rows": None}
    for name in ("accuracy", "cancelled", "predictions"):
        assert before["scores"][name] == after["scores"][name]


def test_late_submit_does_not_affect_the_clock() -> None:
    engine = Engine("s", SETTINGS)
    for number in range(50):
        time = 1.7e9 + 100.0 * number
        engine.apply(late(str(number), time - 5 * 86_400.0), time)
        engine.apply(start(str(number), time), time + 1.0)
    assert engine.time == 1.7e9 + 4900.0 and engine.clock.live
    assert set(engine.clock.lags) == {1.0}


@pytest.mark.parametrize(
    ("events", "reasons"),
    [
        ([late("1", 10.0), late("1", 10.0)], ["duplicate_submit"]),
        ([late("1", 10.0), start("1", 50.0), late("1", 10.0)], ["duplicate_submit"]),
        ([start("1", 50.0), late("1", 10.0)], ["start_without_submit", "submit_after_start"]),
        ([late("1", 10.0), end("1", 90.0), start("1", 50.0)], ["end_seen_before_start"]),
        ([late("1", 10.0), cancel("1", 50.0)], []),
        ([late("1", 500.0), start("1", 50.0)], ["start_before_submit"]),
    ],
)
def test_late_submit_repeated_or_after_start_is_reported(events: list[AnyEvent], reasons: list[str]) -> None:
    engine = Engine("s", SETTINGS)
    records = applied(engine, events)
    assert [anomaly.reason for anomaly in anomalies(records)] == reasons
    assert not outcomes(records)
    assert_sound(engine)


def test_late_submit_survives_a_restart() -> None:
    engine = Engine("s", SETTINGS)
    applied(engine, [*usual(3), late("1", 10.0)])
    state, changes = engine.checkpoint()
    again = Engine.load(state, changes.started, changes.runs, SETTINGS, changes.rows)
    applied(engine, [start("1", 500.0)])
    applied(again, [start("1", 500.0)])
    assert engine.checkpoint()[0] == again.checkpoint()[0]


def test_late_submit_requeued_is_predicted_normally() -> None:
    engine = Engine("s", SETTINGS)
    requeue = msgspec.convert({"site": "s", "time": 600.0, "job": "1", "type": "requeue"}, AnyEvent)
    applied(engine, [late("1", 10.0), start("1", 500.0)])
    records = applied(engine, [requeue, start("1", 700.0, attempt=1)])
    assert [outcome.actual_wait_s for outcome in outcomes(records)] == [100.0] * 3
