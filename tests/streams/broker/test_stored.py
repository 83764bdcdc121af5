"""Messages that a topic holds: their reading ends, also where the broker goes away meanwhile."""

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest
from kafka import TopicPartition

from streams.broker import stored
from streams.errors import Unreachable
from streams.settings import Settings

PLACE = TopicPartition("queuecast.predictions", 0)


class GoneBroker:
    """A consumer of a partition with three messages, of which only the first two come; each poll takes 10 s."""

    def __init__(self, **_: Any) -> None:
        self.now = 0.0
        self._at = 0

    def position(self, *_: Any, **__: Any) -> int:
        return self._at

    def poll(self, **_: Any) -> dict[TopicPartition, list[Any]]:
        self.now += 10.0
        assert self.now < 1000.0, "it polls without end"
        if self._at == 2:
            return {}
        self._at += 1
        return {PLACE: [SimpleNamespace(topic=PLACE.topic, partition=0, offset=self._at - 1, value=b"", headers=[])]}

    def end_offsets(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(places, 3)

    def beginning_offsets(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(places, 0)

    def partitions_for_topic(self, _: str) -> set[int]:
        return {0}

    def nothing(self, *_: Any) -> None:
        """Nothing is to be done."""

    assign = seek = close = nothing


def test_a_broker_that_goes_away_meanwhile_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = GoneBroker()
    monkeypatch.setattr("time.monotonic", lambda: broker.now)
    monkeypatch.setattr(stored, "KafkaConsumer", lambda **_: broker)
    with pytest.raises(Unreachable, match=r"queuecast.predictions, partition 0, offset 2: nothing came for 30 s"):
        list(stored.messages(Settings(), PLACE, 0, 3))
    assert broker.now == 50.0
