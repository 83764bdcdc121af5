"""Operations on all resources of all rooms, (rooms, resources), and on the shares of jobs in them.

They are loops, since numba takes seconds to compile each such expression of arrays.
"""

from typing import NamedTuple

import numpy as np

from models.arrays import Floats, Ints
from models.kernels import njit


class PlacedJobs(NamedTuple):
    """Jobs in rooms. What a job uses of a room is its share there of its demand.

    Attributes:
        shares: of the jobs that run, the first ones, (running, rooms).
        started: of the others, (others, rooms); zeros before they start.
        kind: the kinds of the jobs.
        held: what a running job of each kind uses if it is in one room only, (kinds, rooms, resources).
        demand: the same of a queued job, below 0 where it may not run.
    """

    shares: Floats
    started: Floats
    kind: Ints
    held: Floats
    demand: Floats


@njit(cache=True)
def add_job(room: Floats, placed: PlacedJobs, job: int, sign: float) -> None:
    """Add `sign` times what a job uses."""
    kind, running = placed.kind[job], len(placed.shares)
    for where in range(room.shape[0]):
        share = placed.shares[job, where] if job < running else placed.started[job - running, where]
        if share != 0.0:
            for what in range(room.shape[1]):
                used = placed.held[kind, where, what] if job < running else placed.demand[kind, where, what]
                room[where, what] += sign * (share * max(used, 0.0))


@njit(cache=True)
def in_use(placed: PlacedJobs) -> Floats:
    """Return what all jobs together use, (rooms, resources)."""
    used = np.zeros(placed.held.shape[1:])
    for job in range(len(placed.shares)):
        add_job(used, placed, job, 1.0)
    return used


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
