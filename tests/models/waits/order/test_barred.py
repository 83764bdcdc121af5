"""Jobs whose pending reason is specific to them do not train the order of the queue."""

import numpy as np
import pytest

from models.engine.engine import Engine
from models.engine.settings import EngineSettings
from models.records import Alter, Capacity, End, Start, Submit
from models.waits.order import LearntOrder

SETTINGS = EngineSettings(method="order", shadows=(), bounds="", what_if_method="order", history=200)


def overtaken(reason: str | None) -> tuple[LearntOrder, LearntOrder]:
    """Return the method before and after a job starts while an earlier one is pending for this reason."""
    methods = []
    for starts in (False, True):
        engine = Engine("alder", SETTINGS)
        engine.apply(Capacity(site="alder", time=0.0, cpus=4))
        for number, name in enumerate(("runs", "first", "second")):
            engine.apply(Submit(site="alder", time=float(number), job=name, user=name, cpus=4, walltime=3600.0))
        engine.apply(Start(site="alder", time=5.0, job="runs"))
        engine.apply(Alter(site="alder", time=6.0, job="first", pending_reason=reason))
        engine.apply(End(site="alder", time=1000.0, job="runs"))
        if starts:
            engine.apply(Start(site="alder", time=1000.0, job="second"))
        engine.apply(Submit(site="alder", time=1001.0, job="last", user="last", cpus=4, walltime=3600.0))
        method = engine.methods.waits["order"]
        assert isinstance(method, LearntOrder)
        methods.append(method)
    return methods[0], methods[1]


@pytest.mark.parametrize(("reason", "learns"), [("QOSMaxCpuPerUserLimit", False), ("Licenses", False), ("x", True)])
def test_barred_job_does_not_train_the_order(reason: str, learns: bool) -> None:
    before, after = overtaken(reason)
    assert np.array_equal(before.preference.weights, after.preference.weights) != learns
