"""Report of a log: findings, verdict in words, and HTML page."""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from models.durations import WEEK_S
from models.engine.settings import EngineSettings
from models.records import AnyEvent, End, Outcome, Start, Submit
from models.site.history import FEATURES
from models.site.job import Job
from models.waiting_accuracy import Landmark
from streams.bulk.event_log import EventLog
from streams.bulk.reading import Report
from streams.cli.app import main
from streams.offline.breakdown import NO_QUEUE, WAIT_NAMES, BreakdownCounts, Breakdowns
from streams.offline.output_files import read_state, save_state
from streams.offline.report.findings import findings, headline, text_of, verdict
from streams.offline.report.page import ReportData, Series, _by_week, lines, page_of
from streams.offline.scored import burst_weight
from streams.offline.waiting_scores import WaitingCounts
from streams.sources.contract import SkippedPart
from streams.text.terminal import minute
from tests.support import events
from tests.support.browser import browsing
from tests.support.traces import made_trace

SETTINGS = EngineSettings(method="blend", shadows=("zero", "median"), bounds="")
HOSTILE = "<script>alert('&')</script>"


def outcome(job: str, method: str, predicted: float, wait: float, at: float = 0.0, **more: Any) -> Outcome:
    return events.outcome(job, wait, predicted, at, method=method, **more)


def broken_down(*jobs: tuple[str, float, dict[str, float]], queue: str | None = None) -> Breakdowns:
    """Score jobs given by name, wait (s) and estimate of each method."""
    found = Breakdowns(0.0, SETTINGS)
    for name, wait, predictions in jobs:
        for method, predicted in predictions.items():
            bounds = {"0.9": wait} if method == "blend" else None
            found.add(outcome(name, method, predicted, wait, bounds=bounds), queue or NO_QUEUE)
    return found


def test_breakdowns_count_outcomes_by_wait_queue_and_week() -> None:
    found = broken_down(("1", 30.0, {"blend": 90.0, "zero": 0.0}), ("2", 7200.0, {"blend": 3600.0}), queue="long")
    ours = found.found["blend"]
    assert (ours.every.jobs, ours.every.wait_s, ours.every.error_s, ours.every.within_x2) == (2, 7230.0, 3660.0, 2)
    assert [cell.jobs for cell in ours.by_wait] == [1, 0, 0, 1, 0, 0, 0] and len(WAIT_NAMES) == 7
    assert {name: cell.jobs for name, cell in ours.by_queue.items()} == {"long": 2}
    assert ours.every.held("0.9") == 1.0 and ours.every.held("0.5") is None
    late = Breakdowns(0.0, SETTINGS)
    late.add(outcome("9", "blend", 1.0, 1.0, at=3.5 * WEEK_S))
    assert list(late.found["blend"].by_week) == [3] and list(late.found["blend"].by_queue) == [NO_QUEUE]


def test_burst_coverage_weights_jobs_by_queued_jobs_of_user(tmp_path: Path) -> None:
    found = Breakdowns(0.0, SETTINGS)
    for number in range(99):  # one of bob, then those of ada
        job = Job(str(number), 0, 0.0, features=np.zeros(len(FEATURES)))
        job.features[FEATURES.index("user_queued_jobs")] = max(number - 1, 0)
        one = outcome(str(number), "blend", 5.0, 5.0, bounds={"0.9": 4.0 if number else 6.0})
        found.add(one, weight=burst_weight(job))
    again = Breakdowns(0.0, SETTINGS)
    save_state(found.counted, tmp_path / "state")
    kept = read_state(tmp_path / "state", BreakdownCounts, "a breakdown")
    assert kept is not None
    again.counted = kept
    ours = again.found["blend"]
    assert ours.every.held("0.9") == pytest.approx(1 / 99)
    assert ours.held_by_burst("0.9") == pytest.approx(1 / (1 + sum(1 / n for n in range(1, 99))))


def test_breakdowns_count_only_wait_outcomes() -> None:
    found = Breakdowns(0.0, SETTINGS)
    found.add(outcome("1", "blend", 1.0, 1.0, actual_run_s=5.0))
    found.add(outcome("1", "closest", 1.0, 1.0))
    assert found.found == {}


def test_external_estimate_is_compared_on_same_jobs() -> None:
    found = broken_down(
        ("1", 100.0, {"blend": 50.0, "zero": 0.0, "slurm": 400.0}), ("2", 100.0, {"blend": 100.0, "zero": 0.0})
    )
    assert found.rivals == ["slurm"]
    assert (found.found["slurm"].every.jobs, found.found["slurm"].every.error_s) == (1, 300.0)
    assert found.found["blend"].beside["slurm"].error_s == 50.0
    text = " ".join(verdict(found.found, "blend", found.rivals))
    assert "slurm had an estimate of its own for 1 of the jobs: it erred by 5m on average, blend on the same" in text


@pytest.mark.parametrize(
    ("ours", "words"),
    [
        (600.0, "had a mean error of 0s; the better rule without a model (always zero) had 10m: 100 % less."),
        (0.0, "no difference; here a rule without a model does as well."),
        (1800.0, "100 % more. On this log the rule without a model is better."),
    ],
)
def test_verdict_reports_gains_and_losses(ours: float, words: str) -> None:
    found = broken_down(*((str(n), 600.0, {"blend": ours, "zero": 0.0, "median": 9e9}) for n in range(40)))
    sentences = verdict(found.found, "blend")
    assert words in " ".join(sentences)
    assert any(
        "Always zero has the smaller error for jobs that waited: 10 to 60 min (40 jobs" in one for one in sentences
    ) == (ours == 1800.0)
    assert any("100 % of the jobs started within its bound for 90 %: more than promised" in one for one in sentences)


@pytest.mark.parametrize(
    ("ours", "bound", "expected"),
    [
        (156.0, 900.0, "26 % smaller error than the best simple rule (always zero); bounds hold: worth it."),
        (156.0, 100.0, "26 % smaller error than the best simple rule (always zero); bounds hold for 0 %, not 90 %: "),
        (-6.0, 900.0, "1 % larger error than the best simple rule (always zero); bounds hold: no gain."),
        (0.0, 900.0, "The same error as the best simple rule (always zero); bounds hold: no gain."),
    ],
)
def test_headline_states_gain_bounds_and_judgement(ours: float, bound: float, expected: str) -> None:
    found = Breakdowns(0.0, SETTINGS)
    for number in range(40):
        for method, wait_s in (("blend", ours), ("zero", 0.0)):
            found.add(outcome(str(number), method, wait_s, 600.0, bounds={"0.9": bound}))
    assert headline(found.found, "blend").startswith(expected)


def test_headline_of_few_jobs_reports_too_few_jobs() -> None:
    found = broken_down(("1", 600.0, {"blend": 600.0, "zero": 0.0}))
    assert headline(found.found, "blend") == "Only 1 job scored: too few to judge."


def test_report_page_of_sample_reports_sampling(log: EventLog) -> None:
    found = broken_down(*((str(n), 600.0, {"blend": 500.0, "zero": 0.0}) for n in range(40)))
    data = ReportData(log, Report(), found.found, "blend", [])
    assert "Every job of the log was predicted" in page_of(data)
    sample = msgspec.structs.replace(data, sample="a fast replay: one job in 4 is predicted")
    page = page_of(sample)
    assert "Every job" not in page and "Not every job was predicted: this is a fast replay: one job in 4" in page
    assert page.index('class="headline"') < page.index("<section>")


def test_verdict_of_baseline_method_has_no_comparison() -> None:
    found = broken_down(("1", 60.0, {"zero": 0.0}))
    assert verdict(found.found, "zero") == ["1 job is scored; it waited 1m on average.", "zero erred by 1m."]


@pytest.fixture
def log(tmp_path: Path) -> Iterator[EventLog]:
    events: list[AnyEvent] = []
    for n in range(60):
        job = {"site": HOSTILE, "job": f"{n}{HOSTILE}"}
        queue = f"{HOSTILE}{n % 3}" if n % 4 else None
        events += [
            Submit(time=float(n), queue=queue, user=HOSTILE, cpus=2, **job),
            Start(time=n + 60.0 * n, **job),
            End(time=n + 90.0 * n, state="failed<br>", **job),
        ]
    yield EventLog.of(events, tmp_path)


def test_findings_fit_eighty_columns(log: EventLog) -> None:
    report = Report()
    for line in range(200):
        report.skip(SkippedPart(f"/a/{HOSTILE}\x1b[2J", line, "time", "x" * 300 + HOSTILE, f"seconds {line % 70}"))
    assert len(report.skipped) == 51 and report.skipped["other reasons"].count == 200 - sum(
        parts.count for reason, parts in report.skipped.items() if reason != "other reasons"
    )
    text = text_of(findings(log, report))
    assert max(map(len, text.splitlines())) <= 80
    assert "\x1b" not in text
    for words in ("60 jobs of", "60 starts", "users: ", "walltimes: none of the jobs have one", "inferred:"):
        assert (words in text) == (words != "users: ")


def test_findings_without_started_job_report_unknown_size(tmp_path: Path) -> None:
    array = Submit(site="s", time=1.0, job="1", cpus=4, array_size=6)
    text = text_of(findings(EventLog.of([array], tmp_path), Report()))
    assert "1 job (an array counts once) of s" in text
    assert "unknown, since no job has run" in text and "the machine's size: unknown" in text


class Tags(HTMLParser):
    """Collect all tags of a page with their attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def waiting() -> WaitingCounts:
    """Return the accuracy of a job with estimates at two ages."""
    found = WaitingCounts()
    noted = [Landmark(0, 900.0, 7200.0, 600.0, {"0.9": 9000.0}), Landmark(1, 900.0, 7200.0, 600.0, {"0.9": 9000.0})]
    found.accuracy.add(noted, 7200.0)
    found.notices.jobs = found.notices.in_time = 1
    return found


def test_report_page_is_self_contained_and_escapes_names(log: EventLog) -> None:
    found = Breakdowns(log.begin, SETTINGS)
    queues = {event.job: event.queue for event in log.events() if isinstance(event, Submit)}
    for event in log.events():
        if isinstance(event, Start):
            wait = event.time
            for method, predicted_s in {"blend": wait / 2, "zero": 0.0, "median": 60.0, HOSTILE: 1.0}.items():
                bounds = {"0.9": wait} if method == "blend" else None
                found.add(outcome(event.job, method, predicted_s, wait, bounds=bounds), queues[event.job] or NO_QUEUE)
    report = Report()
    report.skip(SkippedPart(HOSTILE, 1, None, HOSTILE, HOSTILE))
    page = page_of(ReportData(log, report, found.found, "blend", found.rivals, waiting()))
    assert "<script" not in page and "<br>" not in page and "&lt;script&gt;" in page
    tags = Tags()
    tags.feed(page)
    assert {tag for tag, _ in tags.found}.isdisjoint({"script", "img", "link", "iframe", "a", "br"})
    assert not any(name in ("src", "href", "onload", "onerror") for _, attributes in tags.found for name in attributes)
    assert not re.search(r"https?://|@import|url\(", page)
    assert sum(tag == "svg" for tag, _ in tags.found) == 1  # by age: all are within one week
    assert "100 % would have received a notice" in page
    bars = [attributes["style"] for tag, attributes in tags.found if tag == "i"]  # as HTML, for phones
    assert len(bars) == 4 + 3 * 3 + 1 + 4 * 3 + 2 and max(bars) == "--share:1.000"
    assert "prefers-color-scheme: dark" in page
    assert len(page) < 30_000


def test_replay_and_compare_write_html_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace, page = made_trace(tmp_path / "made.swf", jobs=150), tmp_path / "report.html"
    assert main(["replay", str(trace), "--method", "qbets", "--html", str(page)]) == 0
    once = page.read_text(encoding="utf-8")
    assert "queuecast (qbets)" in once and once.startswith("<!doctype html>")
    assert main(["compare", str(trace), "--method", "qbets", "--workers", "1", "--html", str(page)]) == 0
    without = re.sub("<section><h2>While they wait.*?</section>", "", once)
    assert without != once and page.read_text(encoding="utf-8") == without
    assert main(["replay", str(trace), "--method", "zero", "--html", str(tmp_path / "no" / "such")]) == 1
    assert "such: cannot be written" in capsys.readouterr().err


@pytest.mark.long
def test_report_page_passes_accessibility_checks(tmp_path: Path) -> None:
    trace, page = made_trace(tmp_path / "made.swf", jobs=8000), tmp_path / "report.html"
    assert main(["replay", str(trace), "--method", "median", "--html", str(page)]) == 0
    assert "<svg" in page.read_text(encoding="utf-8")
    with browsing(tmp_path / "profile") as browser:
        for width, dark in ((390, True), (1400, False)):
            browser.open(page.as_uri(), width, dark=dark)
            assert browser.overflow() <= 0
            assert browser.barriers() == []


def test_chart_week_labels_do_not_overlap() -> None:
    drawn = lines([f"2026-01-{week:02}" for week in range(8)], [Series("blend", "ours", [60.0] * 8)], "weeks")
    places = re.findall(r'<text x="([0-9.]+)" y="[0-9.]+" text-anchor="(\w+)">2026', drawn)
    assert len(places) == 8 and {anchor for _, anchor in places} == {"middle"}
    assert all(float(right) - float(left) > 80 for (left, _), (right, _) in pairwise(places))


def test_chart_starts_with_first_scored_week(log: EventLog) -> None:
    found = Breakdowns(0.0, SETTINGS)
    for week in (30, 31):
        found.add(outcome(str(week), "blend", 60.0, 90.0, at=(week + 0.5) * WEEK_S))
    drawn = _by_week(log, found.found, {"blend": "ours"})
    assert minute(log.begin + 30 * WEEK_S)[:10] in drawn and minute(log.begin)[:10] not in drawn
    found.found["blend"].by_week.pop(31)
    assert _by_week(log, found.found, {"blend": "ours"}) == ""
