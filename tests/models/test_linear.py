import numpy as np
import pytest

from models.linear import dot, gram, inverse_of_triangle, moments, orthogonalize, products, solve, standardize

SHAPES = [(1, 1), (2, 5), (40, 3), (300, 16), (3000, 20)]


def rows_of(shape: tuple[int, int]) -> np.ndarray:
    random = np.random.default_rng(shape[0])
    return random.normal(size=shape) * 10.0 ** random.integers(-3, 4, shape[1])


def close(found: object, expected: np.ndarray) -> None:
    assert np.asarray(found) == pytest.approx(expected, rel=1e-10, abs=1e-10 * float(np.abs(expected).max()))


@pytest.mark.parametrize("shape", SHAPES)
def test_products_match_numpy(shape: tuple[int, int]) -> None:
    rows, random = rows_of(shape), np.random.default_rng(1)
    by_column, by_row = random.normal(size=shape[1]), random.normal(size=shape[0])
    close(dot(by_row, rows[:, 0]), np.dot(by_row, rows[:, 0]))
    close(products(rows, by_column), rows @ by_column)
    close(gram(rows), rows.T @ rows)
    close(moments(rows, by_row), rows.T @ by_row)


@pytest.mark.parametrize("size", [1, 2, 7, 16, 40])
def test_solve_matches_numpy(size: int) -> None:
    random = np.random.default_rng(size)
    rows = random.normal(size=(3 * size, size))
    matrix, right = rows.T @ rows + 0.1 * np.eye(size), random.normal(size=size)
    close(solve(matrix, right), np.linalg.solve(matrix, right))


def test_solve_singular_matrix_leaves_dependent_unknowns_zero() -> None:
    rows = np.array([[1.0, 2.0, 1.0], [2.0, 4.0, 0.0], [3.0, 6.0, 5.0]])
    right = rows.T @ rows @ np.array([3.0, 0.0, -1.0])
    assert solve(gram(rows), right).tolist() == pytest.approx([3.0, 0.0, -1.0])
    assert solve(np.zeros((2, 2)), np.ones(2)).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("shape", [(3, 3), (12, 3), (200, 8)])
def test_orthogonalize_gives_a_decomposition(shape: tuple[int, int]) -> None:
    rows = rows_of(shape)
    q, r = orthogonalize(rows)
    close(q.T @ q, np.eye(shape[1]))
    close(q @ r, rows)
    assert np.array_equal(r, np.triu(r)) and (np.diag(r) > 0.0).all()
    close(inverse_of_triangle(r) @ r, np.eye(shape[1]))


def test_orthogonalize_dependent_column_is_zero() -> None:
    q, r = orthogonalize(np.array([[1.0, 2.0], [2.0, 4.0], [3.0, 6.0]]))
    assert r[1, 1] == 0.0 and not q[:, 1].any()


def test_standardize_gives_mean_0_and_deviation_1() -> None:
    rows = rows_of((50, 4))
    rows[:, 2] = 7.0
    expected, at = rows.copy(), rows[3].copy()
    deviation = expected.std(axis=0)
    expected = np.where(deviation > 0.0, (expected - expected.mean(axis=0)) / np.maximum(deviation, 1e-300), 0.0)
    close(standardize(rows, at), expected[3])
    close(rows, expected)
