"""What goes out of an event: predictions and outcomes, or the letter that says why it was refused."""

import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import msgspec

from models.engine.outgoing import Record
from models.records import AnyEvent, DeadLetter, Outcome, Prediction, Submit
from streams.broker.topics import LATE, Topics
from streams.settings import Settings
from streams.worker.answers.freshness import Freshness
from streams.worker.answers.scores import AnswerScores
from streams.worker.intake.messages import EventPart, dead_letter
from streams.worker.metrics.process import Metrics

Headers = list[tuple[str, bytes]]

Send = Callable[[str, bytes | None, bytes, int | None, Headers], Awaitable[Awaitable[Any]]]
"""Sends to a topic a key, a value, to a partition (None: that of the key), headers; gives what is done on arrival."""

_encode = msgspec.json.Encoder().encode


class Outbox:
    """Sends what followed from messages, and counts it.

    A record goes to the partition of the site's events, which is that of its key.
    """

    def __init__(
        self, send: Send, settings: Settings, metrics: Metrics, scores: AnswerScores, freshness: Freshness
    ) -> None:
        self._send = send
        self._metrics = metrics
        self._scores = scores
        self._freshness = freshness
        self._topics = Topics(settings.kafka.prefix)
        self._method = settings.engine.method
        self._late_s = settings.worker.late_seconds

    def note_read(self, raw: Any) -> None:
        """A message is behind us, as the lag and the freshness of its sites count."""
        self._metrics.read(raw.timestamp)
        self._freshness.read((raw.topic, raw.partition), raw.offset, raw.timestamp)

    async def send(self, event: AnyEvent, records: list[Record], raw: Any, part: EventPart) -> list[Awaitable[Any]]:
        """Send what followed from an event, a part of a message: all but the anomalies of events that were accepted."""
        sends = []
        for record in records:
            if isinstance(record, Prediction):
                headers = self._lateness(raw.timestamp)
                sends.append(await self._out(self._topics.predictions, raw, record, raw.partition, headers))
            elif isinstance(record, Outcome):
                sends.append(await self._out(self._topics.outcomes, raw, record, raw.partition))
                if record.method == self._method and not isinstance(event, Submit):  # by when it leaves the queue
                    self._scores.left(record)
            elif record.rejected:
                sends.append(await self.reject(record.reason, record.detail, event.site, raw, record.doubted, part))
        if isinstance(event, Submit) and any(isinstance(one, Prediction) and one.job == event.job for one in records):
            self._metrics.predicted(raw.timestamp)
            self._scores.came(event)
        return sends

    async def reject(
        self,
        reason: str,
        detail: str,
        site: str | None,
        raw: Any,
        doubted: bool = False,
        part: EventPart | None = None,
    ) -> Awaitable[Any]:
        """Send a message, or this part of it, to the dead letters."""
        self._metrics.rejected(reason, doubted)
        value, number = (raw.value, None) if part is None else (bytes(part.value), part.number)
        place = (raw.topic, raw.partition, raw.offset)
        letter = dead_letter(reason, detail, site, *place, value, doubted, number)
        return await self._out(self._topics.dead_letters, raw, letter)

    async def _out(
        self,
        topic: str,
        raw: Any,
        record: Prediction | Outcome | DeadLetter,
        partition: int | None = None,
        headers: Iterable[tuple[str, bytes]] = (),
    ) -> Awaitable[Any]:
        return await self._send(topic, raw.key, _encode(record), partition, list(headers))

    def _lateness(self, arrived: float) -> Headers:
        """The header of a prediction that leaves late; not a field, so that a repeat has the same value."""
        seconds = time.time() - arrived
        if seconds <= self._late_s:
            return []
        self._metrics.late.inc()
        return [(LATE, b"%d" % seconds)]
