"""Runs one live source: its events go to the events topic, its cursor to a file, and what it does to Prometheus."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from models.records import AnyEvent
from streams.broker.admin import topic_id
from streams.broker.topics import events_topic_of
from streams.settings import Settings
from streams.sources.contract import Skipped, Source
from streams.sources.cursors import CursorFile
from streams.sources.publisher import OutgoingEvent, Publisher, Stop, from_source, publish

REPORT_S = 600.0
"""Seconds from one line to the next that says what was sent and what the calls took."""

MAX_TOLD = 20
"""Of what is skipped between two such lines, so many are told one by one; all of them are counted."""


class Watch:
    """What a running source has done, for people and for Prometheus.

    Parameters:
        tell: writes a line for people.
    """

    def __init__(
        self,
        tell: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self.source: Source | None = None
        self.sent: Counter[str] = Counter()
        self.skipped: Counter[str] = Counter()
        self.newest = 0.0
        self._tell, self._clock, self._wall_clock = tell, clock, wall_clock
        self._records = 0
        self._read_at = self._told_at = clock()
        self._told = 0

    def on_skipped(self, skipped: Skipped) -> None:
        """Count what could not be read, and tell it unless much was told lately."""
        self.skipped[skipped.field or skipped.expected] += 1
        self._told += 1
        if self._told <= MAX_TOLD:
            self._tell(str(skipped))

    def on_sent(self, event: AnyEvent) -> None:
        """Count an event."""
        self.sent[event.kind] += 1
        self.newest = max(self.newest, event.time)

    def look(self) -> None:
        """Look whether anything was read since; tell people how it goes when that is due."""
        now, records = self._clock(), self.records
        if records != self._records:
            self._records, self._read_at = records, now
        if now - self._told_at >= REPORT_S:
            self._told_at, self._told = now, 0
            self._tell(self.report())

    @property
    def records(self) -> int:
        """How many records were read; where the source does not count them, how many events came of them."""
        return (self.source.records if self.source else 0) or self.sent.total()

    @property
    def since_read_s(self) -> float:
        """Seconds since the last record was read."""
        return self._clock() - self._read_at

    @property
    def since_event_s(self) -> float | None:
        """Seconds since the newest event happened, by the scheduler's time; None before the first."""
        return max(0.0, self._wall_clock() - self.newest) if self.newest else None

    def report(self) -> str:
        """How it goes, in a line."""
        parts = [f"{self.records} records, {self.sent.total()} events sent, {self.skipped.total()} skipped"]
        for name, calls in sorted((self.source.calls if self.source else {}).items()):
            each = calls.seconds / max(calls.count, 1)
            failed = f", {calls.failed} failed" if calls.failed else ""
            parts.append(f"{name}: {calls.count} calls, {each:.2f} s each{failed}")
        return "; ".join(parts)

    def collect(self) -> Iterator[Metric]:
        """The metrics now; Prometheus' client calls it at each scrape, from another thread."""
        source = self.source
        if source is None:
            return
        labels = {"source": source.name, "site": ",".join(source.sites)}
        yield _counter("records", "Records of the input that were read.", labels, {(): self.records})
        yield _counter("events", "Events that were sent, by type.", labels, _keyed(self.sent), "type")
        skipped = Counter(self.skipped) + Counter(dict(source.left_out))
        yield _counter("skipped", "Records that gave no event, by reason.", labels, _keyed(skipped), "reason")
        yield _gauge("lag", "What is there and not read yet, by its unit.", labels, _keyed(source.lag), "unit")
        age: _Values = {(): self.since_read_s}
        yield _gauge("last_record_age_seconds", "Since the last record was read.", labels, age)
        if (since := self.since_event_s) is not None:
            yield _gauge("last_event_age_seconds", "Since the newest event, by its own time.", labels, {(): since})
        calls = dict(source.calls)
        for name, text, value in _CALLS:
            yield _counter(name, text, labels, {(call,): value(made) for call, made in calls.items()}, "call")
        last: _Values = {(call,): made.last_s for call, made in calls.items()}
        yield _gauge("last_call_seconds", "What the last call took.", labels, last, "call")


_CALLS: tuple[tuple[str, str, Callable[[Any], float]], ...] = (
    ("calls", "Calls to the scheduler.", lambda made: made.count),
    ("failed_calls", "Calls that gave nothing.", lambda made: made.failed),
    ("call_seconds", "What the calls took, in all.", lambda made: made.seconds),
)

_Values = Mapping[tuple[str, ...], float]


def _keyed(values: Mapping[str, float]) -> _Values:
    return {(key,): value for key, value in dict(values).items()}


def _family(
    kind: type[CounterMetricFamily | GaugeMetricFamily],
    name: str,
    text: str,
    labels: Mapping[str, str],
    values: _Values,
    *more: str,
) -> Metric:
    family = kind(f"queuecast_source_{name}", text, labels=[*labels, *more])
    for key, value in values.items():
        family.add_metric([*labels.values(), *key], value)
    return family


_counter, _gauge = partial(_family, CounterMetricFamily), partial(_family, GaugeMetricFamily)


def run_source(settings: Settings, source: Source, watch: Watch, directory: Path | None, stop: Stop) -> None:
    """Send a source's events until it ends or is told to stop.

    Parameters:
        directory: where the cursor is kept; None to begin at the beginning and keep none.

    Raises:
        UserError: the broker cannot be reached or refuses, the topic is missing, or the source cannot be read.
        OSError: the cursor cannot be written.
    """
    watch.source = source
    with ExitStack() as stack:
        file = stack.enter_context(cursor_file(settings, source, directory)) if directory else None
        publish(settings, _watched(from_source(source, file), watch), watch.on_sent, _no_end, stop, source.sites)


def _watched(steps: Iterable[OutgoingEvent], watch: Watch) -> Iterator[OutgoingEvent]:
    for step in steps:
        watch.look()
        yield step


def _no_end(_: Publisher, __: float) -> None:
    """What was sent is in the watch already."""


def cursor_file(settings: Settings, source: Source, directory: Path) -> CursorFile:
    """The file that keeps a source's cursor: one for the topics that its events go to, as they are now.

    A topic that is deleted and made again is another one, so that its first events are not taken for sent.

    Raises:
        UserError: a topic is missing or the broker cannot be reached.
    """
    names = sorted({events_topic_of(settings, site) for site in source.sites})
    return CursorFile(directory, source, ",".join(f"{name} {topic_id(settings, name)}" for name in names))
