"""Times at which queued jobs are withdrawn if they have not started, learned from departures by age.

A survival model with frailty (J. W. Vaupel, K. Manton, E. Stallard, "The impact of heterogeneity in individual
frailty", Demography 16, 1979). The site's hazard is constant within each range of ages. A user's hazard is that times a
factor of the user, which has a prior gamma distribution with mean 1. Jobs that still queue count as censored. Where no
job was withdrawn, no withdrawals are expected.
"""

import msgspec
import numpy as np

from models.arrays import Floats, Ints, Singles
from models.kernels import njit
from models.site.table import SlotsByCode
from models.slots import Slots
from models.stored_values import check_alike
from models.waits.order.usage import MAX_NAME

EDGES_S: Floats = np.array([0.0, 60.0, 240.0, 960.0, 3840.0, 15360.0, 61440.0, 245760.0])
"""Lower ends of the ranges of ages; the last has no upper end."""

RANGES = len(EDGES_S)

WIDTHS_S: Floats = np.append(np.diff(EDGES_S), 737280.0)

ALIKE = 3.0
"""Strength of the prior: the jobs that count in each range with the withdrawals of the other ranges."""

KEPT, USER_KEPT = 0.9995, 0.97
"""Factors of earlier data: for each job that leaves the queue, and for each of the user's."""

EVEN = 1.0
"""Initial shape of the distribution of users' factors: the larger, the more equal they are."""

LEAST = 1e-9
"""With fewer withdrawn jobs there is no withdrawal: the sums fade with each job, and would become 0 in the end."""

MOST_USERS = 100


class SavedWithdrawals(msgspec.Struct, array_like=True):
    """Serialized state: the site's sums by range of ages, and those of each user, (users, 2), the latest departure
    last.
    """

    seen: Floats
    users: list[str]
    of_users: Singles


class Withdrawals:
    """Numbers of withdrawn jobs and queued seconds by range of ages.

    For each user it has the number of withdrawn jobs, and the number expected at the site's average.
    """

    def __init__(self) -> None:
        self.seen: Floats = np.zeros((2, RANGES))
        self.users: Singles = np.zeros((MOST_USERS + 1, 2), np.float32)
        """By slot; the last one is for users without data."""
        self._slots = Slots[str](MOST_USERS)  # in the order of their last departures
        self.slots = SlotsByCode(self._slots, MOST_USERS)
        """The rows of a table's users."""

    def see(self, user: str | None, queued_s: float, withdrawn: bool, weight: float, tasks: int = 1) -> None:
        """Add a job, or `tasks` tasks of an array, that has left the queue; at the site it counts as `weight`."""
        slot = MOST_USERS
        if user is not None and len(user) <= MAX_NAME:
            is_new = self._slots.get(user) is None
            slot = self._slots.take(user)
            if is_new:
                self.users[slot] = 0.0
        _see(self.seen, self.users[slot], max(float(queued_s), 0.0), withdrawn, weight, tasks)
        self.users[MOST_USERS] = 0.0

    def saved(self) -> SavedWithdrawals:
        """Return the state."""
        slots = dict(self._slots.in_order())
        return SavedWithdrawals(self.seen, [*slots], self.users[[*slots.values()]])

    def restore(self, saved: SavedWithdrawals) -> None:
        """Restore the state.

        Raises:
            ValueError: it is not such a state.
        """
        names = len(saved.users)
        if names > MOST_USERS or len({*saved.users}) < names:
            raise ValueError(f"{names} users; expected {MOST_USERS} at most, each once")
        check_alike((saved.seen, saved.of_users), (self.seen, self.users[:names]), "withdrawals")
        self.seen, self.users[: len(saved.users)] = saved.seen, saved.of_users
        self._slots.restore({user: slot for slot, user in enumerate(saved.users)})


@njit(cache=True, nogil=True)
def _see(seen: Floats, user: Singles, queued_s: float, withdrawn: bool, weight: float, tasks: int) -> None:
    kept = USER_KEPT**tasks
    count = (1.0 - kept) / (1.0 - USER_KEPT)  # as if they had left one after the other
    user *= np.float32(kept)
    user[0] += count if withdrawn else 0.0
    user[1] += count * _until(queued_s, _hazards(seen))
    seen *= KEPT
    seen[0, _pass(seen, queued_s, weight)] += weight if withdrawn else 0.0


@njit(cache=True, nogil=True)
def _pass(seen: Floats, queued_s: float, weight: float) -> int:
    """Count the seconds that a job has queued in each range; return its current range."""
    for place in range(RANGES - 1):
        seen[1, place] += weight * min(max(queued_s - EDGES_S[place], 0.0), WIDTHS_S[place])
        if queued_s <= EDGES_S[place + 1]:
            return place
    seen[1, RANGES - 1] += weight * (queued_s - EDGES_S[RANGES - 1])
    return RANGES - 1


@njit(cache=True, nogil=True)
def _end_s(age_s: float) -> float:
    """Return the end of the range of an age.

    A queued job counts as one that stays up to there. Else a few departures at the begin of a range would count for all
    of it.
    """
    for place in range(1, RANGES):
        if age_s <= EDGES_S[place]:
            return float(EDGES_S[place])
    return max(age_s, float(EDGES_S[-1] + WIDTHS_S[-1]))


@njit(cache=True, nogil=True)
def _hazards(seen: Floats) -> Floats:
    """Return the site's hazards by range of ages, 1/s: as observed, but close to the average where data are few."""
    withdrawn = passed = 0.0
    for place in range(RANGES):
        withdrawn += seen[0, place]
        passed += seen[1, place] / WIDTHS_S[place]
    share, found = withdrawn / (passed + ALIKE), np.empty(RANGES)
    for place in range(RANGES):
        found[place] = (seen[0, place] + ALIKE * share) / (seen[1, place] + ALIKE * WIDTHS_S[place])
    return found


@njit(cache=True, nogil=True)
def _until(age_s: float, hazards: Floats) -> float:
    """Return the cumulative hazard up to this age: the expected withdrawals if a job could be withdrawn again."""
    found = 0.0
    for place in range(RANGES):
        passed_s = age_s - EDGES_S[place]
        if passed_s <= 0.0:
            break
        found += hazards[place] * (passed_s if place == RANGES - 1 else min(passed_s, WIDTHS_S[place]))
    return found


@njit(cache=True, nogil=True)
def _age_at(expected: float, hazards: Floats) -> float:
    """Return the age at which `_until` has this value, seconds."""
    for place in range(RANGES - 1):
        here = hazards[place] * WIDTHS_S[place]
        if expected <= here:
            return float(EDGES_S[place] + expected / hazards[place])
        expected -= here
    return float(EDGES_S[-1] + expected / hazards[-1])


@njit(cache=True, nogil=True)
def _level(nth: int) -> float:
    """Levels between 0 and 1, evenly spread however many are taken: 1/2, 1/4, 3/4, 1/8 and so on (van der Corput)."""
    found, step = 0.0, 0.5
    while nth > 0:
        found += step * (nth & 1)
        nth >>= 1
        step /= 2.0
    return found


@njit(cache=True, nogil=True)
def leaves(age_s: Floats, user: Ints, jobs: Floats, seen: Floats, users: Singles) -> Floats:
    """Return the seconds until each queued job is withdrawn, (queued,), infinity for never.

    Each job of a user has another quantile of the distribution, so that the number withdrawn by each time is the
    expected one. O(queued).

    Args:
        user: codes; 0 is no user.
        jobs: number of jobs that each represents, with tasks; the jobs of a user count together as one.
        users: the sums of the user of each code, (codes, 2).
    """
    found = np.full(len(age_s), np.inf)
    if seen[0].sum() <= LEAST:
        return found
    of_user, live, count = np.zeros(len(users)), np.zeros(len(users)), np.zeros(len(users), np.int64)
    for job in range(len(age_s)):
        of_user[user[job]] += jobs[job]
    seen = seen.copy()
    for job in range(len(age_s)):
        _pass(seen, _end_s(age_s[job]), 1.0 if user[job] == 0 else jobs[job] / max(of_user[user[job]], 1.0))
    hazards, until = _hazards(seen), np.empty(len(age_s))
    for job in range(len(age_s)):
        until[job] = _until(max(age_s[job], 0.0), hazards)
        live[user[job]] += until[job] if user[job] > 0 else 0.0
    for job in range(len(age_s)):
        its = user[job]
        count[its] += 1
        shape = EVEN + (users[its, 0] if its > 0 else 0.0)
        rate = EVEN + (users[its, 1] + live[its] if its > 0 else 0.0)
        more = rate * (_level(count[its]) ** (-1.0 / shape) - 1.0)
        found[job] = max(_age_at(until[job] + more, hazards) - max(age_s[job], 0.0), 0.0)
    return found
