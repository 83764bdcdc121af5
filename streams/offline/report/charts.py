"""Charts as SVG, and bars as HTML, inside a page: its style has their colours, which suit light and dark."""

from collections.abc import Sequence
from html import escape
from math import ceil, floor, log10

import msgspec

from models.durations import duration

WIDTH = 720
LEFT, RIGHT, TOP, BOTTOM = 64, 40, 12, 44

LOG_FLOOR_S = 10.0
"""What a logarithmic axis begins with, seconds."""


class Series(msgspec.Struct, frozen=True):
    """Values of one kind, in seconds, None where there is none; `kind` is its class in the page's style."""

    name: str
    kind: str
    values: Sequence[float | None]


def bar(one: Series, row: int, largest: float, kind: str = "") -> str:
    """A value of the series as a bar in HTML, whose length is its share of the largest; `kind` as in `Series`."""
    value = one.values[row]
    if value is None:
        return ""
    hint = escape(f"{one.name}: {duration(value)}")
    style = f"--share:{value / (largest or 1.0):.3f}"
    return f'<div title="{hint}"><i class="{kind or one.kind}" style="{style}"></i>{duration(value)}</div>'


def largest_of(series: Sequence[Series]) -> float:
    """The largest value of all."""
    return max((value for one in series for value in one.values if value is not None), default=0.0)


def dots(names: Sequence[str], series: Sequence[Series], title: str) -> str:
    """Durations by class on a logarithmic axis: a dot for each class and series."""
    values = [value for one in series for value in one.values if value is not None and value > 0]
    low = log10(max(min(values, default=LOG_FLOOR_S), LOG_FLOOR_S))
    high = max(log10(max(values, default=3600.0)), low + 0.5)
    height, step = 280, (WIDTH - LEFT - RIGHT) / max(len(names), 1)

    def y_of(value: float) -> float:
        share = (log10(max(value, LOG_FLOOR_S)) - low) / (high - low)
        return height - BOTTOM - share * (height - BOTTOM - TOP - 10)

    ticks = [tick for tick in (10, 60, 600, 3600, 6 * 3600, 86_400, 7 * 86_400) if low - 0.05 <= log10(tick) <= high]
    parts = [_rule(y_of(tick), duration(tick)) for tick in ticks]
    for column, name in enumerate(names):
        middle = LEFT + (column + 0.5) * step
        parts.append(_text(middle, height - BOTTOM + 20, name, "middle"))
        for place, one in enumerate(series):
            value = one.values[column]
            if value is not None:
                x, y = middle + (place - (len(series) - 1) / 2) * 12, y_of(value)
                parts.append(_dot(one.kind, x, y, f"{name}, {one.name}: {duration(value)}"))
    return _svg(height, title, parts)


def lines(names: Sequence[str], series: Sequence[Series], title: str) -> str:
    """Durations one after the other, as lines from zero; every few names are written below."""
    largest = largest_of(series) or 1.0
    height, step = 260, (WIDTH - LEFT - RIGHT) / max(len(names) - 1, 1)

    def y_of(value: float) -> float:
        return height - BOTTOM - value / largest * (height - BOTTOM - TOP)

    parts = [_rule(y_of(tick), duration(tick)) for tick in _ticks(largest)]
    every = ceil(len(names) / 8)
    parts += [
        _text(LEFT + place * step, height - BOTTOM + 20, name, "middle")
        for place, name in enumerate(names)
        if place % every == 0
    ]
    for one in series:
        points = [
            f"{LEFT + place * step:.1f},{y_of(value):.1f}"
            for place, value in enumerate(one.values)
            if value is not None
        ]
        label = f"<title>{escape(one.name)}</title>"
        parts.append(f'<polyline class="line {one.kind}" points="{" ".join(points)}">{label}</polyline>')
    return _svg(height, title, parts)


def coverage(points: Sequence[tuple[float, float]], title: str) -> str:
    """The shares of jobs that started within their bounds against the promised ones; the diagonal is as promised."""
    size = 280

    def place(share: float) -> float:
        return share * (size - TOP - BOTTOM)

    parts = []
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        y = size - BOTTOM - place(share)
        parts.append(_text(LEFT - 8, y + 4, f"{100 * share:.0f} %", "end"))
        parts.append(_text(LEFT + place(share), size - BOTTOM + 20, f"{100 * share:.0f} %", "middle"))
    corner = LEFT + place(1.0)
    parts.append(f'<rect class="frame" x="{LEFT}" y="{TOP}" width="{place(1.0):.1f}" height="{place(1.0):.1f}"/>')
    parts.append(f'<line class="axis" x1="{LEFT}" y1="{size - BOTTOM}" x2="{corner:.1f}" y2="{TOP}"/>')
    for promised, held in points:
        x, y = LEFT + place(promised), size - BOTTOM - place(held)
        parts.append(_dot("ours", x, y, f"promised {100 * promised:.0f} %, {100 * held:.1f} % were"))
        parts.append(_text(x + 9, y + 14, f"{100 * held:.0f} %", "start"))
    return _svg(size, title, parts, size + 40)


def _ticks(largest: float) -> list[float]:
    """Some four round durations up to the largest."""
    for unit in (60, 300, 900, 1800, 3600, 7200, 4 * 3600, 6 * 3600, 12 * 3600, 86_400, 2 * 86_400, 7 * 86_400):
        if largest / unit <= 5:
            return [unit * count for count in range(1, floor(largest / unit) + 1)]
    unit = 10 ** floor(log10(largest))
    return [float(unit * count) for count in range(1, floor(largest / unit) + 1)]


def _rule(y: float, name: str) -> str:
    """A line across the chart, with what it stands for."""
    return f'<line class="axis" x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}"/>' + _text(
        LEFT - 8, y + 4, name, "end"
    )


def _dot(kind: str, x: float, y: float, hint: str) -> str:
    return f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="5"><title>{escape(hint)}</title></circle>'


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _svg(height: float, title: str, parts: Sequence[str], width: float = WIDTH) -> str:
    head = f'<svg viewBox="0 0 {width} {height:.0f}" width="{width}" role="img" aria-label="{escape(title)}">'
    return f"{head}{''.join(parts)}</svg>"
