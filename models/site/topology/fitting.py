"""Whether a job fits into what is free, and how much of it goes where."""

import numpy as np
from numba import njit

from models.arrays import Floats, Ints

WHOLE = 1.0 - 1e-9
"""The shares of a job that fits sum up to one, but for rounding."""


def warm_up() -> None:
    """Have compiled what is asked only where there are reservations, or nodes that are looked at one by one."""
    room = np.zeros((1, 1))
    fit(room, room, np.zeros(1))
    fit_parts(room, room, np.zeros(1, np.int64), np.zeros(1))


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


@njit(cache=True)
def fit_parts(free: Floats, demand: Floats, parts: Ints, shares: Floats) -> bool:
    """As `fit`, for a job whose parts each lie in one room, as tasks do on nodes.

    They lie as most schedulers have it: all in the fullest room that can hold them, else in those first that can hold
    most. O(rooms), times the rooms that it takes.

    Parameters:
        parts: how many there are if they lie in this room, (rooms,), below 0 where no two may share a room; 0 in all
            rooms: the job is divisible.
    """
    if parts[0] == 0:
        whole: bool = fit(free, demand, shares)
        return whole
    fullest, together = -1, 0.0
    for room in range(len(demand)):
        shares[room] = 0.0
        if demand[room, 0] < 0.0:
            continue
        count = abs(parts[room])
        most = 1 if parts[room] < 0 else count
        for resource in range(demand.shape[1]):
            wanted = demand[room, resource]
            if wanted > 0.0:
                holds = max(free[room, resource], 0.0) * count / wanted + 1.0 - WHOLE
                most = int(holds) if holds < most else most
        shares[room] = most / count
        together += shares[room]
        if most == count and (fullest < 0 or free[room, 0] < free[fullest, 0]):
            fullest = room
    if fullest >= 0:
        for room in range(len(shares)):
            shares[room] = 1.0 if room == fullest else 0.0
        return True
    if together >= WHOLE:
        _keep_largest(shares)
        return True
    return False


@njit(cache=True)
def _keep_largest(shares: Floats) -> None:
    """Of shares that sum up to one or more keep the largest, of equal ones the first, until they are one."""
    left = 1.0
    for _ in range(len(shares)):
        largest = 0
        for room in range(len(shares)):
            if shares[room] > shares[largest]:
                largest = room
        share = min(shares[largest], left)
        shares[largest] = -share  # kept: it is less than all others now
        left -= share
        if left <= 1.0 - WHOLE:
            break
    for room in range(len(shares)):
        shares[room] = max(-shares[room], 0.0)
