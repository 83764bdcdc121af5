"""The records and the state of a queue that is simulated only in part can be encoded."""

import msgspec
import pytest

from models.engine.engine import Engine
from models.engine.settings import EngineSettings
from models.records import Capacity, Start, Submit
from models.site import seen
from models.waits import simulated
from models.waits.order import ordered_queue

STARTED, QUEUED = 120, 60


@pytest.fixture(autouse=True)
def soon_deep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ordered_queue, "MAX_SIMULATED", 20)
    monkeypatch.setattr(ordered_queue, "MAX_SIMULATED_OF_PART", 10)
    monkeypatch.setattr(simulated, "MAX_SIMULATED", 15)
    for name, value in (("MOST_WAITING", 30), ("FIRST", 10), ("LAST", 5), ("MIDDLE", 8)):
        monkeypatch.setattr(seen, name, value)


@pytest.mark.parametrize("method", ["blend", "order", "policy", "easy", "conservative", "lwf", "fcfs", "boosted"])
def test_deep_queue_is_encoded_after_each_submit(method: str) -> None:
    engine = Engine("alder", EngineSettings(method=method, shadows=()))
    engine.apply(Capacity(site="alder", time=0.0, cpus=1000))
    for number in range(STARTED):
        job, user = f"runs-{number}", f"u{number % 20}"
        engine.apply(Submit(site="alder", time=1.0 * number, job=job, user=user, cpus=8, walltime=7200.0))
        engine.apply(Start(site="alder", time=number + 30.0, job=job))
    for number in range(QUEUED):
        cpus, time = 1 + number % 64, 300.0 + number
        submit = Submit(site="alder", time=time, job=f"{number}", user=f"u{number % 7}", cpus=cpus, walltime=600.0)
        assert msgspec.json.encode(engine.apply(submit))
        assert engine.cut().state
    assert any(job.estimates[method].wait_s for job in engine.context.state.jobs.values() if job.start is None)
