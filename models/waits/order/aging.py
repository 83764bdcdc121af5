"""Changes of the queue's order with time: jobs grow older, and users accumulate usage.

In a schedule that covers a long time, users with many running jobs lose priority, and waiting users gain it. The queue
is therefore sorted again as of later times, with the same features and weights as now.
"""

from typing import NamedTuple

import numpy as np

from models.arrays import Floats, Ints
from models.kernels import njit
from models.waits.order.order_features import DecayedUsage, QueuedJobs, before_each
from models.waits.order.pair_preference import scores_of
from models.waits.order.usage import HALVES

FIRST_S = 3600.0
"""Time for which the order is kept as it is now."""

GROWTH = 1.5
"""Then for this factor of the time until the order was last computed: some ten orders are enough for a week."""


class Aging(NamedTuple):
    """Data from which the order of a line is computed.

    Attributes:
        queued: the queue.
        places: the jobs of the line, as places in `queued`.
        people: usage of users and accounts.
        cpus: the size of the site.
        weights: the weights of the preference.
        limited: whether the users' usage is limited by limits that were found, so that it is no matter of preference.
        first_s: seconds until the order is first computed again; infinity for never.
    """

    queued: QueuedJobs
    places: Ints
    people: DecayedUsage
    cpus: int
    weights: Floats
    limited: bool
    first_s: float


class UsageSinceSort(NamedTuple):
    """CPU-seconds that users and accounts have used since the line was last sorted, by their codes."""

    users: Floats
    accounts: Floats


@njit(cache=True)
def add_use(use: UsageSinceSort, user: int, account: int, cpu_s: float) -> None:
    """Add CPU-seconds to the usage of a user and an account."""
    use.users[user] += cpu_s
    use.accounts[account] += cpu_s


@njit(cache=True)
def usage_after(people: DecayedUsage, use: UsageSinceSort, passed_s: float, held: Ints, runs: Ints) -> DecayedUsage:
    """Return the usage after `passed_s` seconds, with the CPUs and jobs that users then hold. Resets `use`."""
    users, accounts = _faded(people.users, use.users, passed_s), _faded(people.accounts, use.accounts, passed_s)
    use.users[:], use.accounts[:] = 0.0, 0.0
    return DecayedUsage(users, accounts, held, runs)


@njit(cache=True)
def _faded(used: Floats, since: Floats, passed_s: float) -> Floats:
    """Return the decayed usage, (codes, half-lives), as if all usage since had been halfway through the time."""
    found = np.empty_like(used)
    for half in range(len(HALVES)):
        kept = 2.0 ** (-passed_s / HALVES[half] / 2.0)
        found[:, half] = (used[:, half] * kept + since) * kept
    return found


@njit(cache=True)
def reordered(aging: Aging, waiting: Ints, now: float, people: DecayedUsage) -> Ints:
    """Return the waiting jobs of the line in their order at `now`, in seconds from the time of the line.

    O(queued + waiting · log waiting).

    Args:
        waiting: places in the line.
        people: usage of users, and the CPUs and jobs that they hold, by now.
    """
    every, waits = aging.queued, np.full(len(aging.queued.cpus), -1)
    for place in waiting:
        waits[aging.places[place]] = place
    came = waits[waits >= 0]
    later = QueuedJobs(
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
