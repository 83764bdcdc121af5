"""Heartbeats of silent sites in recorded logs and live sources."""

import time
from collections.abc import Iterator, Sequence
from itertools import islice, pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.records import AnyEvent, Cancel, End, Heartbeat, Requeue, Start, Submit
from streams.bulk.event_log import EventLog
from streams.bulk.reading import read_log
from streams.sources.contract import Cursor, Source, Step
from streams.sources.live_source import with_heartbeats
from streams.sources.publisher import from_source
from streams.sources.silences import LogHeartbeats, Silence
from tests.support.events import cancel, end, start, submit
from tests.support.traces import made_trace


def filled(events: list[AnyEvent], interval_s: float = 300.0) -> list[AnyEvent]:
    beats = LogHeartbeats(interval_s)
    return [one for event in events for one in (*beats.before(event), event)]


def beats_in(events: list[AnyEvent]) -> list[float]:
    return [event.time for event in events if isinstance(event, Heartbeat)]


def test_silence_without_pending_jobs_has_no_heartbeat() -> None:
    assert beats_in(filled([submit("1", 0.0), start("1", 1.0), end("1", 9e4)])) == []


def test_interval_grows_with_the_silence_up_to_six_hours() -> None:
    times = beats_in(filled([submit("1", 0.0), start("1", 40 * 86_400.0)]))
    intervals = [after - before for before, after in pairwise(times)]
    assert intervals[0] == 300.0
    assert intervals == sorted(intervals)
    assert max(intervals) == 6 * 3600.0
    assert times[-1] < 8 * 86_400.0
    assert len(times) < 100


def test_pending_tasks_of_an_array_keep_heartbeats() -> None:
    row = Submit(site="s", job="a", time=0.0, array_size=2)
    tasks: list[AnyEvent] = [Start(site="s", job=f"a_{number}", array="a", time=900.0 * number) for number in (1, 2)]
    ends: list[AnyEvent] = [End(site="s", job="a_1", time=5000.0)]
    assert beats_in(filled([row, *tasks, *ends])) == [300.0, 600.0, 1200.0, 1500.0]


def test_requeued_job_is_pending_again() -> None:
    events: list[AnyEvent] = [submit("1", 0.0), start("1", 1.0), Requeue(site="s", job="1", time=100.0)]
    again = Cancel(site="s", job="1", attempt=1, time=500.0)
    assert beats_in(filled([*events, again])) == [400.0]


def test_recorded_heartbeats_are_not_repeated() -> None:
    once = filled([submit("1", 0.0), cancel("1", 3000.0)])
    assert filled(once) == once


def test_zero_heartbeat_interval_adds_no_events() -> None:
    assert beats_in(filled([submit("1", 0.0), cancel("1", 3000.0)], 0.0)) == []


def test_tiny_heartbeat_interval_is_a_second() -> None:
    """At this time, adding the interval to a float changes nothing."""
    beats = LogHeartbeats(1e-9)
    events = [submit("1", 1.8e9), cancel("1", 1.8e9 + 3.0)]
    assert [beat.time - 1.8e9 for event in events for beat in islice(beats.before(event), 9)] == [1.0, 2.0]


@given(st.lists(st.floats(1.0, 1e5), min_size=2, max_size=6), st.integers(0, 5), st.floats(1.0, 1e5))
def test_heartbeats_up_to_a_time_depend_on_the_past_only(gaps: list[float], place: int, other_s: float) -> None:
    """If the next event moves, heartbeats before the earlier of its two times stay equal."""
    times = [sum(gaps[:number]) for number in range(len(gaps))]
    events: list[AnyEvent] = [submit(str(number), time) for number, time in enumerate(times)]
    place = min(place, len(events) - 1)
    changed = [*events[:place], submit("other", (times[place - 1] if place else 0.0) + other_s)]
    sooner = min(events[place].time, changed[place].time)
    one, two = ([time for time in beats_in(filled(each[: place + 1])) if time < sooner] for each in (events, changed))
    assert one == two


def test_log_counts_heartbeats_with_its_events(tmp_path: Path) -> None:
    log = EventLog.of([submit("1", 0.0), start("1", 1000.0), end("1", 5000.0)], tmp_path, heartbeat_s=300.0)
    found = list(log.events())
    assert (log.heartbeats, log.count) == (3, len(found))
    assert log.surveys["s"].events == 3
    assert list(log.events(3)) == found[3:]


def test_read_log_adds_heartbeats_on_request_only(tmp_path: Path) -> None:
    path = made_trace(tmp_path / "made.swf", jobs=50)
    with read_log([path]) as (plain, _), read_log([path], heartbeat_s=300.0) as (beaten, _):
        rest = [event for event in beaten.events() if not isinstance(event, Heartbeat)]
        assert rest == list(plain.events())
        assert plain.heartbeats == 0 < beaten.heartbeats
        assert plain.fingerprint != beaten.fingerprint


class Quiet(Source):
    """A source of events, by default one, followed by polls one minute apart."""

    name = "quiet"
    live = True

    def __init__(self, polls: int, knows: bool = True, times: Sequence[float] = (1000.0,)) -> None:
        super().__init__("here")
        self._polls, self._knows, self._times = polls, knows, times

    def events(self, cursor: Cursor | None = None) -> Iterator[Step]:
        for number, at in enumerate(self._times):
            yield Submit(site="here", time=at, job=str(number)), b"1"
        for poll in range(1, self._polls):
            self.read_until = 1000.0 + 60.0 * poll if self._knows else None
            yield None, b"1"


def live(source: Source, heartbeat_s: float = 300.0) -> list[float]:
    steps = [*with_heartbeats(from_source(source), source, heartbeat_s)]
    assert all(step.cursor is None for step in steps if isinstance(step.event, Heartbeat))
    return beats_in([step.event for step in steps if step.event is not None])


def test_live_source_sends_heartbeats_after_silence() -> None:
    assert live(Quiet(12)) == [1300.0, 1600.0]


def test_event_in_the_future_prevents_no_heartbeats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 1010.0)
    assert live(Quiet(12, times=[1000.0, 9e9])) == [1360.0, 1660.0]


def test_source_missing_read_time_sends_no_heartbeats() -> None:
    assert live(Quiet(50, knows=False)) == []


def test_live_source_with_zero_interval_sends_no_heartbeats() -> None:
    assert live(Quiet(50), 0.0) == []


def test_late_event_does_not_end_a_silence() -> None:
    silence = Silence(1000.0, 300.0)
    silence.sent(1300.0)
    silence.end(1200.0)
    assert silence.next == 1600.0
    silence.end(1400.0)
    assert silence.next == 1700.0
