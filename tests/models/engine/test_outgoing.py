"""Published predictions are the scored ones; they are withheld while nodes are down."""

import msgspec
import pytest

from models.engine.engine import Engine
from models.measures import Accuracy, RunAccuracy
from models.method_registry import DEFAULT_RUN, RUN_METHODS
from models.records import (
    Outcome,
)
from tests.support.engines import (
    EVERY,
    MEDIAN,
    engine_after,
    nodes_at,
    outcome,
    predicted,
    workload,
)
from tests.support.events import start, submit


def test_accuracy_equals_the_accuracy_of_the_outcomes() -> None:
    engine = Engine("s", EVERY)
    names = [*engine.methods.waits, "a", "b"]  # The workload has external estimates of these two sources.
    accuracy, cancelled = ({name: Accuracy() for name in names} for _ in range(2))
    runs: dict[str, dict[tuple[str, int], tuple[float | None, float, tuple[float, float] | None]]] = {}
    for event in workload(1):
        for record in engine.apply(event):
            if not isinstance(record, Outcome):
                continue
            if record.actual_run_s is not None:
                mine_run = runs.setdefault(record.method if record.method in RUN_METHODS else DEFAULT_RUN, {})
                mine_run[record.job, record.attempt] = (
                    record.predicted_run_s,
                    record.actual_run_s,
                    record.run_interval,
                )
            if record.method not in accuracy:
                continue
            wait_s, predicted_s = record.actual_wait_s, record.predicted_wait_s
            assert record.error_s == (predicted_s or 0.0) - wait_s
            mine = (cancelled if record.censored else accuracy)[record.method]
            if record.actual_run_s is None:
                mine.add_wait(predicted_s, wait_s, record.bounds)
            if record.censored or record.actual_run_s is not None:
                mine.add_response(predicted_s, wait_s, record.actual_run_s or 0.0)
    assert accuracy == engine.scores.accuracy
    assert cancelled == engine.scores.cancelled
    for name, estimates in runs.items():
        of_runs = RunAccuracy()
        for predicted_s, run_s, interval in estimates.values():
            of_runs.add(predicted_s, run_s, interval)
        assert of_runs == engine.scores.run_accuracy[name]
    assert min(accuracy["zero"].jobs, cancelled["zero"].jobs) > 0


# Nodes that are down.


@pytest.mark.parametrize(("down_nodes", "withheld"), [(0, False), (5, False), (6, True), (10, True)])
def test_prediction_is_withheld_while_too_many_nodes_are_down(down_nodes: int, withheld: bool) -> None:
    engine = engine_after(submit("1", 0.0), start("1", 60.0), nodes_at(70.0, down_nodes=down_nodes))
    prediction = predicted(engine, submit("2", 100.0))
    if withheld:
        assert (prediction.predicted_wait_s, prediction.predicted_start, prediction.bounds) == (None, None, None)
        assert prediction.reason == "nodes down"
    else:
        assert prediction.predicted_wait_s == 60.0
    assert prediction.degraded == (f"{down_nodes} of 10 nodes down" if down_nodes else None)
    record = outcome(engine, start("2", 110.0))
    assert record.error_s == (-10.0 if withheld else 50.0)
    assert engine.scores.accuracy["median"].missing == 1 + withheld
    assert engine.scores.accuracy["zero"].missing == withheld


@pytest.mark.parametrize(("share", "withheld"), [(0.0, True), (0.25, False), (0.2, True), (1.0, False)])
def test_max_down_fraction_sets_the_share_for_withholding(share: float, withheld: bool) -> None:
    some = msgspec.structs.replace(MEDIAN, method="zero", max_down_fraction=share)
    engine = engine_after(nodes_at(0.0, nodes=16, down_nodes=4), settings=some)
    assert (predicted(engine, submit("1", 1.0)).predicted_wait_s is None) == withheld


def test_predictions_resume_when_nodes_return() -> None:
    engine = engine_after(nodes_at(0.0, down_nodes=9), settings=msgspec.structs.replace(MEDIAN, method="zero"))
    assert predicted(engine, submit("1", 1.0)).predicted_wait_s is None
    engine.apply(nodes_at(2.0))
    prediction = predicted(engine, submit("2", 3.0))
    assert (prediction.predicted_wait_s, prediction.degraded) == (0.0, None)


def test_down_nodes_of_unknown_total_are_reported_only() -> None:
    zero = msgspec.structs.replace(MEDIAN, method="zero")
    for nodes in (None, 0):
        prediction = predicted(engine_after(nodes_at(0.0, nodes, down_nodes=3), settings=zero), submit("1", 1.0))
        assert (prediction.predicted_wait_s, prediction.degraded) == (0.0, "3 of unknown nodes down")
