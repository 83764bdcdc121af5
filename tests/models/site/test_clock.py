"""Plausibility of event times at a live or replayed site."""

import pytest

from models.durations import DAY_S
from models.site.clock import EVENTS_TO_SET_BACK, MAX_CONFIRMING, MAX_LAGS, SiteClock

NOW = 1.7e9
YEARS_S = 3 * 365 * DAY_S


def live_clock(events: int = 100) -> SiteClock:
    """Return the clock of a site with one event per minute until `NOW`, each 5 s late."""
    clock = SiteClock()
    for minute in range(events):
        time = NOW - 60.0 * (events - 1 - minute)
        assert clock.doubt(time, time + 5.0) is None
        clock.tick(time, time + 5.0)
    return clock


def replayed_clock(events: int = 2000, arrived: float | None = None) -> SiteClock:
    clock = SiteClock()
    for minute in range(events):
        assert clock.doubt(60.0 * minute, arrived) is None
        clock.tick(60.0 * minute, arrived)
    return clock


@pytest.mark.parametrize(
    ("ahead_s", "believed"), [(599.0, True), (601.0, False), (-399 * DAY_S, True), (-401 * DAY_S, False), (1e11, False)]
)
def test_live_clock_accepts_times_near_the_broker_time(ahead_s: float, believed: bool) -> None:
    clock = live_clock()
    assert (clock.doubt(NOW + ahead_s, NOW) is None) is believed


@pytest.mark.parametrize("arrived", [None, NOW])
@pytest.mark.parametrize("ahead_s", [YEARS_S, -YEARS_S])
def test_clock_rejects_events_with_a_jumped_time(arrived: float | None, ahead_s: float) -> None:
    clock = live_clock(2000) if arrived else replayed_clock()
    before = clock.now
    for event in range(900):
        assert clock.doubt(before + ahead_s + event, None if arrived is None else arrived + event) is not None
    assert clock.now == before and clock.live is bool(arrived)


def test_live_clock_is_monotonic_and_at_most_the_broker_time() -> None:
    clock = live_clock()
    clock.tick(NOW + 300.0, NOW + 10.0)
    assert clock.now == NOW + 10.0
    for _ in range(100):
        clock.tick(NOW - 3 * DAY_S, NOW + 20.0)
    assert clock.now == NOW + 10.0 and clock.live


def test_live_site_stays_live_in_late_burst_and_quiet_weekend() -> None:
    clock = live_clock()
    for event in range(10_000):
        clock.tick(NOW - 5 * DAY_S, NOW + event / 100)
    assert clock.live
    monday = NOW + 2.5 * DAY_S
    assert clock.doubt(monday, monday) is None


@pytest.mark.parametrize("arrived", [None, NOW])
def test_replayed_clock_keeps_the_time_of_its_events(arrived: float | None) -> None:
    clock = replayed_clock(arrived=arrived)
    assert not clock.live and clock.now == 60.0 * 1999
    assert clock.doubt(clock.now + 59 * DAY_S, arrived) is None
    clock.tick(clock.now - 3 * DAY_S, arrived)
    assert clock.now == 60.0 * 1999
    assert clock.doubt(NOW, arrived) is not None


def test_replayed_clock_advances_by_many_agreeing_events() -> None:
    clock = replayed_clock()
    there = clock.now + 500 * DAY_S
    doubts = [clock.doubt(there + second, None) for second in range(MAX_CONFIRMING)]
    assert None not in doubts[:-1] and doubts[-1] is None and clock.now == there + MAX_CONFIRMING - 1


def test_clock_restarts_confirmation_after_an_accepted_event() -> None:
    clock = replayed_clock()
    for _ in range(3):
        for _ in range(MAX_CONFIRMING - 1):
            assert clock.doubt(1e11, None) is not None
        clock.tick(clock.now)


def test_clock_with_wrong_first_event_recovers_by_the_next_two() -> None:
    clock = SiteClock()
    clock.tick(1e11, NOW)
    assert clock.doubt(NOW, NOW) is not None
    assert clock.doubt(NOW + 1.0, NOW + 1.0) is None
    clock.tick(NOW + 1.0, NOW + 1.0)
    assert clock.live and clock.now == NOW + 1.0


def test_replayed_clock_too_far_ahead_is_set_back() -> None:
    clock = replayed_clock()
    before = clock.now
    clock.tick(before + 50 * DAY_S)
    for event in range(EVENTS_TO_SET_BACK):
        clock.tick(before + event)
    assert clock.now == before + EVENTS_TO_SET_BACK - 1


def test_rare_future_event_does_not_keep_replay_clock_ahead() -> None:
    clock = replayed_clock()
    began, times = clock.now, []
    for event in range(1000):
        clock.tick(began + event)
        if event % 20 == 0:
            clock.tick(began + 50 * DAY_S)
        times.append(clock.now)
    assert min(times[100:]) < began + 1000


@pytest.mark.parametrize("days", [2, 59, 300])
def test_clock_accepts_real_events_after_a_series_of_old_events(days: int) -> None:
    clock = replayed_clock()
    before = clock.now
    for event in range(1000):
        time = before - days * DAY_S + event % 7
        assert clock.doubt(time, None) is None
        clock.tick(time)
    assert clock.now == before - days * DAY_S + 6
    assert clock.doubt(before + 59 * DAY_S, None) is None
    assert clock.doubt(before + 61 * DAY_S, None) is not None
    clock.tick(before + 1.0)
    assert clock.now == before + 1.0


def test_clock_is_set_back_to_the_latest_of_the_late_events() -> None:
    clock = replayed_clock()
    before = clock.now
    clock.tick(before + 50 * DAY_S)
    clock.tick(before)
    for _ in range(EVENTS_TO_SET_BACK - 1):
        clock.tick(before - 40 * DAY_S)
    assert clock.now == before


def test_clock_lags_are_limited() -> None:
    assert len(live_clock(1000).lags) == MAX_LAGS
