"""Column mapping of a table, in TOML.

    timezone = "Europe/Paris"        # of times without one; default: UTC
    separator = ";"                  # of CSV; default: a comma

    [columns]
    job = "job_id"                   # this column is required
    user = ["user_hash", "user"]     # the first of these that exists, if any
    walltime = { column = "limit", unit = "minutes" }
    cpus = { column = "nodes", times = 64 }

    [states]
    Pass = "completed"               # a state of an end; Slurm's states need not be listed

In a table without a header, columns are identified by number, from 1: `job = 1`, `cpus = { column = 5, times = 64 }`.

`job`, `submit`, and `start` or `wait` are required. Times are Unix seconds (or milliseconds, microseconds) or ISO 8601
dates; `wait`, `run` and `walltime` are numbers in their unit, or in Slurm's format (`1-00:00:00`).
"""

from collections.abc import Iterable
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Literal, NamedTuple

import msgspec
from msgspec import Meta

from streams.errors import InvalidInput, place_and_problem
from streams.text.toml import read_toml

MAPS = Path(__file__).parent / "maps"  # the mappings of public data sets, by their names

_UNITS = MappingProxyType(
    {"seconds": 1.0, "minutes": 60.0, "hours": 3600.0, "milliseconds": 1e-3}
    | {"bytes": 1.0, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30, "KB": 1e3, "MB": 1e6, "GB": 1e9}
)


class ScaledColumn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A column of numbers with another unit, or with a factor, such as CPUs per node."""

    column: "Column"
    unit: str | None = None
    times: Annotated[float, Meta(gt=0)] = 1.0


Column = str | Annotated[int, Meta(ge=1, le=10_000)] | list[str]
Named = Column | ScaledColumn

Field = (
    Literal["job", "submit", "eligible", "start", "end", "wait", "run", "state", "walltime"]
    | Literal["user", "group", "account", "queue", "qos", "executable", "cpus", "nodes", "gpus", "memory"]
)
"""The fields of a job."""


class Mapping(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A mapping, as above."""

    columns: dict[Field, Named]
    states: dict[str, str] = {}
    timezone: str | None = None
    separator: Annotated[str, Meta(min_length=1, max_length=1)] = ","

    @property
    def numbered(self) -> bool:
        """True if columns are identified by number, so that the first row is a job's too."""
        return any(isinstance(_scaled(named).column, int) for named in self.columns.values())


def _scaled(named: Named) -> ScaledColumn:
    return named if isinstance(named, ScaledColumn) else ScaledColumn(named)


def numbers(columns: int) -> list[str]:
    """Return column numbers in place of a missing header."""
    return [str(number) for number in range(1, columns + 1)]


class MappedColumn(NamedTuple):
    """The column of a job field in a row, and the factor for its numbers."""

    column: int
    name: str
    times: float


def ready() -> list[str]:
    """The names of the mappings that are here."""
    return sorted(path.stem for path in MAPS.glob("*.toml"))


def read_mapping(name: str) -> Mapping:
    """Read an included mapping, or a mapping file.

    Raises:
        UserError: there is no mapping of this name, or it is invalid.
    """
    path = MAPS / f"{name}.toml" if name in ready() else Path(name)
    if not path.exists():
        raise InvalidInput(f"{name}: there is no such column mapping or file; there are: {', '.join(ready())}")
    try:
        found = msgspec.convert(read_toml(path), Mapping)
    except msgspec.ValidationError as error:
        place, problem = place_and_problem(error)
        raise InvalidInput(f"{path}: {f'{place}: ' if place else ''}{problem}") from None
    if found.numbered and not all(isinstance(_scaled(named).column, int) for named in found.columns.values()):
        raise InvalidInput(f"{path}: columns: some by name and some by number; expected all by one of these")
    if missing := {"job", "submit"} - found.columns.keys():
        raise InvalidInput(f"{path}: columns: missing required field `{min(missing)}`")
    if not found.columns.keys() & {"start", "wait"}:
        raise InvalidInput(f"{path}: columns: expected `start` or `wait`")
    for field, named in found.columns.items():
        if isinstance(named, ScaledColumn) and named.unit not in (None, *_UNITS):
            raise InvalidInput(f"{path}: columns.{field}: unit {named.unit!r}; expected one of {', '.join(_UNITS)}")
    return found


def places_of(mapping: Mapping, header: list[str], where: str) -> dict[str, MappedColumn]:
    """Return the columns of the job fields in the rows of a table.

    Raises:
        UserError: a required column is missing.
    """
    places: dict[str, MappedColumn] = {}
    for field, named in mapping.columns.items():
        scale = _scaled(named)
        names = scale.column if isinstance(scale.column, list) else [str(scale.column)]
        column = next((name for name in names if name in header), None)
        if column is not None:
            times = scale.times * _UNITS.get(scale.unit or "", 1.0)
            places[field] = MappedColumn(header.index(column), column, times)
        elif not isinstance(scale.column, list):
            there = ", ".join(header[:40])
            raise InvalidInput(f"{where}: no column {scale.column!r}, the {field}; there are: {there}")
    missing = {"job", "submit"} - places.keys() or ({"start or wait"} if not {"start", "wait"} & places.keys() else ())
    if missing:
        raise InvalidInput(f"{where}: no column for {', '.join(sorted(missing))}; there are: {', '.join(header[:40])}")
    return places


def mapping_for(header: Iterable[str]) -> str | None:
    """Return the included mapping with the most columns, all of which are in the table; None if there is none."""
    there, best, most = list(header), None, 0
    for name in ready():
        try:
            known = len(places_of(read_mapping(name), there, name))
        except InvalidInput:
            continue
        if known > most:
            best, most = name, known
    return best
