"""Recent waits of similar jobs equal a manual computation, and are equal when restored from rows."""

import random
from math import log1p

import numpy as np
import pytest

from models.site.job import Job
from models.waits.boosted.recent import FADING, KEPT, NAMES, SIZE, UNKNOWN, Codes, Departure, Recent, codes_of

HORIZON = 150
JobLifecycle = list[tuple[Codes, int, Departure, int]]


def stories(seed: int, jobs: int) -> JobLifecycle:
    """Return jobs that leave the queue in another order than they were noted; each has two rows."""
    dice = random.Random(seed)
    found: JobLifecycle = []
    waiting: list[tuple[Codes, int]] = []
    rows = 0
    for number in range(jobs):
        job = Job(str(number), 0, 0.0, user=dice.choice(["ada", "bob", f"u{number}"]), cpus=dice.choice([1, 8]))
        waiting.append((codes_of(job), rows))
        rows += 1
        while waiting and dice.random() < 0.6:
            codes, noted = waiting.pop(dice.choice([0, -1]))
            found.append((codes, noted, Departure(dice.uniform(0, 1e5), float(number), dice.random() < 0.2), rows))
            rows += 1
    return found


def after(recent: Recent, story: JobLifecycle) -> Recent:
    for left in story:
        recent.job_dequeued(*left)
    return recent


def features(recent: Recent, codes: Codes, now: float, rows: int) -> np.ndarray:
    found = np.full(len(NAMES), np.nan)
    recent.features(codes, now, rows, found)
    return found


def feature(found: np.ndarray, name: str) -> float:
    return float(found[NAMES.index(name)])


def test_recent_waits_of_a_user_weigh_more_if_later() -> None:
    ada = codes_of(Job("1", 0, 0.0, user="ada"))
    bob = codes_of(Job("2", 0, 0.0, user="bob"))
    recent = after(
        Recent(100), [(ada, number, Departure(wait, 10.0 * number), number) for number, wait in enumerate((30, 90))]
    )
    recent.job_dequeued(ada, 2, Departure(600.0, 50.0, cancelled=True), 3)
    recent.submitted(1.0)
    found = features(recent, ada, 3000.0, 3)
    assert feature(found, "recent_wait_user_mean") == pytest.approx((log1p(3) + FADING * log1p(1)) / (1 + FADING))
    assert feature(found, "recent_wait_user_last") == pytest.approx(log1p(3))
    assert feature(found, "recent_wait_user_ago") == 2990.0
    assert feature(found, "recent_cancelled_user_mean") == pytest.approx(1 / (1 + FADING + FADING**2))
    assert feature(found, "recent_patience_user_last") == pytest.approx(log1p(20))
    assert feature(found, "last_20_at_once") == 0.5
    assert (feature(found, "starts_in_hour"), feature(found, "arrivals_in_hour")) == (2.0, 1.0)
    other = features(recent, bob, 3000.0, 3)
    assert feature(other, "recent_wait_user_mean") == UNKNOWN
    assert feature(other, "recent_wait_size_last") == pytest.approx(log1p(3))


def test_recent_keeps_the_last_waits_of_a_kind() -> None:
    job = codes_of(Job("1", 0, 0.0))
    recent = after(Recent(1000), [(job, number, Departure(number, 0.0), number) for number in range(3 * KEPT)])
    waits = [log1p((3 * KEPT - 1 - back) / 30) for back in range(KEPT)]
    weights = [FADING**back for back in range(KEPT)]
    expected = sum(wait * weight for wait, weight in zip(waits, weights, strict=True)) / sum(weights)
    assert feature(features(recent, job, 0.0, 3 * KEPT), "recent_wait_size_mean") == pytest.approx(expected)


@pytest.mark.parametrize("seed", range(5))
def test_recent_restored_from_rows_returns_equal_features(seed: int) -> None:
    """If twice the horizon is kept."""
    story = stories(seed, 1000)
    recent = Recent(HORIZON)
    for place, left in enumerate(story):
        recent.job_dequeued(*left)
        if place % 97:
            continue
        rows = left[-1] + 1
        restored = Recent(HORIZON)
        restored.load(recent.save())
        for earlier in story[: place + 1]:
            if earlier[1] >= rows - 2 * HORIZON:
                restored.remember(*earlier)
        for codes in {pending_reasons_of[0] for pending_reasons_of in story[: place + 1]}:
            np.testing.assert_array_equal(
                features(recent, codes, 2000.0, rows), features(restored, codes, 2000.0, rows)
            )


def test_recent_releases_slots_of_forgotten_kinds() -> None:
    recent = Recent(50)
    for number in range(20_000):
        recent.job_dequeued(codes_of(Job("1", 0, 0.0, user=f"u{number}")), number, Departure(1.0, 0.0), number + 1)
    assert len(recent._slots) < 2 * 4096 * 8 and len(recent._kept.counts) <= 2**16


def test_similar_jobs_have_equal_codes() -> None:
    ada = codes_of(Job("1", 0, 0.0, user="ada", cpus=5, planned_run_s=100.0))
    assert ada == codes_of(Job("2", 1, 9.0, user="ada", cpus=7, planned_run_s=127.0))
    assert ada[SIZE] != codes_of(Job("1", 0, 0.0, user="ada", cpus=8, planned_run_s=100.0))[SIZE]
