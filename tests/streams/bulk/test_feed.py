import math
from pathlib import Path

import pytest

from streams.errors import UserError
from streams.sources.feed import paced, sources_of, timeline, until
from streams.sources.swf import SwfSource, Trace, events_of, read_swf
from tests.support.traces import HEADER, made_trace, swf_line


def trace(tmp_path: Path, name: str, *lines: str, header: str = "") -> Trace:
    path = tmp_path / name
    path.write_text(header + "".join(lines))
    return read_swf(path)


@pytest.fixture
def two(tmp_path: Path) -> list[SwfSource]:
    early = trace(tmp_path, "early.swf", swf_line(1, 100, 10, 20), swf_line(2, 150), header="; UnixStartTime: 1000\n")
    late = trace(tmp_path, "late.swf.gz", swf_line(1, 0, 20, 30), swf_line(2, 45), header="; UnixStartTime: 900000\n")
    return sources_of([early, late], [])


def test_sites_go_side_by_side_from_their_beginnings(two: list[SwfSource]) -> None:
    found = [(since, step.event.site, step.event.kind) for since, step in timeline(two)]
    assert found == [
        (0, "early", "submit"),
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


def test_a_sites_own_events_stay_in_their_order(tmp_path: Path) -> None:
    sources = [SwfSource(read_swf(made_trace(tmp_path / f"{seed}.swf", seed=seed)), f"s{seed}") for seed in (1, 2, 3)]
    mixed = [step.event for _, step in timeline(sources)]
    for source in sources:
        own = [event for event in mixed if event and event.site == source.site]
        assert own == list(events_of(source.trace, source.site))


def test_the_first_hours_end_in_the_midst(two: list[SwfSource]) -> None:
    assert [since for since, _ in until(timeline(two[:1]), 10)] == [0, 10]
    assert len(list(until(timeline(two), math.inf))) == two[0].count + two[1].count


class Clock:
    """A clock that sleeping moves on, and each look at it a little."""

    def __init__(self, look_s: float = 0.0) -> None:
        self.now, self.look_s = 500.0, look_s

    def __call__(self) -> float:
        self.now += self.look_s
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.now += seconds


@pytest.mark.parametrize("speed", [1.0, 60.0])
def test_events_are_sent_when_they_are_due(two: list[SwfSource], speed: float) -> None:
    clock = Clock()
    due = [clock.now - 500 for _ in paced(timeline(two), speed, clock, clock.sleep)]
    assert due == pytest.approx([since / speed for since, _ in timeline(two)])


def test_what_is_late_is_sent_at_once(two: list[SwfSource]) -> None:
    clock = Clock(look_s=10_000)
    assert len(list(paced(timeline(two), 1.0, clock, clock.sleep))) == two[0].count + two[1].count
    assert list(paced(timeline(two), math.inf, Clock(), lambda _: pytest.fail("slept")))


def test_each_trace_is_a_site_of_its_own(tmp_path: Path) -> None:
    one, other = (trace(tmp_path, name, HEADER, swf_line(1)) for name in ("a.swf", "b.swf.gz"))
    assert [source.site for source in sources_of([one, other], [])] == ["a", "b"]
    assert [source.site for source in sources_of([one, other], ["x", "y"])] == ["x", "y"]
    with pytest.raises(UserError, match="1 sites for 2 traces"):
        sources_of([one, other], ["x"])
    with pytest.raises(UserError, match="a name has 1 to 256 characters"):
        sources_of([one, other], ["x", ""])
    with pytest.raises(UserError, match="two traces for site a; name the sites with --site"):
        sources_of([one, one], [])
