"""The method that the documentation shows is one."""

import re
from pathlib import Path

import pytest

from models.engine.engine import Engine
from models.engine.settings import Settings
from models.method import WaitMethod
from models.records import Prediction, Start, Submit
from models.registry import METHODS, RUN_METHODS

README = Path(__file__).parents[2] / "models" / "README.md"


def shown() -> type[WaitMethod]:
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    names: dict[str, type[WaitMethod]] = {"__name__": "shown"}  # type: ignore[dict-item]
    exec(code, names)
    return names["Optimist"]


def test_the_method_that_is_shown_predicts(monkeypatch: pytest.MonkeyPatch) -> None:
    method = shown()
    monkeypatch.setitem(METHODS, method.name, method)
    engine = Engine("s", Settings(method=method.name, bounds=""))
    told = []
    for number, wait in enumerate((50.0, 30.0, 70.0)):
        job = str(number)
        prediction, *_ = engine.apply(Submit(site="s", time=100.0 * number, job=job))
        assert isinstance(prediction, Prediction)
        told.append(prediction.predicted_wait_s)
        engine.apply(Start(site="s", time=100.0 * number + wait, job=job))
    assert told == [None, 50.0, 30.0]


def test_every_method_is_described() -> None:
    text = README.read_text()
    assert not [name for name in (*METHODS, *RUN_METHODS) if f"`{name}`" not in text]
