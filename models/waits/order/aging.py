"""How the order of a queue changes while time passes: jobs grow older, and users use what they hold.

In a schedule that goes far ahead, who has much running falls back, and who waits comes forward. So the queue is put in
order anew as of later times, by the same features and weights as now.
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from models.arrays import Floats, Ints
from models.waits.order.features import People, Queued, before_each
from models.waits.order.preference import scores_of
from models.waits.order.usage import HALVES

FIRST_S = 3600.0
"""The order as it is now is kept for so long."""

GROWTH = 1.5
"""Then for so many times as long as until it was last put in order: some ten orders are enough for a week."""


class Aging(NamedTuple):
    """What the order of a line is found from: the queue, and which of it (`places`, in it) are in the line; what users
    and accounts have used; the size of the site; the weights of the preference; and whether what users may hold is
    known as limits, so that it is no matter of preference. `first_s` is after how many seconds the order is first found
    anew, infinity for never.
    """

    queued: Queued
    places: Ints
    people: People
    cpus: int
    weights: Floats
    limited: bool
    first_s: float


class Use(NamedTuple):
    """Processor-seconds that users and accounts have used since the line was last put in order, by their codes."""

    users: Floats
    accounts: Floats


@njit(cache=True)
def add_use(use: Use, user: int, account: int, cpu_s: float) -> None:
    """A user and an account have used so many processor-seconds."""
    use.users[user] += cpu_s
    use.accounts[account] += cpu_s


@njit(cache=True)
def people_later(people: People, use: Use, passed_s: float, held: Ints, runs: Ints) -> People:
    """What users and accounts have used so many seconds later, and what they hold and run then. `use` begins anew."""
    users, accounts = _faded(people.users, use.users, passed_s), _faded(people.accounts, use.accounts, passed_s)
    use.users[:], use.accounts[:] = 0.0, 0.0
    return People(users, accounts, held, runs)


@njit(cache=True)
def _faded(used: Floats, since: Floats, passed_s: float) -> Floats:
    """What had been used and what was used since, (codes, half-lives): as if that had all been used halfway."""
    found = np.empty_like(used)
    for half in range(len(HALVES)):
        kept = 2.0 ** (-passed_s / HALVES[half] / 2.0)
        found[:, half] = (used[:, half] * kept + since) * kept
    return found


@njit(cache=True)
def reordered(aging: Aging, waiting: Ints, now: float, people: People) -> Ints:
    """Those of the line that wait, as they are to go `now`, in seconds from the time of the line.

    O(queued + waiting · log waiting); 0.1 µs for each that waits.

    Parameters:
        waiting: places in the line.
        people: what users have used, hold and run by now.
    """
    every, waits = aging.queued, np.full(len(aging.queued.cpus), -1)
    for place in waiting:
        waits[aging.places[place]] = place
    came = waits[waits >= 0]
    later = Queued(
        every.cpus,
        every.run_s,
        every.planned_s,
        every.age_s + now,
        every.user,
        every.account,
        every.queue,
        every.priority,
        every.barred,
        every.stays_s,
    )
    jobs = aging.places[came]
    before = before_each(every.user[jobs], len(people.users), np.ones(len(jobs)))
    scores = scores_of(later, jobs, before, people, aging.cpus, aging.weights, aging.limited)
    return came[np.argsort(-scores, kind="mergesort")]
