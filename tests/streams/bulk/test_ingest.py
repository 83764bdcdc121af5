import math
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from streams.bulk.ingest import PacedIterator, SortedSource, first_seconds, names_of, timeline
from streams.bulk.reading import read_log
from streams.errors import UserError
from tests.support.traces import made_trace, swf_line


def written(path: Path, *lines: str, header: str = "") -> Path:
    path.write_text(header + "".join(lines))
    return path


def sources_of(stack: ExitStack, *paths: Path) -> list[SortedSource]:
    return [SortedSource("swf", stack.enter_context(read_log([path]))[0]) for path in paths]


@pytest.fixture
def two(tmp_path: Path) -> Iterator[list[SortedSource]]:
    early, late = "; UnixStartTime: 1000\n; MaxProcs: 4\n", "; UnixStartTime: 900000\n; MaxProcs: 4\n"
    one = written(tmp_path / "early.swf", swf_line(1, 100, 10, 20), swf_line(2, 150), header=early)
    other = written(tmp_path / "late.swf.gz", swf_line(1, 0, 20, 30), swf_line(2, 45), header=late)
    with ExitStack() as stack:
        yield sources_of(stack, one, other)


def test_timeline_aligns_sites_at_their_first_event(two: list[SortedSource]) -> None:
    found = [(since, step.event.site, step.event.kind) for since, step in timeline(two)]
    assert found == [
        (0, "early", "capacity"),
        (0, "early", "submit"),
        (0, "late", "capacity"),
        (0, "late", "submit"),
        (10, "early", "start"),
        (20, "late", "start"),
        (30, "early", "end"),
        (45, "late", "submit"),
        (45, "late", "start"),
        (45, "late", "end"),
        (50, "early", "submit"),
        (50, "early", "start"),
        (50, "early", "end"),
        (50, "late", "end"),
    ]
    assert {step.event.time for _, step in timeline(two) if step.event.site == "early"} == {1100, 1110, 1130, 1150}


def test_timeline_keeps_order_of_events_within_site(tmp_path: Path) -> None:
    paths = [made_trace(tmp_path / f"s{seed}.swf", seed=seed) for seed in (1, 2, 3)]
    with ExitStack() as stack:
        sources = sources_of(stack, *paths)
        mixed = [step.event for _, step in timeline(sources)]
        for source in sources:
            own = [event for event in mixed if event and event.site == source.site]
            assert own == [event for event, _ in source.events()]


def test_first_seconds_limits_timeline(two: list[SortedSource]) -> None:
    assert [since for since, _ in first_seconds(timeline(two[:1]), 10)] == [0, 0, 10]
    assert len(list(first_seconds(timeline(two), math.inf))) == two[0].count + two[1].count


class Clock:
    """A clock that advances with each sleep, and a little with each reading."""

    def __init__(self, look_s: float = 0.0) -> None:
        self.now, self.look_s = 500.0, look_s

    def __call__(self) -> float:
        self.now += self.look_s
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.now += seconds


@pytest.mark.parametrize("speed", [1.0, 60.0])
def test_events_are_sent_when_they_are_due(two: list[SortedSource], speed: float) -> None:
    clock = Clock()
    due = [clock.now - 500 for _ in PacedIterator(timeline(two), speed, clock=clock, sleep=clock.sleep)]
    assert due == pytest.approx([since / speed for since, _ in timeline(two)])


def test_paced_iterator_sends_late_events_immediately(two: list[SortedSource]) -> None:
    clock = Clock(look_s=10_000)
    assert len(list(PacedIterator(timeline(two), 1.0, clock=clock, sleep=clock.sleep))) == two[0].count + two[1].count
    assert list(PacedIterator(timeline(two), math.inf, clock=Clock(), sleep=lambda _: pytest.fail("slept")))


@pytest.mark.parametrize(("speed", "left"), [(10.0, [4.0, 3.0, 2.0, 0.5]), (math.inf, [None] * 4)])
def test_remaining_time_follows_pace_not_event_count(
    two: list[SortedSource], speed: float, left: list[float | None]
) -> None:
    steps = PacedIterator(timeline(two), speed, max(source.seconds for source in two), Clock(), lambda _: None)
    found = [steps.remaining_s for _, step in zip(range(9), steps, strict=False) if step]
    assert found[4:8] == left


def test_site_names_are_one_per_trace() -> None:
    assert names_of(["a", "b"], []) == ["a", "b"]
    assert names_of(["a", "b"], ["x", "y"]) == ["x", "y"]
    with pytest.raises(UserError, match="1 sites for 2 traces"):
        names_of(["a", "b"], ["x"])
    with pytest.raises(UserError, match="two traces for site a; name the sites with --site"):
        names_of(["a", "a"], [])
