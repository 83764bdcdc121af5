"""The source `table`: one row for each finished job, as CSV (also compressed) or Parquet."""

import csv
import hashlib
import math
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, tzinfo
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, cast

import msgspec

from models.records import AnyEvent, Cancel, End, Start, Submit
from streams.errors import InvalidInput, UserError, file_error
from streams.sources import contract
from streams.sources.logs.fields import MAX_BYTES, MAX_COUNT, BadRecord, in_turn, job_of, name_of
from streams.sources.logs.log_files import BROKEN, open_text
from streams.sources.logs.log_source import zone_of
from streams.sources.slurm.attempt_rows import ENDED, phase_of
from streams.sources.tables.attempts import Attempts, Place, RowKey
from streams.sources.tables.cells import Cell, amount_of, seconds_of, text_of, time_of
from streams.sources.tables.mapping import MappedColumn, Mapping, mapping_for, numbers, places_of, read_mapping, ready

MAGIC = b"PAR1"  # how a file of Parquet begins
NAMES = ("user", "group", "account", "queue", "qos", "executable")
WITHOUT = "jobs that neither started nor left"
STEPS = "job steps"

csv.field_size_limit(1 << 20)


class _RowCursor(msgspec.Struct):
    rows: int
    content: str


class Times(NamedTuple):
    """Submission, start and end of a job, Unix seconds; None if missing."""

    submit: float
    start: float | None
    end: float | None


class TableSource(contract.Source):
    """The jobs of a table. The rows may be in any order, so it is for replays."""

    name: ClassVar[str] = "table"

    def __init__(
        self,
        location: str,
        site: str | None = None,
        on_skipped: contract.OnSkipped = contract.refuse,
        map: str = "",  # noqa: A002
        timezone: str | None = None,
    ) -> None:
        """Open a table.

        Parameters:
            map: what the columns are: the name of a mapping that is here, or a file of TOML (`mapping`). Without it
                the mapping that is here which knows all its columns in the table.
            timezone: of times without one, in place of the mapping's.

        Raises:
            UserError: there is no such file or mapping, or a column that has to be there is not.
        """
        self._path = path = Path(location)
        super().__init__(location, site or path.name.partition(".")[0] or "site", on_skipped)
        given = read_mapping(map) if map else None
        self._header = _header(path, given)
        known = map or mapping_for(self._header)
        if known is None:
            names, there = ", ".join(ready()), ", ".join(self._header[:40])
            raise InvalidInput(f"{path}: use --map FILE to define the columns, or {names}; there are: {there}")
        self._mapping = given or read_mapping(known)
        self._places = places_of(self._mapping, self._header, str(path))
        self._zone: tzinfo = zone_of(timezone or self._mapping.timezone) or UTC

    @classmethod
    def recognises(cls, head: bytes) -> bool:
        """Detect Parquet, or CSV with the columns of an included mapping."""
        if head.startswith(MAGIC):
            return True
        first = head.partition(b"\n")[0]
        if first.count(b",") < 3 or first.startswith((b"{", b"[")):
            return False
        rows = csv.reader([first.decode("utf-8-sig", "replace").rstrip("\r")])
        try:
            return mapping_for(next(rows, [])) is not None
        except csv.Error:
            return False

    def events(self, cursor: contract.Cursor | None = None) -> Iterator[contract.Step]:
        """The events of a row together, the last one with the cursor. It holds while the rows up to there are the same,
        so also for a table that has more of them since.

        Raises:
            CursorError: they are not the same.
        """
        passed = here = _RowCursor(0, "")
        if cursor is not None:
            passed = contract.decode_cursor(cursor, _RowCursor)
        content = hashlib.blake2b(repr(self._header).encode(), digest_size=8)
        attempts = Attempts(self._keys(), self._keys())
        for number, (line, row) in enumerate(self._rows(), 1):
            content.update(repr(row).encode())
            here = _RowCursor(number, content.hexdigest())
            if number > passed.rows:
                self.records += 1
                yield from contract.steps_of(self._events_of(line, row, attempts), contract.encode_cursor(here))
            elif number == passed.rows and here != passed:
                break
        if here.rows <= passed.rows and here != passed:
            raise contract.CursorError(f"{self._path}: the cursor is of another table, or its rows have changed")

    def _keys(self) -> Iterator[RowKey]:
        """The rows that can be read, by their jobs and times."""
        for _, row in self._rows():
            with suppress(BadRecord, IndexError):
                yield self._key(row)

    def _key(self, row: list[Cell]) -> RowKey:
        cell = self._cell(row, "job")
        return RowKey(str(cell).strip(), job_of(text_of(cell), self._places["job"].name), *self._times(row))

    def _events_of(self, line: int, row: list[Cell], attempts: Attempts) -> list[AnyEvent]:
        try:
            if attempts.is_step(str(self._cell(row, "job")).strip()):
                self._left_out.add(STEPS, _shown(row))
                return []
            key = self._key(row)
            return self._events(row, Times(key.submit, key.start, key.end), attempts.place(key))
        except BadRecord as bad:
            self._on_skipped(bad.skipped(str(self._path), line))
        except IndexError:
            found, expected = f"{len(row)} cells", f"{len(self._header)}, as the first row has"
            self._on_skipped(contract.SkippedPart(str(self._path), line, None, found, expected))
        return []

    def _events(self, row: list[Cell], times: Times, place: Place) -> list[AnyEvent]:
        """Return the events of a job attempt."""
        if times.start is None and times.end is None:
            self._left_out.add(WITHOUT, _shown(row))
            return []
        submitted = max(times.submit, place.since)
        name: dict[str, Any] = {"site": self.sites[0], "job": place.job, "attempt": place.attempt}
        events: list[AnyEvent] = [Submit(**name, time=submitted, **self._request(row))]
        if times.start is None:
            return [*events, Cancel(**name, time=max(times.end or 0.0, submitted))]
        start = in_turn(times.start, submitted)
        events.append(Start(**name, time=start))
        if times.end is not None:
            events.append(End(**name, time=in_turn(times.end, start), state=self._state(row) or "unknown"))
        return events

    def _times(self, row: list[Cell]) -> Times:
        submit, start, end = (self._time(row, field) for field in ("submit", "start", "end"))
        if submit is None:
            raise BadRecord(self._places["submit"].name, self._cell(row, "submit"), "a time")
        wait, run = self._seconds(row, "wait"), self._seconds(row, "run")
        if "start" not in self._places and wait is not None:
            start = submit + wait
        if "end" not in self._places and start is not None and run is not None:
            end = start + run
        if end is None and self._is_over(row) and {"end", "run"} & self._places.keys():
            field = "end" if "end" in self._places else "run"
            raise BadRecord(self._places[field].name, self._cell(row, field), "a value, for a job that has ended")
        if self._state(row) == "cancelled" and start is not None and end is not None and end <= start:
            return Times(submit, None, end)  # it was cancelled in the queue
        return Times(submit, start, end)

    def _request(self, row: list[Cell]) -> dict[str, Any]:
        found: dict[str, Any] = {field: name_of(text_of(self._cell(row, field))) for field in NAMES}
        found["cpus"] = self._count(row, "cpus", MAX_COUNT) or 1
        found["nodes"] = self._count(row, "nodes", MAX_COUNT) or None
        found["gpus"] = self._count(row, "gpus", MAX_COUNT) or 0
        found["memory"] = self._count(row, "memory", MAX_BYTES) or None
        walltime = self._seconds(row, "walltime") or None
        found["unlimited"] = walltime == math.inf
        found["walltime"] = None if walltime == math.inf else walltime
        found["eligible"] = self._time(row, "eligible")
        return found

    def _cell(self, row: list[Cell], field: str) -> Cell:
        place = self._places.get(field)
        return None if place is None else row[place.column]

    def _time(self, row: list[Cell], field: str) -> float | None:
        try:
            return time_of(self._cell(row, field), self._zone)
        except ValueError:
            raise BadRecord(self._places[field].name, self._cell(row, field), "a time") from None

    def _seconds(self, row: list[Cell], field: str) -> float | None:
        place: MappedColumn | None = self._places.get(field)
        try:
            return None if place is None else seconds_of(row[place.column], place.times)
        except ValueError:
            raise BadRecord(self._places[field].name, self._cell(row, field), "a duration") from None

    def _count(self, row: list[Cell], field: str, most: int) -> int:
        place: MappedColumn | None = self._places.get(field)
        number = None if place is None else amount_of(row[place.column])
        return 0 if number is None or place is None else int(min(number * place.times, most))

    def _state(self, row: list[Cell]) -> str:
        text = text_of(self._cell(row, "state"))
        if text in self._mapping.states:
            return self._mapping.states[text]
        known = phase_of((text.upper().partition(" ")[0],))
        return known[1] if known else ""

    def _is_over(self, row: list[Cell]) -> bool:
        """Check if the state is one of Slurm's for a finished job."""
        known = phase_of((text_of(self._cell(row, "state")).upper().partition(" ")[0],))
        return known is not None and known[0] == ENDED

    def _rows(self) -> Iterator[tuple[int, list[Cell]]]:
        if _is_parquet(self._path):
            yield from _parquet_rows(self._path, [place.name for place in self._places.values()], self._header)
            return
        try:
            with open_text(self._path, newline="") as file:
                rows = csv.reader(file, delimiter=self._mapping.separator)
                if not self._mapping.numbered:
                    next(rows, None)
                for row in rows:
                    if row:
                        yield rows.line_num, cast("list[Cell]", row)
        except (csv.Error, *BROKEN) as error:
            raise file_error(self._path, error) from None


def _shown(row: list[Cell]) -> str:
    """Format a row as an example."""
    return ",".join("" if cell is None else str(cell) for cell in row)


def _is_parquet(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError as error:
        raise file_error(path, error) from None


def _header(path: Path, mapping: Mapping | None) -> list[str]:
    """The names of a table's columns; their numbers where the mapping has these."""
    numbered = mapping is not None and mapping.numbered
    if _is_parquet(path):
        if numbered:
            raise InvalidInput(f"{path}: columns are given by number; Parquet columns have names")
        return [str(name) for name in _parquet(path).schema_arrow.names]
    try:
        with open_text(path, newline="") as file:
            first = next(csv.reader(file, delimiter=mapping.separator if mapping else ","), [])
    except (csv.Error, *BROKEN) as error:
        raise file_error(path, error) from None
    return numbers(len(first)) if numbered else [name.strip() for name in first]


def _parquet(path: Path) -> Any:
    try:
        from pyarrow import ArrowException
        from pyarrow.parquet import ParquetFile
    except ImportError:
        raise UserError(f"{path}: Parquet needs the package pyarrow; pip install 'queuecast[parquet]'") from None
    try:
        return ParquetFile(path)
    except (ArrowException, OSError) as error:
        raise UserError(f"{path}: not a readable Parquet file: {error}") from None


def _parquet_rows(path: Path, names: list[str], header: list[str]) -> Iterator[tuple[int, list[Cell]]]:
    """The rows with the columns of these names alone; the others are None."""
    number, places = 0, [header.index(name) for name in names]
    for batch in _parquet(path).iter_batches(4096, columns=names):
        columns = [batch.column(name).to_pylist() for name in names]
        for cells in zip(*columns, strict=True):
            number += 1
            row: list[Cell] = [None] * len(header)
            for place, cell in zip(places, cells, strict=True):
                row[place] = cell
            yield number, row
