"""The report as a self-contained HTML page, with a light and a dark style."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from math import ceil
from pathlib import Path

import msgspec

from models.durations import WEEK_S, duration
from streams.bulk.event_log import EventLog
from streams.bulk.reading import Report
from streams.offline.breakdown import WAIT_NAMES, Breakdown, GroupScores
from streams.offline.output_files import save
from streams.offline.report.findings import RULES, better_rule, findings, headline, verdict
from streams.offline.waiting_scores import WaitingCounts, notice_sentences
from streams.text.terminal import minute, printable

WIDTH, HEIGHT = 720, 260
LEFT, RIGHT, TOP, BOTTOM = 64, 40, 12, 44

STEPS_S = (60, 300, 900, 1800, 3600, 7200, 4 * 3600, 6 * 3600, 12 * 3600, 86_400, 2 * 86_400, 7 * 86_400, 28 * 86_400)
"""Possible distances between the ticks of an axis."""


class Series(msgspec.Struct, frozen=True):
    """Values of one kind in seconds, None where missing; `kind` is its CSS class."""

    name: str
    kind: str
    values: Sequence[float | None]


def bar(kind: str, share: float, text: str, hint: str = "") -> str:
    """Return a bar scaled to the longest, with a text at its end; `kind` is its CSS class."""
    return f'<div title="{escape(hint)}"><i class="{kind}" style="--share:{share:.3f}"></i>{escape(text)}</div>'


def lines(names: Sequence[str], series: Sequence[Series], title: str) -> str:
    """Return a line chart of durations from zero; only some of the names are shown as labels."""
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


MAX_QUEUES = 12  # how many queues are drawn, those with the most jobs
MAX_WEEKS = 120  # how many points the line over time has; of a longer log several weeks make one

STYLE = """
:root { color-scheme: light dark; --text: #1a1d21; --soft: #565d66; --back: #fbfbf8; --edge: #dfe0da;
  --ours: #0b7a84; --rule: #9aa0a8; --rival: #a85a00; --rival2: #7a4fb5; }
@media (prefers-color-scheme: dark) { :root { --text: #e8e9e6; --soft: #a3aab2; --back: #14171a; --edge: #30353b;
  --ours: #49b7bd; --rule: #6b737c; --rival: #f0a95b; --rival2: #b79cf0; } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--text); background: var(--back); max-width: 46rem;
  margin: 2rem auto; padding: 0 1rem; overflow-wrap: anywhere; }
h1 { font-size: 1.15rem; }
.headline { font-size: 1.7rem; line-height: 1.25; font-weight: 650; margin: .5rem 0; }
h2 { font-size: 1.15rem; margin-top: 2.2rem; }
h3 { font-size: 1rem; margin-bottom: 0; } ul { margin-top: .3rem; }
figure { margin: 0; } figcaption, caption, .soft { color: var(--soft); font-size: .9rem; }
caption { caption-side: bottom; text-align: left; }
svg { max-width: 100%; height: auto; } svg text { fill: var(--text); font-size: 12px; }
.axis { stroke: var(--edge); }
.line { fill: none; stroke-width: 2; } .line.ours { stroke: var(--ours); } .line.rule { stroke: var(--rule); }
.line.rival { stroke: var(--rival); } .line.rival2 { stroke: var(--rival2); }
.key span::before { content: "●"; margin-right: .3em; } .key span { margin-right: 1.2em; }
.key .ours::before { color: var(--ours); } .key .rule::before { color: var(--rule); }
.key .rival::before { color: var(--rival); } .key .rival2::before { color: var(--rival2); }
table { width: 100%; border-collapse: collapse; font-size: .9rem; overflow-wrap: normal; }
th, td { padding: .2rem .7rem; text-align: right; } td + td { white-space: nowrap; }
th:first-child, td:first-child, th + th:nth-child(2), td:nth-child(2) { text-align: left; }
td:nth-child(2) { width: 55%; } th:first-child, td:first-child { padding-left: 0; max-width: 12rem; }
tr + tr { border-top: 1px solid var(--edge); }
i { display: inline-block; height: .7em; min-width: 1px; margin-right: .4em; border-radius: 2px;
  width: calc((100% - 4.2em) * var(--share)); background: var(--edge); }
i.ours { background: var(--ours); } i.rule { background: var(--rule); }
i.rival { background: var(--rival); } i.rival2 { background: var(--rival2); }
@media (max-width: 34rem) { figure { overflow-x: auto; } svg { min-width: 32rem; } th, td { padding: .2rem .3rem; }
  td:nth-child(2) { width: 40%; } }
"""


class ReportData(msgspec.Struct, frozen=True):
    """Content of a report: the log and the results of the methods.

    Attributes:
        log: the log.
        report: the report of reading it.
        breakdowns: the errors by method.
        method: the method that the report is about.
        rivals: external estimators in the log.
        waiting: the accuracy while jobs wait; None if it was not measured.
        sample: description of the predicted jobs; empty if all were.
    """

    log: EventLog
    report: Report
    breakdowns: Mapping[str, Breakdown]
    method: str
    rivals: Sequence[str]
    waiting: WaitingCounts | None = None
    sample: str = ""


AT_SUBMISSION = "predicted at its submission, from the events before it, and compared with the outcome."


def page_of(data: ReportData) -> str:
    """Return the report as HTML; all names are escaped."""
    log, report, breakdowns, method, rivals = data.log, data.report, data.breakdowns, data.method, data.rivals
    sites = ", ".join(printable(site) for site in log.surveys)
    rule = better_rule(breakdowns)
    shown = {method: "ours"} | ({} if rule in (None, method) else {str(rule): "rule"})
    shown |= dict(zip(rivals, ("rival", "rival2"), strict=False))
    sections = [
        _section("What it would have been worth", _paragraphs(verdict(breakdowns, method, rivals, report))),
        _section("Mean error by method", _methods(breakdowns, shown)),
        _section("Errors by how long jobs waited", _by_wait(breakdowns, shown)),
        _section("Bounds", _bounds(breakdowns[method])),
        _section("While they wait", "" if data.waiting is None else _while_waiting(data.waiting)),
        _section("Week by week", _by_week(log, breakdowns, shown)),
        _section("By queue or partition", _by_queue(breakdowns, shown)),
        _section("The log", _findings(log, report)),
    ]
    head = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>queuecast: {escape(sites)}</title><style>{STYLE}</style></head><body><main>"
        f"<h1>How good would queuecast have been at {escape(sites)}?</h1>"
        f'<p class="headline">{escape(headline(breakdowns, method))}</p>'
        f'<p class="soft">{escape(_predicted(data.sample))}</p>'
    )
    return f"{head}{''.join(sections)}</main></body></html>\n"


def _predicted(sample: str) -> str:
    """Describe which jobs were predicted."""
    if not sample:
        return f"Every job of the log was {AT_SUBMISSION}"
    return f"Not every job was predicted: this is {sample}. Each selected job was {AT_SUBMISSION}"


def write(path: Path, data: ReportData, warn: Callable[[str], None]) -> None:
    """Write the page if the method ran, and print its path.

    Raises:
        UserError: the file cannot be written.
    """
    if data.method in data.breakdowns:
        save(page_of(data), path)
        warn(f"{path}: the report")


def _section(head: str, body: str) -> str:
    return f"<section><h2>{escape(head)}</h2>{body}</section>" if body else ""


def _paragraphs(sentences: Sequence[str]) -> str:
    return "".join(f"<p>{escape(printable(sentence))}</p>" for sentence in sentences)


def _methods(breakdowns: Mapping[str, Breakdown], shown: Mapping[str, str]) -> str:
    """Return a table of the methods by error, with numbers."""
    cells = {name: one.every for name, one in sorted(breakdowns.items(), key=lambda item: item[1].every.error_h)}
    largest = max((_mean(cell) or 0.0 for cell in cells.values()), default=0.0) or 1.0
    rows = []
    for name, cell in cells.items():
        mean_s, held = _mean(cell) or 0.0, cell.held("0.9")
        rows.append(
            (
                escape(_name(name)),
                bar(shown.get(name, "other"), mean_s / largest, duration(mean_s)),
                f"{cell.jobs:,}",
                f"{100 * cell.within_x2 / max(cell.jobs, 1):.0f} %",
                "–" if held is None else f"{100 * held:.0f} %",
            )
        )
    return _table(
        ("method", "mean error", "jobs", "within ×2", "in the bound of 0.9"), rows, "The shorter, the better."
    )


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], caption: str) -> str:
    """Return a table with bars in its second column; the cells are HTML."""
    head = "".join(f'<th scope="col">{head}</th>' for head in heads)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><caption>{escape(caption)}</caption><tr>{head}</tr>{body}</table>"


def _compared(cells: Mapping[str, GroupScores], shown: Mapping[str, str]) -> str:
    """Return the mean errors of the shown methods as bars, scaled to the largest."""
    means = {name: mean_s for name in shown if (mean_s := _mean(cells[name])) is not None}
    largest = max(means.values(), default=0.0) or 1.0
    return "".join(bar(shown[name], mean_s / largest, duration(mean_s), _name(name)) for name, mean_s in means.items())


def _by_wait(breakdowns: Mapping[str, Breakdown], shown: Mapping[str, str]) -> str:
    ours = breakdowns[next(iter(shown))].by_wait
    rows = [
        (name, _compared({one: breakdowns[one].by_wait[place] for one in shown}, shown), f"{ours[place].jobs:,}")
        for place, name in enumerate(WAIT_NAMES)
        if ours[place].jobs
    ]
    return _key(shown) + _table(("waited", "mean error", "jobs"), rows, "Mean error, drawn row by row.")


def _bounds(ours: Breakdown) -> str:
    held = {q: share for q in sorted(ours.every.bounds) if (share := ours.every.held(q)) is not None}
    rows = [(f"{100 * float(q):g} %", bar("ours", share, f"{100 * share:.1f} %")) for q, share in held.items()]
    caption = "Share of the jobs that started within their bound."
    return _table(("promised", "started in time"), rows, caption) if rows else ""


_WAITING_LINES = {
    "estimate in force": ("ours", "in_force_h"),
    "estimate at submission": ("rival", "first_h"),
    "recent median": ("rival2", "recent_h"),
    "starts now": ("rule", "now_h"),
}
"""The lines of the plot by age: their classes in the page's style, and the measures."""


def _while_waiting(counts: WaitingCounts) -> str:
    """Plot the errors by age of pending jobs, with the shares of bounds and notices."""
    rows = counts.accuracy.rows()
    if not rows:
        return ""
    names = [duration(age_s) for age_s in rows]
    series = [
        Series(name, kind, [3600.0 * row[measure] for row in rows.values()])
        for name, (kind, measure) in _WAITING_LINES.items()
    ]
    key = _key({name: kind for name, (kind, _) in _WAITING_LINES.items()})
    caption = "<figcaption>Mean error of what is left to wait, of jobs that have waited for so long.</figcaption>"
    figure = f'{key}<figure tabindex="0">{lines(names, series, "mean error by age")}{caption}</figure>'
    cells = [
        (
            name,
            bar("ours", min(row["ratio"], 1.0), f"{row['ratio']:.2f}"),
            f"{row['jobs']:,.0f}",
            f"{100 * row['cov_0.9']:.0f} %" if "cov_0.9" in row else "–",
            f"{100 * row['expired']:.1f} %" if "expired" in row else "–",
        )
        for name, row in zip(names, rows.values(), strict=True)
    ]
    heads = ("waited", "error beside the better baseline", "jobs", "in the bound of 0.9", "bounds in the past")
    return (
        figure
        + _table(heads, cells, "Below 1 is better than both baselines.")
        + _paragraphs(notice_sentences(counts.notices))
    )


def _by_week(log: EventLog, breakdowns: Mapping[str, Breakdown], shown: Mapping[str, str]) -> str:
    """Plot the errors of the method and of the baseline by week; external estimators cover other jobs each week."""
    weeks = {week for name in shown for week in breakdowns[name].by_week}
    if len(weeks) < 2:
        return ""
    first, last = min(weeks), max(weeks)
    each = (last - first) // MAX_WEEKS + 1
    begins = range(first, last + 1, each)
    series = [
        Series(_name(name), kind, [_mean(_summed(breakdowns[name].by_week, begin, each)) for begin in begins])
        for name, kind in shown.items()
        if kind in ("ours", "rule")
    ]
    names = [minute(log.begin + begin * WEEK_S)[:10] for begin in begins]
    key = _key({name: kind for name, kind in shown.items() if kind in ("ours", "rule")})
    caption = "<figcaption>Mean error of the jobs that left the queue.</figcaption>"
    return f'{key}<figure tabindex="0">{lines(names, series, "mean error over time")}{caption}</figure>'


def _summed(weeks: Mapping[int, GroupScores], begin: int, count: int) -> GroupScores:
    found = [weeks[week] for week in range(begin, begin + count) if week in weeks]
    return GroupScores(jobs=sum(cell.jobs for cell in found), error_s=sum(cell.error_s for cell in found))


def _by_queue(breakdowns: Mapping[str, Breakdown], shown: Mapping[str, str]) -> str:
    first = breakdowns[next(iter(shown))].by_queue
    names = sorted(first, key=lambda name: (-first[name].jobs, name))[:MAX_QUEUES]
    if len(first) < 2:
        return ""
    rows = []
    for queue in names:
        cells = {name: breakdowns[name].by_queue.get(queue, GroupScores()) for name in shown}
        rows.append((escape(printable(queue)), _compared(cells, shown), f"{first[queue].jobs:,}"))
    return _key(shown) + _table(("queue", "mean error", "jobs"), rows, "Those with the most jobs, drawn row by row.")


def _findings(log: EventLog, report: Report) -> str:
    parts = []
    for head, found in findings(log, report):
        items = "".join(f"<li>{escape(line)}</li>" for line in found)
        parts.append(f"<h3>{escape(head.capitalize())}</h3><ul>{items}</ul>")
    return "".join(parts)


def _key(shown: Mapping[str, str]) -> str:
    spans = "".join(f'<span class="{kind}">{escape(_name(name))}</span>' for name, kind in shown.items())
    return f'<p class="key soft">{spans}</p>'


def _name(method: str) -> str:
    return RULES.get(method, printable(method))


def _mean(cell: GroupScores) -> float | None:
    return cell.error_s / cell.jobs if cell.jobs else None
