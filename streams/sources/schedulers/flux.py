"""Flux: its journal as it is written, and files of it.

The journal is read with `flux.job.JournalConsumer`, of the package `flux` that comes with Flux itself. It tells all
that happens to jobs, and what they ask for; not that nodes go down, nor how large the machine is.
"""

import re
from collections import deque
from collections.abc import Iterator
from typing import Any, ClassVar, Literal

import msgspec

from models.records import AnyEvent
from streams.errors import UserError
from streams.sources.contract import (
    IDLE_S,
    Cursor,
    OnSkipped,
    Skipped,
    Source,
    Step,
    decode_cursor,
    encode_cursor,
    refuse,
    steps_of,
)
from streams.sources.logs.fields import BadRecord, job_of, object_of
from streams.sources.logs.source import EVENTS_PER_KNOWN, LogSource, Records
from streams.sources.logs.stories import Known, Stories
from streams.sources.schedulers.flux_events import FluxJobs, job_name, time_of

OVERLAP_S = 5.0
"""The journal is asked again for so many seconds before the cursor: its entries are nearly in the order of time."""


HERE = "local"
"""The location of the Flux instance of this machine or job."""


class _Cursor(msgspec.Struct, forbid_unknown_fields=True):
    """How far the journal was read: its newest time, the entries of the seconds before it, and what was told."""

    newest: float
    recent: list[tuple[float, str]]
    known: Known
    v: Literal[1] = 1


class FluxSource(Source):
    """The journal of a Flux instance, live."""

    name: ClassVar[str] = "flux"
    live: bool = True

    def __init__(
        self, location: str, site: str | None = None, on_skipped: OnSkipped = refuse, pause_s: float = IDLE_S
    ) -> None:
        """Look whether Flux can be asked.

        Parameters:
            location: `local`, or the URI of an instance such as `ssh://host/run/flux/local`.
            pause_s: seconds to wait for an entry.

        Raises:
            UserError: the package `flux` is not there.
        """
        super().__init__(location, site or "flux", on_skipped)
        self._pause_s = pause_s
        _flux()

    def events(self, cursor: Cursor | None = None) -> Iterator[Step]:
        """The events of the journal from its beginning, or from the cursor's time."""
        at = _Cursor(0.0, [], {}) if cursor is None else decode_cursor(cursor, _Cursor)
        jobs = FluxJobs(self.sites[0], Stories(self.sites[0], at.known))
        recent, newest = deque(at.recent), at.newest
        seen, since, is_new = set(recent), 0, False
        last = cursor or encode_cursor(at)
        for entry in self._journal(max(newest - OVERLAP_S, 0.0)):
            events: list[AnyEvent] = []
            if entry is not None:
                mark = (float(entry.timestamp or 0.0), f"{int(entry.jobid)} {entry.name}")
                if mark in seen:
                    continue
                seen.add(mark)
                recent.append(mark)
                newest, is_new = max(newest, mark[0]), True
                while recent[0][0] < newest - OVERLAP_S:
                    seen.discard(recent.popleft())
                events = self._events_of(entry, jobs)
            since += len(events)
            if (entry is None and is_new) or (events and since * EVENTS_PER_KNOWN >= len(at.known) + len(recent)):
                last, since, is_new = encode_cursor(_Cursor(newest, list(recent), at.known)), 0, False
                yield from steps_of(events, last)
            else:
                yield from steps_of(events, last if entry is None else None)

    def _journal(self, since: float) -> Iterator[Any]:
        flux, journal = _flux()
        try:
            handle = flux.Flux() if self._location == HERE else flux.Flux(self._location)
            consumer = journal.JournalConsumer(handle, full=True, since=since, include_sentinel=True)
            consumer.start()
        except OSError as error:
            raise UserError(f"flux at {self._location}: {error}") from None
        try:
            while True:
                try:
                    entry = consumer.poll(timeout=max(self._pause_s, 0.001))
                except TimeoutError:
                    yield None
                    continue
                except OSError as error:
                    raise UserError(f"flux at {self._location}: {error}") from None
                if entry is None:
                    raise UserError(f"flux at {self._location}: the journal has ended")
                yield None if entry.is_empty() else entry
        finally:
            consumer.stop()

    def _events_of(self, entry: Any, jobs: FluxJobs) -> list[AnyEvent]:
        self.records += 1
        try:
            told = {"timestamp": entry.timestamp, "name": entry.name, "context": entry.context}
            events = jobs.see(job_name(int(entry.jobid)), told, entry.jobspec, entry.R)
        except BadRecord as bad:
            self._on_skipped(Skipped(f"flux at {self._location}", None, bad.field, bad.found, bad.expected))
            return []
        if not events:
            self._left_out[f"journal: {entry.name}"] += 1
        return events or []


class FluxRecords(Records):
    """Lines of a journal in JSON: an object with a job's id and its `events`, or an event alone.

    An event without an id, as `flux job eventlog --format=json` prints it, is of the job that the file is named after.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._jobs = FluxJobs(self.site, self.stories)

    def take(self, line: str) -> list[AnyEvent]:
        """The events of a line."""
        if not line.strip():
            return []
        found = object_of(line)
        number = found.get("id", found.get("jobid"))
        if number == -1:
            return self.leave_out("the sentinel")
        job = job_of(self.file.stem, "the file's name") if number is None else job_name(number)
        entries = found.get("events", [found])
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise BadRecord("events", entries, "a list of events")
        for entry in entries:
            time_of(entry)  # all of a line, or nothing
        told = [self._jobs.see(job, entry, found.get("jobspec"), found.get("R")) for entry in entries]
        return [event for events in told for event in events or ()] or self.leave_out("events of which nothing is told")


class FluxLogSource(LogSource):
    """A file of Flux's journal: one object a line."""

    name: ClassVar[str] = "flux-log"
    first = re.compile(
        rb'^\{(?=[^\n]*"name")(?![^\n]*"object")[^\n]*"timestamp"\s*:\s*(\d{9,10}(?:\.\d{1,9})?)', re.MULTILINE
    )
    records_of = FluxRecords


def _flux() -> tuple[Any, Any]:
    """Flux's own package, and its journal. Raises UserError: it is not there."""
    try:
        import flux
        import flux.job
    except ImportError as error:
        raise UserError(f"the package flux, which comes with Flux, cannot be imported here: {error}") from None
    return flux, flux.job
