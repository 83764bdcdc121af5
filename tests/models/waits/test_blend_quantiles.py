"""The mixture of the experts' quantiles, its shifts, and the probability of an immediate start."""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import pytest

from models.stored_values import encode, reader
from models.waits.blend.conditional import waits_after
from models.waits.blend.deadlines import Deadlines
from models.waits.blend.deficits import NO_QUEUE, NOBODY, SUM, adjusted_bound, count
from models.waits.blend.immediate_start import ImmediateStartModel, ImmediateStartState
from models.waits.blend.mixture import seconds
from models.waits.blend.mixture_snapshot import MEDIAN, PROBABILITIES, QUANTILES, MixtureSnapshot
from models.waits.blend.quantiles import Quantiles, QuantilesState
from models.waits.blend.schedule_share import SCHEDULE_SHARE
from models.waits.blend.users import USERS
from tests.support.judged import bound_exceeded, bounds_left, learn_whether_at_once

read = reader(QuantilesState, "what was learnt")


def expert_medians(*medians: float) -> np.ndarray:
    """Return estimates of experts that predict a median only."""
    waits = np.full((QUANTILES, len(medians)), np.nan)
    waits[MEDIAN] = medians
    return waits


def become_known(quantiles: Quantiles, snapshot: MixtureSnapshot, wait_s: float) -> None:
    bounds_left(quantiles, snapshot, wait_s, False, np.ones(2 * QUANTILES, np.bool_))


def test_expert_that_is_always_right_gets_most_weight() -> None:
    quantiles, chance = Quantiles(["right", "wrong", "zero"], [1.0] * 3), np.random.default_rng(1)
    for wait in chance.lognormal(8.0, 2.0, 400):
        snapshot = quantiles.mix(expert_medians(wait, chance.lognormal(8.0, 2.0), 0.0))
        become_known(quantiles, snapshot, wait)
    assert quantiles.weights(snapshot)["right"] > 0.9
    assert quantiles.mix(expert_medians(5000.0, 90.0, 0.0)).bounds[MEDIAN] == pytest.approx(5000.0, rel=0.15)


def test_weights_follow_a_change_of_the_best_expert() -> None:
    quantiles, chance = Quantiles(["first", "second"], [1.0] * 2), np.random.default_rng(2)
    errors: list[float] = []
    for number, wait in enumerate(chance.lognormal(8.0, 1.0, 6000)):
        good, other = wait * chance.lognormal(0.0, 0.2), chance.lognormal(8.0, 1.0)
        snapshot = quantiles.mix(expert_medians(good, other) if number < 3000 else expert_medians(other, good))
        errors.append(abs(np.log(snapshot.bounds[MEDIAN] / wait)))
        become_known(quantiles, snapshot, wait)
    assert np.mean(errors[3000:3100]) > 0.3
    assert np.mean(errors[4000:4500]) < 2 * np.mean(errors[2500:3000]) < 0.4


def test_schedule_expert_keeps_its_share_until_it_does_harm() -> None:
    quantiles, chance = Quantiles(["good", "kept"], [1.0] * 2, schedules=["kept"]), np.random.default_rng(5)
    errors: list[float] = []
    for number, wait in enumerate(chance.lognormal(8.0, 1.0, 3000)):
        kept = wait * chance.lognormal(0.0, 0.2) if number < 1000 else 40.0 * wait
        snapshot = quantiles.mix(expert_medians(wait * chance.lognormal(0.0, 0.2), kept))
        errors.append(abs(np.log(snapshot.bounds[MEDIAN] / wait)))
        become_known(quantiles, snapshot, wait)
        bounds_left(quantiles, snapshot, wait, True, np.zeros(2 * QUANTILES, np.bool_))
        if number == 999:
            assert quantiles.schedule_share == SCHEDULE_SHARE
    assert quantiles.schedule_share == 0.0
    assert np.mean(errors[2500:]) < 0.25
    again = Quantiles(["good", "kept"], [1.0] * 2, schedules=["kept"])
    again.state = read(encode(quantiles.state))
    assert again.schedule_share == 0.0


def test_schedule_expert_counts_even_with_low_weight() -> None:
    shares = []
    for kept in ([], ["b"]):
        quantiles, chance = Quantiles(["a", "b"], [1.0] * 2, kept), np.random.default_rng(6)
        for wait in chance.lognormal(8.0, 1.0, 500):
            become_known(quantiles, quantiles.mix(expert_medians(wait, chance.lognormal(8.0, 1.0))), wait)
        shares.append([quantiles.mix(expert_medians(3600.0, other)).bounds[MEDIAN] for other in (3600.0, 0.0)])
    (alone, same), (with_it, less) = shares
    assert same == pytest.approx(alone, rel=0.1)
    assert less < 0.5 * with_it


def test_mixture_is_close_to_the_best_expert_in_hindsight() -> None:
    quantiles, chance = Quantiles(["a", "b", "c", "d"], [1.0] * 4), np.random.default_rng(3)
    losses = np.zeros((3000, 5))
    for number, wait in enumerate(chance.lognormal(7.0, 2.0, 3000)):
        experts = wait * np.exp(chance.normal([0.0, 0.3, 1.0, -2.0], [1.0, 1.2, 0.5, 1.0]))
        snapshot = quantiles.mix(expert_medians(*experts))
        losses[number] = np.abs([*experts, snapshot.bounds[MEDIAN]] - wait) ** 0.5
        become_known(quantiles, snapshot, wait)
    assert losses[:, 4].mean() < 1.02 * losses[:, :4].mean(axis=0).min()


def test_bounds_have_stated_coverage_under_drift() -> None:
    quantiles, chance = Quantiles(["old"], [1.0]), np.random.default_rng(4)
    held = np.zeros((12_000, QUANTILES), np.bool_)
    for number in range(len(held)):
        level = 6.0 + 2.0 * np.sin(number / 1500.0)  # the expert does not follow this
        wait = chance.lognormal(level, 0.5 + number / 8000.0)
        snapshot = quantiles.mix(expert_medians(400.0))
        assert np.all(np.diff(snapshot.bounds) >= 0.0) and snapshot.bounds[0] >= 0.0
        held[number] = wait <= snapshot.bounds
        become_known(quantiles, snapshot, wait)
    assert held[2000:].mean(axis=0) == pytest.approx(PROBABILITIES, abs=0.015)
    for tenth in np.array_split(held[2000:], 10):
        assert tenth.mean(axis=0) == pytest.approx(PROBABILITIES, abs=0.1)


def test_bounds_have_stated_coverage_in_and_outside_of_bursts() -> None:
    quantiles, chance = Quantiles(["expert"], [1.0]), np.random.default_rng(8)
    held: dict[float, list[float]] = {1.0: [], 0.01: []}
    for number in range(400):
        for weight, jobs, spread in ((1.0, 60, 0.3), (0.01, 60, 2.0)):  # the jobs of a burst have the same wait
            factor = chance.lognormal(0.0, spread) if weight < 1.0 else chance.lognormal(0.0, spread, jobs)
            waits_s = np.full(jobs, 3600.0 * factor)
            burst = [quantiles.mix(expert_medians(3600.0), weight=weight) for _ in range(jobs)]
            for snapshot, wait_s in zip(burst, waits_s, strict=True):
                bounds_left(quantiles, snapshot, wait_s, True, np.ones(2 * QUANTILES, np.bool_))
            if number >= 100:
                held[weight].append(float(np.mean(waits_s <= [snapshot.bounds[2] for snapshot in burst])))
    assert np.mean(held[1.0]) == pytest.approx(0.9, abs=0.03)
    assert np.mean(held[0.01]) == pytest.approx(0.9, abs=0.06)


def of_known_site() -> Quantiles:
    """Return the quantiles of a site whose first widening has faded."""
    quantiles = Quantiles(["expert"], [1.0])
    quantiles.state.learnt.seen[0, MEDIAN] = 1e6
    return quantiles


@pytest.mark.parametrize(("jobs", "least", "most"), [(0, 4.0, 5.0), (200, 1.8, 2.5), (20_000, 1.0, 1.1)])
def test_upper_bounds_are_wider_at_a_new_site(jobs: int, least: float, most: float) -> None:
    quantiles, wait_s = Quantiles(["expert"], [1.0]), 3600.0
    quantiles.state.learnt.seen[0, MEDIAN] = jobs
    bounds_s = quantiles.mix(np.full((QUANTILES, 1), wait_s)).bounds
    assert bounds_s[0] == bounds_s[1] == pytest.approx(wait_s)
    assert least * wait_s < bounds_s[2] <= most * wait_s


def test_burst_that_starts_immediately_keeps_earlier_deficits() -> None:
    quantiles, estimates_s = of_known_site(), np.full((QUANTILES, 1), 3600.0)

    def bound_after(wait_s: float) -> float:
        """Return the bound of the last of 500 jobs after a burst of 500 jobs with equal waits."""
        burst = [quantiles.mix(estimates_s, weight=1.0 / (1.0 + before)) for before in range(500)]
        for snapshot in burst:
            bounds_left(quantiles, snapshot, wait_s, True, np.ones(2 * QUANTILES, np.bool_))
        return float(quantiles.mix(estimates_s, weight=1.0 / 500.0).bounds[2])

    for wait_s in (18_000.0, 10.0) * 3:
        bound_after(wait_s)
    taught_s = bound_after(18_000.0)
    assert taught_s > 17_000.0
    assert [bound_after(10.0) for _ in range(3)][-1] > 0.5 * taught_s


BURST = 0.01
"""The weight of a job after a hundred jobs of its user."""


def test_long_waiting_bursts_widen_the_bounds_of_the_next() -> None:
    quantiles, estimates_s = Quantiles(["expert"], [1.0]), np.full((QUANTILES, 1), 3600.0)
    burst = [quantiles.mix(estimates_s, weight=BURST) for _ in range(2000)]
    before, calm = quantiles.mix(estimates_s, weight=BURST).bounds, quantiles.mix(estimates_s).bounds
    for snapshot in burst:
        assert bound_exceeded(quantiles, snapshot, 2) or quantiles.bound_now(snapshot, 2) is not None
    bounds = quantiles.mix(estimates_s, weight=BURST).bounds
    assert 1.8 * before[2] < bounds[2] < 9.0 * before[2]
    assert quantiles.mix(estimates_s).bounds[2] == pytest.approx(calm[2], rel=0.2)  # other jobs are not affected


def test_user_of_underestimated_bursts_gets_wider_bounds() -> None:
    quantiles, estimates_s = Quantiles(["expert"], [1.0]), np.full((QUANTILES, 1), 3600.0)
    for user, wait_s in (("late", 36_000.0), ("soon", 60.0)) * 3:
        for snapshot in [quantiles.mix(estimates_s, weight=BURST, user=user) for _ in range(100)]:
            if wait_s > snapshot.bounds[2]:
                bound_exceeded(quantiles, snapshot, 2, user)  # still queued
            else:
                bounds_left(quantiles, snapshot, wait_s, True, np.arange(2 * QUANTILES) == 2, user=user)
    late, soon, new = (quantiles.mix(estimates_s, weight=BURST, user=user).bounds for user in ("late", "soon", "new"))
    assert late[2] > 1.5 * new[2] > 1.5 * soon[2]
    assert new[3] < late[3] < late[2] * 1.5
    alone = [quantiles.mix(estimates_s, user=user).bounds.tolist() for user in ("late", "soon", "new")]
    assert alone[0] == alone[1] == alone[2]  # jobs outside of bursts are not affected


def test_user_deficits_are_kept_for_the_most_recent_users() -> None:
    quantiles, estimates_s = Quantiles(["expert"], [1.0]), np.full((QUANTILES, 1), 3600.0)
    snapshot = quantiles.mix(estimates_s, weight=BURST)
    for number in range(USERS + 2):
        bound_exceeded(quantiles, snapshot, 2, "first" if number == 1 else str(number))
        bound_exceeded(quantiles, snapshot, 2, "often")
    bound_exceeded(quantiles, snapshot, 2, None)
    kept = read(encode(quantiles.state)).users
    assert len(kept) == USERS and "first" not in kept and kept["often"][1, 2] == USERS + 2


def test_burst_bounds_keep_coverage_with_overconfident_experts() -> None:
    quantiles, chance, held = Quantiles(["expert"], [1.0]), np.random.default_rng(6), []
    for number in range(300):  # a burst of a hundred jobs of a new user, all predicted before one leaves
        burst = [quantiles.mix(expert_medians(30.0), weight=BURST, user=str(number)) for _ in range(100)]
        wait_s = chance.lognormal(3.0, 3.0)
        for snapshot in burst:
            bounds_left(quantiles, snapshot, wait_s, True, np.ones(2 * QUANTILES, np.bool_), user=str(number))
        held.append(wait_s <= burst[0].bounds[2])
    assert np.mean(held[50:]) == pytest.approx(0.9, abs=0.03)


def test_zero_bound_grows_by_burst_deficit_until_covered() -> None:
    deficits, counted, of_user = np.zeros((SUM + 1, QUANTILES)), np.zeros((2, QUANTILES)), NOBODY.copy()
    for _ in range(500):
        count(deficits, counted, of_user, NO_QUEUE, BURST, 2, 0.0, False)
    assert seconds(adjusted_bound(0.0, 2, deficits, float(of_user[0, 2]))) > 200.0
    for _ in range(4500):  # so that nine of ten are covered
        count(deficits, counted, of_user, NO_QUEUE, BURST, 2, 0.0, True)
    assert adjusted_bound(0.0, 2, deficits, float(of_user[0, 2])) == pytest.approx(0.0, abs=1e-6)
    assert not NO_QUEUE.any()


def test_bounds_of_each_queue_keep_coverage_if_one_waits_longer() -> None:
    quantiles, chance, held = Quantiles(["expert"], [1.0]), np.random.default_rng(9), defaultdict[int, list[bool]](list)
    usual, slow, new = range(3)
    for number in range(6000):
        queue, level = (slow, 0.4) if number % 10 == 0 else (usual, 0.0)
        snapshot, wait_s = quantiles.mix(expert_medians(3600.0), queue=queue), 3600.0 * chance.lognormal(level, 0.4)
        bounds_left(quantiles, snapshot, wait_s, True, np.ones(2 * QUANTILES, np.bool_), queue=queue)
        held[queue].append(wait_s <= snapshot.bounds[2])
    assert np.mean(held[usual]) == pytest.approx(0.9, abs=0.02)
    assert np.mean(held[slow][200:]) == pytest.approx(0.9, abs=0.04)
    burst = [quantiles.mix(expert_medians(3600.0), weight=BURST, queue=queue).bounds[2] for queue in (slow, usual, new)]
    assert burst[0] == burst[1] == burst[2]  # jobs of a burst are not affected


def held_after(quiet: int) -> float:
    """Return the coverage of the 0.9 bound of a queue's next jobs after `quiet` jobs without a wait."""
    held, everything = list[bool](), np.ones(2 * QUANTILES, np.bool_)
    for seed in range(20):
        quantiles, chance = of_known_site(), np.random.default_rng(seed)
        for _ in range(quiet):
            bounds_left(quantiles, quantiles.mix(expert_medians(0.0), queue=1), 0.0, True, everything, queue=1)
        for _ in range(25):
            snapshot, wait_s = quantiles.mix(expert_medians(3600.0), queue=1), 3600.0 * chance.lognormal(0.0, 0.4)
            bounds_left(quantiles, snapshot, wait_s, True, everything, queue=1)
            held.append(wait_s <= snapshot.bounds[2])
    return float(np.mean(held))


def test_bounds_of_a_queue_keep_coverage_after_idle_time() -> None:
    assert held_after(1500) == pytest.approx(held_after(0), abs=0.05)


def test_exceeded_bound_counts_once_per_job() -> None:
    counted = []
    for already_exceeded in (True, False):
        quantiles, estimates_s = Quantiles(["expert"], [1.0]), np.full((QUANTILES, 1), 3600.0)
        for snapshot in [quantiles.mix(estimates_s, weight=BURST) for _ in range(300)]:
            passed = np.zeros(2 * QUANTILES, np.bool_)
            if already_exceeded:
                bound_exceeded(quantiles, snapshot, 2)
                passed[2] = True
            bounds_left(quantiles, snapshot, 36_000.0, True, np.zeros(2 * QUANTILES, np.bool_), passed)
        counted.append((quantiles.state.deficits[1, 2], quantiles.state.counted[1, 2]))
    assert counted[0] == counted[1] == (pytest.approx((0.04 * 1000 + 0.9 * 300) / 1300, rel=0.15), 300)


def test_shift_by_jobs_with_equal_predictions_is_limited() -> None:
    quantiles, wait_s = Quantiles(["zero"], [1.0]), 30_000.0
    burst = [quantiles.mix(expert_medians(0.0)) for _ in range(2000)]
    for snapshot in burst:  # all still queue beyond their predictions
        for place in range(len(snapshot.marks)):
            bound_exceeded(quantiles, snapshot, place)
    low_s, middle_s, *high_s = quantiles.mix(expert_medians(0.0)).bounds
    assert 10.0 < low_s <= middle_s < 60.0 and all(10.0 < bound_s < 600.0 for bound_s in high_s)
    for snapshot in burst:  # each reports its wait when it leaves
        now_s = quantiles.bound_now(snapshot, MEDIAN)
        assert now_s is not None
        bounds_left(quantiles, snapshot, wait_s, False, np.arange(2 * QUANTILES) == MEDIAN)
    assert quantiles.mix(expert_medians(0.0)).bounds[MEDIAN] == pytest.approx(wait_s, rel=0.05)


def test_bound_now_is_missing_without_a_shift() -> None:
    quantiles = Quantiles(["zero"], [1.0])
    snapshot = quantiles.mix(expert_medians(0.0))
    assert [quantiles.bound_now(snapshot, place) for place in range(len(snapshot.marks))] == [None] * len(
        snapshot.marks
    )


def test_bound_of_zero_that_holds_is_not_lowered() -> None:
    quantiles = Quantiles(["zero"], [1.0])
    for _ in range(500):
        become_known(quantiles, quantiles.mix(expert_medians(0.0)), 0.0)
    for _ in range(200):
        snapshot = quantiles.mix(expert_medians(0.0))
        become_known(quantiles, snapshot, 3.0)
    assert 2.0 < snapshot.bounds[MEDIAN] < 5.0


def test_expert_without_estimate_is_omitted_and_joins_later() -> None:
    quantiles = Quantiles(["here", "late"], [1.0] * 2)
    for _ in range(300):
        become_known(quantiles, quantiles.mix(expert_medians(100.0, np.nan)), 5000.0)
    assert quantiles.weights(quantiles.mix(expert_medians(100.0, np.nan)))["late"] == 0.0
    for _ in range(300):
        snapshot = quantiles.mix(expert_medians(100.0, 5000.0))
        become_known(quantiles, snapshot, 5000.0)
    assert quantiles.weights(snapshot)["late"] > 0.9
    assert snapshot.bounds[MEDIAN] == pytest.approx(5000.0, rel=0.15)


def test_mixture_snapshot_round_trips() -> None:
    quantiles = Quantiles(["a", "b"], [1.0] * 2)
    snapshot = quantiles.mix(expert_medians(100.0, np.nan))
    back = MixtureSnapshot.decode(snapshot.encode(), quantiles.experts)
    assert back.kind == snapshot.kind
    for one, other in zip(snapshot[:4], back[:4], strict=True):
        np.testing.assert_array_equal(one, other)


def test_quantiles_state_round_trips() -> None:
    quantiles, chance = Quantiles(["a", "b"], [1.0] * 2), np.random.default_rng(5)
    for wait in chance.lognormal(7.0, 1.0, 200):
        become_known(quantiles, quantiles.mix(expert_medians(wait, 10.0)), wait)
    same = Quantiles(["a", "b"], [1.0] * 2)
    same.state = read(encode(quantiles.state))
    assert encode(same.state) == encode(quantiles.state)
    assert same.mix(expert_medians(70.0, 10.0)).marks == quantiles.mix(expert_medians(70.0, 10.0)).marks
    assert len(encode(quantiles.state)) < 10_000


def test_immediate_start_probability_is_calibrated() -> None:
    at_once, chance = ImmediateStartModel(2), np.random.default_rng(6)
    probabilities, truth = np.zeros(8000), np.zeros(8000, np.bool_)
    for number in range(len(probabilities)):
        known = chance.random()
        inputs = np.array([3600.0 * (1.0 - known) ** 3, np.nan])
        probabilities[number], truth[number] = at_once.probability(inputs), chance.random() < known**2
        learn_whether_at_once(at_once, inputs, bool(truth[number]))
    for low in (0.0, 0.2, 0.4, 0.6):
        alike = (probabilities[1000:] >= low) & (probabilities[1000:] < low + 0.2)
        assert truth[1000:][alike].mean() == pytest.approx(probabilities[1000:][alike].mean(), abs=0.05)
    other = ImmediateStartModel(2)
    other.learnt = reader(ImmediateStartState, "what was learnt")(encode(at_once.learnt))
    assert other.probability(inputs) == at_once.probability(inputs)


def left(waited_s: float, wanted: Sequence[float], bounds_s: Sequence[float]) -> list[float]:
    quantiles_s = np.array([bounds_s, [np.nan] * QUANTILES])
    found = waits_after(np.array([waited_s, 0.0]), np.array(PROBABILITIES), quantiles_s, np.array(wanted))
    assert np.isnan(found[1]).all()
    return list(found[0])


def test_remaining_wait_is_conditional_on_the_elapsed_wait() -> None:
    bounds_s = [60.0, 600.0, 7200.0, 14_400.0]
    assert left(0.0, PROBABILITIES, bounds_s) == pytest.approx(bounds_s)
    before = [0.0] * QUANTILES
    for waited_s in (60.0, 600.0, 5000.0, 14_400.0, 1e6):
        after = left(waited_s, PROBABILITIES, bounds_s)
        assert after == sorted(after) and after[0] >= waited_s and all(np.array(after) >= before)
        before = after
    assert left(600.0, [0.0, 0.8], bounds_s) == pytest.approx([600.0, 7200.0])


def test_distribution_without_width_has_a_tail() -> None:
    assert left(100.0, [0.5], [0.0] * QUANTILES)[0] > 100.0


def test_deadlines_before_the_elapsed_wait_are_not_tracked() -> None:
    both = {("1", 0), ("2", 0)}
    deadlines = Deadlines(both)
    assert list(deadlines.take_due(10.0)) == []
    deadlines.add(("1", 0), [5.0, 15.0])
    deadlines.add(("2", 0), [10.0])
    assert [deadline[1] for deadline in deadlines.take_due(11.0)] == [("2", 0)]
    assert list(deadlines.take_due(9.0)) == [] and deadlines.begin == 11.0
    other = Deadlines(both)
    other.restore((11.0, ("", -1), -1), [(("1", 0), [5.0, 15.0])])
    assert list(other.take_due(20.0)) == [(15.0, ("1", 0), 1)]


def test_schedule_is_the_median_alone_while_it_is_accurate() -> None:
    quantiles = Quantiles(["other", "schedule"], [1.0] * 2, schedules=["schedule"])
    snapshot = quantiles.mix(expert_medians(10.0, 5000.0), may_be_alone=True)
    assert snapshot.alone
    assert snapshot.bounds[MEDIAN] == pytest.approx(5000.0, rel=1e-5)
    again = MixtureSnapshot.decode(snapshot.encode(), quantiles.experts)
    assert again is not None
    assert (again.alone, again.kind) == (True, snapshot.kind)
    assert not quantiles.mix(expert_medians(10.0, 5000.0)).alone
    for _ in range(50):
        snapshot = quantiles.mix(expert_medians(10.0, 5000.0), may_be_alone=True)
        become_known(quantiles, snapshot, 10.0)
        bounds_left(quantiles, snapshot, 10.0, True, np.zeros(2 * QUANTILES, np.bool_))
    assert not snapshot.alone
    assert quantiles.mix(expert_medians(10.0, 5000.0), may_be_alone=True).bounds[MEDIAN] < 2500.0
