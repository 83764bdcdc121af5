"""Run one live source: publish its events, save its cursor to a file, and export its metrics to Prometheus."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from models.records import AnyEvent, Heartbeat
from streams.broker.admin import topic_id
from streams.broker.topics import events_topic_of
from streams.process.scraping import Families
from streams.settings import Settings
from streams.sources.contract import SkippedPart, Source
from streams.sources.cursors import CursorFile
from streams.sources.publisher import OutgoingEvent, Publisher, Stop, from_source, publish
from streams.sources.silences import HEARTBEAT_S, Silence

REPORT_S = 600.0  # interval of the report lines, in seconds
MAX_WARNED = 20  # maximum number of skipped parts printed between two reports; all are counted

FAMILIES = """
counter records source,site: Records of the input that were read.
counter events source,site,type: Events that were sent, by type.
counter skipped source,site,reason: Records that gave no event, by reason.
gauge lag source,site,unit: Input that is not read yet, by unit.
gauge last_record_age_seconds source,site: Time since the last record was read.
gauge last_event_age_seconds source,site: Time since the newest event, by its own time.
counter calls source,site,call: Calls to the scheduler.
counter failed_calls source,site,call: Failed calls to the scheduler.
counter call_seconds source,site,call: Total duration of the calls.
gauge last_call_seconds source,site,call: Duration of the last call.
"""


class Watch(Collector):
    """Statistics of a running source, for people and for Prometheus; `warn` writes a line for people."""

    def __init__(
        self,
        warn: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self.source: Source | None = None
        self.sent: Counter[str] = Counter()
        self.skipped: Counter[str] = Counter()
        self.newest = 0.0
        self._warn, self._clock, self._wall_clock = warn, clock, wall_clock
        self._records = 0
        self._read_at = self._warned_at = clock()
        self._warned = 0

    def on_skipped(self, skipped: SkippedPart) -> None:
        """Count a skipped part, and report it unless many were reported lately."""
        self.skipped[skipped.field or skipped.expected] += 1
        self._warned += 1
        if self._warned <= MAX_WARNED:
            self._warn(str(skipped))

    def on_sent(self, event: AnyEvent) -> None:
        """Count an event."""
        self.sent[event.kind] += 1
        if not isinstance(event, Heartbeat):
            self.newest = max(self.newest, event.time)

    def poll(self) -> None:
        """Check for new records, and periodically report the statistics."""
        now, records = self._clock(), self.records
        if records != self._records:
            self._records, self._read_at = records, now
        if now - self._warned_at >= REPORT_S:
            self._warned_at, self._warned = now, 0
            self._warn(self.report())

    @property
    def records(self) -> int:
        """Number of records read, or of events sent if the source does not count records; heartbeats do not count."""
        return (self.source.records if self.source else 0) or self.sent.total() - self.sent[Heartbeat.kind]

    @property
    def since_read_s(self) -> float:
        """Seconds since the last record was read."""
        return self._clock() - self._read_at

    @property
    def since_event_s(self) -> float | None:
        """Seconds since the newest event happened, by the scheduler's time; None before the first."""
        return max(0.0, self._wall_clock() - self.newest) if self.newest else None

    def report(self, done: str = "sent") -> str:
        """Return the statistics as a line; `done` is the word for what happened to the events."""
        parts = [f"{self.records} records, {self.sent.total()} events {done}, {self.skipped.total()} skipped"]
        for name, calls in sorted((self.source.calls if self.source else {}).items()):
            each = calls.seconds / max(calls.count, 1)
            failed = f", {calls.failed} failed" if calls.failed else ""
            parts.append(f"{name}: {calls.count} calls, {each:.2f} s each{failed}")
        return "; ".join(parts)

    def collect(self) -> Iterator[Metric]:
        """Return the current metrics; the Prometheus client calls it at each scrape, from another thread."""
        source, found = self.source, Families("queuecast_source", FAMILIES)
        if source is None:
            return iter(())
        of = [source.name, ",".join(source.sites)]
        found.add("records", of, self.records)
        found.add("last_record_age_seconds", of, self.since_read_s)
        if (since := self.since_event_s) is not None:
            found.add("last_event_age_seconds", of, since)
        skipped = Counter(self.skipped) + Counter(dict(source.left_out))
        for name, values in {"events": self.sent, "skipped": skipped, "lag": source.lag}.items():
            for key, value in dict(values).items():
                found.add(name, [*of, key], value)
        for name, made in dict(source.calls).items():
            found.add("calls", [*of, name], made.count)
            found.add("failed_calls", [*of, name], made.failed)
            found.add("call_seconds", [*of, name], made.seconds)
            found.add("last_call_seconds", [*of, name], made.last_s)
        return found.collect()


def run_source(
    settings: Settings, source: Source, watch: Watch, directory: Path | None, stop: Stop, heartbeat_s: float = 0.0
) -> None:
    """Publish a source's events until it ends or a stop is requested; save the cursor in the directory, if given.

    Args:
        settings: of the deployment.
        source: the source.
        watch: counts the events.
        directory: of the cursor files; None saves no cursor.
        stop: checked before each step.
        heartbeat_s: send a heartbeat after so many seconds without an event; 0 sends none.

    Raises:
        UserError: the broker is unreachable or refuses, the topic is missing, or the source cannot be read.
        OSError: the cursor cannot be written.
    """
    watch.source = source
    with ExitStack() as stack:
        file = stack.enter_context(cursor_file(settings, source, directory)) if directory else None
        steps = with_heartbeats(from_source(source, file), source, heartbeat_s)
        publish(settings, _watched(steps, watch), watch.on_sent, _no_end, stop, source.sites)


def with_heartbeats(
    steps: Iterable[OutgoingEvent], source: Source, heartbeat_s: float = HEARTBEAT_S
) -> Iterator[OutgoingEvent]:
    """Add heartbeats to a source's steps, while its `read_until` shows that its sites are silent.

    A heartbeat has no cursor: another run need not repeat it.
    """
    silences: dict[str, Silence] = {}
    for step in steps:
        until = source.read_until
        if step.event is not None:
            at = min(step.event.time, time.time())  # a wrong time must not prevent heartbeats
            silences.setdefault(step.event.site, Silence(at, heartbeat_s)).end(at)
        elif until is not None and heartbeat_s:
            for site in source.sites:
                silence = silences.setdefault(site, Silence(until, heartbeat_s))
                if silence.next <= until:
                    silence.sent(until)
                    yield OutgoingEvent(Heartbeat(site=site, time=until))
        yield step


def _watched(steps: Iterable[OutgoingEvent], watch: Watch) -> Iterator[OutgoingEvent]:
    for step in steps:
        watch.poll()
        yield step


def _no_end(_: Publisher, __: float) -> None:
    """Do nothing: the watch has counted the events already."""


def cursor_file(settings: Settings, source: Source, directory: Path) -> CursorFile:
    """Open the cursor file of a source for the topics of its events.

    A topic that is deleted and created again has another file, so that its first events are not treated as already
    sent.

    Raises:
        UserError: a topic is missing or the broker is unreachable.
    """
    names = sorted({events_topic_of(settings, site) for site in source.sites})
    return CursorFile(directory, source, ",".join(f"{name} {topic_id(settings, name)}" for name in names))
