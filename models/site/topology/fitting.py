"""Whether a job fits into what is free, and how much of it goes where."""

import numpy as np
from numba import njit
from numpy.typing import NDArray

Floats = NDArray[np.float64]

WHOLE = 1.0 - 1e-9
"""The shares of a job that fits sum up to one, but for rounding."""


@njit(cache=True)
def fit(free: Floats, demand: Floats, shares: Floats) -> bool:
    """Fill in which share of a job each room takes, (rooms,), the first rooms first; gives whether all of it fits.

    O(rooms).

    Parameters:
        free: what is free, (rooms, resources); below 0 counts as 0.
        demand: what the job takes in each room if it is there alone, (rooms, resources); below 0 where it may not be.
    """
    left = 1.0
    for room in range(len(demand)):
        shares[room] = 0.0
        if left <= 0.0 or demand[room, 0] < 0.0:
            continue
        share = left
        for resource in range(demand.shape[1]):
            wanted = demand[room, resource]
            if wanted > 0.0 and wanted * share > free[room, resource]:
                share = max(free[room, resource], 0.0) / wanted
        shares[room] = share
        left -= share
    return left <= 1.0 - WHOLE
