"""Answers larger than a Kafka message."""

import msgspec
import pytest

from models.records import JobsAnswer, LiveJob, LiveState, NoAnswer, SiteAnswer, WeekAccuracy
from streams.worker.answers.background_answers import MAX_ANSWER_BYTES, encoded

LONG = "\x01" * 256
"""The longest name in JSON: six bytes per character."""


def live(number: int) -> LiveJob:
    return LiveJob(
        job=f"{number}{LONG[4:]}",
        attempt=0,
        phase="queued",
        queue=LONG,
        cpus=1,
        walltime=None,
        submit=float(number),
        start=None,
        predicted_wait_s=None,
        predicted_run_s=None,
        predicted_start=None,
        expected_start=None,
        bounds=None,
        method="qespera",
        reason="",
    )


def jobs_answer(count: int) -> JobsAnswer:
    return JobsAnswer(id="q", site="alder", made_at=1.0, user="ada", jobs=[live(n) for n in range(count)], more=7)


def site_answer(count: int, weeks: int = 0) -> SiteAnswer:
    return SiteAnswer(
        id="q",
        site="alder",
        made_at=1.0,
        cpus=1,
        down_nodes=0,
        live=LiveState(queued_jobs=count, running_jobs=0, free_cpus=0),
        held_jobs=0,
        queued_cpus=count,
        running_cpus=0,
        remaining_work_s=None,
        queues=["a", "b"],
        method="qespera",
        degraded=None,
        history_jobs=0,
        weeks=[WeekAccuracy(begin=float(n), end=n + 1.0, methods=[]) for n in range(weeks)],
        queued=[live(n) for n in range(count)],
    )


def test_encoded_small_answer_is_unchanged() -> None:
    assert encoded(jobs_answer(10)) == msgspec.json.encode(jobs_answer(10))


def test_encoded_jobs_answer_keeps_latest_jobs_and_counts_rest() -> None:
    value = encoded(jobs_answer(1000))
    answer = msgspec.json.decode(value, type=JobsAnswer)
    assert MAX_ANSWER_BYTES - 10_000 < len(value) <= MAX_ANSWER_BYTES
    assert answer.jobs == jobs_answer(1000).jobs[-len(answer.jobs) :]
    assert answer.more == 7 + 1000 - len(answer.jobs)


def test_encoded_site_answer_keeps_longest_queued_jobs() -> None:
    value = encoded(site_answer(1000, weeks=3))
    answer = msgspec.json.decode(value, type=SiteAnswer)
    assert len(value) <= MAX_ANSWER_BYTES
    assert answer.queued == site_answer(1000).queued[: len(answer.queued)]
    assert len(answer.weeks) == 3 and answer.queues == ["a", "b"]
    assert answer.more == 1000 - len(answer.queued)


@pytest.mark.parametrize("most", [500, 700, 1500])
def test_encoded_site_answer_drops_oldest_weeks_and_last_queues(most: int) -> None:
    value = encoded(site_answer(2, weeks=20), most)
    answer = msgspec.json.decode(value, type=SiteAnswer)
    assert len(value) <= most and not answer.queued
    assert answer.weeks == site_answer(0, weeks=20).weeks[20 - len(answer.weeks) :]
    assert answer.more == 2 + 20 - len(answer.weeks) + 2 - len(answer.queues)


def test_encoded_answer_over_limit_becomes_too_large_error() -> None:
    answer = msgspec.json.decode(encoded(jobs_answer(3), 50), type=NoAnswer)
    assert (answer.id, answer.site, answer.reason) == ("q", "alder", "too_large")
