"""A simulation that reached its work limit reports that in the reason of its prediction."""

import pytest

from models.engine.engine import Engine
from models.engine.settings import EngineSettings
from models.records import Capacity, Prediction, Start, Submit
from models.waits.order import learnt_order
from models.waits.order.learnt_order import CUT_SHORT


def prediction(name: str) -> Prediction:
    """Return the prediction for a job behind a running job and a pending one."""
    engine = Engine("s", EngineSettings(method=name, shadows=()))
    engine.apply(Capacity(site="s", time=0.0, cpus=4))
    engine.apply(Submit(site="s", time=0.0, job="a", cpus=4, walltime=600.0))
    engine.apply(Start(site="s", time=1.0, job="a"))
    engine.apply(Submit(site="s", time=2.0, job="b", cpus=4, walltime=600.0))
    records = engine.apply(Submit(site="s", time=3.0, job="c", cpus=4, walltime=600.0))
    return next(record for record in records if isinstance(record, Prediction))


@pytest.mark.parametrize("name", ["order", "blend"])
def test_reason_of_a_bounded_simulation_states_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert CUT_SHORT not in prediction(name).reason
    monkeypatch.setattr(learnt_order, "foretell", lambda *_: (60.0, 1, 1, 1, False, True))
    assert CUT_SHORT in prediction(name).reason
