"""Messages that a topic holds: their reading ends, also where the broker goes away meanwhile."""

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
    """A consumer of a partition with three messages, of which only the first two come; each poll takes 10 s."""

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
        """Nothing is to be done."""

    seek = seek_to_beginning = close = nothing


def test_a_broker_that_goes_away_meanwhile_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = GoneBroker()
    monkeypatch.setattr("time.monotonic", lambda: broker.now)
    monkeypatch.setattr(topic_messages, "KafkaConsumer", lambda **_: broker)
    with pytest.raises(Unreachable, match=r"queuecast.predictions, partition 0, offset 2: nothing came for 30 s"):
        list(topic_messages.messages(Settings(), PLACE, 0, 3))
    assert broker.now == 50.0


class GoneAsync:
    """The same for asyncio: `getmany` gives nothing."""

    def __init__(self, broker: GoneBroker) -> None:
        self._broker = broker

    async def position(self, _: TopicPartition) -> int:
        return self._broker.position()

    async def getmany(self, *_: TopicPartition, **__: Any) -> dict[TopicPartition, list[Any]]:
        return self._broker.poll()

    async def end_offsets(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return self._broker.end_offsets(places)

    async def seek_to_beginning(self, *_: TopicPartition) -> None:
        """It is there."""

    def assign(self, _: object) -> None:
        """It is."""

    def positions(self) -> dict[TopicPartition, int]:
        return {PLACE: self._broker.position()}

    def highwater(self, _: TopicPartition) -> int:
        return 3


def test_notices_do_not_wait_without_end_for_what_a_topic_held(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = GoneBroker()
    monkeypatch.setattr("time.monotonic", lambda: broker.now)
    watching = NoticeTracker(NoticeFilter(), "n", 600.0)
    reader = Reader(Settings(), watching, NotifyCounts(watching.jobs))
    with pytest.raises(Unreachable, match="offset 2: nothing came for 30 s"):
        asyncio.run(reader._read_whole(GoneAsync(broker), [PLACE]))


def test_a_log_of_events_is_no_longer_waited_for_than_that(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = GoneBroker()
    found: list[int] = []

    async def read() -> None:
        async for batches in batches_to(GoneAsync(broker), {PLACE: 3}):
            found.extend(one.offset for one in batches.get(PLACE, ()))

    monkeypatch.setattr("time.monotonic", lambda: broker.now)
    with pytest.raises(Unreachable, match="partition 0, offset 2"):
        asyncio.run(read())
    assert found == [0, 1]
