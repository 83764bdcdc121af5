"""The demo's table at the end: the measures of each method at each site."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from deploy.local.demo.progress import DemoProgress
from deploy.local.demo.scenario import DAY_S
from streams.text.terminal import printable


class ReportColumn(NamedTuple):
    """A measure in the table: the head of its column, its decimals, and whether more of it is better."""

    head: str
    decimals: int
    more: bool = False


REPORT_COLUMNS = {
    "AAE": ReportColumn("AAE h", 3),
    "median_min": ReportColumn("median min", 1),
    "PPE600": ReportColumn("PPE600", 3),
    "x2": ReportColumn("x2", 3, more=True),
    "10min": ReportColumn("10min", 3, more=True),
}

LEGEND = (
    "AAE, median: mean and median error of the predicted wait. PPE600: that error as a share of the response time, at "
    "least 600 s. x2, 10min: share of jobs predicted within a factor of 2 (waits floored at 60 s) and within 10 "
    "minutes. in 90 %: share of jobs that waited no longer than the 90 % bound, where a method gives one."
)


def report(console: Console, progress: DemoProgress) -> None:
    """Print the measures of each method at each site, and where the method that counts won and lost."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("", max_width=20, overflow="fold")
    for head in ("jobs", *(figure.head for figure in REPORT_COLUMNS.values()), "in 90 %"):
        table.add_column(Text(head), justify="right", no_wrap=True)
    verdicts: dict[str, list[str]] = {"+": [], "=": [], "-": []}
    for name, site in progress.sites.items():
        rows = site.scores.rows()
        marks = compared(rows, progress.method)
        for measure, mark in marks.items():
            verdicts[mark].append(f"{name} {REPORT_COLUMNS[measure].head}")
        table.add_row(Text(printable(name), "bold"))
        for method, row in rows.items():
            ours = method == progress.method
            table.add_row(f"  {method}", *_cells(row, marks if ours else {}), style="bold" if ours else "")
        table.add_section()
    console.print(table)
    console.print(_summary(progress, verdicts))


def _cells(row: Mapping[str, float], marks: Mapping[str, str]) -> Iterator[str]:
    yield f"{row['jobs']:d}"
    for name, figure in REPORT_COLUMNS.items():
        yield f"{row[name]:.{figure.decimals}f}{marks.get(name, ' ')}"
    yield f"{row['cov_0.9']:.3f}" if "cov_0.9" in row else ""


def compared(rows: Mapping[str, Mapping[str, float]], method: str) -> dict[str, str]:
    """A method's figures against the best of the others', as printed: + better, = even, - worse."""
    others = [row for name, row in rows.items() if name != method]
    if method not in rows or not others:
        return {}
    marks = {}
    for name, (_, decimals, more) in REPORT_COLUMNS.items():
        ours, *theirs = (round(row[name] if more else -row[name], decimals) for row in (rows[method], *others))
        marks[name] = "=" if ours == max(theirs) else "+" if ours > max(theirs) else "-"
    return marks


def _summary(progress: DemoProgress, verdicts: Mapping[str, list[str]]) -> str:
    first = int((progress.scenario.measured_from - progress.scenario.begin) / DAY_S) + 1
    won, even, lost = (verdicts[mark] for mark in "+=-")
    total = len(won) + len(even) + len(lost)
    measured = f"Measured: jobs submitted from day {first} on; those before filled the history."
    if progress.predicted < progress.scenario.jobs:
        measured += f" This machine was slow, so {progress.predicted} of {progress.scenario.jobs} jobs were played."
    lines = [
        measured,
        LEGEND,
        f"{progress.method} against the best of the others (+ better, = even, - worse): "
        f"of {total} figures {len(won)} won, {len(even)} even, {len(lost)} lost{':' if lost else '.'}",
    ]
    if lost:
        lines.append("lost: " + ", ".join(map(printable, lost)))
    return "\n".join(lines)
