"""Text for people at a terminal: safe names, readable durations and times, tables."""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from shutil import get_terminal_size
from textwrap import TextWrapper
from unicodedata import east_asian_width

from models.durations import duration

DEFAULT_COLUMNS = 80  # width of tables without a terminal and without COLUMNS in the environment
GAP = 2  # the space between two columns of a table


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
    """A Unix time as text for people, to the second, with its zone.

    >>> moment(835823160.0)
    '1996-06-26 21:06:00 UTC'
    """
    return _clock(time, "%Y-%m-%d %H:%M:%S UTC")


def minute(time: float, zone: bool = True) -> str:
    """Format a Unix time to the minute; `zone=False` omits the zone if the column's heading has it.

    >>> minute(835823160.0), minute(835823160.0, zone=False)
    ('1996-06-26 21:06 UTC', '1996-06-26 21:06')
    """
    return _clock(time, "%Y-%m-%d %H:%M UTC" if zone else "%Y-%m-%d %H:%M")


def span(seconds: float | None) -> str:
    """Format a duration; a dash if it is None.

    >>> span(7200.0), span(5430.0), span(None)
    ('2h', '1h31m', '–')
    """
    return "–" if seconds is None else duration(seconds)


def _clock(time: float, form: str) -> str:
    try:
        return f"{datetime.fromtimestamp(time, UTC):{form}}"
    except (OverflowError, ValueError, OSError):  # not a date that can be written
        return f"{time:g}"


def show_accuracy(rows: Mapping[str, Mapping[str, float]], title: str = "") -> None:
    """Print a table of accuracy: the values by measure, a line for each method; `title` heads the methods' column."""
    names = list(dict.fromkeys(name for row in rows.values() for name in row))
    order = [name for name in COMMON_MEASURES if name in names]
    order += [name for name in names if name not in COMMON_MEASURES]
    if rows:
        lines = [[method, *(_number(name, row.get(name)) for name in order)] for method, row in rows.items()]
        show_table([title, *(IN_HOURS.get(name, name.replace("_", " ")) for name in order)], lines)


def columns() -> int:
    """Return the width of the terminal in columns, the limit of tables."""
    return get_terminal_size((DEFAULT_COLUMNS, 0)).columns


_ERRORS, _SHARES = ("AAE", "median_min", "MAE_min", "share"), ("PPE", "PPE600", "PPE1200", "x2", "x3", "1min", "10min")
COMMON_MEASURES = (*_ERRORS, *_SHARES, "missing", "jobs")
"""The measures that methods have in common, in the order of their columns. Other measures follow them."""

IN_HOURS = {"AAE": "AAE h", "median_min": "median h", "MAE_min": "AAE h"}
"""The errors, and the headings of their columns."""


def _number(name: str, value: float | None) -> str:
    if value is None:
        return ""
    if name in ("missing", "jobs"):
        return f"{value:d}"
    return f"{value / 60 if name.endswith('_min') else value:.3f}"


def show_table(heads: Sequence[str], lines: Iterable[Sequence[str]]) -> None:
    """Print a table; the first column is left-aligned, the others are right-aligned.

    A table wider than the terminal is split into several, each with the first column.
    """
    cells = [[printable(cell) for cell in line] for line in (heads, *lines)]
    widths = [max(map(_width, column)) for column in zip(*cells, strict=True)]
    for first, last in _parts([width + GAP for width in widths], columns() + GAP):
        places = [0, *range(first, last)]
        shown = [[_padded(line[at], widths[at], at > 0) for at in places] for line in cells]
        rule = "─" * sum(widths[at] + GAP for at in places)
        text = [(" " * GAP).join(line).rstrip() for line in shown]
        sys.stdout.write("\n".join((text[0], rule[GAP:], *text[1:])) + "\n")


def show_line(text: str) -> None:
    """Print one of many lines: wrapped to a terminal's width, unwrapped if the output is not a terminal."""
    if sys.stdout.isatty():
        show_wrapped(text)
    else:
        sys.stdout.write(f"{printable(text)}\n")
    sys.stdout.flush()


def show_wrapped(text: str) -> None:
    """Print a text, wrapped to the terminal's width."""
    whole = TextWrapper(columns(), subsequent_indent="  ", break_on_hyphens=False)
    sys.stdout.write(whole.fill(printable(text)) + "\n")


def show_listed(head: str, lines: Iterable[tuple[str, str]]) -> None:
    """Print texts under a heading, as `show_named`; nothing if there are none."""
    found = list(lines)
    if found:
        sys.stdout.write(f"\n{head}:\n")
        show_named(found)


def show_named(lines: Iterable[tuple[str, str]]) -> None:
    """Print texts with their names, wrapped to the terminal's width."""
    found = [(printable(name), printable(text)) for name, text in lines]
    room = columns()
    names = min(max((_width(name) for name, _ in found), default=0), room // 3)
    for name, text in found:
        begin = f"  {_padded(name, names, False)}  "
        whole = TextWrapper(room, initial_indent=begin, subsequent_indent=" " * (names + 4), break_on_hyphens=False)
        sys.stdout.write(whole.fill(text) + "\n")


def _width(text: str) -> int:
    return len(text) if text.isascii() else sum(2 if east_asian_width(one) in "WF" else 1 for one in text)


def _padded(text: str, width: int, right: bool) -> str:
    room = " " * (width - _width(text))
    return room + text if right else text + room


def _parts(widths: Sequence[int], room: int) -> Iterator[tuple[int, int]]:
    """Return the ranges of columns for each table that fit next to the first column."""
    first, used = 1, widths[0]
    for place in range(1, len(widths)):
        if used + widths[place] > room and place > first:
            yield first, place
            first, used = place, widths[0]
        used += widths[place]
    yield first, len(widths)
