"""Density-based clustering (DBSCAN) of points in the plane, exact and near linear.

Ester, Kriegel, Sander and Xu 1996. A point with at least `min_pts` points within `eps` of it, itself included, is a
core point. Core points within `eps` of each other belong to one cluster. A point within `eps` of a core point belongs
to the cluster of one such point. All other points are noise.

**The idea.** The plane is cut into square cells of side eps/√2, so that two points of one cell are always neighbours,
and the neighbours of a point lie within two cells of its own. In a cell of `min_pts` points all points are core points
without the computation of any distance. In the dense data that is clustered here nearly every point is in such a cell.

>>> import numpy as np
>>> x = np.array([0.0, 0.1, 0.2, 5.0, 9.0, 9.1])
>>> dbscan(x, np.zeros(6), eps=0.5, min_pts=2)
array([ 0,  0,  0, -1,  1,  1])
"""

import math

import numpy as np

from models.arrays import Flags, Floats, Ints
from models.kernels import njit

NOISE = -1
"""The label of a point that is in no cluster."""


@njit(cache=True)
def dbscan(x: Floats, y: Floats, eps: float, min_pts: int) -> Ints:
    """The cluster of each point (x, y), numbered from 0 in the order of their first core points, or `NOISE`.

    A border point that two clusters reach goes to that of its first core neighbour. The grid has about (extent/eps)²
    cells of 16 bytes, so `eps` must be positive, and not too small beside the points' extent.
    """
    found = np.full(len(x), NOISE, np.int64)
    if len(x) == 0:
        return found
    rows, columns, order, first = _grid(x, y, eps)
    core = _cores(x, y, eps, min_pts, rows, columns, order, first)
    cluster = _join(x, y, eps, core, rows, columns, order, first)
    number = np.full(rows * columns, NOISE, np.int64)
    cell_of = np.empty(len(x), np.int64)
    for cell in range(rows * columns):
        for place in range(first[cell], first[cell + 1]):
            cell_of[order[place]] = cell
    clusters = 0
    for point in range(len(x)):
        if core[point]:
            root = cluster[cell_of[point]]
            if number[root] == NOISE:
                number[root] = clusters
                clusters += 1
            found[point] = number[root]
    for point in range(len(x)):
        if not core[point]:
            neighbour = _core_near(point, cell_of[point], x, y, eps, core, rows, columns, order, first)
            if neighbour >= 0:
                found[point] = found[neighbour]
    return found


@njit(cache=True)
def outliers(x: Floats, y: Floats, eps: float, min_pts: int) -> Flags:
    """Return the noise points: `dbscan(...) == NOISE`, but without joining the clusters."""
    found = np.zeros(len(x), np.bool_)
    if len(x) == 0:
        return found
    rows, columns, order, first = _grid(x, y, eps)
    core = _cores(x, y, eps, min_pts, rows, columns, order, first)
    for cell in range(rows * columns):
        if first[cell + 1] - first[cell] < min_pts:
            for point in order[first[cell] : first[cell + 1]]:
                if not core[point]:
                    found[point] = _core_near(point, cell, x, y, eps, core, rows, columns, order, first) < 0
    return found


@njit(cache=True)
def _grid(x: Floats, y: Floats, eps: float) -> tuple[int, int, Ints, Ints]:
    """Rows and columns of the grid, the points sorted by cell, and where each cell's begin."""
    side = eps / math.sqrt(2.0) * (1.0 - 1e-9)  # a little less, so that rounding cannot separate two points of a cell
    left, right, low, high = x[0], x[0], y[0], y[0]
    for point in range(len(x)):
        left, right = min(left, x[point]), max(right, x[point])
        low, high = min(low, y[point]), max(high, y[point])
    a_side = 1.0 / side
    rows, columns = int((right - left) * a_side) + 1, int((high - low) * a_side) + 1
    cells = np.empty(len(x), np.int64)
    first = np.zeros(rows * columns + 1, np.int64)
    for point in range(len(x)):
        cells[point] = int((x[point] - left) * a_side) * columns + int((y[point] - low) * a_side)
        first[cells[point] + 1] += 1
    for cell in range(rows * columns):
        first[cell + 1] += first[cell]
    free = first[:-1].copy()
    order = np.empty(len(x), np.int64)
    for point in range(len(x)):
        order[free[cells[point]]] = point
        free[cells[point]] += 1
    return rows, columns, order, first


@njit(cache=True)
def _near(x: Floats, y: Floats, one: int, other: int, eps: float) -> bool:
    return bool((x[one] - x[other]) ** 2 + (y[one] - y[other]) ** 2 <= eps * eps)


@njit(cache=True)
def _cores(x: Floats, y: Floats, eps: float, min_pts: int, rows: int, columns: int, order: Ints, first: Ints) -> Flags:
    core = np.ones(len(x), np.bool_)
    for cell in range(rows * columns):
        if first[cell + 1] - first[cell] < min_pts:
            for point in order[first[cell] : first[cell + 1]]:
                core[point] = _is_core(point, cell, x, y, eps, min_pts, rows, columns, order, first)
    return core


@njit(cache=True)
def _is_core(
    point: int,
    cell: int,
    x: Floats,
    y: Floats,
    eps: float,
    min_pts: int,
    rows: int,
    columns: int,
    order: Ints,
    first: Ints,
) -> bool:
    row, column = divmod(cell, columns)
    near = 0
    for across in range(max(row - 2, 0), min(row + 3, rows)):
        begin = first[across * columns + max(column - 2, 0)]
        for place in range(begin, first[across * columns + min(column + 3, columns)]):
            near += _near(x, y, point, order[place], eps)
            if near >= min_pts:
                return True
    return False


@njit(cache=True)
def _core_near(
    point: int,
    cell: int,
    x: Floats,
    y: Floats,
    eps: float,
    core: Flags,
    rows: int,
    columns: int,
    order: Ints,
    first: Ints,
) -> int:
    """Return a core point within `eps` of this one; -1 if there is none."""
    row, column = divmod(cell, columns)
    for across in range(max(row - 2, 0), min(row + 3, rows)):
        begin = first[across * columns + max(column - 2, 0)]
        for place in range(begin, first[across * columns + min(column + 3, columns)]):
            if core[order[place]] and _near(x, y, point, order[place], eps):
                return int(order[place])
    return -1


@njit(cache=True)
def _join(x: Floats, y: Floats, eps: float, core: Flags, rows: int, columns: int, order: Ints, first: Ints) -> Ints:
    """Return for each cell the cell that represents the cluster of its core points: union-find over the cells."""
    parent = np.arange(rows * columns)
    for cell in range(rows * columns):
        if first[cell] == first[cell + 1]:
            continue
        row, column = divmod(cell, columns)
        for across in range(row, min(row + 3, rows)):
            for other in range(across * columns + max(column - 2, 0), across * columns + min(column + 3, columns)):
                apart = other > cell and _root(parent, cell) != _root(parent, other)
                if apart and _touch(cell, other, x, y, eps, core, order, first):
                    parent[_root(parent, other)] = _root(parent, cell)
    for cell in range(rows * columns):
        parent[cell] = _root(parent, cell)
    return parent


@njit(cache=True)
def _root(parent: Ints, cell: int) -> int:
    while parent[cell] != cell:
        parent[cell] = parent[parent[cell]]
        cell = int(parent[cell])
    return cell


@njit(cache=True)
def _touch(cell: int, other: int, x: Floats, y: Floats, eps: float, core: Flags, order: Ints, first: Ints) -> bool:
    """Return True if a core point of one cell is within eps of one of the other."""
    for place in range(first[cell], first[cell + 1]):
        if core[order[place]]:
            for there in range(first[other], first[other + 1]):
                if core[order[there]] and _near(x, y, order[place], order[there], eps):
                    return True
    return False
