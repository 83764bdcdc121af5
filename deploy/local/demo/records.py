"""Where the demo's records come from: a worker's topics, or engines in this process."""

import threading
import time
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

from kafka import KafkaConsumer

from deploy.local.demo.progress import DemoProgress
from deploy.local.demo.scenario import schedule
from deploy.local.stack.process import Server
from models.engine.outgoing import Record
from models.engine.settings import EngineSettings
from models.records import AnyEvent, Capacity, Outcome, Prediction, Submit
from streams.broker.topics import Topics
from streams.client.watch import SkippedRecord, WatchFilter, read
from streams.errors import UserError
from streams.offline.replay import replay
from streams.settings import Settings
from streams.sources.publisher import OutgoingEvent, publish

MAX_SILENCE_S = 60.0
"""Seconds without a record, once all is sent, after which none is waited for any longer."""


RecordBatches = Iterator[list[Record | SkippedRecord]]
"""Records as they come; now and then an empty batch, so that the view is drawn again."""


class Feeder(threading.Thread):
    """Sends the events to Kafka, and counts the records that have to come back."""

    def __init__(self, settings: Settings, progress: DemoProgress, seconds: float) -> None:
        super().__init__(name="feeder", daemon=True)
        self.stop = threading.Event()
        self.error: Exception | None = None
        self.submits = 0
        self.expected = 0
        self._settings = settings
        self._progress = progress
        self._seconds = seconds

    def run(self) -> None:
        """Send until all is sent or `stop` is set; an error is kept in `error`."""
        events = schedule(
            self._progress.scenario, self._seconds, lambda: self.submits - self._progress.predicted, self.stop
        )
        try:
            publish(self._settings, map(OutgoingEvent, events), self._count, lambda *_: None)
        except Exception as error:
            self.error = error

    def _count(self, event: AnyEvent) -> None:
        """Every method gives one record at each step of a job."""
        self.submits += isinstance(event, Submit)
        if not isinstance(event, Capacity):
            self.expected += len(self._settings.engine.methods)


def records_from_topics(
    settings: Settings, progress: DemoProgress, seconds: float, servers: Iterable[Server]
) -> RecordBatches:
    """The worker's records, from its topics, while the events are sent.

    Raises:
        UserError: a server has ended, or the events could not be sent.
    """
    topics = Topics(settings.kafka.prefix)
    kinds: dict[str, type[Prediction] | type[Outcome]] = {topics.predictions: Prediction, topics.outcomes: Outcome}
    options: dict[str, Any] = {"auto_offset_reset": "earliest", "enable_auto_commit": False}
    feeder = Feeder(settings, progress, seconds)
    consumer = KafkaConsumer(*kinds, **settings.kafka.client_options(), **options)
    try:
        feeder.start()
        last_record_at = time.monotonic()
        while feeder.is_alive() or (
            progress.records < feeder.expected and time.monotonic() < last_record_at + MAX_SILENCE_S
        ):
            polled = consumer.poll(timeout_ms=100, max_records=2000)
            last_record_at = time.monotonic() if polled or feeder.is_alive() else last_record_at
            yield [record for record, *_ in read(chain.from_iterable(polled.values()), kinds, WatchFilter())]
            _check(feeder, servers)
        if progress.records < feeder.expected:
            raise UserError(
                f"the worker fell silent at {progress.records} of {feeder.expected} records; above is its log"
            )
    finally:
        feeder.stop.set()
        feeder.join(5.0)
        consumer.close()


def _check(feeder: Feeder, servers: Iterable[Server]) -> None:
    for server in servers:
        if not server.running:
            raise UserError(f"{server.name} has ended; above is what it logged last")
    if feeder.error is not None:
        raise feeder.error


def records_in_process(engine: EngineSettings, progress: DemoProgress, seconds: float) -> RecordBatches:
    """The records of engines in this process."""
    batch: list[Record | SkippedRecord] = []
    shown = time.monotonic()
    for record in replay(schedule(progress.scenario, seconds, lambda: 0, threading.Event()), engine):
        batch.append(record)
        if time.monotonic() > shown + 0.1:
            yield batch
            batch, shown = [], time.monotonic()
    yield batch
