"""A log as one time-ordered sequence of events in a temporary file; memory is bounded for any length.

SQLite sorts and stores the events and spills to files of its own when its cache is full. Other processes read the file
by its path.
"""

import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from datetime import UTC, datetime
from hashlib import blake2b
from itertools import groupby, islice
from pathlib import Path
from typing import Self

import msgspec

from models.records import AnyEvent, AnyJobEvent, Capacity, Heartbeat, JobEvent, Start, Submit
from streams.bulk.live_events import LogPrefixState
from streams.bulk.survey import Survey, Surveyor
from streams.errors import UserError
from streams.sources.silences import LogHeartbeats

_STEPS = {"submit": 0, "start": 2, "suspend": 3, "resume": 3, "end": 4, "cancel": 4, "requeue": 4}
"""Order of each kind among simultaneous events of one attempt; all others are 1."""

_TURNS = {"end": 0, "cancel": 0, "requeue": 0, "suspend": 0, "submit": 2}
"""Order of each kind among simultaneous events of different jobs; all others are 1, and events after a submit are 3."""


def in_order(events: Iterable[AnyEvent]) -> Iterator[AnyEvent]:
    """Order the events of the same moment and remove duplicates; the input is sorted by time.

    Jobs that leave come before jobs that start, and these before submissions; a job that starts at its submission
    starts after it. A submission counts once, even if the second one differs: the files of one log may describe a job
    both while it was pending and after it ended. Otherwise the order of the input is kept.
    """
    for _, moment in groupby(events, key=lambda event: event.time):
        found = list(moment)
        yield from found if len(found) == 1 else _of_one_moment(found)


def _of_one_moment(events: Sequence[AnyEvent]) -> list[AnyEvent]:
    arrays = {event.job: event.array for event in events if isinstance(event, Start) and event.array}
    lifecycles: dict[tuple[str, str], list[tuple[int, int, int, AnyJobEvent]]] = {}
    capacities: list[Capacity] = []
    heartbeats: list[Heartbeat] = []
    seen: dict[tuple[str, str, str, int], list[AnyEvent]] = {}
    for place, event in enumerate(events):
        job, attempt = (event.job, event.attempt) if isinstance(event, JobEvent) else ("", 0)
        alike = seen.setdefault((event.kind, event.site, job, attempt), [])
        if event in alike or (alike and isinstance(event, Submit)):
            continue
        alike.append(event)
        if isinstance(event, JobEvent):
            lifecycle = lifecycles.setdefault((event.site, arrays.get(job, job)), [])
            lifecycle.append((attempt, _STEPS.get(event.kind, 1), place, event))
        elif isinstance(event, Heartbeat):
            heartbeats.append(event)
        else:
            capacities.append(event)
    turns: list[tuple[int, int, int, AnyJobEvent]] = []
    for first, lifecycle in enumerate(lifecycles.values()):
        lifecycle.sort(key=lambda item: item[:3])
        turn, submitted = 0, False
        for step, (*_, one) in enumerate(lifecycle):
            turn = max(turn, 3 if submitted else _TURNS.get(one.kind, 1))
            submitted |= isinstance(one, Submit)
            turns.append((turn, first, step, one))
    turns.sort(key=lambda item: item[:3])
    return [*capacities, *(one for *_, one in turns), *heartbeats]


CACHE_KIB = 64 * 1024  # the most memory that sorting takes, KiB; more goes to temporary files

_TABLES = f"""
    PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; PRAGMA cache_size=-{CACHE_KIB}; PRAGMA temp_store=FILE;
    ATTACH '' AS spare;  -- a private temporary file, deleted on close
    CREATE TABLE spare.given (time REAL, event BLOB);
    CREATE TABLE events (event BLOB);
"""

_NUMBER = re.compile(r"\d{1,18}", re.ASCII)

_encode = msgspec.msgpack.Encoder().encode
_decoder: msgspec.msgpack.Decoder[AnyEvent] = msgspec.msgpack.Decoder(AnyEvent)

Share = Callable[[], float | None]  # returns the share of the work that is done; None if unavailable

Shown = Callable[[str, int | None, Share], AbstractContextManager[Callable[[float], None]]]
"""Shows progress, from the unit of the steps and their number; the result is called with the time of each step."""


OnInvalid = Callable[[str], None]
"""Receives the problem of each event that no record can carry."""


def silent(_unit: str, _total: int | None, _share: Share) -> AbstractContextManager[Callable[[float], None]]:
    """Show no progress."""
    return nullcontext(lambda _: None)


def _refuse(problem: str) -> None:
    raise UserError(problem)


def _decoded(rows: Iterable[tuple[bytes]], on_invalid: OnInvalid) -> Iterator[AnyEvent]:
    for (blob,) in rows:
        try:
            yield _decoder.decode(blob)
        except msgspec.ValidationError as error:
            on_invalid(str(error))


class EventLog(msgspec.Struct):
    """The events of a log, in the file `path`; small enough to pass to other processes.

    Attributes:
        path: the SQLite file.
        surveys: by site, the survey of its events.
        capacity: by site, the inferred machine (the resources in use) if the log does not state it.
        fingerprint: the hash of the events.
        cuts: by site, where its log begins (Unix seconds) if it is left-truncated; see `Survey.cut`.
            Earlier submissions are `late`: their jobs are part of the state but are not scored, because the log
            omits the jobs that had ended by then.
        heartbeats: number of heartbeats that were added.
    """

    path: Path
    surveys: dict[str, Survey]
    capacity: dict[str, Capacity]
    fingerprint: str
    cuts: dict[str, float] = {}
    heartbeats: int = 0

    @classmethod
    def of(
        cls,
        events: Iterable[AnyEvent],
        directory: Path,
        shown: Shown = silent,
        share: Share = lambda: None,
        on_invalid: OnInvalid = _refuse,
        heartbeat_s: float = 0.0,
    ) -> Self:
        """Sort events into a new file in a directory.

        Duplicates are removed; `in_order` describes the order of simultaneous events.

        Args:
            events: in any order.
            directory: where the file is created.
            shown: shows progress.
            share: returns the share of the input that has been read.
            on_invalid: receives the problem of each event with a value that no record can carry; the event is skipped.
            heartbeat_s: add heartbeats in silences of so many seconds while jobs are pending; 0 adds none.

        Raises:
            UserError: no space is left in the directory.
        """
        path, content = directory / "events.sqlite", blake2b(digest_size=8)
        surveyors: dict[str, Surveyor] = {}
        heartbeats = LogHeartbeats(heartbeat_s)
        try:
            with closing(sqlite3.connect(path, isolation_level=None)) as base:
                base.executescript(_TABLES)
                base.execute("BEGIN")
                with shown("events read", None, share) as advance:
                    rows = ((one.time, _encode(one)) for one in _passing(events, advance))
                    count = base.executemany("INSERT INTO spare.given VALUES (?, ?)", rows).rowcount
                with shown("events put in order", count, share) as advance:
                    given = base.execute("SELECT event FROM spare.given ORDER BY time, rowid")
                    ordered = in_order(_passing(_decoded(given, on_invalid), advance))
                    base.executemany(
                        "INSERT INTO events VALUES (?)", _counted(ordered, surveyors, heartbeats, content.update)
                    )
                base.execute("COMMIT")
        except sqlite3.Error as error:
            raise UserError(
                f"{directory}: cannot store the log there: {error}; set TMPDIR to another directory"
            ) from None
        surveys = {site: surveyor.done() for site, surveyor in surveyors.items()}
        capacity = {site: found for site, survey in surveys.items() if (found := inferred(survey)) is not None}
        return cls(path, surveys, capacity, content.hexdigest(), heartbeats=heartbeats.count)

    @property
    def site(self) -> str:
        """The first site, by name."""
        return min(self.surveys)

    @property
    def begin(self) -> float:
        """Unix time of the first event."""
        return min(survey.begin for survey in self.surveys.values())

    @property
    def jobs(self) -> int:
        """Number of submissions."""
        return sum(survey.submits for survey in self.surveys.values())

    @property
    def count(self) -> int:
        """Number of events, including those of inferred machines and added heartbeats."""
        return len(self.capacity) + self.heartbeats + sum(survey.events for survey in self.surveys.values())

    def cut_off(self) -> None:
        """Detect the sites whose logs are left-truncated."""
        self.cuts = {site: cut for site, survey in self.surveys.items() if (cut := survey.cut) is not None}

    def events(self, passed: int = 0) -> Iterator[AnyEvent]:
        """Yield the events in order, inferred machines first, without the first `passed` events."""
        yield from list(self.capacity.values())[passed:]
        with closing(sqlite3.connect(f"file:{self.path}?mode=ro", uri=True)) as base:
            rows = base.execute("SELECT event FROM events WHERE rowid > ?", (max(passed - len(self.capacity), 0),))
            for (blob,) in rows:
                event = _decoder.decode(blob)
                if self.cuts and isinstance(event, Submit) and event.time < self.cuts.get(event.site, 0.0):
                    event = msgspec.structs.replace(event, late=True)
                yield event

    def after(self, jobs: int, length: int | None = None) -> Iterator[AnyEvent]:
        """Yield the events after the first `jobs` submissions, up to event number `length`.

        Before them come the machines and all events of the jobs that are still live by then, as late ones.
        """
        events = islice(self.events(), length)
        yield from _after(events, jobs) if jobs else events


def inferred(survey: Survey) -> Capacity | None:
    """Infer the machine from its peak use if the log does not state its size (see `Level.size`)."""
    if survey.capacity is not None or not survey.machine.cpus.size:
        return None
    return Capacity(site=survey.site, time=survey.begin, cpus=survey.machine.cpus.size)


def _passing(events: Iterable[AnyEvent], advance: Callable[[float], None]) -> Iterator[AnyEvent]:
    for event in events:
        advance(event.time)
        yield event


def _counted(
    events: Iterable[AnyEvent],
    surveyors: dict[str, Surveyor],
    heartbeats: LogHeartbeats,
    hashed: Callable[[bytes], None],
) -> Iterator[tuple[bytes]]:
    for event in events:
        surveyor = surveyors.get(event.site)
        if surveyor is None:
            surveyor = surveyors[event.site] = Surveyor(event.site)
        surveyor.add(event)
        for one in (*heartbeats.before(event), event):
            blob = _encode(one)
            hashed(blob)
            yield (blob,)


class JobRange(msgspec.Struct, frozen=True):
    """The jobs of a log to score: all, a range of job numbers, or named jobs. A task has its array's number."""

    ids: tuple[int, int] | None = None
    names: frozenset[str] | None = None

    def __contains__(self, job: object) -> bool:
        if self.names is not None:
            return job in self.names
        if self.ids is None:
            return True
        number = job_number(str(job))
        return number is not None and self.ids[0] <= number <= self.ids[1]


def job_number(job: str) -> int | None:
    """Return the number at the start of a job's name: 4711 for `4711_3`, `4711[3]` and `4711.server`."""
    found = _NUMBER.match(job)
    return None if found is None else int(found[0])


def jobs_in(
    log: EventLog,
    ids: tuple[int, int] | None = None,
    rows: tuple[int, int] | None = None,
    since: float | None = None,
) -> JobRange:
    """Select a range of jobs.

    Args:
        log: the log.
        ids: first and last job number, inclusive.
        rows: first and last position in submission order, from 1, inclusive.
        since: earliest submission time, Unix seconds.

    Raises:
        UserError: the range contains no job.
    """
    if since is not None:
        names = frozenset(event.job for event in log.events() if isinstance(event, Submit) and event.time >= since)
        if not names:
            last = datetime.fromtimestamp(max(survey.end for survey in log.surveys.values()), UTC)
            raise UserError(f"no job was submitted since then; the log ends at {last:%Y-%m-%dT%H:%MZ}")
        return JobRange(names=names)
    if ids is None and rows is None:
        return JobRange()
    submitted = (event.job for event in log.events() if isinstance(event, Submit))
    if rows is not None:
        chosen = JobRange(names=frozenset(islice(submitted, max(rows[0], 1) - 1, max(rows[1], 0))))
        if not chosen.names:
            raise UserError(f"no job at these positions; they are 1 to {log.jobs}, in the order of submission")
        return chosen
    numbers, chosen = set[int](), JobRange(ids=ids)
    for job in submitted:
        if job in chosen:
            return chosen
        numbers |= {number} if (number := job_number(job)) is not None else set()
    known = f"they are {min(numbers)} to {max(numbers)}" if numbers else "the jobs' ids begin with none"
    raise UserError(f"no job with these numbers; {known}")


def _after(events: Iterator[AnyEvent], skipped: int) -> Iterator[AnyEvent]:
    """Yield the state after the first `skipped` submissions, then the remaining events."""
    passed = LogPrefixState()
    for event in events:
        skipped -= isinstance(event, Submit)
        if skipped < 0:
            yield from passed.live_events(event.time)
            yield event
            yield from events
            return
        passed.add(event)
    yield from passed.live_events()
