"""Jobs tracked for notifications, from the records of the topics."""

from typing import Any

import pytest

from models.notices import notice
from models.records import Outcome, Prediction, Submit
from streams.notify.watching import NoticeFilter, NoticeTracker
from tests.support import events

NOW = 1.8e9
HOUR_S = 3600.0


def prediction(job: str, wait_s: float, at: float = NOW, site: str = "kth", **fields: Any) -> Prediction:
    return events.prediction(job, wait_s, at, site=site, bounds={"0.9": 2 * wait_s}, **fields)


def outcome(job: str, at: float = NOW) -> Outcome:
    return events.outcome(job, 1.0, made_at=at, site="kth", observed_at=at)


def watching(clock: list[float], **wanted: frozenset[str]) -> NoticeTracker:
    return NoticeTracker(NoticeFilter(**wanted), "notify", 900.0, lambda: clock[0])


def due(found: NoticeTracker) -> list[str]:
    return [job.place[1] for job in found.due()]


def test_notice_tracker_uses_clock_for_live_site() -> None:
    clock = [NOW]
    found = watching(clock)
    found.predicted(prediction("1", HOUR_S), NOW)
    assert due(found) == []
    clock[0] += HOUR_S - 600
    assert due(found) == ["1"]
    found.job_dequeued(outcome("1"), NOW)
    assert due(found) == [] and not found.jobs


def test_notice_tracker_uses_record_times_for_replayed_site() -> None:
    found = watching([NOW])
    found.predicted(prediction("1", HOUR_S, at=8e8), NOW)
    assert found.now("kth") == 8e8 and due(found) == []
    found.predicted(prediction("2", HOUR_S, at=8e8 + HOUR_S - 60), NOW)
    assert due(found) == ["1"]


def test_notice_tracker_ignores_prediction_after_outcome() -> None:
    found = watching([NOW])
    found.job_dequeued(outcome("1"), NOW)
    found.predicted(prediction("1", HOUR_S), NOW)
    assert not found.jobs


def test_notification_is_not_repeated_after_restart() -> None:
    clock = [NOW]
    first = watching(clock)
    first.predicted(prediction("1", HOUR_S), NOW)
    clock[0] += HOUR_S - 600
    (job,) = first.due()
    sent_notice = notice(job, "about_to_start", clock[0], "notify")
    again = watching(clock)
    again.was_notified(sent_notice)
    again.predicted(prediction("1", HOUR_S), NOW)
    assert due(again) == []
    other = NoticeTracker(NoticeFilter(), "other", 900.0, lambda: clock[0])
    other.was_notified(sent_notice)
    other.predicted(prediction("1", HOUR_S), NOW)
    assert due(other) == ["1"]


def test_notice_filter_selects_sites_jobs_and_users() -> None:
    by_site = watching([NOW], sites=frozenset({"ctc"}))
    by_job = watching([NOW], jobs=frozenset({"2"}))
    by_user = watching([NOW], users=frozenset({"ada"}))
    by_user.submitted(Submit(site="kth", time=NOW, job="2", user="ada"))
    by_user.submitted(Submit(site="kth", time=NOW, job="1", user="bob"))
    for found in (by_site, by_job, by_user):
        for job in ("1", "2"):
            found.predicted(prediction(job, HOUR_S), NOW)
    assert not by_site.jobs
    assert list(by_job.jobs) == list(by_user.jobs) == [("kth", "2", 0)]
    assert by_user.jobs["kth", "2", 0].user == "ada"


def test_notice_tracker_accepts_prediction_before_submit() -> None:
    clock = [NOW]
    found = watching(clock, users=frozenset({"ada"}))
    for job in ("1", "2", "3"):
        found.predicted(prediction(job, HOUR_S), NOW)
        found.predicted(prediction(job, 2 * HOUR_S, at=NOW + 60), NOW)
    assert not found.jobs
    found.job_dequeued(outcome("3"), NOW)
    for job, user in (("1", "bob"), ("2", "ada"), ("3", "ada")):
        found.submitted(Submit(site="kth", time=NOW, job=job, user=user))
    (place,) = found.jobs
    assert place == ("kth", "2", 0) and found.jobs[place].user == "ada"
    assert found.jobs[place].now.expected_start == NOW + 60 + 2 * HOUR_S
    clock[0] += 2 * HOUR_S
    (job,) = found.due()
    sent_notice = notice(job, "slipped", clock[0], "notify")
    again = watching(clock, users=frozenset({"ada"}))
    again.was_notified(sent_notice)
    again.predicted(prediction("2", HOUR_S), NOW)
    again.submitted(Submit(site="kth", time=NOW, job="2", user="ada"))
    assert again.jobs[place].last_id == sent_notice.id


def test_notice_tracker_keeps_user_of_requeued_job() -> None:
    found = watching([NOW], users=frozenset({"ada"}))
    for job, user in (("1", "ada"), ("2", "bob")):
        found.submitted(Submit(site="kth", time=NOW, job=job, user=user))
        found.predicted(prediction(job, HOUR_S), NOW)
        found.job_dequeued(outcome(job), NOW)
        found.predicted(prediction(job, HOUR_S, attempt=1), NOW)  # without a Submit event
    assert list(found.jobs) == [("kth", "1", 1)] and found.jobs["kth", "1", 1].user == "ada"
    found.submitted(Submit(site="kth", time=NOW, job="1", attempt=2, user="bob"))  # another job of this name
    found.predicted(prediction("1", HOUR_S, attempt=2), NOW)
    assert ("kth", "1", 2) not in found.jobs


def test_predictions_without_a_user_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streams.notify.watching.MAX_EARLY", 2)
    found = watching([NOW], users=frozenset({"ada"}))
    for job in ("1", "2", "3"):
        found.predicted(prediction(job, HOUR_S), NOW)
    for job in ("1", "2", "3"):
        found.submitted(Submit(site="kth", time=NOW, job=job, user="ada"))
    assert [job for _, job, _ in found.jobs] == ["2", "3"]


def test_predictions_of_shadows_do_not_count() -> None:
    found = watching([NOW])
    found.predicted(prediction("1", HOUR_S), NOW)
    found.predicted(prediction("1", 9 * HOUR_S, at=NOW + 1, method="zero"), NOW)
    assert found.jobs["kth", "1", 0].now.expected_start == NOW + HOUR_S
