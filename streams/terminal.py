"""Text for people at a terminal: safe names, readable durations and times, tables."""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from shutil import get_terminal_size

DEFAULT_COLUMNS = 80
"""How wide accuracy is shown where no terminal, and no COLUMNS in the environment, says how wide it is."""

GAP = 3
"""The space between two columns of a table."""

MAX_TABLE_COLUMNS = 400
"""How wide a table may be. It can be wider than the terminal, which then wraps its lines."""


def printable(text: str) -> str:
    r"""The text with unprintable characters escaped as in JSON, so that a name cannot send codes to the terminal.

    A JSON text stays the same JSON.

    >>> printable("\x1b[2Jmöhre")
    '\\u001b[2Jmöhre'
    """
    return text if text.isprintable() else "".join(c if c.isprintable() else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    """The escapes of a character in JSON: one for each UTF-16 unit."""
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def moment(time: float) -> str:
    """A Unix time as text for people: UTC, to the second.

    >>> moment(835823160.0)
    '1996-06-26 21:06:00'
    """
    try:
        return f"{datetime.fromtimestamp(time, UTC):%Y-%m-%d %H:%M:%S}"
    except (OverflowError, ValueError, OSError):  # not a date that can be written
        return f"{time:g}"


def show_accuracy(rows: Mapping[str, Mapping[str, float]], title: str = "") -> None:
    """Print a table of accuracy, one line for each method and one column for each measure.

    Where it is wider than the terminal, its columns come in several tables, one below the other.

    Parameters:
        rows: by method, the values by measure.
        title: the heading of the column of methods.
    """
    names = list(dict.fromkeys(name for row in rows.values() for name in row))
    order = [name for name in COMMON_MEASURES if name in names] + [
        name for name in names if name not in COMMON_MEASURES
    ]
    if not rows:
        return
    lines = [[method, *(_number(name, row.get(name)) for name in order)] for method, row in rows.items()]
    heads = [title, *("AAE h" if name == "AAE" else name for name in order)]
    widths = [max(map(len, column)) + GAP for column in zip(heads, *lines, strict=True)]
    for first, last in _parts(widths, get_terminal_size((DEFAULT_COLUMNS, 0)).columns + GAP):
        show_table([title, *heads[first:last]], ([line[0], *line[first:last]] for line in lines))


def _parts(widths: Sequence[int], room: int) -> Iterator[tuple[int, int]]:
    """Ranges of columns after the first that fit beside it: as many tables as it takes."""
    first, used = 1, widths[0]
    for place in range(1, len(widths)):
        if used + widths[place] > room and place > first:
            yield first, place
            first, used = place, widths[0]
        used += widths[place]
    yield first, len(widths)


COMMON_MEASURES = ("AAE", "median_min", "PPE", "PPE600", "PPE1200", "x2", "x3", "1min", "10min", "missing", "jobs")
"""The measures that every method has, in the order of their columns. Other measures follow them."""


def _number(name: str, value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:d}" if name in ("missing", "jobs") else f"{value:.3f}"


def show_table(heads: Sequence[str], lines: Iterable[Sequence[str]]) -> None:
    """Print a table; the first column is left-aligned, the others are right-aligned."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for position, head in enumerate(heads):
        table.add_column(Text(head), justify="right" if position else "left", no_wrap=True)
    for line in lines:
        table.add_row(*(Text(printable(cell)) for cell in line))
    Console(file=sys.stdout, width=MAX_TABLE_COLUMNS, highlight=False).print(table)
