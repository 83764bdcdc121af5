"""Due times and texts of notices."""

import pytest

from models.notices import StartEstimate, due, estimate_of, notice, watched
from tests.support.events import prediction

PLACE = ("kth", "4711", 0)
HOUR_S = 3600.0
BEFORE_S = 900.0
FIRST = StartEstimate(expected_start=10 * HOUR_S, latest=20 * HOUR_S, made_at=0.0)


def test_estimate_of_prediction_has_start_and_latest_start() -> None:
    bounds = {"0.5": 1000.0, "0.9": 5000.0}
    record = prediction("4711", 1000.0, 700.0, predicted_start=1100.0, bounds=bounds, waited_s=600.0)
    assert estimate_of(record) == StartEstimate(1100.0, 5100.0, 700.0)


def test_about_to_start_notice_is_due_once() -> None:
    job = watched(PLACE, FIRST, BEFORE_S)
    assert due(job, 9 * HOUR_S, BEFORE_S) is None
    now = 10 * HOUR_S - BEFORE_S
    assert due(job, now, BEFORE_S) == "about_to_start"
    message = notice(job, "about_to_start", now, "notify")
    assert message.text == "job 4711 at kth is expected to start in about 15m"
    job.was_notified(message, BEFORE_S)
    assert due(job, now + 60, BEFORE_S) is None


def test_job_submitted_shortly_before_its_start_has_no_notice() -> None:
    job = watched(PLACE, StartEstimate(600.0, 7200.0, 0.0), BEFORE_S)
    assert due(job, 300.0, BEFORE_S) is None


def test_job_past_its_first_latest_start_waits_unusually_long() -> None:
    text = notice(watched(PLACE, FIRST, BEFORE_S), "slipped", 400 * HOUR_S, "notify").text
    assert text.endswith("by its latest predicted time: it has waited longer than 90 % of jobs like it")


def test_notice_of_delay_follows_estimate_or_clock_past_latest() -> None:
    job = watched(PLACE, FIRST, BEFORE_S)
    job.estimated(StartEstimate(21 * HOUR_S, 40 * HOUR_S, HOUR_S))
    assert due(job, HOUR_S, BEFORE_S) == "slipped"
    message = notice(job, "slipped", HOUR_S, "notify")
    assert message.text == "job 4711 at kth is expected to start in about 20h, 11h later than first predicted"
    job.was_notified(message, BEFORE_S)
    assert due(job, 2 * HOUR_S, BEFORE_S) is None
    assert due(job, 41 * HOUR_S, BEFORE_S) == "slipped"
    message = notice(job, "slipped", 41 * HOUR_S, "notify")
    assert message.text == "job 4711 at kth has not started by its latest predicted time"
    job.was_notified(message, BEFORE_S)
    assert due(job, 42 * HOUR_S, BEFORE_S) is None  # notified once, until the next estimate
    job.estimated(StartEstimate(43 * HOUR_S, 44 * HOUR_S, 42 * HOUR_S))
    assert due(job, 42.9 * HOUR_S, BEFORE_S) == "slipped"


def test_delay_to_an_imminent_start_is_notified_once() -> None:
    job = watched(PLACE, FIRST, BEFORE_S)
    now = 25 * HOUR_S
    job.estimated(StartEstimate(now + BEFORE_S / 2, 40 * HOUR_S, now))
    assert due(job, now, BEFORE_S) == "slipped"
    job.was_notified(notice(job, "slipped", now, "notify"), BEFORE_S)
    assert due(job, now + 1.0, BEFORE_S) is None
    job.estimated(StartEstimate(50 * HOUR_S, 60 * HOUR_S, now + 60.0))
    assert due(job, now + 60.0, BEFORE_S) == "slipped"
    job.was_notified(notice(job, "slipped", now + 60.0, "notify"), BEFORE_S)
    assert due(job, 50 * HOUR_S - BEFORE_S, BEFORE_S) == "about_to_start"


def test_bound_before_expected_start_is_ignored() -> None:
    job = watched(PLACE, FIRST, BEFORE_S)
    job.estimated(StartEstimate.of(21 * HOUR_S, 12 * HOUR_S, HOUR_S))
    message = notice(job, "slipped", HOUR_S, "notify")
    assert message.latest == message.expected_start
    job.was_notified(message, BEFORE_S)
    assert due(job, HOUR_S, BEFORE_S) is None


def test_sooner_notice_is_due_if_half_of_remaining_wait_is_gone() -> None:
    job = watched(PLACE, FIRST, BEFORE_S)
    job.estimated(StartEstimate(6.1 * HOUR_S, 9 * HOUR_S, 2 * HOUR_S))
    assert due(job, 2 * HOUR_S, BEFORE_S) is None
    job.estimated(StartEstimate(6 * HOUR_S, 9 * HOUR_S, 2 * HOUR_S))
    assert due(job, 2 * HOUR_S, BEFORE_S) == "sooner"
    message = notice(job, "sooner", 2 * HOUR_S, "notify")
    assert message.text == "job 4711 at kth is expected to start in about 4h, 4h sooner than first predicted"
    job.was_notified(message, BEFORE_S)
    assert due(job, 2 * HOUR_S, BEFORE_S) is None


def test_small_change_has_no_notice() -> None:
    job = watched(PLACE, StartEstimate(500.0, 7200.0, 0.0), 60.0)
    job.estimated(StartEstimate(220.0, 7200.0, 10.0))
    assert due(job, 10.0, 60.0) is None


def test_notice_repeated_after_a_crash_has_the_same_id() -> None:
    once, again = (watched(PLACE, FIRST, BEFORE_S) for _ in range(2))
    first, second = notice(once, "slipped", 1.0, "n"), notice(again, "slipped", 2.0, "n")
    assert first.id == second.id
    once.was_notified(first, BEFORE_S)
    ids = {first.id, notice(once, "slipped", 3.0, "n").id, notice(again, "sooner", 1.0, "n").id}
    assert len(ids | {notice(again, "slipped", 1.0, "other").id}) == 4


@pytest.mark.parametrize("wait_s", [None, 60.0])
def test_start_estimate_without_wait_or_bound_is_missing(wait_s: float | None) -> None:
    found = estimate_of(prediction("1", wait_s))
    assert found is None if wait_s is None else found is not None and found.latest is None


def test_blocked_job_notice_contains_no_start() -> None:
    job = watched(PLACE, FIRST, BEFORE_S)
    job.blocked_by = "held back by a limit"
    assert due(job, 10 * HOUR_S - BEFORE_S, BEFORE_S) is None
    assert due(job, 21 * HOUR_S, BEFORE_S) == "slipped"
    text = notice(job, "slipped", 21 * HOUR_S, "notify").text
    assert text == "job 4711 at kth has no predictable start: held back by a limit"


def test_later_estimate_of_blocked_job_is_considered() -> None:
    job = watched(PLACE, FIRST, BEFORE_S)
    job.blocked_by = "held back by a limit"
    job.estimated(StartEstimate(4 * HOUR_S, 9 * HOUR_S, HOUR_S))
    assert due(job, HOUR_S, BEFORE_S) == "sooner"
    assert due(job, 4 * HOUR_S - BEFORE_S, BEFORE_S) == "about_to_start"
