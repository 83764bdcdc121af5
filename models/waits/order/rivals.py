"""Which queued jobs could have started instead of the one that did: from them the order is learnt."""

import numpy as np
from numpy.typing import NDArray

from models.waits.order.features import Floats, Ints
from models.waits.order.line import scores_in
from models.waits.order.preference import Preference
from models.waits.order.schedule import Limits, are_full, are_over
from models.waits.order.sight import Sight
from models.waits.schedules import reservation

Flags = NDArray[np.bool_]

MOST_OTHERS = 12
"""Jobs that the one that started is compared with, at most."""

ALIKE_CPUS, ALIKE_PLANNED = 2.0, 2.8
"""They ask for so many times its processors and planned run time at most, or it for so many times theirs. Those that
differ by more are chosen for the gaps that they fill, not for their priority."""


def rivals_of(sight: Sight, started: int, before: Floats, preference: Preference, limits: Limits) -> tuple[Ints, Ints]:
    """The jobs that could have started instead, and are much like it; evenly spaced where there are many. Of each, its
    place in `sight.queued`, and of an array, of which each task is one, how many of its tasks come before it.

    Not among them are those that the scheduler says to wait for something of their own. At a site without a topology
    those neither that a limit keeps, nor those of the same user, which go in their own order, nor those that would take
    what is reserved for the head of the queue.

    Parameters:
        started: the place in `sight.queued` of the job that started.
        before: of each queued job, how many of its user's queued jobs came before it.
    """
    could = _fit(sight, started) & _alike(sight, started) & ~sight.queued.barred
    could[started] = False
    if sight.rooms is None:
        kept = np.asarray(are_over(sight.queued, sight.people, limits) | are_full(sight.queued, sight.running, limits))
        could &= ~kept & ~_of_its_user(sight, started)
        could &= _leave_head(sight, started, before, preference, limits, ~kept)
    others = np.flatnonzero(could)
    many = sight.tasks[others]
    each, nth = np.repeat(others, many), np.arange(many.sum()) - np.repeat(np.cumsum(many) - many, many)
    most = min(len(each), MOST_OTHERS)
    some = np.arange(most) * len(each) // max(most, 1)
    return each[some], nth[some]


def _alike(sight: Sight, started: int) -> Flags:
    queued = sight.queued
    cpus, planned_s = queued.cpus / queued.cpus[started], queued.planned_s / max(queued.planned_s[started], 1.0)
    alike = (cpus <= ALIKE_CPUS) & (cpus >= 1 / ALIKE_CPUS)
    return np.asarray(alike & (planned_s <= ALIKE_PLANNED) & (planned_s >= 1 / ALIKE_PLANNED))


def _fit(sight: Sight, started: int) -> Flags:
    return sight.queued.cpus <= sight.free if sight.rooms is None else sight.rooms.rivals(started)


def _of_its_user(sight: Sight, started: int) -> Flags:
    user = sight.queued.user
    return np.asarray((user > 0) & (user == user[started]))


def _leave_head(
    sight: Sight, started: int, before: Floats, preference: Preference, limits: Limits, may: Flags
) -> Flags:
    """Those that leave alone what is reserved for the head of the queue: the first in the learnt order of those that
    `may` start and find no room. Where the job that started goes before it, nothing is; and where that does not leave
    it alone, the order is not known well enough, and nobody is a rival.
    """
    queued, running = sight.queued, sight.running
    wide = np.flatnonzero(may & (queued.cpus > sight.free))
    jobs = np.append(wide, started)
    scores = scores_in(sight, jobs, before[jobs], preference, limits)
    if not len(wide) or scores[:-1].max() <= scores[-1]:
        return np.ones(len(queued.cpus), np.bool_)
    head = wide[np.argmax(scores[:-1])]
    releases = np.argsort(running.planned_s, kind="mergesort")
    start_s, extra = reservation(queued.cpus[head], sight.free, 0.0, running.cpus, running.planned_s, releases)
    leave = (queued.planned_s <= start_s) | (queued.cpus <= extra)
    return np.asarray(leave & leave[started])


def warm_up() -> None:
    """Have compiled what is needed only when a job starts before the head of a queue."""
    nothing = np.zeros(0, np.int64)
    reservation(np.int64(1), 1, 0.0, nothing, np.zeros(0), nothing)
