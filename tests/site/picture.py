"""Draw boxes and arrows from a text: `python -m tests.site.picture` makes docs/images/architecture.svg of its .txt."""

import re
from html import escape
from pathlib import Path
from typing import NamedTuple

TEXT = Path(__file__).parents[2] / "docs" / "images" / "architecture.txt"
WIDTH, HEIGHT, ACROSS, DOWN, EDGE = 190, 62, 90, 88, 12

STYLE = """
text { font: 13px system-ui, sans-serif; fill: #1c2330; text-anchor: middle; } .title { font-weight: 600; }
.soft { font-size: 11px; fill: #5b6675; } rect { fill: #eef5f5; stroke: #0f6068; } path { stroke: #5b6675; fill: none; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6e9ee; } .soft { fill: #9aa5b4; } rect { fill: #16282b; stroke: #6cced0; }
}
"""


class Box(NamedTuple):
    """A box: its center and its text."""

    x: float
    y: float
    title: str
    text: str


def picture(text: str) -> str:
    """Return the picture as SVG; it follows the light or dark mode of the browser.

    Raises:
        ValueError: a line is neither a box nor an arrow, or the box of an arrow is missing.
    """
    boxes: dict[str, Box] = {}
    arrows: list[str] = []
    for line in filter(None, (line.partition("#")[0].strip() for line in text.splitlines())):
        if found := re.fullmatch(r"(\w+) (\d+) (\d+): (.+?) / (.+)", line):
            name, column, row, title, about = found.groups()
            x, y = EDGE + int(column) * (WIDTH + ACROSS) + WIDTH / 2, EDGE + int(row) * (HEIGHT + DOWN) + HEIGHT / 2
            boxes[name] = Box(x, y, title, about)
        elif (found := re.fullmatch(r"(\w+) -> (\w+): (.+)", line)) and {found[1], found[2]} <= boxes.keys():
            arrows.append(_arrow(boxes[found[1]], boxes[found[2]], found[3]))
        else:
            raise ValueError(f"neither a box nor an arrow between boxes: {line}")
    wide = max(box.x for box in boxes.values()) + WIDTH / 2 + EDGE
    high = max(box.y for box in boxes.values()) + HEIGHT / 2 + EDGE
    size = f"{wide:.0f} {high:.0f}"
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}" role="img"><title>How queuecast works</title>'
        f'<style>{STYLE}</style><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" '
        'orient="auto"><path d="M0 0 8 4 0 8"/></marker>'
    )
    return "\n".join([head, *arrows, *map(_drawn, boxes.values()), "</svg>\n"])


def _drawn(box: Box) -> str:
    return (
        f'<rect x="{box.x - WIDTH / 2:g}" y="{box.y - HEIGHT / 2:g}" width="{WIDTH}" height="{HEIGHT}" rx="8"/>'
        f'<text class="title" x="{box.x:g}" y="{box.y - 4:g}">{escape(box.title)}</text>'
        f'<text class="soft" x="{box.x:g}" y="{box.y + 15:g}">{escape(box.text)}</text>'
    )


def _arrow(a: Box, b: Box, what: str) -> str:
    """Draw an arrow between box edges: horizontal for boxes side by side, else vertical."""
    side = (b.x > a.x) - (b.x < a.x)
    down = (b.y > a.y) - (b.y < a.y)
    reach = WIDTH / 2 if side else 0.0, HEIGHT / 2 if down and not side else 0.0
    begin = a.x + side * reach[0], a.y + down * reach[1]
    end = b.x - side * reach[0], b.y - down * reach[1]
    middle = (begin[0] + end[0]) / 2, (begin[1] + end[1]) / 2
    place = f'x="{middle[0] + (0 if side else 54):g}" y="{middle[1] - (7 if side else -4):g}"'
    line = f"M{begin[0]:g} {begin[1]:g} {end[0]:g} {end[1]:g}"
    return f'<path d="{line}" marker-end="url(#tip)"/><text class="soft" {place}>{escape(what)}</text>'


if __name__ == "__main__":
    TEXT.with_suffix(".svg").write_text(picture(TEXT.read_text(encoding="utf-8")), encoding="utf-8")
