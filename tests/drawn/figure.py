"""Draw a dashboard as one picture, with the panel layout of Grafana."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

from matplotlib import colormaps
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from models.durations import duration
from streams.text.quantities import size_text
from tests.drawn.queries import PanelAnswers, Series

COLUMNS = 24
"""Columns of Grafana's grid."""

WIDTH_IN, UNIT_IN, TITLE_IN = 20.0, 0.36, 0.6
"""Width of the picture, height of a unit of Grafana's grid, and height of the dashboard's title (inches)."""

LEFT_IN, RIGHT_IN, TOP_IN, LEGEND_LINE_IN = 0.62, 0.15, 0.38, 0.17
"""Margins of a panel left, right and above its axes, and height of a legend line (inches)."""

LETTER_IN = 0.085
"""Width of a letter at an axis (inches)."""

MAX_LEGEND = 6
"""Maximum lines of a legend; the number of further series is printed below."""

MAX_ROWS = 13
"""Maximum rows of a table; the number of further rows is printed below."""

DOTS_PER_INCH = 80

STEPS_S = (1, 2, 5, 15, 30, 60, 300, 600, 1800, 3600, 7200, 14_400, 21_600, 43_200, 86_400, 172_800, 604_800)
"""Distances between ticks of durations."""


def draw(panels: Sequence[PanelAnswers], path: Path, title: str) -> None:
    """Draw a dashboard to a PNG."""
    places = [panel.panel["gridPos"] for panel in panels]
    height = TITLE_IN + UNIT_IN * max(place.get("y", 0) + place["h"] for place in places)
    figure = Figure(figsize=(WIDTH_IN, height), dpi=DOTS_PER_INCH, facecolor="#f4f5f5")
    FigureCanvasAgg(figure)
    figure.text(0.01, 1 - 0.35 / height, title, fontsize=15, weight="bold")
    for panel, place in zip(panels, places, strict=True):
        left = place.get("x", 0) / COLUMNS * WIDTH_IN
        top = height - TITLE_IN - place.get("y", 0) * UNIT_IN
        if panel.kind == "row":
            figure.text((left + 0.15) / WIDTH_IN, (top - 0.26) / height, panel.title, fontsize=12, weight="bold")
            continue
        _draw_panel(figure, panel, (left, top, place["w"] / COLUMNS * WIDTH_IN, place["h"] * UNIT_IN))
    figure.savefig(path)


def _draw_panel(figure: Figure, panel: PanelAnswers, box: tuple[float, float, float, float]) -> None:
    """Draw a panel into its box: left, top, width and height (inches)."""
    left, top, width, height = box
    frame = _axes(figure, left + 0.05, top - height + 0.05, width - 0.1, height - 0.1)
    frame.set_xticks([])
    frame.set_yticks([])
    for side in frame.spines.values():
        side.set_color("#d8d9da")
    figure.text((left + 0.16) / WIDTH_IN, (top - 0.28) / figure.get_figheight(), panel.title, fontsize=10)
    series = [one for answer in panel.answers for one in answer]
    if not series:
        frame.text(0.5, 0.45, "no data", ha="center", color="#888888", fontsize=12, transform=frame.transAxes)
        return
    legend_in = LEGEND_LINE_IN * (min(len(series), MAX_LEGEND + 1) + 1) + 0.4 if panel.kind == "timeseries" else 0.1
    left_in = _left_in(panel, series)
    inner = (left + left_in, top - height + legend_in, width - left_in - RIGHT_IN, height - TOP_IN - legend_in)
    _KINDS[panel.kind](_axes(figure, *inner), panel, series)


def _left_in(panel: PanelAnswers, series: Sequence[Series]) -> float:
    """Return the left margin of a panel (inches), wide enough for the names at the axis."""
    if panel.kind == "bargauge":
        return 0.3 + 0.075 * max(len(one.legend) for one in series)
    return LEFT_IN if panel.kind == "timeseries" else RIGHT_IN


def _axes(figure: Figure, left: float, bottom: float, width: float, height: float) -> Any:
    whole = figure.get_figheight()
    return figure.add_axes((left / WIDTH_IN, bottom / whole, width / WIDTH_IN, height / whole))


def _lines(axes: Any, panel: PanelAnswers, series: Sequence[Series]) -> None:
    custom = panel.panel["fieldConfig"]["defaults"].get("custom", {})
    stacked = custom.get("stacking", {}).get("mode") == "normal"
    begin = min(one.times[0] for one in series)
    if custom.get("drawStyle") == "bars" or stacked:
        _stack(axes, series, begin, custom.get("drawStyle") == "bars")
    else:
        for one in series:
            style = "--" if one.legend.startswith("nominal") else "-"
            axes.plot([time - begin for time in one.times], one.values, style, lw=1.3, color=_color(one.legend))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: shown(value, _unit(panel))))
    axes.yaxis.set_major_locator(MaxNLocator(5))
    if _unit(panel) == "s" and (most := max(max(one.values) for one in series)) >= 2:
        axes.set_yticks(marks(most))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{int(value) // 60}:{int(value) % 60:02}"))
    least, most = min(min(one.values) for one in series), axes.get_ylim()[1]
    axes.set_ylim(min(0.0, axes.get_ylim()[0]) if least < 0 else 0.0, most if axes.dataLim.y1 else 1.0)
    axes.tick_params(labelsize=8)
    axes.grid(color="#e6e6e6", lw=0.6)
    _make_room(axes, [shown(value, _unit(panel)) for value in axes.get_yticks()])
    _legend(axes, panel, series)


def marks(most: float) -> list[float]:
    """Return round durations (s) from 0 to the largest."""
    step = next((step for step in STEPS_S if most / step <= 5), most / 5)
    return [step * number for number in range(int(most / step) + 1)]


def _make_room(axes: Any, marks: Sequence[str]) -> None:
    """Move the left side of the axes so that the tick labels are inside the panel."""
    more = max(0.15 + LETTER_IN * max(map(len, marks)) - LEFT_IN, 0.0) / WIDTH_IN
    place = axes.get_position()
    axes.set_position((place.x0 + more, place.y0, place.width - more, place.height))


def _stack(axes: Any, series: Sequence[Series], begin: float, as_bars: bool) -> None:
    times = sorted({time for one in series for time in one.times})
    below = [0.0] * len(times)
    seconds = [time - begin for time in times]
    width = (seconds[-1] - seconds[0]) / max(len(seconds) - 1, 1) or 1.0
    for one in series:
        known = dict(zip(one.times, one.values, strict=True))
        values = [known.get(time, 0.0) for time in times]
        above = [low + value for low, value in zip(below, values, strict=True)]
        if as_bars:
            axes.bar(seconds, values, width, below, color=_color(one.legend))
        else:
            axes.fill_between(seconds, below, above, color=_color(one.legend), alpha=0.4, lw=0)
            axes.plot(seconds, above, lw=1, color=_color(one.legend))
        below = above


def _legend(axes: Any, panel: PanelAnswers, series: Sequence[Series]) -> None:
    """Draw the names with the last and the largest value below the plot, like Grafana."""
    size = axes.get_position().height * axes.figure.get_figheight()
    for place, head in ((0.8, "last"), (1.0, "max")):
        down = -0.36 / size
        axes.text(place, down, head, transform=axes.transAxes, fontsize=8, color="#666666", va="center", ha="right")
    for number, one in enumerate(series[: MAX_LEGEND + 1], 1):
        down = -(0.36 + LEGEND_LINE_IN * number) / size
        if number > MAX_LEGEND:
            more = f"… {len(series) - MAX_LEGEND} more"
            axes.text(0.02, down, more, transform=axes.transAxes, fontsize=8, color="#666666", va="center")
            return
        last, most = (shown(value, _unit(panel)) for value in (one.values[-1], max(one.values)))
        axes.plot([0, 0.012], [down, down], lw=2, color=_color(one.legend), transform=axes.transAxes, clip_on=False)
        axes.text(0.02, down, one.legend or "(no name)", transform=axes.transAxes, fontsize=8, va="center")
        axes.text(0.8, down, last, transform=axes.transAxes, fontsize=8, va="center", ha="right")
        axes.text(1.0, down, most, transform=axes.transAxes, fontsize=8, va="center", ha="right")


def _stats(axes: Any, panel: PanelAnswers, series: Sequence[Series]) -> None:
    axes.axis("off")
    for number, one in enumerate(series):
        middle = (number + 0.5) / len(series)
        value = one.values[-1]
        color = "#1a7f37" if _unit(panel) != "bool_on_off" or value >= 1 else "#cf222e"
        text = shown(value, _unit(panel))
        axes.text(middle, 0.55, text, ha="center", va="center", fontsize=24, color=color, transform=axes.transAxes)
        axes.text(middle, 0.12, one.legend, ha="center", fontsize=8, transform=axes.transAxes)


def _bars(axes: Any, panel: PanelAnswers, series: Sequence[Series]) -> None:
    if str(panel.panel["targets"][0]["expr"]).startswith("sort_desc"):  # Prometheus does not sort range queries
        series = sorted(series, key=lambda one: -one.values[-1])
    values = [one.values[-1] for one in series]
    axes.barh(range(len(series)), values, color=[_color(one.legend) for one in series], height=0.6)
    axes.set_yticks(range(len(series)), [one.legend for one in series], fontsize=8)
    axes.invert_yaxis()
    axes.set_xlim(0, max([*values, 1e-9]) * 1.25)
    for number, value in enumerate(values):
        axes.text(value, number, f"  {shown(value, _unit(panel))}", va="center", fontsize=9)
    axes.xaxis.set_visible(False)
    for side in ("top", "right", "bottom"):
        axes.spines[side].set_visible(False)


def _table(axes: Any, panel: PanelAnswers, _: Sequence[Series]) -> None:
    """Draw a row for each set of labels, and a column for each label and each visible query."""
    axes.axis("off")
    organize = panel.panel["transformations"][-1]["options"]
    places, hidden = organize.get("indexByName", {}), organize["excludeByName"]
    units = {
        change["matcher"]["options"]: one["value"]
        for change in panel.panel["fieldConfig"]["overrides"]
        for one in change["properties"]
        if one["id"] == "unit"
    }
    rows: dict[tuple[tuple[str, str], ...], dict[str, str]] = {}
    for target, answer in zip(panel.panel["targets"], panel.answers, strict=True):
        name = target["legendFormat"]
        for one in answer:
            row = rows.setdefault(tuple(sorted(one.labels.items())), {})
            row |= {} if "Value" in hidden else {name: shown(one.values[-1], units.get(name, "short"))}
    heads = sorted({label for labels in rows for label, _ in labels}, key=lambda label: places.get(label, 0))
    columns = [] if "Value" in hidden else [target["legendFormat"] for target in panel.panel["targets"]]
    cells = [
        [*(dict(labels).get(head, "") for head in heads), *(row.get(name, "–") for name in columns)]
        for labels, row in sorted(rows.items())
    ]
    some = cells[:MAX_ROWS]
    table = axes.table(
        some,
        colLabels=[*heads, *columns],
        bbox=(0, 1 - (len(some) + 1) * 0.065, 1, (len(some) + 1) * 0.065),
        cellLoc="left",
        colLoc="left",
        edges="horizontal",
    )
    table.auto_set_font_size(False)
    table.set_fontsize(8)
    for cell in table.get_celld().values():
        cell.set_edgecolor("#e6e6e6")
    if len(cells) > len(some):
        axes.text(0, 0, f"… {len(cells) - len(some)} more", fontsize=8, color="#666666", transform=axes.transAxes)


_KINDS: dict[str, Callable[[Any, PanelAnswers, Sequence[Series]], None]] = {
    "timeseries": _lines,
    "stat": _stats,
    "bargauge": _bars,
    "table": _table,
}


def _unit(panel: PanelAnswers) -> str:
    return str(panel.panel["fieldConfig"]["defaults"]["unit"])


def shown(value: float, unit: str) -> str:
    """Return a value with its unit, similar to Grafana.

    >>> [shown(90.0, "s"), shown(0.004, "s"), shown(0.25, "percentunit"), shown(24.7, "percentunit")]
    ['1m30s', '4 ms', '25 %', '2,470 %']
    """
    if unit == "s":
        return f"{value * 1000:.3g} ms" if 0 < abs(value) < 1 else f"{'-' if value < 0 else ''}{duration(abs(value))}"
    if unit == "percentunit":
        return f"{value * 100:,.0f} %" if abs(value) >= 10 else f"{value * 100:.3g} %"
    if unit == "bytes":
        return size_text(round(value))
    if unit == "bool_on_off":
        return "on" if value else "off"
    ending = " req/s" if unit == "reqps" else unit.removeprefix("suffix:") if unit.startswith("suffix:") else ""
    return f"{value:,.0f}{ending}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}{ending}"


def _color(name: str) -> Any:
    """Return the color of a name, the same in each panel."""
    return colormaps["tab20"](crc32(name.encode()) % 20)
