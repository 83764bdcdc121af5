"""Stored events of a deployment's sites, used to pre-train new sites."""

from types import SimpleNamespace

import msgspec
import pytest

from models.records import AnyEvent, bundled
from models.simulation import generate, run
from streams.operate import grid_prior
from streams.settings import Settings


def test_stored_events_include_bundled_history(monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[AnyEvent] = list(run(generate(3, 40, cpus=32, load=0.9), 32, "alder"))
    old = [msgspec.structs.replace(one, historical=True, old=True) if one.kind == "submit" else one for one in events]
    encoded = [*map(msgspec.json.encode, old)]
    values = [bundled("alder", encoded[:70]), b"no event", *encoded[70:]]
    messages = [SimpleNamespace(key=b"alder", value=value) for value in values]

    monkeypatch.setattr(grid_prior, "check_topics", lambda *_: None)
    monkeypatch.setattr(grid_prior, "event_topics", lambda _: ["events"])
    monkeypatch.setattr(grid_prior, "held", lambda *_: messages)
    assert list(grid_prior.stored_events(Settings())) == old
