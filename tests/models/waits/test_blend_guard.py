"""The guard selects the mixture or a simpler estimate by the errors of the last week."""

import numpy as np
import pytest

from models.engine.engine import Engine
from models.records import Prediction
from models.stored_values import encode, reader
from models.waits.blend.blend import evidence
from models.waits.blend.guard import ARRIVALS, EXPERTS, MEMORY_S, MIXTURE, TWO_BEST, Guard, GuardState
from tests.models.waits.test_blend import BLEND
from tests.support.engines import engine_after, workload
from tests.support.events import submit
from tests.support.judged import choices_exceeded, choices_left

HOUR = 3600.0


def guard() -> Guard:
    """Return a guard with two baselines (zero, recent) and three rivals, the last of two experts."""
    return Guard([0, 1], {"a": [2], "b": [3], "c": [4, 5]}, 3)


def medians(*hours: float) -> np.ndarray:
    return HOUR * np.array(hours)


def test_choices_are_mixture_two_medians_and_mean_of_two_best() -> None:
    choice = guard().choose(9 * HOUR, medians(0.0, 1.0, 2.0, 30.0, 5.0, 7.0))
    assert choice.waits_s / HOUR == pytest.approx([9.0, 7.0, 2.0, 16.0, np.nan], nan_ok=True)
    assert choice.weights.sum() == pytest.approx(1.0)
    known = guard().choose(0.5 * HOUR, medians(0.0, 1.0, np.nan, np.nan, np.nan, np.nan))
    assert np.isnan(known.waits_s[TWO_BEST]) and known.waits_s[EXPERTS] == 0.5 * HOUR
    assert known.weights[TWO_BEST] == 0.0 and not np.isnan(known.wait_s)
    assert np.isnan(guard().choose(np.nan, np.full(6, np.nan)).wait_s)


def test_schedule_with_arrivals_is_chosen_where_it_was_better() -> None:
    one, experts = guard(), medians(0.0, 0.0, 0.1, 0.2, 8.0, 8.0)
    for number in range(20):
        choice = one.choose(2 * HOUR, experts, arrivals_s=10 * HOUR)
        choices_left(one, choice.waits_s, experts, 0.0, 6 * HOUR, 1e6 + 600.0 * number, 1.0)
    assert choice.waits_s[ARRIVALS] == 6 * HOUR
    assert choice.wait_s == pytest.approx(6 * HOUR, rel=0.01)
    assert "the schedule with later arrivals" in choice.reason
    without = one.choose(2 * HOUR, experts)
    assert without.weights[ARRIVALS] == 0.0 and without.weights.sum() == pytest.approx(1.0)


def test_recently_better_choice_weighs_more_until_it_is_worse() -> None:
    one, experts = guard(), medians(0.0, 0.0, 0.1, 0.2, 8.0, 8.0)
    for number in range(20):
        choices_left(one, one.choose(10 * HOUR, experts).waits_s, experts, 0.0, 0.1 * HOUR, number * HOUR, 1.0)
    choice = one.choose(10 * HOUR, experts)
    assert choice.weights[MIXTURE] < 0.01 and choice.wait_s < HOUR and "the two best" in choice.reason
    for number in range(40):
        choices_left(
            one, one.choose(10 * HOUR, experts).waits_s, experts, 0.0, 10 * HOUR, 4 * MEMORY_S + number * HOUR, 1.0
        )
    choice = one.choose(10 * HOUR, experts)
    assert choice.weights[MIXTURE] > 0.9 and choice.reason == ""


def test_few_jobs_at_new_site_do_not_replace_the_mixture() -> None:
    one, experts = guard(), medians(0.0, 0.0, 0.0, 0.0, 2.0, 2.0)
    for number in range(3):
        choices_left(one, one.choose(HOUR, experts).waits_s, experts, 0.0, 0.0, number * HOUR, 1.0)
    assert one.choose(HOUR, experts).weights[MIXTURE] > 0.9


def test_guard_uses_the_two_best_recent_experts() -> None:
    one, experts = guard(), medians(0.0, 0.0, 1.0, 2.0, 30.0, 30.0)
    choices_left(one, one.choose(HOUR, experts).waits_s, experts, 0.0, HOUR, 0.0, 1.0)
    assert one.choose(HOUR, medians(0.0, 0.0, 4.0, 6.0, 90.0, 90.0)).waits_s[TWO_BEST] == 5 * HOUR


def test_estimate_far_above_longest_wait_needs_the_schedule() -> None:
    one, experts = guard(), medians(0.0, 0.0, 90.0, np.nan, 90.0, 90.0)
    choices_exceeded(one, one.choose(HOUR, experts).waits_s, experts, 0.0, 2 * HOUR, 1.0)  # still queued
    assert one.choose(90 * HOUR, experts).wait_s == pytest.approx(5 * HOUR)
    experts[3] = 80 * HOUR
    assert one.choose(90 * HOUR, experts).waits_s[MIXTURE] == 80 * HOUR


def test_exceeded_choices_of_queued_job_count_like_its_end() -> None:
    one, other, experts = guard(), guard(), medians(0.0, 1.0, 2.0, 30.0, 5.0, 7.0)
    choices_s = one.choose(4 * HOUR, experts).waits_s
    choices_exceeded(one, choices_s, experts, 0.0, 3 * HOUR, 0.5)
    assert one.choose(4 * HOUR, experts).weights[MIXTURE] > other.choose(4 * HOUR, experts).weights[MIXTURE]
    choices_exceeded(one, choices_s, experts, 3 * HOUR, 8 * HOUR, 0.5)
    choices_left(one, choices_s, experts, 8 * HOUR, 9 * HOUR, 0.0, 0.5)
    choices_left(other, choices_s, experts, 0.0, 9 * HOUR, 0.0, 0.5)
    weights = [each.choose(4 * HOUR, experts).weights for each in (one, other)]
    np.testing.assert_allclose(*weights, rtol=1e-2)  # except for the decay


def test_guard_continues_equally_after_a_restart() -> None:
    one, again = guard(), guard()
    for at, wait_s in ((5.0, 700.0), (3.0, 20.0), (900_000.0, 4000.0)):
        experts = medians(0.0, 1.0, 2.0, 3.0, np.nan, 5.0)
        choices_left(one, one.choose(1000.0, experts).waits_s, experts, 0.0, wait_s, at, 0.5)
    again.state = reader(GuardState, "a guard")(encode(one.state))
    for each in (one, again):
        choices_left(each, each.choose(1000.0, experts).waits_s, experts, 0.0, 50.0, 1e6, 1.0)
    assert encode(again.state) == encode(one.state)


def test_jobs_of_a_user_that_queue_together_count_as_one() -> None:
    engine = engine_after(*(submit(f"u{number}", number, user="ada", cpus=4) for number in range(9)), settings=BLEND)
    job = engine.context.state.jobs["u0", 0]
    assert evidence(job, engine.context) == 0.1
    assert evidence(job, Engine("other", BLEND).context) == 1.0


def test_guarded_prediction_names_the_fallback_in_its_reason() -> None:
    engine = Engine("s", BLEND)
    records = [record for event in workload(5, jobs=300) for record in engine.apply(event)]
    prediction = next(one for one in records if isinstance(one, Prediction) and "; guarded by " in one.reason)
    assert prediction.bounds is not None and prediction.bounds["0.5"] == prediction.predicted_wait_s
    assert list(prediction.bounds.values()) == sorted(prediction.bounds.values())
