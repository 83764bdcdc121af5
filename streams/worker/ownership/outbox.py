"""Emit the results of events: predictions and outcomes, or the dead letter with the reason of a rejection."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import msgspec

from models.engine.outgoing import Record
from models.records import AnyEvent, DeadLetter, Outcome, Prediction, Submit
from streams.broker.topics import LATE, Topics
from streams.settings import Settings
from streams.worker.answers.answer_scores import AnswerScores
from streams.worker.answers.freshness import Freshness
from streams.worker.intake.messages import EventPart, dead_letter
from streams.worker.metrics.process_metrics import Metrics

Headers = list[tuple[str, bytes]]

Send = Callable[[str, bytes | None, bytes, int | None, Headers], Awaitable[Awaitable[Any]]]
"""Send a key, a value and headers to a partition of a topic (None: by key); the result is done on delivery."""

MAX_BUNDLES = 64  # maximum number of bundles with recorded rejection reasons

_encode = msgspec.json.Encoder().encode


class Outbox:
    """Send and count the results of messages.

    A record goes to the partition of the site's events, which is the partition of its key.
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
        self._late_s = settings.worker.late_after_seconds
        self._bundles: OrderedDict[tuple[str, int, int], set[str]] = OrderedDict()

    def note_read(self, raw: Any) -> None:
        """Record that a message is processed, for the consumer lag and the freshness of its sites."""
        self._metrics.read(raw.timestamp)
        self._freshness.read((raw.topic, raw.partition), raw.offset, raw.timestamp)

    async def send(self, event: AnyEvent, records: list[Record], raw: Any, part: EventPart) -> list[Awaitable[Any]]:
        """Send the results of an event; anomalies are sent only if the event was rejected."""
        sends = []
        for record in records:
            if isinstance(record, Prediction):
                headers = self._lateness(raw.timestamp)
                sends.append(await self._out(self._topics.predictions, raw, record, raw.partition, headers))
            elif isinstance(record, Outcome):
                sends.append(await self._out(self._topics.outcomes, raw, record, raw.partition))
                if record.method == self._method and not isinstance(
                    event, Submit
                ):  # scored when the job leaves the queue
                    self._scores.job_dequeued(record)
            elif record.rejected:
                sends.append(await self.reject(record.reason, record.detail, event.site, raw, record.implausible, part))
        if isinstance(event, Submit) and any(isinstance(one, Prediction) and one.job == event.job for one in records):
            self._metrics.predicted(raw.timestamp)
            self._scores.add_submission(event)
        return sends

    async def reject(
        self,
        reason: str,
        detail: str,
        site: str | None,
        raw: Any,
        implausible: bool = False,
        part: EventPart | None = None,
    ) -> Awaitable[Any]:
        """Send a message, or a part of it, to the dead letters; of a bundle only the first part for each reason.

        Dead letters are kept for weeks and contain the part. Those of a bundle with thousands of events would need far
        more space than the bundle itself. The other parts are only counted.
        """
        self._metrics.rejected(reason, implausible)
        value, number = (raw.value, None) if part is None else (bytes(part.value), part.number)
        place = (raw.topic, raw.partition, raw.offset)
        if number is not None and not self._is_first(place, reason):
            return _nothing()
        letter = dead_letter(reason, detail, site, *place, value, implausible, number)
        return await self._out(self._topics.dead_letters, raw, letter)

    def _is_first(self, place: tuple[str, int, int], reason: str) -> bool:
        """Return whether a part of this bundle has not been rejected for this reason yet."""
        reasons = self._bundles.setdefault(place, set())
        if len(self._bundles) > MAX_BUNDLES:
            self._bundles.popitem(last=False)
        first = reason not in reasons
        reasons.add(reason)
        return first

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
        """Return the header of a late prediction. It is not a field, so that a replay gives the same value."""
        seconds = time.time() - arrived
        if seconds <= self._late_s:
            return []
        self._metrics.late.inc()
        return [(LATE, b"%d" % seconds)]


def _nothing() -> Awaitable[None]:
    """Return a completed future."""
    done = asyncio.get_running_loop().create_future()
    done.set_result(None)
    return done
