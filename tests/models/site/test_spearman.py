import doctest
import warnings
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from models.arrays import Floats
from models.site import spearman
from models.site.spearman import MAX_WINDOW_ROWS, RollingSpearman

TIED = st.sampled_from([0.0, -0.0, 1.0, 2.0])
ANY = st.floats(allow_nan=False, allow_infinity=False)
EXTREME = st.sampled_from([-1.7e308, -5e-324, -0.0, 0.0, 5e-324, 2e-308, 1.7e308])


@st.composite
def streams(draw: st.DrawFn) -> tuple[int, Floats, Floats]:
    """Draw a window's size with rows and targets: often more than fit, tied or constant."""
    size, features, count = draw(st.integers(2, 12)), draw(st.integers(1, 4)), draw(st.integers(0, 40))
    column = st.one_of(
        *(st.lists(values, min_size=count, max_size=count) for values in (TIED, ANY, EXTREME)),
        TIED.map(lambda value: [value] * count),
        st.just([float(i) for i in range(count)]),
    )
    columns = np.array(draw(st.lists(column, min_size=features + 1, max_size=features + 1)))
    return size, columns[:-1].T, columns[-1]


def reference(x: Floats, y: Floats) -> Floats:
    """Return scipy's ρ of each feature; it is NaN, with a warning, for a constant."""
    if len(y) < 2:
        return np.full(x.shape[1], np.nan)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", stats.ConstantInputWarning)
        return np.array([stats.spearmanr(column, y).statistic for column in x.T])


def rows_of(window: RollingSpearman) -> tuple[Floats, Floats]:
    """Return copies of the features and targets, oldest first."""
    values, targets = (np.roll(column, -window._next, axis=0) for column in (window.values, window.targets))
    return values, targets


def assert_describes(window: RollingSpearman, x: Floats, y: Floats) -> None:
    """Check that the statistics of the window equal those of scipy and numpy for these rows, oldest first."""
    assert len(window) == len(y)
    rho = reference(x, y)
    np.testing.assert_allclose(window.correlations, rho, rtol=0, atol=1e-9)
    np.testing.assert_allclose(window.weights, np.where(np.isnan(rho), 0.0, np.abs(rho)), rtol=0, atol=1e-9)
    np.testing.assert_array_equal(window.minimum, x.min(axis=0))
    np.testing.assert_array_equal(window.maximum, x.max(axis=0))
    rows, targets = rows_of(window)
    np.testing.assert_array_equal(rows, x)
    np.testing.assert_array_equal(targets, y)


def assert_identical(one: RollingSpearman, other: RollingSpearman) -> None:
    assert one.correlations.tobytes() == other.correlations.tobytes()
    assert one.weights.tobytes() == other.weights.tobytes()
    assert one.minimum.tobytes() == other.minimum.tobytes()
    assert one.maximum.tobytes() == other.maximum.tobytes()
    for mine, theirs in zip(rows_of(one), rows_of(other), strict=True):
        assert mine.tobytes() == theirs.tobytes()


def pushed(x: Floats, y: Floats, size: int) -> RollingSpearman:
    window = RollingSpearman(x.shape[1], size)
    for row, target in zip(x, y, strict=True):
        window.push(row, target)
        assert window.minimum is not None  # a read updates the ranks row by row
    return window


@given(streams())
def test_window_equals_scipy_after_every_push(stream: tuple[int, Floats, Floats]) -> None:
    size, x, y = stream
    window = RollingSpearman(x.shape[1], size)
    for end in range(1, len(y) + 1):
        window.push(x[end - 1], y[end - 1])
        held = slice(max(0, end - size), end)
        assert_describes(window, x[held], y[held])


@given(streams(), st.integers(0, 40))
def test_window_rebuilt_from_rows_continues_like_the_original(stream: tuple[int, Floats, Floats], cut: int) -> None:
    size, x, y = stream
    window = pushed(x[:cut], y[:cut], size)
    all_rows, stored = (
        RollingSpearman.from_rows(x[:cut], y[:cut], size),
        RollingSpearman.from_rows(*rows_of(window), size),
    )
    for row, target in zip(x[cut:], y[cut:], strict=True):
        assert_identical(all_rows, window)
        assert_identical(stored, window)
        for each in (window, all_rows, stored):
            each.push(row, target)
    assert_identical(all_rows, window)
    assert_identical(stored, window)


@given(streams(), st.sets(st.integers(0, 40)))
def test_window_is_equal_for_any_times_of_reading(stream: tuple[int, Floats, Floats], read: set[int]) -> None:
    size, x, y = stream
    with patch.object(spearman, "UNREAD_ROWS", 3):
        window = RollingSpearman(x.shape[1], size)
        for end in range(1, len(y) + 1):
            window.push(x[end - 1], y[end - 1])
            if end in read:
                assert_identical(window, pushed(x[:end], y[:end], size))
        assert_identical(window, pushed(x, y, size))


@given(streams(), st.sampled_from([np.nan, np.inf, -np.inf]), st.data())
def test_window_rejects_nonfinite_row_without_change(
    stream: tuple[int, Floats, Floats], bad: float, data: st.DataObject
) -> None:
    size, x, y = stream
    index = data.draw(st.integers(0, x.shape[1]))
    row = np.ones(x.shape[1] + 1)
    row[index] = bad
    name = "the target" if index == x.shape[1] else f"feature {index}"
    window, untouched = pushed(x, y, size), pushed(x, y, size)
    with pytest.raises(ValueError, match=f"^{name} is {bad};"):
        window.push(row[:-1], row[-1])
    with pytest.raises(ValueError, match=f"^{name} is {bad};"):
        RollingSpearman.from_rows(row[np.newaxis, :-1], row[-1:], size)
    assert_identical(window, untouched)
    for each in (window, untouched):
        each.push(np.ones(x.shape[1]), 1.0)
    assert_identical(window, untouched)


def test_window_after_many_rows_has_no_drift() -> None:
    rng = np.random.default_rng(1)
    count = 20_000
    y: Floats = rng.exponential(3600.0, count).round(-2)
    noisy, tied, time = y + rng.normal(0, 3000, count), rng.integers(0, 5, count), np.arange(count)
    x: Floats = np.column_stack((noisy, tied, -y, time, np.zeros(count)))
    window = pushed(x, y, 500)
    assert_identical(window, RollingSpearman.from_rows(x[-500:], y[-500:], 500))
    assert_describes(window, x[-500:], y[-500:])
    assert window.correlations[2] == -1.0


def test_window_of_maximum_size_does_not_overflow() -> None:
    largest_sum = MAX_WINDOW_ROWS * (MAX_WINDOW_ROWS**2 - 1) // 3
    assert largest_sum < 2**63 <= (MAX_WINDOW_ROWS + 1) * ((MAX_WINDOW_ROWS + 1) ** 2 - 1) // 3
    time = np.arange(MAX_WINDOW_ROWS, dtype=np.float64)
    window = RollingSpearman.from_rows(-time[:, np.newaxis], time, MAX_WINDOW_ROWS)
    assert window.correlations.tolist() == [-1.0]
    window.push([-1e9], 1e9)
    assert window.correlations.tolist() == [-1.0]
    assert (window.minimum.tolist(), window.maximum.tolist()) == ([-1e9], [-1.0])


def test_window_of_at_most_one_row_has_no_correlation() -> None:
    window = RollingSpearman(features=2, size=3)
    assert len(window) == 0
    assert window.values.shape == (0, 2)
    assert window.targets.shape == (0,)
    assert [part.shape for part in rows_of(window)] == [(0, 2), (0,)]
    for measure in (window.correlations, window.minimum, window.maximum):
        assert np.isnan(measure).all()
    assert window.weights.tolist() == [0.0, 0.0]
    assert_identical(window, RollingSpearman.from_rows(np.empty((0, 2)), [], 3))

    window.push([4, -1], 7)
    assert len(window) == 1
    assert np.isnan(window.correlations).all()
    assert window.weights.tolist() == [0.0, 0.0]
    assert window.minimum.tolist() == window.maximum.tolist() == [4.0, -1.0]


def test_window_of_two_rows_and_one_feature_is_correct() -> None:
    window = RollingSpearman(features=1, size=2)
    seen = []
    for x, y in [(1, 1), (2, 5), (3, 4), (3, 9), (2, 10), (-7, 10)]:
        window.push([x], y)
        seen.append(window.correlations[0])
    np.testing.assert_array_equal(seen, [np.nan, 1.0, -1.0, np.nan, -1.0, np.nan])


def test_positive_and_negative_zero_are_tied() -> None:
    window = pushed(np.array([[0.0], [-0.0], [5e-324]]), np.array([1.0, 1.0, 2.0]), 3)
    assert window.correlations.tolist() == [1.0]


def test_views_are_in_ring_order_live_and_read_only() -> None:
    window = RollingSpearman(features=2, size=3)
    for i in range(3):
        window.push([i, -i], 10 * i)
    values, targets = window.values, window.targets
    window.push([3, -3], 30)
    assert values.tolist() == [[3.0, -3.0], [1.0, -1.0], [2.0, -2.0]]
    assert targets.tolist() == [30.0, 10.0, 20.0]
    assert values.T.flags.c_contiguous
    for view in (values, targets):
        with pytest.raises(ValueError, match="read-only"):
            view[0] = 0.0


def test_returned_arrays_are_copies_of_the_window() -> None:
    window = pushed(np.array([[1.0], [2.0]]), np.array([1.0, 2.0]), 3)
    for array in (window.minimum, window.maximum, window.correlations, window.weights, *rows_of(window)):
        array[...] = 99.0
    assert_describes(window, np.array([[1.0], [2.0]]), np.array([1.0, 2.0]))


@pytest.mark.parametrize("x", [[1.0], [1.0, 2.0, 3.0], 1.0, [[1.0, 2.0]]])
def test_push_rejects_a_row_of_another_shape(x: npt.ArrayLike) -> None:
    window = RollingSpearman(features=2, size=3)
    with pytest.raises(ValueError, match="2 features"):
        window.push(x, 0.0)
    assert len(window) == 0


@pytest.mark.parametrize(("x", "y"), [([1.0, 2.0], [1.0, 2.0]), ([[1.0], [2.0]], [1.0]), ([[1.0]], 1.0)])
def test_rebuild_rejects_rows_of_another_shape(x: npt.ArrayLike, y: npt.ArrayLike) -> None:
    with pytest.raises(ValueError, match="expected rows"):
        RollingSpearman.from_rows(x, y)


@pytest.mark.parametrize(("features", "size"), [(0, 10), (1, 1), (1, 0), (1, MAX_WINDOW_ROWS + 1)])
def test_window_rejects_invalid_size(features: int, size: int) -> None:
    with pytest.raises(ValueError, match="expected"):
        RollingSpearman(features, size)


def test_warm_up_compiles_all_signatures() -> None:
    RollingSpearman.from_rows([[0.0]], [0.0], size=2).push([0.0], 0.0)
    kernels = (spearman._push, spearman._moments)
    assert [len(kernel.signatures) for kernel in kernels] == [1, 1]
    window = RollingSpearman.from_rows(np.eye(3), np.arange(3.0))
    window.push([1, 2, 3], 4)
    window.push(np.ones(3, np.float32), np.float64(4))
    pushed(np.eye(3), np.arange(3.0), 2)
    assert [len(kernel.signatures) for kernel in kernels] == [1, 1]


def test_docstring_example_passes() -> None:
    assert doctest.testmod(spearman) == doctest.TestResults(failed=0, attempted=3)


@pytest.mark.parametrize("rows", [3, 10, 11, 25])
def test_window_rebuilt_from_last_rows_has_equal_layout(rows: int) -> None:
    size, rng = 10, np.random.default_rng(rows)
    x, y = rng.integers(0, 5, (rows, 2)).astype(float), rng.random(rows)
    pushed = RollingSpearman(2, size)
    for features, target in zip(x, y, strict=True):
        pushed.push(features, target)
    rebuilt = RollingSpearman.from_rows(*rows_of(pushed), size=size, pushed=rows)
    for window in (pushed, rebuilt):
        window.push([7.0, 0.5], 0.25)
    assert np.array_equal(rebuilt.values, pushed.values)
    assert np.array_equal(rebuilt.targets, pushed.targets)
    assert np.array_equal(rebuilt.correlations, pushed.correlations)


def test_rebuild_rejects_missing_rows() -> None:
    with pytest.raises(ValueError, match="3 rows; expected 10"):
        RollingSpearman.from_rows(np.ones((3, 1)), np.ones(3), size=10, pushed=25)
