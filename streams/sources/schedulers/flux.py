"""Flux: its journal (RFC 21), live or from files; jobspecs (RFC 25) and allocations (RFC 20).

The journal is read with `flux.job.JournalConsumer`, of the package `flux` that comes with Flux itself. It contains all
events of jobs and their requests, but neither node failures nor the size of the machine.
"""

import re
from collections import deque
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, ClassVar

import msgspec

from models.records import AnyEvent, Start, Submit
from streams.errors import UserError
from streams.sources import contract
from streams.sources.logs import fields
from streams.sources.logs.lifecycles import BARE, GONE, HELD, QUEUED, RUNNING, SUSPENDED, Known
from streams.sources.logs.log_source import EVENTS_PER_KNOWN, LinesRead, LogSource, Records

BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
MAX_DEPTH = 10  # of resources within resources in a jobspec

STATES = {"timeout": "timeout", "cancel": "cancelled", "node-failure": "node_fail", "preempt": "preempted"}
"""Types of exceptions, and how their jobs ended."""


def time_of(entry: fields.Object) -> float:
    """Return the time of an entry, Unix seconds.

    Raises:
        BadRecord: the entry has no valid time.
    """
    at = entry.get("timestamp")
    if isinstance(at, bool) or not isinstance(at, int | float) or not 0 < at <= fields.MAX_SECONDS:
        raise fields.BadRecord("timestamp", at, "Unix seconds")
    return float(at)


def job_name(number: object) -> str:
    """Return a job's id in Flux's F58 format.

    Raises:
        BadRecord: it is invalid.

    >>> job_name(59)
    'ƒ22'
    """
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < 1 << 64:
        raise fields.BadRecord("id", number, "a job's number")
    return _f58(number)


@lru_cache(16_384)
def _f58(number: int) -> str:
    digits = ""
    while number or not digits:
        number, digit = divmod(number, 58)
        digits = BASE58[digit] + digits
    return f"ƒ{digits}"


def request(jobspec: object) -> dict[str, Any]:
    """Return the request in a jobspec as fields of a `submit`; missing values are omitted."""
    if not isinstance(jobspec, dict):
        return {}
    totals = {"node": 0, "core": 0, "gpu": 0}
    _add(totals, jobspec.get("resources"), 1, 0)
    system = fields.object_at(jobspec, "attributes", "system")
    duration, dependencies = system.get("duration"), system.get("dependencies")
    duration = None if isinstance(duration, bool) or not isinstance(duration, int | float) else duration
    limit = float(duration or 0.0)
    return fields.known(
        cpus=totals["core"] or None,
        nodes=totals["node"] or None,
        gpus=totals["gpu"] or None,
        walltime=limit if 0 < limit <= fields.MAX_SECONDS else None,
        unlimited=True if duration == 0 else None,
        queue=fields.name_of(system.get("queue")),
        account=fields.name_of(system.get("bank")) or fields.name_of(system.get("project")),
        executable=fields.name_of(fields.object_at(system, "job").get("name")),
        dependency=_dependencies(dependencies),
    )


def _add(totals: dict[str, int], resources: object, times: int, depth: int) -> None:
    """Count nodes, cores and GPUs, of which each has what is `with` it."""
    for resource in resources if isinstance(resources, list) and depth < MAX_DEPTH else ():
        if isinstance(resource, dict):
            many = min(times * _count(resource.get("count")), fields.MAX_COUNT)
            kind = resource.get("type")
            if isinstance(kind, str) and kind in totals:
                totals[kind] = min(totals[kind] + many, fields.MAX_COUNT)
            _add(totals, resource.get("with"), many, depth + 1)


def _count(value: object) -> int:
    if isinstance(value, dict):
        value = value.get("min")
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= fields.MAX_COUNT:
        return 1
    return value


def _dependencies(found: object) -> str | None:
    """Dependencies in Flux's words: `afterok:ƒ2c, begin-time:…`."""
    if not isinstance(found, list) or not found:
        return None
    words = [f"{one.get('scheme')}:{one.get('value')}" for one in found if isinstance(one, dict)]
    return ", ".join(words)[: fields.MAX_TEXT] or None


def allocation(allocated: object) -> dict[str, Any]:
    """Return a job's allocation (R) as fields of a `start`; missing values are omitted."""
    groups = fields.object_at(allocated, "execution").get("R_lite")
    nodes = cores = gpus = 0
    for group in groups if isinstance(groups, list) else ():
        children = fields.object_at(group, "children")
        ranks, core, gpu = (
            fields.numbers_in(text) if isinstance(text, str) else 0
            for text in (fields.object_at(group).get("rank"), children.get("core"), children.get("gpu"))
        )
        nodes, cores, gpus = nodes + ranks, cores + ranks * core, gpus + ranks * gpu
    found = {"cpus": cores, "nodes": nodes, "gpus": gpus}
    return {name: value for name, value in found.items() if 0 < value <= fields.MAX_COUNT}


class FluxRecords(Records):
    """Entries of a journal, and lines of it in JSON: an object with a job's id and its `events`, or an event alone.

    An event without an id, as `flux job eventlog --format=json` prints it, is of the job that the file is named after.
    The note of a job that runs is the type of the exception that it met.
    """

    def take(self, line: str) -> list[AnyEvent]:
        """The events of a line."""
        if not line.strip():
            return []
        found = fields.object_of(line)
        number = found.get("id", found.get("jobid"))
        if number == -1:
            return self.leave_out("the sentinel")
        job = fields.job_of(self.file.stem, "the file's name") if number is None else job_name(number)
        entries = found.get("events", [found])
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise fields.BadRecord("events", entries, "a list of events")
        for entry in entries:
            time_of(entry)  # all of a line, or nothing
        steps = [self.see(job, entry, found.get("jobspec"), found.get("R")) for entry in entries]
        return [event for events in steps for event in events or ()] or self.leave_out("events without a counterpart")

    def see(
        self, job: str, entry: fields.Object, jobspec: object = None, allocated: object = None
    ) -> list[AnyEvent] | None:
        """Convert a journal entry to events; None if no event corresponds to it.

        `jobspec` is that of a submission, `allocated` are the allocated resources (R).

        Raises:
            BadRecord: it is not a valid entry.
        """
        name, context = entry.get("name"), entry.get("context")
        at = time_of(entry)
        if not isinstance(name, str):
            raise fields.BadRecord("name", name, "the name of an event")
        more = context if isinstance(context, dict) else {}
        if name == "submit":
            return self._submit(job, at, more, jobspec)
        if name == "alloc":
            return self.lifecycles.start(Start(site=self.site, time=at, job=job, **allocation(allocated)))
        if name in ("depend", "dependency-add"):
            return self._dependency(job, at, name, more)
        if name == "jobspec-update":
            return self._update(job, at, more)
        if name == "priority":
            return self._priority(job, at, more)
        if name == "exception":
            return self._exception(job, at, more)
        if name == "finish":
            return self._finish(job, at, more)
        if name in ("free", "clean"):
            return self._freed(job, at, name)
        return None

    def _submit(self, job: str, at: float, context: fields.Object, jobspec: object) -> list[AnyEvent]:
        requested = request(jobspec)
        user = context.get("userid")
        submit = Submit(
            site=self.site, time=at, job=job, user=str(user) if isinstance(user, int) else None, **requested
        )
        events = self.lifecycles.submit(submit, QUEUED if requested else BARE)
        if events and "dependency" in requested:
            self.lifecycles.known[job].phase = HELD
        return events

    def _dependency(self, job: str, at: float, name: str, context: fields.Object) -> list[AnyEvent]:
        lifecycle = self.lifecycles.known.get(job)
        is_met = name == "depend"
        if lifecycle is None or lifecycle.phase not in ((HELD,) if is_met else (QUEUED, BARE)):
            return []
        lifecycle.phase = QUEUED if is_met else HELD
        description = str(context.get("description") or "unknown")[: fields.MAX_TEXT]
        return self.lifecycles.alter(job, at, dependency="" if is_met else description, eligible=at if is_met else None)

    def _update(self, job: str, at: float, context: fields.Object) -> list[AnyEvent]:
        """Parts of a jobspec were set, by their paths: `{"attributes.system.duration": 60}`."""
        jobspec: fields.Object = {}
        for path, value in context.items():
            *above, last = path.split(".")
            place = jobspec
            for word in above[:MAX_DEPTH]:
                inner = place.setdefault(word, {})
                place = inner if isinstance(inner, dict) else {}
            place[last] = value
        requested = request(jobspec)
        requested.pop("executable", None)
        return self.lifecycles.alter(job, at, **requested)

    def _priority(self, job: str, at: float, context: fields.Object) -> list[AnyEvent]:
        """Priority 0 holds a job."""
        value = context.get("priority")
        if isinstance(value, bool) or not isinstance(value, int | float):
            return []
        return self.lifecycles.hold(job, at) if value <= 0 else self.lifecycles.release(job, at)

    def _exception(self, job: str, at: float, context: fields.Object) -> list[AnyEvent]:
        """Cancel a pending job after a fatal exception; the end of a running job follows in its own entry."""
        if context.get("severity") != 0:
            return []
        lifecycle = self.lifecycles.known.get(job)
        if lifecycle is not None and lifecycle.phase in (RUNNING, SUSPENDED):
            lifecycle.note = str(context.get("type", ""))[:20]
            return []
        return self.lifecycles.cancel(job, at, again=True)  # an allocation may still come, and is freed at once

    def _freed(self, job: str, at: float, name: str) -> list[AnyEvent] | None:
        """The resources are free, or the job is over: it ends where no finish came, as after a prolog that failed."""
        phase = self.lifecycles.phase(job)
        events = None
        if phase in (RUNNING, SUSPENDED):
            events = self._finish(job, at, {"status": 1})
        elif name == "clean" and phase != GONE:
            events = self.lifecycles.cancel(job, at)
        if name == "clean":
            self.lifecycles.forget(job)
        return events

    def _finish(self, job: str, at: float, context: fields.Object) -> list[AnyEvent]:
        lifecycle = self.lifecycles.known.get(job)
        if lifecycle is None or lifecycle.phase == GONE:
            return []
        met = STATES.get(lifecycle.note, "failed" if lifecycle.note else "")
        state = met or ("completed" if context.get("status") == 0 else "failed")
        return self.lifecycles.end(job, at, state)


OVERLAP_S = 5.0
"""Seconds before the cursor that are read again: the journal's entries are only nearly in time order."""


HERE = "local"  # the location of the Flux instance of this machine or job


class _Cursor(msgspec.Struct, forbid_unknown_fields=True):
    """Place in the journal: its newest time, the entries of the seconds before it, and the job lifecycles."""

    newest: float
    recent: list[tuple[float, str]]
    known: Known


class FluxSource(contract.Source):
    """The journal of a Flux instance, live."""

    name: ClassVar[str] = "flux"
    live: bool = True

    def __init__(
        self,
        location: str,
        site: str | None = None,
        on_skipped: contract.OnSkipped = contract.refuse,
        pause_s: float = contract.IDLE_S,
    ) -> None:
        """Check that Flux is available.

        Args:
            location: `local`, or the URI of an instance such as `ssh://host/run/flux/local`.
            pause_s: seconds to wait for an entry.

        Raises:
            UserError: the package `flux` is missing.
        """
        super().__init__(location, site or "flux", on_skipped)
        self._pause_s = pause_s
        _flux()

    def events(self, cursor: contract.Cursor | None = None) -> Iterator[contract.Step]:
        """The events of the journal from its beginning, or from the cursor's time."""
        at = _Cursor(0.0, [], {}) if cursor is None else contract.decode_cursor(cursor, _Cursor)
        records = FluxRecords(self.sites[0], LinesRead(known=at.known), None, self._left_out)
        recent, newest = deque(at.recent), at.newest
        seen, since, is_new = set(recent), 0, False
        last = cursor or contract.encode_cursor(at)
        for entry in self._journal(max(newest - OVERLAP_S, 0.0)):
            events: list[AnyEvent] = []
            self.note_read(at_end=entry is None)
            if entry is not None:
                mark = (float(entry.timestamp or 0.0), f"{int(entry.jobid)} {entry.name}")
                if mark in seen:
                    continue
                seen.add(mark)
                recent.append(mark)
                newest, is_new = max(newest, mark[0]), True
                while recent[0][0] < newest - OVERLAP_S:
                    seen.discard(recent.popleft())
                events = self._events_of(entry, records)
            since += len(events)
            if (entry is None and is_new) or (events and since * EVENTS_PER_KNOWN >= len(at.known) + len(recent)):
                last, since, is_new = contract.encode_cursor(_Cursor(newest, list(recent), at.known)), 0, False
                yield from contract.steps_of(events, last)
            else:
                yield from contract.steps_of(events, last if entry is None else None)

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

    def _events_of(self, entry: Any, records: FluxRecords) -> list[AnyEvent]:
        self.records += 1
        try:
            record = {"timestamp": entry.timestamp, "name": entry.name, "context": entry.context}
            events = records.see(job_name(int(entry.jobid)), record, entry.jobspec, entry.R)
        except fields.BadRecord as bad:
            self._on_skipped(bad.skipped(f"flux at {self._location}"))
            return []
        if not events:
            self._left_out.add(f"journal: {entry.name}")
        return events or []


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
