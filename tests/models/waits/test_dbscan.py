import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.cluster import DBSCAN

from models.waits.dbscan import NOISE, dbscan, outliers

# Eighths are exact in binary, so a distance of exactly eps is equal for both.
coordinate = st.integers(0, 40).map(lambda eighths: eighths / 8.0)


@given(
    points=st.lists(st.tuples(coordinate, coordinate), min_size=1, max_size=120),
    eps=st.sampled_from([0.125, 0.25, 0.5, 1.0, 1.25, 10.0]),
    min_pts=st.integers(1, 6),
)
def test_dbscan_equals_scikit_learn(points: list[tuple[float, float]], eps: float, min_pts: int) -> None:
    plane = np.array(points)
    _compare(plane, eps, min_pts)


@pytest.mark.parametrize("seed", range(4))
def test_dbscan_of_many_points_equals_scikit_learn(seed: int) -> None:
    random = np.random.default_rng(seed)
    centres = random.random((6, 2))
    crowd = centres[random.integers(0, 6, 1500)] + random.normal(0.0, 0.02, (1500, 2))
    _compare(
        np.vstack((crowd, random.random((60, 2)))), eps=random.uniform(0.01, 0.1), min_pts=int(random.integers(2, 6))
    )


def _compare(plane: np.ndarray, eps: float, min_pts: int) -> None:
    ours = dbscan(plane[:, 0].copy(), plane[:, 1].copy(), eps, min_pts)
    theirs = DBSCAN(eps=eps, min_samples=min_pts).fit(plane)
    core = np.zeros(len(plane), bool)
    core[theirs.core_sample_indices_] = True
    assert np.array_equal(ours == NOISE, theirs.labels_ == NOISE)
    assert np.array_equal(outliers(plane[:, 0].copy(), plane[:, 1].copy(), eps, min_pts), ours == NOISE)
    assert ours.max() == theirs.labels_.max()
    # The core points have the same clusters: a one-to-one mapping of labels.
    pairs = set(zip(ours[core].tolist(), theirs.labels_[core].tolist(), strict=True))
    assert len(pairs) == len({a for a, _ in pairs}) == len({b for _, b in pairs})
    # A border point is in the cluster of a nearby core point.
    for point in np.flatnonzero(~core & (ours != NOISE)):
        near = core & (((plane - plane[point]) ** 2).sum(axis=1) <= eps * eps)
        assert ours[point] in ours[near]


def test_dbscan_of_empty_input_is_empty() -> None:
    assert len(dbscan(np.empty(0), np.empty(0), 0.1, 3)) == 0
    assert len(outliers(np.empty(0), np.empty(0), 0.1, 3)) == 0


def test_dbscan_single_point_is_noise_unless_min_pts_is_one() -> None:
    assert dbscan(np.zeros(1), np.zeros(1), 0.1, 2).tolist() == [NOISE]
    assert dbscan(np.zeros(1), np.zeros(1), 0.1, 1).tolist() == [0]
