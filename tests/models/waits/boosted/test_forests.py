"""Estimates of several forests together."""

import numpy as np
import pytest

from models.waits.boosted.forest import Boosting
from models.waits.boosted.forests import POINT, QUANTILES, Forests, TrainingRows

BOOSTING = Boosting(trees=40, rate=0.3, leaf_rows=5)

_COUNTS = np.stack([np.arange(200) % 101, np.zeros(200)], axis=1).astype(np.float32)
"""Numbers of queued and held jobs."""


@pytest.fixture(scope="module")
def forests() -> Forests:
    return trained(threads=1)


def trained(threads: int) -> Forests:
    """Train on jobs that wait one to three minutes, or ten to thirty hours if their feature is above 5."""
    dice = np.random.default_rng(1)
    features = dice.uniform(0, 10, (600, 2)).astype(np.float32)
    waits = np.where(features[:, 0] > 5, 36000.0, 60.0) * dice.uniform(1, 3, 600)
    rows = TrainingRows(features, waits, np.ones(600))
    return Forests.fit(rows, (*POINT, *QUANTILES), ("load", "noise"), BOOSTING, threads=threads)


@pytest.mark.parametrize("threads", [2, 16])
def test_training_with_any_threads_gives_same_forests(forests: Forests, threads: int) -> None:
    assert trained(threads).encode() == forests.encode()


@pytest.mark.parametrize(("load", "shortest_s"), [(2.0, 60.0), (8.0, 36000.0)])
def test_forests_estimate_is_the_median_and_quantiles_are_sorted(
    forests: Forests, load: float, shortest_s: float
) -> None:
    snapshot = forests.snapshot(np.array([load, 3.0], np.float32))
    assert snapshot.quantiles[0.5] == np.median(list(snapshot.medians.values()))
    assert list(snapshot.quantiles) == [0.1, 0.5, 0.9, 0.95]
    waits = list(snapshot.quantiles.values())
    assert waits == sorted(waits)
    assert shortest_s * 0.9 < waits[0] and waits[-1] < shortest_s * 3.1
    assert snapshot.quantiles[0.5] == pytest.approx(2 * shortest_s, rel=0.3)


def test_decoded_forests_return_equal_snapshots(forests: Forests) -> None:
    row = np.array([7.0, 1.0], np.float32)
    again = Forests.decode(forests.encode(), ("load", "noise"))
    assert (again.snapshot(row), again.jobs) == (forests.snapshot(row), 600)


def test_state_out_of_range_is_reported_and_keeps_the_estimate(forests: Forests) -> None:
    names, rows = ("queued_all_jobs", "held_jobs"), TrainingRows(np.log2(_COUNTS + 1), np.ones(200), np.ones(200))
    found = Forests.fit(rows, POINT, names, BOOSTING)
    found = Forests.decode(found.encode(), names)
    largest, larger = (found.snapshot(np.log2(np.array([queued + 1, 10], np.float32))) for queued in (159, 161))
    assert (largest.unlike, larger.medians) == (None, largest.medians)
    assert larger.unlike == "a state unlike any it learnt from: some 160 queued jobs, 100 at most before"
    assert found.snapshot(np.log2(np.array([1, 13], np.float32))).unlike is not None
    assert forests.snapshot(np.array([1e4, 1e4], np.float32)).unlike is None, "no such features"


@pytest.mark.parametrize("stored", [b"x", b"\x92\x01\x90\x00"])
def test_forests_decode_rejects_invalid_bytes(stored: bytes) -> None:
    with pytest.raises(ValueError, match="not forests"):
        Forests.decode(stored, ("load",))


def test_forests_decode_rejects_other_features(forests: Forests) -> None:
    with pytest.raises(ValueError, match="other features"):
        Forests.decode(forests.encode(), ("load",))
