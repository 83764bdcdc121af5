"""Operations on all resources of all rooms, (rooms, resources).

They are loops, since numba takes seconds to compile each such expression of arrays.
"""

from models.arrays import Floats
from models.kernels import njit


@njit(cache=True)
def add_to(room: Floats, other: Floats, sign: float) -> None:
    """Add `sign` times the other values."""
    for where in range(room.shape[0]):
        for what in range(room.shape[1]):
            room[where, what] += sign * other[where, what]


@njit(cache=True)
def fill_rest(room: Floats, holds: Floats, used: Floats) -> None:
    """Fill in the free part of the rooms' capacity."""
    for where in range(room.shape[0]):
        for what in range(room.shape[1]):
            room[where, what] = holds[where, what] - used[where, what]


@njit(cache=True)
def fill_taken(taken: Floats, demand: Floats, shares: Floats) -> None:
    """Fill in the resources of a job in each room, by its shares in the rooms."""
    for where in range(taken.shape[0]):
        for what in range(taken.shape[1]):
            taken[where, what] = shares[where] * max(demand[where, what], 0.0)


@njit(cache=True)
def reduce_to(room: Floats, other: Floats) -> None:
    """Reduce each value to the lesser of both."""
    for where in range(room.shape[0]):
        for what in range(room.shape[1]):
            room[where, what] = min(room[where, what], other[where, what])


@njit(cache=True)
def reduce_ahead(room: Floats, end: float, at: int, begins: Floats, holds: Floats, ahead: Floats) -> None:
    """Reduce `room` to the resources that are also free at the times before `end`, beside jobs that still run then."""
    for time in range(at + 1, len(begins)):
        if begins[time] >= end:
            break
        for where in range(room.shape[0]):
            for what in range(room.shape[1]):
                room[where, what] = min(room[where, what], holds[time, where, what] - ahead[time, where, what])
