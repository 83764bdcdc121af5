"""Progress reports of long commands if stderr is not a terminal."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Queue

import pytest

from streams.bulk.reading import read_log
from streams.cli import options
from streams.cli.options import progress


@pytest.mark.parametrize(
    ("total", "share", "text"),
    [
        (4, None, "1 of 4 jobs, 0/s, at 1996-06-26 21:06 UTC, 5m left"),
        (1, None, "1 of 1 jobs, 0/s, at 1996-06-26 21:06 UTC"),
        (None, 0.25, "1 jobs, 0/s, at 1996-06-26 21:06 UTC, 25% of the reading, 5m left"),
        (None, None, "1 jobs, 0/s, at 1996-06-26 21:06 UTC"),
    ],
)
def test_progress_shows_count_rate_and_remaining_time(total: int | None, share: float | None, text: str) -> None:
    way = options._Progress("jobs", total, lambda: share)
    way._started = time.monotonic() - 100.0
    way.advance(835823160.0)
    assert str(way) == text


def test_progress_is_capped_at_total_and_nearly_done() -> None:
    way = options._Progress("jobs", 2, lambda: None)
    for _ in range(5):
        way.advance()
    assert str(way).startswith("2 of 2 jobs")
    paced = options._Progress("events sent", 4, lambda: None, lambda: 0.2)
    paced.advance()
    assert str(paced).endswith(", nearly done")


def test_progress_shows_read_share_before_first_event() -> None:
    """Accounting rows are read and merged before the first event."""
    way = options._Progress("events read", None, lambda: 0.25)
    way._started = time.monotonic() - 100.0
    assert str(way) == "25% of the reading, 5m left"


def test_progress_of_accounting_grows_during_merge(tmp_path: Path) -> None:
    rows = [f"{n}|s|COMPLETED|2026-01-02T12:00:00|2026-01-02T12:00:00|2026-01-02T13:00:00\n" for n in range(1, 4001)]
    (tmp_path / "sacct.txt").write_text("JobID|User|State|Submit|Start|End\n" + "".join(rows))
    shares: list[float] = []

    @contextmanager
    def shown(unit: str, _: int | None, share: Callable[[], float | None]) -> Iterator[Callable[[float], None]]:
        yield lambda _: shares.append(share() or 0.0) if unit == "events read" and len(shares) < 12_000 else None

    with read_log([tmp_path / "sacct.txt"], "s", None, None, (), shown):
        pass
    assert len(shares) == 12_000 and shares == sorted(shares)
    assert shares[0] < 0.5 and shares[-1] == 1.0


def test_progress_of_paced_feed_uses_pace_for_remaining_time() -> None:
    """The jobs of a trace are not spread evenly over its time span."""
    way = options._Progress("events sent", 4, lambda: None, lambda: 7200.0)
    way.advance(835823160.0)
    assert str(way).endswith("at 1996-06-26 21:06 UTC, 2h left")


def test_progress_names_site_of_event_time() -> None:
    way = options._Progress("events sent", None, lambda: None)
    way.advance(835823160.0, "birch")
    assert str(way).endswith(", at 1996-06-26 21:06 UTC of birch")


def test_progress_is_printed_periodically_during_idle_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "PROGRESS_S", 0.01)
    lines: list[str] = []
    monkeypatch.setattr(options, "warn", lines.append)
    deadline = time.monotonic() + 30.0
    with progress("jobs", 2):
        while len(lines) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
    assert lines[0].startswith("0 of 2 jobs, 0/s")


@pytest.mark.skipif(not Path("/proc/self/fdinfo").exists(), reason="needs Linux")
def test_read_log_progress_share_rises_to_one(tmp_path: Path) -> None:
    parts = [tmp_path / name for name in ("a.jsonl", "b.jsonl")]
    for part in parts:
        submit = '{"v":1,"site":"s","type":"submit","time":%d.0,"job":"%s%d"}'
        part.write_text("".join(submit % (n, part.stem, n) + "\n" for n in range(20_000)))
    shares = [0.0]

    @contextmanager
    def shown(unit: str, _: int | None, share: Callable[[], float | None]) -> Iterator[Callable[[float], None]]:
        yield lambda at: shares.append(share() or 0.0) if unit == "events read" and at % 1000 == 0 else None

    with read_log(parts, "s", None, None, (), shown) as (log, _):
        assert log.jobs == 40_000
    assert shares == sorted(shares) and len(set(shares)) > 4 and shares[-1] == 1.0


@pytest.mark.parametrize("message", ["waiting", lambda: "waiting"])
def test_silence_is_reported_by_a_text_or_a_function(
    message: str | Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    reported = Queue[str]()
    monkeypatch.setattr(options, "warn", reported.put)
    with options.warned_if_silent(message, 0.0):
        assert reported.get(timeout=30) == "waiting"
