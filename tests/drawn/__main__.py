"""Play the grid and draw the dashboards; print the panels without expected data, and exit with 1 if there are any."""

import sys
from pathlib import Path

from tests.drawn.figure import draw
from tests.drawn.play import played
from tests.drawn.queries import PanelAnswers, answered
from tests.support.dashboards import FILES, loaded

NEVER = {"Lag of sources", "Call duration", "Failed calls", "Actual wait by account"}
"""Panels without data in the demo: its source reads a file, so it has no calls and no lag; its jobs have no
accounts."""


def main(directory: Path, seconds: float, jobs: int) -> int:
    """Draw all dashboards into a directory."""
    directory.mkdir(parents=True, exist_ok=True)
    empty: list[str] = []
    with played(seconds, jobs) as (prometheus, begin, end):
        for file in FILES:
            found = answered(prometheus, loaded(file), begin, end)
            draw(found, directory / f"{file.stem}.png", f"queuecast: {file.stem}")
            empty += [f"{file.stem}: {panel.title}" for panel in found if _is_empty(panel)]
    for panel in empty:
        sys.stdout.write(f"no data: {panel}\n")
    return int(bool(empty))


def _is_empty(panel: PanelAnswers) -> bool:
    return panel.kind != "row" and panel.title not in NEVER and not any(panel.answers)


if __name__ == "__main__":
    given = dict(enumerate(sys.argv[1:]))
    sys.exit(main(Path(given.get(0, "drawn")), float(given.get(1, 90)), int(given.get(2, 6000))))
