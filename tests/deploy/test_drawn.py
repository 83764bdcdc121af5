"""Dashboards as images: panels of all kinds are drawn, with and without data."""

from pathlib import Path
from typing import Any

import pytest

from models.durations import duration
from tests.drawn import queries
from tests.drawn.queries import PanelAnswers, Series, answered
from tests.support.dashboards import FILES, loaded

pytest.importorskip("matplotlib")

LABELS = {"site": "alder", "method": "blend", "instance": "a:1", "role": "wait", "reason": "x", "bound": "0.9"}


@pytest.fixture
def prometheus(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, object]]:
    """Record the queries to a Prometheus that answers each query alike."""
    questions: list[dict[str, object]] = []

    def answer(_: object, page: str, **query: object) -> list[dict[str, Any]]:
        questions.append(query)
        if "skipped" in str(query["query"]):
            return []
        points = [[1000.0 + step, str(value)] for step, value in enumerate((0.5, "NaN", 0.75))]
        return [{"metric": LABELS, "values": points}, {"metric": LABELS | {"site": "birch"}, "values": points}]

    monkeypatch.setattr(queries, "_query", answer)
    return questions


@pytest.mark.long
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_dashboard_panels_are_drawn(file: Path, prometheus: list[dict[str, object]], tmp_path: Path) -> None:
    from tests.drawn.figure import draw

    panels = answered(None, loaded(file), 1000.0, 1060.0)
    draw(panels, tmp_path / "it.png", file.stem)
    assert (tmp_path / "it.png").read_bytes().startswith(b"\x89PNG")
    assert prometheus and not [query for query in prometheus if "$" in str(query["query"])]


def test_drawn_line_is_named_by_labels_and_has_only_numbers(prometheus: list[object]) -> None:
    panels = answered(None, loaded(FILES[0]), 1000.0, 1060.0)
    (gain,) = [panel for panel in panels if panel.title.startswith("Gain")]
    assert [one.legend for one in gain.answers[0]] == ["alder blend", "birch blend"]
    assert gain.answers[0][0].times == [1000.0, 1002.0]


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (90.0, "s", "1m30s"),
        (-90.0, "s", "-1m30s"),
        (0.004, "s", "4 ms"),
        (0.25, "percentunit", "25 %"),
        (24.7, "percentunit", "2,470 %"),
        (1200.0, "suffix: events/s", "1,200 events/s"),
        (0.0, "bool_on_off", "off"),
        (2.5, "short", "2.5"),
    ],
)
def test_drawn_value_is_formatted_with_unit(value: float, unit: str, text: str) -> None:
    from tests.drawn.figure import shown

    assert shown(value, unit) == text


def test_duration_ticks_are_round_and_each_name_has_one_color() -> None:
    from tests.drawn.figure import _color, marks

    assert [duration(mark) for mark in marks(32_000.0)] == ["0s", "2h", "4h", "6h", "8h"]
    assert [duration(mark) for mark in marks(4.2)] == ["0s", "1s", "2s", "3s", "4s"]
    assert _color("blend") == _color("blend") != _color("zero")


@pytest.mark.parametrize("value", [0.0, 0.5, 98765.0])
def test_axis_labels_are_within_panel(value: float) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    from tests.drawn import figure

    for unit in ("suffix: events/s", "percentunit", "s", "bytes"):
        panel = PanelAnswers({"type": "timeseries", "fieldConfig": {"defaults": {"unit": unit}}, "title": "x"}, [])
        whole = Figure(figsize=(figure.WIDTH_IN, 4), dpi=figure.DOTS_PER_INCH)
        canvas = FigureCanvasAgg(whole)
        axes = figure._axes(whole, figure.LEFT_IN, 2, 4, 1)
        figure._lines(axes, panel, [Series("a", {}, [0.0, 1.0, 2.0], [value, value / 2, value])])
        canvas.draw()
        assert min(mark.get_window_extent().x0 for mark in axes.get_yticklabels()) >= 0
        assert axes.get_ylim()[0] == 0.0
