"""Replay scores of pending jobs and of the notifications they would have received."""

import pytest

from models.notices import estimate_of
from models.records import Outcome, Prediction
from models.waiting_accuracy import Landmark
from streams.offline.waiting_scores import (
    NoticeCounts,
    WaitingCounts,
    WaitingScores,
    document,
    notice_sentences,
    show,
    table,
)

HOUR_S = 3600.0


def prediction(made_at: float, wait_s: float, bound_s: float, job: str = "1") -> Prediction:
    return Prediction(
        site="s",
        job=job,
        attempt=0,
        made_at=made_at,
        predicted_wait_s=wait_s,
        predicted_run_s=None,
        predicted_start=wait_s,
        bounds={"0.1": 0.0, "0.5": wait_s, "0.9": bound_s},
        method="blend",
        reason="",
    )


def outcome(wait_s: float, job: str = "1", censored: bool = False) -> Outcome:
    return Outcome(
        site="s",
        job=job,
        attempt=0,
        made_at=0.0,
        method="blend",
        predicted_wait_s=None,
        predicted_run_s=None,
        bounds=None,
        observed_at=wait_s,
        actual_wait_s=wait_s,
        actual_run_s=None,
        error_s=0.0,
        run_error_s=None,
        censored=censored,
    )


def publish(scores: WaitingScores, record: Prediction) -> None:
    estimate = estimate_of(record)
    assert estimate is not None
    scores.estimated((record.site, record.job, record.attempt), estimate)


def notices(*records: Prediction | Outcome) -> NoticeCounts:
    scores = WaitingScores("blend")
    for record in records:
        if isinstance(record, Prediction):
            publish(scores, record)
        else:
            scores.job_dequeued(record, (), scored=True)
    return scores.notices


def test_notice_before_a_start_as_expected_is_in_time() -> None:
    counts = notices(prediction(0.0, 2 * HOUR_S, 3 * HOUR_S), outcome(2 * HOUR_S))
    assert counts == NoticeCounts(jobs=1, in_time=1, about=1, came_true=1)


def test_notice_long_before_start_counts_as_false() -> None:
    counts = notices(prediction(0.0, 2 * HOUR_S, 9 * HOUR_S), outcome(4 * HOUR_S))
    assert counts == NoticeCounts(jobs=1, in_time=0, about=1, came_true=0)


def test_notice_of_job_that_waits_under_an_hour_counts() -> None:
    counts = notices(prediction(0.0, 0.6 * HOUR_S, 3 * HOUR_S), outcome(0.7 * HOUR_S))
    assert counts == NoticeCounts(jobs=0, about=1, came_true=1)
    assert len(notice_sentences(counts)) == 1


def test_slipped_is_false_if_job_starts_within_bound() -> None:
    later = prediction(100.0, 6 * HOUR_S, 8 * HOUR_S)
    counts = notices(prediction(0.0, 2 * HOUR_S, 3 * HOUR_S), later, outcome(2.5 * HOUR_S))
    assert (counts.slipped, counts.false_slipped, counts.about) == (1, 1, 0)
    counts = notices(prediction(0.0, 2 * HOUR_S, 3 * HOUR_S), later, outcome(3.5 * HOUR_S))
    assert (counts.slipped, counts.false_slipped) == (1, 0)


def test_notice_of_exceeded_bound_counts_as_slipped_once() -> None:
    counts = notices(prediction(0.0, HOUR_S, 2 * HOUR_S), outcome(5 * HOUR_S))
    assert (counts.slipped, counts.false_slipped) == (1, 0)


def test_cancelled_or_early_start_is_no_long_wait() -> None:
    assert notices(prediction(0.0, 2 * HOUR_S, 3 * HOUR_S), outcome(2 * HOUR_S, censored=True)) == NoticeCounts()
    assert notices(prediction(0.0, 1800.0, HOUR_S), outcome(1800.0)).jobs == 0


def test_waiting_scores_ignore_unscored_jobs() -> None:
    scores = WaitingScores("blend")
    publish(scores, prediction(0.0, 2 * HOUR_S, 3 * HOUR_S))
    scores.job_dequeued(outcome(2 * HOUR_S), [Landmark(0, 1.0, 1.0, 1.0)], scored=False)
    assert scores.counted == WaitingCounts()


def test_scores_restored_between_records_send_the_same_notices() -> None:
    straight = notices(prediction(0.0, 2 * HOUR_S, 3 * HOUR_S), outcome(4 * HOUR_S))
    first, second = WaitingScores("blend"), WaitingScores("blend")
    publish(first, prediction(0.0, 2 * HOUR_S, 3 * HOUR_S))
    second.counted = first.counted
    second.job_dequeued(outcome(4 * HOUR_S), (), scored=True)
    assert second.notices == straight


def test_waiting_table_and_sentences_equal_counts(capsys: pytest.CaptureFixture[str]) -> None:
    scores = WaitingScores("blend")
    publish(scores, prediction(0.0, 2 * HOUR_S, 3 * HOUR_S))
    noted = [Landmark(0, 2 * HOUR_S, 2 * HOUR_S, HOUR_S, {"0.9": 3 * HOUR_S}), Landmark(1)]
    scores.job_dequeued(outcome(2 * HOUR_S), noted, scored=True)
    heads, lines = table(scores.accuracy)
    assert heads[:3] == ["while they wait", "jobs", "in force h"] and heads[-2:] == ["cov 0.9", "expired"]
    assert lines == [["10m", "1", "0.000", "0.000", "1.833", "0.833", "0.000", "1.000", "0.000"]]
    assert document(scores.counted)["notices"] == scores.notices.rows()
    assert notice_sentences(scores.notices)[0].startswith("Of the 1 jobs that waited over an hour, 100 % would")
    show(scores.counted)
    assert "while they wait" in capsys.readouterr().out
