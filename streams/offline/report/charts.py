"""What a page draws: bars as HTML, lines as SVG. The page's style has their colours, which suit light and dark."""

from collections.abc import Sequence
from html import escape
from math import ceil

import msgspec

from models.durations import duration

WIDTH, HEIGHT = 720, 260
LEFT, RIGHT, TOP, BOTTOM = 64, 40, 12, 44

STEPS_S = (60, 300, 900, 1800, 3600, 7200, 4 * 3600, 6 * 3600, 12 * 3600, 86_400, 2 * 86_400, 7 * 86_400, 28 * 86_400)
"""How far apart the marks of an axis are: by one of these."""


class Series(msgspec.Struct, frozen=True):
    """Values of one kind, in seconds, None where there is none; `kind` is its class in the page's style."""

    name: str
    kind: str
    values: Sequence[float | None]


def bar(kind: str, share: float, text: str, hint: str = "") -> str:
    """A bar, as long as its share of the longest, with a text at its end; `kind` is its class in the page's style."""
    return f'<div title="{escape(hint)}"><i class="{kind}" style="--share:{share:.3f}"></i>{escape(text)}</div>'


def lines(names: Sequence[str], series: Sequence[Series], title: str) -> str:
    """Durations one after the other, as lines from zero; every few names are written below."""
    largest = max((value for one in series for value in one.values if value is not None), default=0.0) or 1.0
    bottom, step = HEIGHT - BOTTOM, (WIDTH - LEFT - RIGHT) / max(len(names) - 1, 1)

    def y_of(value: float) -> float:
        return bottom - value / largest * (bottom - TOP)

    parts = []
    apart = next((apart for apart in STEPS_S if largest / apart <= 5), largest)
    for mark in range(1, int(largest / apart) + 1):
        y = y_of(apart * mark)
        parts.append(f'<line class="axis" x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}"/>')
        parts.append(_text(LEFT - 8, y + 4, duration(apart * mark), "end"))
    every = ceil(len(names) / 8)
    parts += [_text(LEFT + place * step, bottom + 20, names[place], "middle") for place in range(0, len(names), every)]
    for one in series:
        known = ((place, value) for place, value in enumerate(one.values) if value is not None)
        points = " ".join(f"{LEFT + place * step:.1f},{y_of(value):.1f}" for place, value in known)
        label = f"<title>{escape(one.name)}</title>"
        parts.append(f'<polyline class="line {one.kind}" points="{points}">{label}</polyline>')
    head = f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" role="img" aria-label="{escape(title)}">'
    return f"{head}{''.join(parts)}</svg>"


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
