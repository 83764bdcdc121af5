"""A log of any format is sent in time order and from any cursor, as a trace."""

from pathlib import Path

import msgspec
import pytest

from models.records import Capacity, End, Start, Submit
from streams.bulk.ingest import SortedSource, timeline, without
from streams.bulk.reading import read_log
from streams.sources.contract import CursorError


def write(path: Path, jobs: int = 6) -> Path:
    """Write finished jobs as events, the last one first."""
    lines = []
    for n in reversed(range(jobs)):
        about = {"site": "alder", "job": str(n)}
        lines += [Submit(time=100.0 + n, **about), Start(time=110.0 + 2 * n, **about), End(time=150.0 - n, **about)]
    path.write_bytes(b"\n".join(map(msgspec.json.encode, lines)) + b"\n")
    return path


def test_sorted_source_continues_from_any_cursor(tmp_path: Path) -> None:
    with read_log([write(tmp_path / "a.json")]) as (log, _):
        source = SortedSource("events", log)
        steps = list(source.events())
        assert len(steps) == source.count and source.site == "alder" and source.begin == 100.0
        times = [event.time for event, _ in steps]
        assert times == sorted(times)
        for place, (_, cursor) in enumerate(steps, 1):
            assert list(source.events(cursor)) == steps[place:]
        other = read_log([write(tmp_path / "b.json", 5)])
        with other as (others, _), pytest.raises(CursorError, match="of another part of this one"):
            next(SortedSource("events", others).events(steps[0][1]))


def test_timeline_interleaves_logs_of_sites(tmp_path: Path) -> None:
    paths = write(tmp_path / "a.json"), write(tmp_path / "b.json", 3)
    with read_log([paths[0]], "alder") as (one, _), read_log([paths[1]], "birch") as (other, _):
        found = [step.event for _, step in timeline([SortedSource("events", one), SortedSource("events", other)])]
    assert [event.site for event in found[:6]] == ["alder", "alder", "birch", "birch", "alder", "birch"]
    assert len(found) == one.count + other.count


def test_timeline_omits_given_inferred_capacity(tmp_path: Path) -> None:
    with read_log([write(tmp_path / "a.json")]) as (log, _):
        source = SortedSource("events", log)
        assert source.guessed is not None
        found = [step.event for _, step in without(timeline([source]), [source.guessed])]
        assert len(found) == source.count - 1
        assert not any(isinstance(event, Capacity) for event in found)
