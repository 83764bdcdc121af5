"""Late, repeated, reordered or missing events have a defined outcome and do not corrupt the state."""

from pathlib import Path

import msgspec
import pytest

from models.durations import DAY_S
from models.engine.engine import EVENTS_PER_SWEEP, Engine
from models.engine.outgoing import Record
from models.records import Capacity
from models.site.expiry import MIN_AGREEING_EVENTS
from models.site.job import Phase
from models.site.unsubmitted import UnsubmittedStarts
from tests.support.stories import (
    ENDED,
    HELD,
    QUEUED,
    RUNNING,
    SETTINGS,
    SUSPENDED,
    anomalies,
    applied,
    assert_sound,
    contents,
    event,
    live,
    new_engine,
    outcomes,
    story,
)

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "disorder.md"

# Events, the anomalies they cause (an exclamation mark: rejected), and the attempts that are live afterwards.
TABLE: list[tuple[str, str, dict[int, Phase]]] = [
    # In order.
    ("submit@100", "", {0: QUEUED}),
    ("submit@100 start@150", "", {0: RUNNING}),
    ("submit@100 start@100 end@100", "", {}),
    ("submit@100 start@150 end@300", "", {}),
    ("submit@100 cancel@150", "", {}),
    ("submit@100 hold@110", "", {0: HELD}),
    ("submit@100 hold@110 release@120", "", {0: QUEUED}),
    ("submit@100 hold@110 cancel@120", "", {}),
    ("submit@100 hold@110 alter@115 release@120 alter@130 start@150 alter@160 end@300", "", {}),
    ("submit@100 start@150 requeue@200", "", {1: QUEUED}),
    ("submit@100 start@150 requeue@200 start'@250 requeue'@260 start''@270 end''@300", "", {}),
    ("submit@100 start@150 suspend@200", "", {0: SUSPENDED}),
    ("submit@100 start@150 suspend@200 resume@250", "", {0: RUNNING}),
    ("submit@100 start@150 suspend@200 resume@250 suspend@260 end@300", "", {}),
    ("submit@100 start@150 suspend@200 requeue@250", "", {1: QUEUED}),
    ("submit@100 expected_start@110 expected_start@120 start@150 end@300", "", {}),
    ("submit@100 hold@110 expected_start@120", "", {0: HELD}),
    # Repeated.
    ("submit@100 submit@100", "duplicate_submit", {0: QUEUED}),
    ("submit@100 start@150 submit@100", "duplicate_submit", {0: RUNNING}),
    ("submit@100 start@150 start@150", "duplicate_start", {0: RUNNING}),
    ("submit@100 start@150 end@300 submit@100", "duplicate_submit", {}),
    ("submit@100 start@150 end@300 start@150", "duplicate_start", {}),
    ("submit@100 start@150 end@300 end@300", "duplicate_end", {}),
    ("submit@100 start@150 end@300 cancel@300", "duplicate_cancel", {}),
    ("submit@100 cancel@150 cancel@150", "duplicate_cancel", {}),
    ("submit@100 cancel@150 submit@100", "duplicate_submit", {}),
    ("submit@100 hold@110 hold@110", "hold_of_job_not_queued", {0: HELD}),
    ("submit@100 hold@110 release@120 release@120", "release_of_job_not_held", {0: QUEUED}),
    ("submit@100 hold@110 release@120 hold@110", "stale_hold!", {0: QUEUED}),
    ("submit@100 hold@110 release@120 hold@130 release@120", "stale_release!", {0: HELD}),
    ("submit@100 hold@110 hold@130 release@120", "hold_of_job_not_queued stale_release!", {0: HELD}),
    ("submit@100 alter@120 alter@110", "stale_alter!", {0: QUEUED}),
    ("submit@100 alter@120 hold@110", "", {0: HELD}),
    ("submit@100 start@150 requeue@200 requeue@200", "duplicate_requeue", {1: QUEUED}),
    ("submit@100 start@150 requeue@200 start@150", "duplicate_start", {1: QUEUED}),
    ("submit@100 start@150 requeue@200 submit'@200", "duplicate_submit", {1: QUEUED}),
    ("submit@100 start@150 suspend@200 suspend@200", "suspend_of_job_not_running", {0: SUSPENDED}),
    ("submit@100 start@150 suspend@200 resume@250 resume@250", "resume_of_job_not_suspended", {0: RUNNING}),
    ("submit@100 start@150 suspend@200 resume@250 suspend@200", "stale_suspend!", {0: RUNNING}),
    ("submit@100 start@150 suspend@200 resume@250 suspend@300 resume@250", "stale_resume!", {0: SUSPENDED}),
    ("submit@100 start@150 suspend@200 start@150", "duplicate_start", {0: SUSPENDED}),
    ("submit@100 start@150 suspend@200 end@300 suspend@200", "suspend_of_job_not_running", {}),
    # Never submitted, or submitted late.
    ("start@150", "start_without_submit", {0: RUNNING}),
    ("start@150 start@150", "start_without_submit duplicate_start", {0: RUNNING}),
    ("start@150 end@300", "start_without_submit", {}),
    ("start@150 submit@100", "start_without_submit submit_after_start", {0: RUNNING}),
    ("start@150 submit@100 submit@100", "start_without_submit submit_after_start duplicate_submit", {0: RUNNING}),
    ("start@150 submit@100 end@300", "start_without_submit submit_after_start", {}),
    ("start@150 end@300 submit@100", "start_without_submit duplicate_submit", {}),
    ("end@300", "end_without_start", {}),
    ("end@300 end@300", "end_without_start duplicate_end", {}),
    ("end@300 submit@100", "end_without_start duplicate_submit", {}),
    ("end@300 start@150 submit@100", "end_without_start duplicate_start duplicate_submit", {}),
    ("cancel@150", "cancel_without_submit", {}),
    ("cancel@150 submit@100", "cancel_without_submit duplicate_submit", {}),
    ("cancel@150 cancel@150", "cancel_without_submit duplicate_cancel", {}),
    ("hold@110", "hold_of_job_not_queued", {}),
    ("hold@110 submit@100", "hold_of_job_not_queued", {0: QUEUED}),
    ("release@120", "release_of_job_not_held", {}),
    ("alter@120", "alter_of_unknown_job", {}),
    ("requeue@200", "requeue_of_unknown_job", {}),
    ("requeue@200 requeue@200", "requeue_of_unknown_job duplicate_requeue", {}),
    ("requeue@200 submit@100 start@150", "requeue_of_unknown_job duplicate_submit duplicate_start", {}),
    ("suspend@200", "suspend_of_job_not_running", {}),
    ("suspend@200 submit@100", "suspend_of_job_not_running", {0: QUEUED}),
    ("resume@250", "resume_of_job_not_suspended", {}),
    ("start@150 suspend@200 submit@100", "start_without_submit submit_after_start", {0: SUSPENDED}),
    ("expected_start@110", "expected_start_of_job_not_queued", {}),
    # Reordered.
    ("submit@100 end@300", "end_seen_before_start", {0: ENDED}),
    ("submit@100 end@300 start@150", "end_seen_before_start", {}),
    ("submit@100 end@300 start@300", "end_seen_before_start", {}),
    ("submit@100 end@300 start@361", "end_seen_before_start start_after_end!", {0: ENDED}),
    ("submit@100 end@300 end@300", "end_seen_before_start duplicate_end", {0: ENDED}),
    ("submit@100 end@300 start@150 end@300", "end_seen_before_start duplicate_end", {}),
    ("submit@100 end@300 submit@100", "end_seen_before_start duplicate_submit", {0: ENDED}),
    ("submit@100 end@300 cancel@300", "end_seen_before_start cancel_after_end", {0: ENDED}),
    ("submit@100 end@300 hold@310", "end_seen_before_start hold_of_job_not_queued", {0: ENDED}),
    ("submit@100 end@300 release@310", "end_seen_before_start release_of_job_not_held", {0: ENDED}),
    ("submit@100 end@300 requeue@310", "end_seen_before_start requeue_after_end", {0: ENDED}),
    ("submit@100 hold@110 end@300", "end_seen_before_start", {0: ENDED}),
    ("submit@100 release@120 hold@110", "release_of_job_not_held stale_hold!", {0: QUEUED}),
    ("submit@100 hold@110 start@150 release@120", "release_of_job_not_held", {0: RUNNING}),
    ("submit@100 start@150 hold@110", "hold_of_job_not_queued", {0: RUNNING}),
    ("submit@100 requeue@200", "requeue_seen_before_start", {1: QUEUED}),
    ("submit@100 requeue@200 start@150", "requeue_seen_before_start duplicate_start", {1: QUEUED}),
    ("submit@100 start@150 submit'@200 requeue@200", "duplicate_submit", {1: QUEUED}),
    ("submit@100 start@150 start'@250 requeue@200", "start_without_submit submit_after_start", {1: RUNNING}),
    ("submit@100 start@150 start'@250 end'@300 requeue@200", "start_without_submit duplicate_submit", {}),
    ("submit@100 start@150 end'@300 requeue@200", "end_without_start duplicate_submit", {}),
    ("start@150 requeue@200 submit@100", "start_without_submit duplicate_submit", {1: QUEUED}),
    ("submit@100 suspend@200", "suspend_of_job_not_running", {0: QUEUED}),
    ("submit@100 suspend@200 start@150", "suspend_of_job_not_running", {0: RUNNING}),
    ("submit@100 start@150 resume@250", "resume_of_job_not_suspended", {0: RUNNING}),
    ("submit@100 start@150 resume@250 suspend@200", "resume_of_job_not_suspended stale_suspend!", {0: RUNNING}),
    ("submit@100 end@300 suspend@200", "end_seen_before_start suspend_of_job_not_running", {0: ENDED}),
    ("submit@100 start@150 expected_start@110", "expected_start_of_job_not_queued", {0: RUNNING}),
    # Clocks that differ by up to a minute.
    ("submit@100 start@40", "", {0: RUNNING}),
    ("submit@100 start@40 end@300", "", {}),
    ("submit@100 start@99 start@150", "duplicate_start", {0: RUNNING}),
    ("submit@100 hold@110 start@40", "", {0: RUNNING}),
    ("submit@100 cancel@40", "", {}),
    ("submit@100 start@150 end@90", "", {}),
    ("submit@100 start@150 cancel@90", "cancel_while_running", {}),
    ("submit@100 start@150 suspend@140", "", {0: SUSPENDED}),
    ("submit@100 start@150 suspend@200 end@190", "", {}),
    ("submit@100 end@99", "end_seen_before_start", {0: ENDED}),
    ("submit@100 end@99 start@99", "end_seen_before_start", {}),
    ("submit@100 end@300 start@40", "end_seen_before_start", {}),
    ("submit@100 end@300 start@360", "end_seen_before_start", {}),
    # Impossible times: the event is accepted, its time is not.
    ("submit@100 start@39", "start_before_submit", {0: RUNNING}),
    ("submit@100 start@39 start@150", "start_before_submit duplicate_start", {0: RUNNING}),
    ("submit@100 start@39 submit@100", "start_before_submit duplicate_submit", {0: RUNNING}),
    ("submit@100 start@39 end@300", "start_before_submit", {}),
    ("submit@100 start@39 end@300 end@300", "start_before_submit duplicate_end", {}),
    ("submit@100 start@39 requeue@200", "start_before_submit", {1: QUEUED}),
    ("submit@100 hold@110 start@39 release@120", "start_before_submit release_of_job_not_held", {0: RUNNING}),
    ("submit@100 end@300 start@39", "end_seen_before_start start_before_submit", {}),
    ("submit@100 end@300 start@39 start@39", "end_seen_before_start start_before_submit duplicate_start", {}),
    ("submit@100 end@9 start@5", "end_seen_before_start start_before_submit", {}),
    ("submit@100 cancel@39", "cancel_before_submit", {}),
    ("submit@100 cancel@39 cancel@150", "cancel_before_submit duplicate_cancel", {}),
    ("submit@100 cancel@39 start@150", "cancel_before_submit duplicate_start", {}),
    ("submit@100 start@150 end@89", "end_before_start", {}),
    ("submit@100 start@150 end@89 end@300", "end_before_start duplicate_end", {}),
    ("submit@100 start@150 cancel@89", "cancel_while_running end_before_start", {}),
    # Impossible times: rejected.
    ("submit@100 end@9 start@100", "end_seen_before_start start_after_end!", {0: ENDED}),
    ("submit@100 requeue@39", "requeue_before_start!", {0: QUEUED}),
    ("submit@100 start@150 requeue@89", "requeue_before_start!", {0: RUNNING}),
    # Cancelled while running: the job ended.
    ("submit@100 start@150 cancel@200", "cancel_while_running", {}),
    ("submit@100 start@150 suspend@200 cancel@250", "cancel_while_running", {}),
    ("submit@100 start@150 cancel@200 end@200", "cancel_while_running duplicate_end", {}),
]


@pytest.mark.parametrize(("text", "reasons", "after"), TABLE, ids=[row[0] for row in TABLE])
def test_disordered_events_report_expected_anomalies(text: str, reasons: str, after: dict[int, Phase]) -> None:
    engine = new_engine()
    found = anomalies(applied(engine, story(text)))
    assert " ".join(anomaly.reason + "!" * anomaly.rejected for anomaly in found) == reasons
    assert live(engine) == after
    assert engine.events == len(text.split())
    assert sum(engine.anomalies.values()) == len(found)
    assert all("job 1" in anomaly.detail or anomaly.reason.startswith("stale_") for anomaly in found)
    assert_sound(engine)


@pytest.mark.parametrize("text", [text for text, reasons, _ in TABLE if "!" in reasons])
def test_rejected_event_changes_no_state(text: str) -> None:
    engine = new_engine()
    rejected = 0
    for each in story(text):
        before = contents(engine)
        records = engine.apply(each)
        if any(anomaly.rejected for anomaly in anomalies(records)):
            rejected += 1
            assert contents(engine) == before
            assert anomalies(records) == records
    assert rejected == 1


def given_up() -> list[Record]:
    """Return the records that an engine emits for jobs of each phase that exceed their maximum age."""
    engine = Engine("s", SETTINGS)
    phases = {
        "queued": "",
        "held": " hold@110",
        "running": " start@150",
        "suspended": " start@150 suspend@200",
        "ended": " end@300",
    }
    for job, rest in phases.items():
        applied(engine, [msgspec.structs.replace(each, job=job) for each in story("submit@100" + rest)])
    engine.parts.live.unsubmitted_starts = UnsubmittedStarts(refuted=10.0)
    applied(engine, [msgspec.structs.replace(each, job="unconfirmed") for each in story("start@150")])
    steps = [50.0 * DAY_S * step for step in range(1, 10)]
    times = steps + steps[-1:] * (EVENTS_PER_SWEEP + MIN_AGREEING_EVENTS)
    return applied(engine, [Capacity(site="s", time=time, cpus=8) for time in times])


def test_jobs_of_every_phase_are_given_up() -> None:
    assert sorted(anomaly.reason for anomaly in anomalies(given_up())) == sorted(f"gave_up_{phase}" for phase in Phase)


def test_anomaly_reasons_are_documented_in_the_readme_table() -> None:
    happened = [record for text, _, _ in TABLE for record in applied(new_engine(), story(text))] + given_up()
    happened += applied(new_engine(), [Capacity(site="s", time=time, cpus=8) for time in (20.0, 10.0)])
    full = Engine("s", msgspec.structs.replace(SETTINGS, live_jobs=1))
    happened += applied(full, [event("submit@100"), msgspec.structs.replace(event("submit@100"), job="2")])
    reasons = {anomaly.reason for anomaly in anomalies(happened)}
    assert reasons >= {"duplicate_submit", "stale_capacity", "state_full", "gave_up_held"}
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("|")]
    assert not {reason for reason in reasons if not any(f"`{reason}`" in row for row in rows)}


def test_start_before_eligible_is_not_scored() -> None:
    engine = new_engine()
    records = applied(engine, [event("submit@100", eligible=900.0), event("start@150"), event("end@300")])
    assert [found.reason for found in anomalies(records)] == ["start_before_eligible"]
    assert not outcomes(records) and not live(engine)
