"""Linear algebra in a fixed order of operations, so that every CPU model gives the same bytes.

BLAS and LAPACK choose their kernels by the CPU, and each kernel adds in a different order. numba adds in the order of
the source code, as long as `fastmath` is off. The matrices are small: tens of columns.
"""

import numpy as np

from models.arrays import Floats
from models.kernels import njit

MIN_PIVOT = 1e-14
"""A column with a smaller share of its square left depends linearly on the columns before it, up to rounding."""


def warm_up() -> None:
    """Compile what Python code calls."""
    rows, one = np.eye(2), np.ones(2)
    solve(gram(rows), moments(rows, one))
    products(rows, one)
    dot(one, one)


@njit(cache=True)
def dot(one: Floats, other: Floats) -> float:
    """Return the scalar product of two vectors, (n,).

    >>> dot(np.array([1.0, 2.0]), np.array([3.0, 4.0]))
    11.0
    """
    total = 0.0
    for place in range(len(one)):
        total += one[place] * other[place]
    return total


@njit(cache=True)
def products(rows: Floats, vector: Floats) -> Floats:
    """Return the scalar product of each of the rows, (n, d), with a vector, (d,)."""
    found = np.zeros(len(rows))
    for row in range(len(rows)):
        for column in range(len(vector)):
            found[row] += rows[row, column] * vector[column]
    return found


@njit(cache=True)
def gram(rows: Floats) -> Floats:
    """Return the scalar products of the columns of `rows`, (n, d), with each other, (d, d); O(d²·n).

    >>> gram(np.array([[1.0, 2.0], [0.0, 1.0]])).tolist()
    [[1.0, 2.0], [2.0, 5.0]]
    """
    count, columns = rows.shape
    found = np.zeros((columns, columns))
    for row in range(0, count - count % 4, 4):  # four rows per step save three quarters of the loads and stores
        a, b, c, d = rows[row], rows[row + 1], rows[row + 2], rows[row + 3]
        for one in range(columns):
            for other in range(columns):  # also below the diagonal, so that the loop is vectorised
                pair = a[one] * a[other] + b[one] * b[other]
                found[one, other] += pair + (c[one] * c[other] + d[one] * d[other])
    for row in range(count - count % 4, count):
        for one in range(columns):
            for other in range(columns):
                found[one, other] += rows[row, one] * rows[row, other]
    return found


@njit(cache=True)
def moments(rows: Floats, values: Floats) -> Floats:
    """Return the scalar product of each column of `rows`, (n, d), with `values`, (n,)."""
    found = np.zeros(rows.shape[1])
    for row in range(len(rows)):
        for column in range(len(found)):
            found[column] += rows[row, column] * values[row]
    return found


@njit(cache=True)
def standardize(rows: Floats, other: Floats) -> Floats:
    """Give each column of `rows`, (n, d), the mean 0 and the deviation 1; return `other`, (d,), on the same scale.

    A constant column becomes 0, in both.
    """
    count, columns = rows.shape
    mean, scale, found = np.zeros(columns), np.zeros(columns), np.zeros(columns)
    for row in range(count):  # all columns in the inner loop: the sum of one column is a dependency chain
        for column in range(columns):
            mean[column] += rows[row, column]
    for column in range(columns):
        mean[column] /= count
    for row in range(count):
        for column in range(columns):
            rows[row, column] -= mean[column]
            scale[column] += rows[row, column] * rows[row, column]
    for column in range(columns):
        if scale[column] > 0.0:
            scale[column] = 1.0 / np.sqrt(scale[column] / count)
            found[column] = (other[column] - mean[column]) * scale[column]
    for row in range(count):
        for column in range(columns):
            rows[row, column] *= scale[column]
    return found


@njit(cache=True)
def solve(matrix: Floats, right: Floats) -> Floats:
    """Solve `matrix`·x = `right` by Cholesky's method, for a symmetric positive matrix (d, d); O(d³).

    An unknown whose column depends on the columns before it is 0: there is a solution of a singular matrix too.

    >>> solve(np.array([[4.0, 2.0], [2.0, 3.0]]), np.array([8.0, 8.0])).round(9).tolist()
    [1.0, 2.0]
    """
    size = len(right)
    lower, found = np.zeros((size, size)), np.zeros(size)
    for one in range(size):
        pivot = matrix[one, one]
        for k in range(one):
            pivot -= lower[one, k] * lower[one, k]
        if not pivot > MIN_PIVOT * matrix[one, one]:
            continue
        lower[one, one] = np.sqrt(pivot)
        for other in range(one + 1, size):
            rest = matrix[other, one]
            for k in range(one):
                rest -= lower[other, k] * lower[one, k]
            lower[other, one] = rest / lower[one, one]
    for one in range(size):
        if lower[one, one] > 0.0:
            rest = right[one]
            for k in range(one):
                rest -= lower[one, k] * found[k]
            found[one] = rest / lower[one, one]
    for one in range(size - 1, -1, -1):
        if lower[one, one] > 0.0:
            rest = found[one]
            for k in range(one + 1, size):
                rest -= lower[k, one] * found[k]
            found[one] = rest / lower[one, one]
    return found


@njit(cache=True)
def orthogonalize(rows: Floats) -> tuple[Floats, Floats]:
    """Split `rows`, (n, d), into orthonormal columns (n, d) and an upper triangle (d, d): their QR decomposition.

    By the modified Gram-Schmidt method, done twice, which is as orthogonal as rounding allows. A column that depends
    on the columns before it is 0, in both.
    """
    columns, r = rows.T.copy(), np.zeros((rows.shape[1], rows.shape[1]))
    for one in range(rows.shape[1]):
        column = columns[one]
        whole = dot(column, column)
        for _ in range(2):
            for k in range(one):
                share = dot(columns[k], column)
                r[k, one] += share
                for row in range(len(column)):
                    column[row] -= share * columns[k, row]
        square = dot(column, column)
        r[one, one] = np.sqrt(square) if square > MIN_PIVOT * MIN_PIVOT * whole else 0.0
        for row in range(len(column)):
            column[row] = column[row] / r[one, one] if r[one, one] > 0.0 else 0.0
    return columns.T.copy(), r


@njit(cache=True)
def inverse_of_triangle(upper: Floats) -> Floats:
    """Return the inverse of an upper triangle (d, d), whose diagonal has no 0."""
    size = len(upper)
    found = np.zeros((size, size))
    for column in range(size):
        found[column, column] = 1.0 / upper[column, column]
        for row in range(column - 1, -1, -1):
            rest = 0.0
            for k in range(row + 1, column + 1):
                rest -= upper[row, k] * found[k, column]
            found[row, column] = rest / upper[row, row]
    return found
