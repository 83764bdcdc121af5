"""Rows of sacct with separators inside their cells: users write `|` into names, constraints, paths and commands.

sacct does not escape them. The columns that users cannot write into show where the others begin and end.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache

from streams.sources.slurm.attempt_rows import phase_of

FREE = frozenset(
    re.findall(
        r"\w+",
        "jobname workdir submitline comment admincomment systemcomment constraints features extra container licenses"
        " stdin stdout stderr wckey reservation failednode reqgres submithost batchscript envvars",
    )
)
"""Columns into which users can write a separator, in lower case."""

MAX_WAYS = 64  # maximum number of ways to split a row that are compared
MAX_STEPS = 20_000  # maximum number of cells that are tried

Fits = Callable[[str], bool]

_TIME = re.compile(r"(?:\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d|\d+|Unknown|None|INVALID|N/A|)", re.ASCII)
_JOB = re.compile(r"\d+\S*", re.ASCII)
_SPAN = re.compile(r"[\d:.-]*|UNLIMITED|INFINITE|Partition_Limit|INVALID|Unknown", re.ASCII)
_NUMBER = re.compile(r"[\d.]*[KMGTPE]?[cn?]?", re.ASCII)
_RESOURCES = re.compile(r"(?:[\w/:.-]+=[^=,]+(?:,[\w/:.-]+=[^=,]+)*,?)?")
_NAME = re.compile(r"[^\s/|]*")
_WORDS = re.compile(r"[^/|]*")


def _is_state(text: str) -> bool:
    return phase_of((text.partition(" ")[0].rstrip("+"),)) is not None


_PATTERNS = {
    "submit eligible start end": _TIME,
    "jobid jobidraw": _JOB,
    "elapsed elapsedraw timelimit timelimitraw planned reserved suspended totalcpu cputime cputimeraw": _SPAN,
    "nnodes ncpus reqcpus alloccpus allocnodes reqnodes ntasks priority restarts uid gid associd reqmem": _NUMBER,
    "reqtres alloctres": _RESOURCES,
    "exitcode derivedexitcode": re.compile(r"(?:\d+:\d+)?"),
    "": re.compile(""),  # after the last separator of --parsable
    "cluster partition qos account user group": _NAME,
    "reason nodelist": _WORDS,
}
_PATTERN_OF = {name: pattern for names, pattern in _PATTERNS.items() for name in (names.split() or [""])}


@cache
def _fits(column: str) -> Fits | None:
    """Return a check of the values in a column; None for columns that users write."""
    if column == "state":
        return _is_state
    if column == "workdir":
        return lambda text: not text or text.startswith("/")
    pattern = _PATTERN_OF.get(column)
    return None if pattern is None else lambda text: pattern.fullmatch(text) is not None


def put_together(
    fields: Sequence[str], columns: Sequence[str], separator: str, rows: Sequence[Sequence[str]] = ()
) -> list[str] | str:
    """The cells of a row that has more parts than there are columns.

    Args:
        rows: cells of other rows; their names of partitions, accounts and users decide where the parts do not.

    Returns:
        The cells; empty ones where it is ambiguous what a user wrote. A text that names the ambiguous columns where
        that leaves other columns ambiguous too, or where the parts fit in no way.
    """
    ways = []
    for way in _cell_groupings(fields, columns, separator):
        ways.append(way)
        if len(ways) == MAX_WAYS:
            break
    free = [name for name in columns if name in FREE or _fits(name) is None]
    ways = _with_known_names(ways, columns, rows) or ways
    if not ways:
        return f"a separator in {' or '.join(free) or 'a column'}"
    cells = list(ways[0])
    for place, name in enumerate(columns):
        if any(way[place] != cells[place] for way in ways):
            if name not in free:
                return f"{name} is ambiguous, since a separator is in {' or '.join(free)}"
            cells[place] = ""
    return cells


def _with_known_names(ways: list[list[str]], columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """The ways whose names are those of other rows, where there are several ways."""
    if len(ways) < 2:
        return ways
    names = {
        place: {row[place] for row in rows} for place, name in enumerate(columns) if _PATTERN_OF.get(name) is _NAME
    }
    return [way for way in ways if all(way[place] in known for place, known in names.items())]


def _cell_groupings(fields: Sequence[str], columns: Sequence[str], separator: str) -> Iterator[list[str]]:
    """The ways in which parts next to each other make up the cells."""
    steps = 0

    def rest(place: int, column: int) -> Iterator[list[str]]:
        nonlocal steps
        if column == len(columns):
            if place == len(fields):
                yield []
            return
        name, spare = columns[column], len(fields) - place - (len(columns) - column)
        fits = _fits(name)
        for more in range(spare + 1 if name in FREE or fits is None else 1):
            steps += 1
            if steps > MAX_STEPS:
                return
            cell = separator.join(fields[place : place + 1 + more])
            if fits is None or fits(cell):
                for others in rest(place + 1 + more, column + 1):
                    yield [cell, *others]

    yield from rest(0, 0)
