"""Skipped parts of a log: counted by kind, with an example, and reported first if they are many."""

from pathlib import Path

import pytest

from streams.bulk.reading import read_log
from streams.offline.breakdown import Breakdowns
from streams.offline.report.findings import findings, losses, verdict
from tests.streams.offline.test_report import broken_down

HEAD = "JobID|Submit|Start|End|State\n"
STEP = "1.batch|2026-02-03T08:00:00|2026-02-03T08:00:00|2026-02-03T08:10:00|COMPLETED\n"


def rows(count: int, end: str = "2026-02-03T08:10:00", first: int = 1) -> str:
    return "".join(
        f"{first + number}|2026-02-03T08:00:00|2026-02-03T08:01:00|{end}|COMPLETED\n" for number in range(count)
    )


@pytest.fixture
def found() -> Breakdowns:
    return broken_down(("1", 30.0, {"blend": 90.0, "zero": 0.0}))


def test_skipped_rows_are_reported_with_example(tmp_path: Path) -> None:
    (tmp_path / "sacct.txt").write_text(HEAD + rows(3) + STEP + STEP)
    with read_log([tmp_path / "sacct.txt"]) as (log, report):
        texts = dict(findings(log, report))
        assert texts["left out"] == [f"2 job steps; the first is {STEP.strip()}"]
        assert losses(report) == []


@pytest.mark.parametrize(("good", "is_stated"), [(98, True), (400, False)])
def test_verdict_states_lost_rows_above_one_percent(
    tmp_path: Path, good: int, is_stated: bool, found: Breakdowns
) -> None:
    (tmp_path / "sacct.txt").write_text(HEAD + rows(good) + rows(2, "Unknown", first=1000))
    with read_log([tmp_path / "sacct.txt"]) as (_, report):
        sentences = verdict(found.found, "blend", (), report)
        first = "gave no event, so what follows may mislead; most of them, 2: expected End to be a time after"
        assert (first in sentences[0]) is is_stated
        assert sentences[int(is_stated)].startswith("1 job is scored")
