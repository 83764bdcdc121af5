"""The source `slurm`: one or more pollers of Slurm with a common table of jobs."""

import time
import zlib
from base64 import b85decode, b85encode
from collections.abc import Iterator, Sequence
from datetime import UTC
from pathlib import Path
from typing import Any, ClassVar, Self

import msgspec

from models.records import AnyEvent, Capacity
from models.stored_values import decompress
from streams.errors import InvalidInput
from streams.sources import contract
from streams.sources.logs.log_source import zone_of
from streams.sources.slurm.attempt_events import Entry
from streams.sources.slurm.calls import Commands
from streams.sources.slurm.days import NO_ROWS, old_rows
from streams.sources.slurm.job_table import JobTable
from streams.sources.slurm.jobcomp import KafkaRecords
from streams.sources.slurm.machine import capacity_of
from streams.sources.slurm.overlapping import DumpEnd, events_of
from streams.sources.slurm.polling import AccountingPolling, Poller, PollResult, QueuePolling, SlurmCursor
from streams.sources.slurm.recorded import OneFile, RecordedPoller, kind_of
from streams.sources.slurm.rest import SlurmRest, SlurmrestdAccess
from streams.sources.source_registry import head_of
from streams.text.quantities import seconds_of

MAX_JOBS_BYTES = 512 * 2**20  # of a cursor's jobs when decompressed: two million

PAUSE_S = 0.2  # seconds between two checks for a poll result

EVENTS_PER_CURSOR = 500
"""Maximum number of events without a cursor if each poll gives few: packing the table is O(jobs)."""

REST = ("http://", "https://", "unix://")
HELP = (
    "squeue, sacct, http://HOST:6820, unix:///SOCKET, kafka://HOST:PORT/TOPIC,TOPIC-job-start, "
    "or several with + between them"
)


class SlurmSource(contract.Source):
    """Events of Slurm from `squeue`, `sacct`, slurmrestd or jobcomp/kafka, or several of these; see `HELP`.

    Args:
        location: names of the inputs, with `+` between them: `squeue+sacct`; `http://HOST:6820+slurmdb` also
            reads the accounting from slurmrestd. A folder of recorded polls and a file of records of jobcomp
            are read as well.
        poll: interval of queue polls.
        accounting: interval of accounting polls.
        machine: interval of polls of nodes, partitions and reservations.
        since: period of the first accounting poll.
        kafka_options: a TOML file with options of kafka-python's consumer, for jobcomp's brokers.
        timezone: time zone of a file of sacct's text, such as Europe/Paris; by default UTC.
    """

    name: ClassVar[str] = "slurm"
    of_span: ClassVar[bool] = True
    live = True

    def __init__(
        self,
        location: str,
        site: str | None = None,
        on_skipped: contract.OnSkipped = contract.refuse,
        poll: str = "30s",
        accounting: str = "5m",
        machine: str = "1m",
        since: str = "1h",
        kafka_options: str = "",
        timezone: str | None = None,
        cluster: str | None = None,
        token_file: str = "",
        token_command: str = "",
        ca: str = "",
        certificate: str = "",
        key: str = "",
    ) -> None:
        """Open the source; Slurm is not queried before its events are read.

        With several clusters, `cluster` names the one that is the site. `token_file`, `token_command`, `ca`,
        `certificate` and `key` are slurmrestd's: see `SlurmrestdAccess`.

        Raises:
            UserError: no site is named, or the location is invalid.
        """
        path, zone = Path(location), zone_of(timezone) or UTC
        if site is None:
            if not path.is_file():
                raise InvalidInput(f"{location}: name the site with --site")
            site = path.name.partition(".")[0] or "site"
        super().__init__(location, site, on_skipped)
        self.calls: dict[str, contract.Calls] = {}
        every = {"poll": poll, "accounting": accounting, "machine": machine, "since": since}
        access = SlurmrestdAccess(
            token_file=token_file, token_command=token_command, ca=ca, certificate=certificate, key=key
        )
        self._options: dict[str, Any] = {name: seconds_of(text) for name, text in every.items()}
        self._options |= {"kafka_options": kafka_options, "zone": zone, "cluster": cluster, "access": access}
        self._old = NO_ROWS
        self._locations = [location] if path.is_file() else location.split("+")
        for poller in self._pollers():  # unreadable inputs are reported now
            poller.close()

    @classmethod
    def recognises(cls, head: bytes) -> bool:
        """Detect output of sacct, a response of squeue or slurmrestd, or records of jobcomp."""
        return kind_of(head) is not None

    def _pollers(self) -> list[Poller]:
        pollers: list[Poller] = []
        rest = ""
        for text in self._locations:
            rest = text if text.startswith(REST) else rest
            pollers.append(self._poller(text, rest))
        return pollers

    def _poller(self, text: str, rest: str) -> Poller:
        options, on_skipped = self._options, self._on_skipped
        if text == "squeue" or text.startswith(REST):
            calls = Commands(self.calls) if text == "squeue" else SlurmRest(text, self.calls, options["access"])
            return QueuePolling(calls, on_skipped, options["poll"], options["machine"])
        if text == "sacct" or (text == "slurmdb" and rest):
            calls = Commands(self.calls) if text == "sacct" else SlurmRest(rest, self.calls, options["access"])
            return AccountingPolling(calls, on_skipped, options["accounting"], options["since"])
        if text.startswith("kafka://"):
            return KafkaRecords(text.removeprefix("kafka://"), on_skipped, options["kafka_options"])
        path = Path(text)
        if path.is_dir():
            return RecordedPoller(path, on_skipped)
        if (file := self._file(text)) is not None:
            return file
        raise InvalidInput(f"{text}: there is no such file; expected {HELP}")

    @classmethod
    def limit_to_last(cls, sources: Sequence[Self], jobs: int) -> int:
        """Skip old jobs in sacct's text, by the dates of rows."""
        if sources[0]._options["cluster"] is not None:  # others' jobs would count
            return 0
        files = [file for source in sources if (file := source._only_file()) is not None]
        old, total = old_rows((days for file in files if (days := file.days(jobs)) is not None), jobs)
        for source in sources:
            source._old = old
        return total if old.before else 0

    @classmethod
    def read_merged(cls, sources: Sequence[Self]) -> Iterator[tuple[Self, AnyEvent]]:
        """Merge the events of files that may overlap, such as a dump a month: see `overlapping`."""
        files = [(source, file) for source in sources if (file := source._only_file()) is not None]
        for _, file in files:
            file.clusters = files[0][1].clusters
        dump_end, first = DumpEnd(entries={}), sources[0]
        first.progress = 0.0 if files else None
        for number, event in events_of([file for _, file in files], first.sites[0], dump_end):
            first.progress = dump_end.processed / max(dump_end.rows, 1)
            yield files[number][0], event
        if files:
            files[0][0].reached = contract.encode_cursor(
                SlurmCursor(slurm=1, since=dump_end.at, jobs=_packed(dump_end.entries))
            )
        for source, file in files:
            source.records = file.records
        yield from super().read_merged([source for source in sources if source._only_file() is None])

    def _only_file(self) -> OneFile | None:
        """Return the file, if the location is a single file."""
        return self._file(self._locations[0]) if len(self._locations) == 1 else None

    def _file(self, text: str) -> OneFile | None:
        path = Path(text)
        if not path.is_file():
            return None
        kind = kind_of(head_of(path)) or "text"
        options = self._options["zone"], self._left_out, self._options["cluster"]
        return OneFile(path, kind, self._on_skipped, *options, self._old)

    def events(self, cursor: contract.Cursor | None = None) -> Iterator[contract.Step]:
        """Yield the events, poll by poll; the last one of a poll has the cursor."""
        run = _PollLoop(self.sites[0], _unpacked(cursor), self._pollers(), self._options["cluster"])
        try:
            for step in run.steps():
                self.records = sum(poller.records for poller in run.pollers)
                self.read_until = run.read_until
                self.lag = {unit: value for poller in run.pollers for unit, value in poller.lag.items()}
                yield step
        finally:
            for poller in run.pollers:
                poller.close()


class _PollLoop:
    def __init__(
        self, site: str, found: tuple[SlurmCursor, dict[str, Entry]], pollers: list[Poller], cluster: str | None = None
    ) -> None:
        self.place, entries = found
        self.pollers, self._clusters = pollers, {None, cluster}
        self._site = site
        self._accounting = next((poller for poller in pollers if isinstance(poller, AccountingPolling)), None)
        self._table = JobTable(site, entries, accounted=self._accounting is not None)
        # and the number of accounting polls that had started by then
        self._missing = dict.fromkeys(self.place.missing, 0)
        self._cursors = self.place.events // EVENTS_PER_CURSOR
        self._has_queue = any(isinstance(poller, QueuePolling) for poller in pollers)
        self.read_until: float | None = None

    def steps(self) -> Iterator[contract.Step]:
        """Events with their cursors, and steps without events while nothing happens."""
        idle = self._cursor()
        while True:
            polled = False
            for poller in self.pollers:
                for result in poller.results(self.place):
                    polled = True
                    yield from self._events_of(result)
                    if result.began and (result.queue or not self._has_queue) and not self._missing:
                        self.read_until = result.began
            if polled:
                idle = self._cursor()
            yield None, idle
            if not polled:
                time.sleep(PAUSE_S)

    def _events_of(self, result: PollResult) -> Iterator[contract.Step]:
        events: list[Any] = [*self._capacity(result)]
        rows = [row for row in result.rows if row.cluster in self._clusters or self._clusters == {None}]
        if rows or result.queue:
            events += self._table.update(rows, result.at, result.queue, result.late)
        events += self._resolve_missing(result)
        for number, event in enumerate(events, 1):
            self.place.events += 1
            last = number == len(events)
            due = result.queue or result.accounting or self.place.events // EVENTS_PER_CURSOR > self._cursors
            if last and due:
                self._cursors = self.place.events // EVENTS_PER_CURSOR
            yield event, self._cursor() if last and due else None

    def _capacity(self, result: PollResult) -> list[Capacity]:
        """Return the machine if it has changed since it was last reported."""
        if result.machine is None or (found := capacity_of(result.machine, self._site, result.at)) is None:
            return []
        fingerprint = zlib.crc32(msgspec.json.encode(msgspec.structs.replace(found, time=0.0))) or 1
        if fingerprint == self.place.capacity:
            return []
        self.place.capacity = fingerprint
        return [found]

    def _resolve_missing(self, result: PollResult) -> list[Any]:
        """Handle jobs that the queue no longer shows, or shows as requeued.

        They are given up after an accounting poll that began later or, without an accounting, if the next queue poll
        does not show them either.
        """
        if result.queue:
            gone, before = set(self._table.vanished()), self._missing
            if self._accounting is None:
                self._missing = dict.fromkeys(gone, 0)
                return self._table.give_up(sorted(gone & before.keys()), result.at)
            self._missing = {job: before.get(job, self._accounting.polls_started) for job in gone}
            if gone:
                self._accounting.poll_now()
        elif result.accounting and self._missing:
            lost = {job for job, started in self._missing.items() if started < result.number}
            self._missing = {job: started for job, started in self._missing.items() if job not in lost}
            return self._table.give_up(sorted(lost.intersection(self._table.vanished())), result.at)
        return []

    def _cursor(self) -> contract.Cursor:
        changed = {"jobs": _packed(self._table.entries), "missing": sorted(self._missing)}
        return contract.encode_cursor(msgspec.structs.replace(self.place, **changed))


def _packed(entries: dict[str, Entry]) -> str:
    return b85encode(zlib.compress(msgspec.json.encode(entries), 1)).decode()


def _unpacked(cursor: contract.Cursor | None) -> tuple[SlurmCursor, dict[str, Entry]]:
    if cursor is None:
        return SlurmCursor(slurm=1), {}
    place = contract.decode_cursor(cursor, SlurmCursor)
    try:
        packed = decompress(b85decode(place.jobs), MAX_JOBS_BYTES) if place.jobs else b"{}"
        return msgspec.structs.replace(place, jobs=""), msgspec.json.decode(packed, type=dict[str, Entry])
    except ValueError as error:
        raise contract.CursorError(f"the cursor {cursor[:80]!r} is not one of this source: {error}") from None
