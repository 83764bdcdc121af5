"""Models trained in the background take effect at the same event, for any crash of a worker."""

import os
from pathlib import Path

import msgspec
import pytest

from models.engine.engine import Engine
from models.engine.outgoing import Anomaly
from models.engine.settings import EngineSettings
from models.method_registry import METHODS
from models.records import AnyEvent, Prediction
from models.waits.blend import Blend
from models.waits.boosted.boosted import Boosted
from models.waits.boosted.training import ROWS_PER_EVENT
from tests.support import trained
from tests.support.deployment import Deploy, Deployment, engine_after, parts, simulated, unique
from tests.support.packages import install

pytestmark = pytest.mark.long

SITE = "alder"
ENGINE = {"method": "trained", "shadows": (), "bounds": "", "what_if_method": "trained", "history": 80}


def before_it_waits(engine: Engine, events: list[AnyEvent]) -> int:
    """Return the number of records of the events before the next training is awaited."""
    method = engine.methods.counting
    assert isinstance(method, trained.Trained)
    begin, records = method.notes.count, 0
    for event in events:
        state = method.training._state
        if state.start_rows >= begin and method.notes.count + ROWS_PER_EVENT >= state.due:
            return records
        records += sum(not isinstance(record, Anomaly) for record in engine.apply(event))
    raise AssertionError("it never waits")


def count(here: Deployment, events: list[AnyEvent]) -> int:
    return sum(map(len, here.expected(events).values()))


def swaps(events: list[AnyEvent], settings: EngineSettings) -> list[int]:
    """Return the numbers of the events at which the default method changes its model."""
    engine, model, found = Engine(SITE, settings), None, []
    for number, event in enumerate(events):
        engine.apply(event)
        method = engine.methods.counting
        assert isinstance(method, Blend)
        boosted = method.parts["boosted"]
        assert isinstance(boosted, Boosted)
        if boosted.training.model is not model:
            model = boosted.training.model
            found.append(number)
    return found


def test_default_method_equals_replay_with_any_model(deploy: Deploy) -> None:
    here = deploy(worker={"checkpoint_events": 70, "checkpoint_seconds": 1e9})
    events = simulated(SITE, 260)
    first, second, *_ = swaps(events, here.settings.engine)
    expected, stored = here.expected(events), here.expected_in_redis(events, SITE)
    sent: list[AnyEvent] = []
    here.worker.start()
    for end in (first - 10, second + 40, len(events)):  # the first model is in training, the second one is in use
        here.send(events[len(sent) : end])
        sent = events[:end]
        here.await_outputs(count(here, sent))
        if sent != events:
            here.worker.kill()
            here.worker.start()
    here.stop()
    assert {where: unique(values) for where, values in here.records().items()} == expected
    assert here.stored(SITE) == stored


def test_worker_killed_during_training_equals_replay(
    deploy: Deploy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(METHODS, "trained", trained.Trained)
    here = deploy(worker={"checkpoint_events": 30, "checkpoint_seconds": 1e9}, **ENGINE)
    events = simulated(SITE, 200)
    first, second = parts(events, 2)
    expected, stored = here.expected(events), here.expected_in_redis(events, SITE)
    predictions = [msgspec.json.decode(one, type=Prediction) for one in expected[here.topics.predictions, SITE]]
    assert sum(one.reason == "mean" for one in predictions) > 100
    waits = before_it_waits(Engine(SITE, here.settings.engine), first)
    settled = count(here, first)
    waits_again = settled + before_it_waits(engine_after(first, SITE, here.settings.engine), second)

    modules = {"queuecast_trained": Path(trained.__file__).read_text()}
    points = {"queuecast.wait_methods": {"trained": "queuecast_trained:Trained"}}
    install(tmp_path / "packages", "queuecast-trained", "1.0", modules, points)
    gate = tmp_path / "gate"
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "packages"), prepend=os.pathsep)
    monkeypatch.setenv(trained.GATE, str(gate))
    gate.touch()  # the warm-up of a worker also trains
    here.worker.start()
    for part, outputs, all_of_it in ((first, waits, settled), (second, waits_again, count(here, events))):
        gate.unlink()
        here.send(part)
        here.await_outputs(outputs)
        here.worker.kill()  # during a training for which an event waits
        gate.touch()
        here.worker.start()
        here.await_outputs(all_of_it)
    here.stop()
    assert {where: unique(values) for where, values in here.records().items()} == expected
    assert here.stored(SITE) == stored
