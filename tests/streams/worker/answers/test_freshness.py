"""Freshness of a site's state."""

from types import SimpleNamespace
from typing import Any

import pytest

from models.records import JobsAnswer, LiveState, WaitAnswer
from streams.worker.answers.freshness import MAX_UNREAD_MESSAGES, Freshness
from streams.worker.checkpoint.stored_site import MAX_STALE_S, MIN_STALE_S, WINDOW_EVENTS, Arrivals

NOW = 1.8e9
PLACE = ("queuecast.events", 3)


def arrivals(*gaps: float, last: float = NOW) -> Arrivals:
    """Return the arrivals of events with these gaps (s), the last one at `last`."""
    found, stamp = Arrivals(), last - sum(gaps)
    found.add(stamp)
    for gap in gaps:
        stamp += gap
        found.add(stamp)
    return found


def site(came: Arrivals, time: float = NOW) -> Any:
    return SimpleNamespace(engine=SimpleNamespace(time=time), arrivals=came)


@pytest.mark.parametrize(
    ("gaps", "bound_s"),
    [
        ((), MIN_STALE_S),
        ((0.0, 0.1, 20.0), MIN_STALE_S),
        ((20.0, 3600.0, 20.0), 1200.0),  # an hour is longer than the usual gap and is clipped to it
        ((500.0, 900.0, 1500.0), 3000.0),
        ((-50.0, 400.0), 800.0),
        ((500.0, 900.0, 1700.0, 3300.0, 6500.0, 12_900.0, 25_700.0, 51_300.0), MAX_STALE_S),
    ],
)
def test_stale_bound_follows_usual_gap_between_events(gaps: tuple[float, ...], bound_s: float) -> None:
    assert arrivals(*gaps).bound_s == bound_s


def test_stale_bound_forgets_gaps_outside_window() -> None:
    found = arrivals(500.0, 1000.0, 2000.0)
    for at in range(1, WINDOW_EVENTS):
        found.add(NOW + at)
    assert found.bound_s == 4000.0
    for at in range(WINDOW_EVENTS + 1):
        found.add(NOW + WINDOW_EVENTS + at)
    assert found.bound_s == MIN_STALE_S


def test_site_without_events_for_five_hours_is_stale() -> None:
    stopped = site(arrivals(*[30.0] * 300, last=NOW - 5 * 3600), time=NOW - 5 * 3600)
    found = Freshness(clock=lambda: NOW).of(stopped)
    assert found[:4] == (NOW - 5 * 3600, 5 * 3600.0, 0, 0.0)
    assert found.stale == "its last event came at 2027-01-15 03:00:00 UTC; it is stale after 10m"
    assert Freshness(clock=lambda: NOW + 660).of(stopped).stale == found.stale  # the message stays true
    assert Freshness(clock=lambda: NOW - 5 * 3600 + 599).of(stopped).stale is None


def test_running_trace_is_not_stale_as_of_its_last_event() -> None:
    fresh = Freshness(clock=lambda: NOW).of(site(arrivals(10.0, 20.0), time=835_823_160.0))
    assert (fresh.as_of, fresh.stale) == (835_823_160.0, None)


def test_freshness_of_older_state_version_is_unknown() -> None:
    assert Freshness(clock=lambda: NOW).of(site(Arrivals(), time=0.0)) == (None, None, 0, 0.0, None)


@pytest.mark.parametrize(
    ("unread", "behind_s", "stale"),
    [
        (0, 5000.0, None),
        (20, 300.0, None),
        (20, 700.0, "20 messages are unread, 12m behind"),
        (MAX_UNREAD_MESSAGES + 1, 2.0, "10,001 messages are unread, 2s behind"),
    ],
)
def test_freshness_reports_lag_of_unread_events(unread: int, behind_s: float, stale: str | None) -> None:
    freshness = Freshness(lambda _: PLACE, {PLACE: 101 + unread}.get, lambda: NOW)
    freshness.read(PLACE, 100, NOW - behind_s)
    found = freshness.of(site(arrivals(10.0)))
    assert (found.lag_messages, found.lag_s, found.stale) == (unread, behind_s if unread else 0.0, stale)


def test_answer_reports_freshness_of_site() -> None:
    freshness = Freshness(lambda _: PLACE, {PLACE: 300}.get, lambda: NOW)
    freshness.read(PLACE, 289, NOW - 5)
    live = LiveState(queued_jobs=0, running_jobs=0, free_cpus=0)
    answer = WaitAnswer(
        id="q",
        site="alder",
        made_at=NOW,
        predicted_wait_s=1.0,
        predicted_run_s=None,
        predicted_start=None,
        method="policy",
        reason="",
        degraded="3 of 4 nodes down",
        live=live,
        site_cpus=4,
    )
    marked = freshness.marked(answer, site(arrivals(5.0), time=NOW - 9))
    assert (marked.as_of, marked.lag_messages, marked.lag_s, marked.stale) == (NOW - 9, 10, 5.0, None)
    assert marked.degraded == "3 of 4 nodes down"
    old = freshness.marked(answer, site(arrivals(5.0, last=NOW - 3600)))
    assert old.stale == "its last event came at 2027-01-15 07:00:00 UTC; it is stale after 10m"
    assert old.degraded == f"stale: {old.stale}; 3 of 4 nodes down"
    jobs = JobsAnswer(id="q", site="alder", made_at=NOW, user="ada", jobs=[], more=0)
    assert freshness.marked(jobs, site(arrivals(5.0, last=NOW - 3600))).stale == old.stale
