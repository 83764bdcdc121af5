"""The blend estimates queued jobs from the present state of the site, and all answers agree."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise

import msgspec
import numpy as np
import pytest

from models.arrays import Floats, Ints
from models.engine import reestimates
from models.engine.asking.engine_answers import answer
from models.engine.engine import Engine
from models.engine.settings import EngineSettings
from models.records import AnyEvent, Cancel, End, JobAnswer, JobQuestion, JobsAnswer, JobsQuestion, Outcome, Prediction
from models.site.job import Estimate, Job, LaterEstimate, Phase
from models.waits.blend import Blend
from models.waits.blend.mixture_snapshot import BOUNDS, MEDIAN
from models.waits.blend.remaining.ages import AGES, LANDMARKS_S
from models.waits.blend.remaining.calibration import BoundsInForce, Calibration
from models.waits.blend.remaining.experts import EXPERTS, FORESTS, AgeExperts
from models.waits.blend.remaining.remaining_wait import _HEAD, landmarks
from tests.support.engines import encoded, engine_after
from tests.support.events import as_history, capacity, end, start, submit
from tests.support.sizes import is_thorough, mostly_long

MOST_LATER = 4
BLEND = EngineSettings(method="blend", shadows=(), bounds="", what_if_method="blend")


def busy_days(seed: int, jobs: int = 260) -> Iterator[AnyEvent]:
    """Return a site of one server with 16 CPUs where jobs queue for hours, some are cancelled, and nodes change."""
    dice = np.random.default_rng(seed)
    yield capacity(16, 0.0)
    events, free_at, now = list[AnyEvent](), 0.0, 100.0
    for number in range(jobs):
        now += float(dice.exponential(1500.0 if number % 60 < 40 else 4000.0))
        run_s, job, user = float(dice.uniform(600.0, 3600.0)), str(number), f"u{number % 5}"
        events.append(submit(job, now, cpus=16, walltime=4000.0, user=user))
        begins = max(free_at, now + 1.0)
        if dice.random() < 0.08:
            events.append(Cancel(site="s", job=job, time=now + 0.5 * (begins - now)))
            continue
        free_at = begins + run_s
        events += [start(job, begins), end(job, free_at)]
        if dice.random() < 0.03:
            events.append(capacity(16 + int(dice.integers(0, 3)), now + 50.0))
    yield from sorted(events, key=lambda event: event.time)


def blend_of(engine: Engine) -> Blend:
    method = engine.methods.waits["blend"]
    assert isinstance(method, Blend)
    return method


@pytest.mark.parametrize("seed", mostly_long([1, 2]))
def test_answers_about_queued_jobs_agree_at_any_time(seed: int) -> None:
    engine, compared = Engine("s", BLEND), 0
    for number, event in enumerate(busy_days(seed)):
        for record in engine.apply(event):
            if isinstance(record, Prediction) and record.bounds is not None:
                bounds = list(record.bounds.values())
                assert bounds == sorted(bounds) and bounds[MEDIAN] == record.predicted_wait_s
                assert record.waited_s is msgspec.UNSET or bounds[0] >= record.waited_s
        if number % (7 if is_thorough() else 21):
            continue
        for now in (engine.time, engine.time + 500.0, engine.time + 90_000.0):
            compared += _answers_agree(engine, now)
    assert compared > 100


def _answers_agree(engine: Engine, now: float) -> int:
    """Compare the answers about each queued job; return the number of jobs."""
    context, count = engine.context, 0
    starts = dict(
        zip(context.state.table.visible_rows().rows.tolist(), engine.methods.starts(context, now), strict=True)
    )
    for job in list(context.state.in_phase(Phase.QUEUED)):
        one = answer(JobQuestion(id="1", site="s", job=job.id), engine, now)
        several = answer(JobsQuestion(id="1", site="s", user=job.user or "", limit=100), engine, now)
        assert isinstance(one, JobAnswer) and isinstance(several, JobsAnswer) and one.live is not None
        [listed] = [live for live in several.jobs if live.job == job.id]
        assert listed == one.live
        if one.expected_start is None or not one.starts_by:
            continue
        count += 1
        by = list(one.starts_by.values())
        assert one.expected_start == pytest.approx(starts[context.state.table.row(job.key)])
        assert listed.predicted_start == listed.expected_start == one.expected_start
        assert by == sorted(by) and by[0] >= now and by[MEDIAN] == pytest.approx(one.expected_start)
    return count


def test_site_restored_in_the_middle_publishes_the_same_bytes() -> None:
    events = list(busy_days(3))
    engine = engine_after(*events[:400], settings=BLEND)
    saved, changes = engine.checkpoint()
    other = Engine.load(saved, changes.started, changes.runs, BLEND, changes.rows)
    for event in events[400:]:
        assert encoded(engine.apply(event)) == encoded(other.apply(event))
    assert engine.checkpoint()[0] == other.checkpoint()[0]


def test_forests_take_over_once_enough_landmarks_are_known() -> None:
    engine = engine_after(*list(busy_days(4, jobs=400))[:-60], settings=BLEND)
    remaining = blend_of(engine)._remaining
    assert remaining.forests.training.model is not None
    queued = [job for job in engine.context.state.in_phase(Phase.QUEUED) if job.key in remaining._landmarks]
    noted = [landmarks(remaining._landmarks.get(job.key) or b"") for job in queued]
    last = np.concatenate(noted)[-1]
    assert np.isfinite(last["estimates_s"][FORESTS])


def test_historical_jobs_train_forests_without_predictions() -> None:
    engine, records = Engine("s", BLEND), []
    for event in as_history(list(busy_days(4))):
        records += engine.apply(event)
    assert not [record for record in records if isinstance(record, Prediction)]
    assert blend_of(engine)._remaining.forests.training.model is not None


def test_unsound_landmarks_are_rejected_when_a_site_is_restored() -> None:
    engine = engine_after(*list(busy_days(4))[:300], settings=BLEND)
    landmarks = blend_of(engine)._remaining._landmarks
    key = next(key for key in landmarks if len(landmarks.get(key) or b"") > 100)
    value = landmarks.get(key) or b""
    for unsound in (value + b"x", b"", value[:20] + b"\xff" + value[21:]):  # the last has an invalid age class
        with pytest.raises(ValueError, match="landmark"):
            landmarks.restore(key, msgspec.msgpack.encode(unsound))
    landmarks.restore(key, msgspec.msgpack.encode(value))


def test_new_site_follows_schedule_when_capacity_doubles() -> None:
    events = [capacity(16, 0.0), submit("running", 1.0, cpus=16, walltime=36_000.0), start("running", 1.0)]
    engine = engine_after(*events, submit("queued", 10.0, cpus=16, walltime=3600.0), settings=BLEND)
    before = engine.context.state.jobs["queued", 0].estimates["blend"]
    assert before.wait_s is not None and before.wait_s > 3600.0
    [after] = engine.apply(capacity(32, 20.0))
    assert isinstance(after, Prediction) and after.predicted_wait_s is not None
    assert after.predicted_wait_s < 0.7 * before.wait_s


def test_reason_states_the_queue_as_it_is_now() -> None:
    engine = Engine("s", BLEND)
    later = [
        record
        for event in busy_days(5)
        for record in engine.apply(event)
        if isinstance(record, Prediction) and record.waited_s is not msgspec.UNSET
    ]
    reasons = [record.reason for record in later if record.bounds is not None]
    assert any("jobs queued before it wait (" in reason and "at its submission)" in reason for reason in reasons)
    assert any("16 more CPUs must become free, by time limits within" in reason for reason in reasons)


def test_experts_follow_the_best_of_their_age_class() -> None:
    experts = AgeExperts()
    published_s = np.array([[9000.0, 3000.0, 9000.0, 0.0, 0.0], [90_000.0, 9000.0, 9000.0, 0.0, 0.0]])
    for _ in range(300):
        experts.learn(np.array([2, 8]), published_s, np.array([3000.0, 90_000.0]))
    estimates_s = np.array([[9000.0, 3000.0, np.nan, 0.0, 0.0], [9000.0, 3000.0, np.nan, 0.0, 0.0]])
    young, old = experts.combine(np.array([2, 8]), estimates_s).tolist()
    assert young == pytest.approx(3000.0, rel=0.01) and old > 8000.0
    assert len(EXPERTS) == experts.state.errors.shape[1]


def test_experts_of_short_waits_follow_the_best_baseline() -> None:
    experts = AgeExperts()
    published_s = np.array([[2400.0, 1800.0, 2400.0, 3000.0, 0.0]])
    for _ in range(100):
        experts.learn(np.array([4]), published_s, np.array([300.0]))
    assert experts.combine(np.array([4]), published_s).item() < 60.0


def in_force_at_landmarks(published: Sequence[Prediction], wait_s: float) -> dict[int, list[float]]:
    """Return the bounds in force at each landmark age that a job reached, by the class that ends there."""
    submitted, found = published[0].made_at, dict[int, list[float]]()
    for number, age_s in enumerate(LANDMARKS_S):
        made = [one for one in published if one.made_at - submitted <= age_s]
        if age_s < wait_s and (bounds := made[-1].bounds) is not None:
            found[number] = [*bounds.values()]
    return found


def test_all_bounds_in_force_at_landmarks_are_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("models.site.job.MOST_LATER", MOST_LATER)
    monkeypatch.setattr(reestimates, "MIN_MOVE_S", 0.0)
    monkeypatch.setattr(reestimates, "MIN_MOVE_RATIO", 0.0)  # every estimate is published
    learned: list[tuple[list[int], list[list[bool]]]] = []

    def learn(_: Calibration, numbers: Ints, in_force: BoundsInForce, wait_s: float, weight: float = 1.0) -> None:
        learned.append((numbers.tolist(), (wait_s <= in_force.bounds_s).tolist()))

    monkeypatch.setattr(Calibration, "learn", learn)
    engine, published, most = Engine("s", BLEND), defaultdict[str, list[Prediction]](list), 0
    for event in busy_days(3):
        learned.clear()
        for record in engine.apply(event):
            if isinstance(record, Prediction):
                published[record.job].append(record)
            elif isinstance(record, Outcome) and not isinstance(event, End):
                found = in_force_at_landmarks(published[record.job], record.actual_wait_s)
                covered = [[record.actual_wait_s <= bound_s for bound_s in bounds_s] for bounds_s in found.values()]
                assert learned == ([([*found], covered)] if found else [])
                most = max(most, len(published[record.job]))
    assert most > MOST_LATER + 1


def test_later_bounds_of_a_group_do_not_count_for_younger_ages() -> None:
    remaining = blend_of(Engine("s", BLEND))._remaining
    before = remaining._calibration.state.by_age.copy()
    bounds = dict(zip(BOUNDS, (7500.0, 8000.0, 9000.0, 12_000.0), strict=True))
    of_group = LaterEstimate.after(None, 7000.0, Estimate(8000.0, "starts with job 2 of its group", bounds))
    for later in (None, of_group):
        job = Job("1", 0, 0.0)
        job.later = later
        remaining._landmarks.put(job.key, _HEAD.pack(job.ready, 0))
        remaining.job_dequeued(job, Estimate(3600.0, "too few jobs have started for bounds"), 7400.0, cancelled=False)
        assert (remaining._calibration.state.by_age == before).all()


RAW_S = np.array([[10.0, 600.0, 900.0, 1000.0]])


def calibrated(calibration: Calibration, number: int) -> Floats:
    """Return the bounds of a job of this age class, (QUANTILES,) seconds."""
    return np.asarray(calibration.bounds(np.array([number]), RAW_S[:, MEDIAN], RAW_S)[0])


def learn_wait(calibration: Calibration, number: int, wait_s: float) -> None:
    """Learn the wait of a job whose bounds of this age class have just been made."""
    numbers, bounds_s = np.array([number]), calibrated(calibration, number)
    in_force = BoundsInForce(numbers, bounds_s.reshape(1, -1), calibration.shift(number).reshape(1, -1))
    calibration.learn(numbers, in_force, wait_s)


@pytest.mark.parametrize("number", [0, 3, AGES - 1])
def test_calibrated_bounds_have_stated_coverage(number: int) -> None:
    dice, calibration, covered = np.random.default_rng(number), Calibration(), np.zeros(len(BOUNDS))
    for turn in range(4000):
        wait_s = float(dice.exponential(3000.0))
        covered += (wait_s <= calibrated(calibration, number)) * (turn >= 2000)
        learn_wait(calibration, number, wait_s)
    assert (covered / 2000)[[2, 3]].tolist() == pytest.approx([0.9, 0.95], abs=0.02)


def test_burst_moves_the_shift_about_as_far_as_its_wait() -> None:
    calibration, numbers, wait_s = Calibration(), np.array([3]), 36_000.0
    bounds_s, shifts = calibrated(calibration, 3).reshape(1, -1), calibration.shift(3).reshape(1, -1)
    found_s = list[float]()
    for _ in range(1000):  # all were estimated before one of them started
        calibration.learn(numbers, BoundsInForce(numbers, bounds_s, shifts), wait_s)
        found_s.append(calibrated(calibration, 3).item(2))
    assert found_s[1] < 0.1 * wait_s
    assert 0.5 * wait_s < found_s[299] < found_s[-1] < 1.5 * wait_s


def test_bounds_of_first_age_do_not_move_those_of_others() -> None:
    calibration = Calibration()
    for _ in range(100):
        learn_wait(calibration, 0, 1e6)
    assert calibration.state.site.tolist() == [0.0] * len(BOUNDS)
    learn_wait(calibration, 1, 1e6)
    assert (calibration.state.site > 0.0).all()


def test_bounds_of_age_without_landmarks_follow_younger_age() -> None:
    calibration = Calibration()
    before_s = calibrated(calibration, 4)
    for _ in range(60):
        learn_wait(calibration, 3, 1e9)
    young_s, old_s = calibrated(calibration, 3), calibrated(calibration, 4)
    assert (young_s[2:] > 2.0 * before_s[2:]).all()
    assert old_s[2:].tolist() == pytest.approx(young_s[2:].tolist())


def test_own_landmarks_separate_bounds_of_old_age() -> None:
    calibration = Calibration()
    for _ in range(300):
        learn_wait(calibration, 3, 1e9)
        learn_wait(calibration, 4, 1.0)
    assert calibrated(calibration, 3).item(2) > 4.0 * calibrated(calibration, 4).item(2)


def test_landmarks_double_at_each_step() -> None:
    assert [later / sooner for sooner, later in pairwise(LANDMARKS_S)] == [2.0] * (AGES - 2)
