"""Published estimates of queued jobs are scored at fixed ages."""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable
from statistics import median

import pytest

from models.engine.engine import Engine
from models.engine.settings import EngineSettings
from models.records import AnyEvent, Hold, Outcome, Prediction
from models.waiting_accuracy import MAX_FRESH, WAITING_AGES_S, RecentRemaining, WaitingAccuracy
from tests.models.waits.test_blend_remaining import BLEND, busy_days
from tests.support.engines import encoded, engine_after
from tests.support.events import as_history, end, start, submit


def scores_by_definition(records: Iterable[object], method: str) -> dict[float, dict[str, float]]:
    """Score published records at each age, all at once, job by job."""
    predictions, waits = defaultdict[str, list[Prediction]](list), dict[str, tuple[float, float]]()
    for record in records:
        if isinstance(record, Prediction) and record.method == method and record.predicted_wait_s is not None:
            predictions[record.job].append(record)
        elif isinstance(record, Outcome) and record.actual_run_s is None and record.method == method:
            waits[record.job] = (record.made_at, record.actual_wait_s)
    by_start, found = sorted((ready + wait_s, wait_s) for ready, wait_s in waits.values()), {}
    for age_s in WAITING_AGES_S:
        left = [(begin, wait_s - age_s) for begin, wait_s in by_start if wait_s > age_s]
        begins = [begin for begin, _ in left]
        errors, count, held, passed = defaultdict[str, float](float), 0, 0, 0
        for job, (ready, wait_s) in waits.items():
            if wait_s <= age_s or job not in predictions:
                continue
            place = max(0, bisect_right([record.made_at for record in predictions[job]], ready + age_s) - 1)
            in_force, rest, count = predictions[job][place], wait_s - age_s, count + 1
            before = bisect_left(begins, ready + age_s)
            known = [rest for _, rest in left[max(0, before - 500) : before]]
            assert in_force.predicted_wait_s is not None and predictions[job][0].predicted_wait_s is not None
            errors["in_force_h"] += abs(max(0.0, in_force.predicted_wait_s - age_s) - rest)
            errors["first_h"] += abs(max(0.0, predictions[job][0].predicted_wait_s - age_s) - rest)
            errors["now_h"] += rest
            errors["recent_h"] += abs((median(known) if known else 0.0) - rest)
            upper_s = (in_force.bounds or {}).get("0.9")
            if upper_s is not None:
                held += wait_s <= upper_s
                passed += upper_s < in_force.predicted_wait_s or upper_s < age_s
        if count:
            found[age_s] = {name: total / count / 3600 for name, total in errors.items()}
            found[age_s] |= {"jobs": count, "held": held, "passed": passed}
    return found


def replayed(engine: Engine, events: Iterable[AnyEvent]) -> list[object]:
    return [record for event in events for record in engine.apply(event)]


@pytest.mark.parametrize("settings", [BLEND, EngineSettings(method="median", shadows=(), bounds="")])
def test_scores_at_each_age_follow_their_definition(settings: EngineSettings) -> None:
    engine = Engine("s", settings)
    expected = scores_by_definition(replayed(engine, busy_days(7)), settings.method)
    rows = engine.scores.waiting.rows()
    assert rows.keys() == expected.keys() and len(rows) == 3
    for age_s, row in rows.items():
        assert {name: row[name] for name in expected[age_s] if name in row} == pytest.approx(
            {name: value for name, value in expected[age_s].items() if name in row}, rel=1e-6
        )
        if "expired" in row:
            counted = engine.scores.waiting.ages[WAITING_AGES_S.index(age_s)]
            assert (counted.held["0.9"], counted.passed) == (expected[age_s]["held"], expected[age_s]["passed"])


def test_site_restored_at_any_event_scores_the_same() -> None:
    events = list(busy_days(3))
    for first in range(300, 420, 40):
        engine = engine_after(*events[:first], settings=BLEND)
        saved, changes = engine.checkpoint()
        other = Engine.load(saved, changes.started, changes.runs, BLEND, changes.rows)
        for event in events[first : first + 40]:
            assert encoded(engine.apply(event)) == encoded(other.apply(event))
        assert engine.checkpoint()[0] == other.checkpoint()[0]


def test_history_of_a_site_is_not_scored() -> None:
    engine = Engine("s", BLEND)
    replayed(engine, as_history(list(busy_days(4))))
    assert not engine.scores.waiting.rows()


def test_duplicate_events_change_no_score() -> None:
    once, twice = Engine("s", BLEND), Engine("s", BLEND)
    for event in busy_days(5, jobs=80):
        once.apply(event)
        twice.apply(event)
        twice.apply(event)
    assert once.scores.waiting == twice.scores.waiting


def test_job_that_starts_at_an_age_is_not_scored_there() -> None:
    engine = Engine("s", BLEND)
    replayed(engine, [submit("1", 0.0), submit("2", 0.0), start("1", 600.0), start("2", 601.0), end("1", 700.0)])
    assert engine.scores.waiting == WaitingAccuracy() or engine.scores.waiting.rows()[600.0]["jobs"] <= 1


def test_recent_median_follows_the_last_500_jobs() -> None:
    recent = RecentRemaining()
    for number in range(1000 + 2 * MAX_FRESH):
        recent.add(float(number), 700.0 if number < 600 else 1600.0)
    assert recent.median(0, 1e6) == 1000.0
    other = RecentRemaining()
    other.load(recent.save())
    assert (other.median(0, 1e6), other.save()) == (1000.0, recent.save())


@pytest.mark.parametrize("settings", [BLEND, EngineSettings(method="median", shadows=(), bounds="")])
def test_many_landmarks_at_once_are_spread_over_events(
    settings: EngineSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A landmark is recorded before its job departs or gets a new estimate, so it has the estimate of its age."""
    monkeypatch.setattr("models.engine.landmarks.PASSED_PER_EVENT", 2)
    spread, at_once = Engine("s", settings), Engine("s", settings)
    events: list[AnyEvent] = list(busy_days(6, jobs=60))
    begin = events[-1].time + 60.0
    events += [submit(f"q{number}", begin + number) for number in range(9)]
    later: list[AnyEvent] = [
        start("q3", begin + 9000.0),
        *(submit(f"z{number}", begin + 9000.0) for number in range(20)),
    ]
    for event in [*events, *later]:
        spread.apply(event)
        recorded = [len(job.landmarks) for job in spread.context.state.jobs.values()]
        if event is later[0] and settings is not BLEND:
            assert sum(recorded) == 2 * 2  # Two before the job departed and two after.
    monkeypatch.setattr("models.engine.landmarks.PASSED_PER_EVENT", 1000)
    replayed(at_once, [*events, *later])
    assert spread.scores.waiting.rows() == at_once.scores.waiting.rows()
    for key, job in at_once.context.state.jobs.items():
        other = spread.context.state.jobs[key].landmarks
        assert len(other) == len(job.landmarks)
        assert [one.in_force_s for one in other] == [one.in_force_s for one in job.landmarks]


def test_hold_keeps_the_landmarks_reached_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("models.engine.landmarks.PASSED_PER_EVENT", 1)
    settings = EngineSettings(method="median", shadows=(), bounds="")
    engine, events = Engine("s", settings), list(busy_days(6, jobs=60))
    begin = events[-1].time + 60.0
    replayed(engine, [*events, *(submit(f"q{number}", begin + number) for number in range(5))])
    engine.apply(start("q0", begin + 700.0))
    held = engine.context.state.jobs["q4", 0]
    in_force = held.estimates["median"].wait_s
    assert not held.landmarks and in_force is not None
    engine.apply(Hold(site="s", time=begin + 701.0, job="q4"))
    assert [one.in_force_s for one in held.landmarks] == [in_force]


def test_old_jobs_have_no_landmarks_after_a_restart() -> None:
    begin = [submit(f"q{number}", 1e6 + number, historical=True) for number in range(3)]
    engine = Engine("s", BLEND)
    for event in begin:
        engine.apply(event)
    for job in engine.context.state.jobs.values():
        job.progress = job.progress.replaced(old=True)
    saved, changes = engine.checkpoint()
    restored = Engine.load(saved, changes.started, changes.runs, BLEND, changes.rows)
    restored.apply(submit("z", 1e6 + 5000.0))
    assert {job.landmarks for job in restored.context.state.jobs.values()} == {()}
