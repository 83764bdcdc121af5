"""Reading of stored messages of a topic ends, also when the broker is lost."""

import asyncio
from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from kafka import TopicPartition

from streams.broker import topic_messages
from streams.broker.standstill import batches_to
from streams.errors import Unreachable
from streams.notify.metrics import NotifyCounts
from streams.notify.watching import NoticeFilter, NoticeTracker, Reader
from streams.settings import Settings

PLACE = TopicPartition("queuecast.predictions", 0)


class GoneBroker:
    """A consumer of three messages that receives only the first two; each poll takes 10 s."""

    def __init__(self, **_: Any) -> None:
        self.now = 0.0
        self._at = 0
        self._place = PLACE

    def position(self, *_: Any, **__: Any) -> int:
        return self._at

    def poll(self, **_: Any) -> dict[TopicPartition, list[Any]]:
        self.now += 10.0
        assert self.now < 1000.0, "it polls without end"
        if self._at == 2:
            return {}
        self._at += 1
        place = {"topic": PLACE.topic, "partition": 0, "timestamp": 0}
        return {self._place: [SimpleNamespace(**place, offset=self._at - 1, key=None, value=b"", headers=[])]}

    def end_offsets(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(places, 3)

    def beginning_offsets(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(places, 0)

    def partitions_for_topic(self, _: str) -> set[int]:
        return {0}

    def topics(self) -> set[str]:
        return {PLACE.topic}

    def assign(self, places: Sequence[TopicPartition]) -> None:
        (self._place,) = places

    def nothing(self, *_: Any) -> None:
        """Do nothing."""

    seek = seek_to_beginning = close = nothing


def test_stored_messages_of_lost_broker_raise_unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = GoneBroker()
    monkeypatch.setattr("time.monotonic", lambda: broker.now)
    monkeypatch.setattr(topic_messages, "KafkaConsumer", lambda **_: broker)
    with pytest.raises(Unreachable, match=r"queuecast.predictions, partition 0, offset 2: nothing came for 30 s"):
        list(topic_messages.messages(Settings(), PLACE, 0, 3))
    assert broker.now == 50.0


class GoneAsync:
    """The same for asyncio: `getmany` returns no message."""

    def __init__(self, broker: GoneBroker) -> None:
        self._broker = broker

    async def position(self, _: TopicPartition) -> int:
        return self._broker.position()

    async def getmany(self, *_: TopicPartition, **__: Any) -> dict[TopicPartition, list[Any]]:
        return self._broker.poll()

    async def end_offsets(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return self._broker.end_offsets(places)

    async def seek_to_beginning(self, *_: TopicPartition) -> None:
        """Do nothing; the position is at the beginning."""

    def assign(self, _: object) -> None:
        """Do nothing; the partition is assigned."""

    def positions(self) -> dict[TopicPartition, int]:
        return {PLACE: self._broker.position()}

    def highwater(self, _: TopicPartition) -> int:
        return 3


def test_notify_reader_of_lost_broker_raises_unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = GoneBroker()
    monkeypatch.setattr("time.monotonic", lambda: broker.now)
    watching = NoticeTracker(NoticeFilter(), "n", 600.0)
    reader = Reader(Settings(), watching, NotifyCounts(watching.jobs))
    with pytest.raises(Unreachable, match="offset 2: nothing came for 30 s"):
        asyncio.run(reader._read_whole(GoneAsync(broker), [PLACE]))


def test_event_batches_of_lost_broker_raise_unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = GoneBroker()
    found: list[int] = []

    async def read() -> None:
        async for batches in batches_to(GoneAsync(broker), {PLACE: 3}):
            found.extend(one.offset for one in batches.get(PLACE, ()))

    monkeypatch.setattr("time.monotonic", lambda: broker.now)
    with pytest.raises(Unreachable, match="partition 0, offset 2"):
        asyncio.run(read())
    assert found == [0, 1]
