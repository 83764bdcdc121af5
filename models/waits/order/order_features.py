"""Features by which a scheduler may sort its queue: a job's age, size and length, and its user's usage."""

from typing import NamedTuple

import numpy as np

from models.arrays import Flags, Floats, Ints
from models.durations import DAY_S
from models.kernels import njit
from models.waits.order.usage import HALF_LIVES_S, HALVES, LN_2

USER_SCALES = (0.02, 0.06, 0.2, 0.6)
"""Shares of the machine: a user's fairshare is 2 to the minus of the used share over each of these."""

ACCOUNT_SCALES = (0.06, 0.2, 0.6)
"""The same for accounts, for the longest half-life only."""

HELD_SHARES = (0.2, 0.3, 0.4, 0.5, 0.6)
"""Shares of the machine at which a user's running jobs may be limited."""

SMALL, SHORT_S = 0.05, 3600.0
"""The share of the machine and the planned run time up to which a job is small and short; sites prefer such jobs."""

MOST_AGES = (0.5, 1.0, 2.0, 7.0)
"""Days in the queue after which a job's age may have no more effect."""

MIN_PLANNED_S = 30.0
"""Minimum of planned run times."""

NAMES = (
    "age, days",
    *(f"age, share of {most:g} d" for most in MOST_AGES),
    "CPUs, log2",
    "planned run time, log2",
    "share of the machine",
    "small and short",
    *(f"user's usage, {half / DAY_S:.0f} d, {scale}" for half in HALF_LIVES_S for scale in USER_SCALES),
    *(f"account's usage, {HALF_LIVES_S[-1] / DAY_S:.0f} d, {scale}" for scale in ACCOUNT_SCALES),
    *(f"user would hold over {share}" for share in HELD_SHARES),
    "user's jobs before it, log2",
    "user's running jobs, log2",
)
"""The features, in their order."""

COUNT = len(NAMES)
SIZE = 1 + len(MOST_AGES)
"""The first feature of the size."""
USER = SIZE + 4
"""The first feature of the user's usage."""
ACCOUNT = USER + len(HALF_LIVES_S) * len(USER_SCALES)
HELD = ACCOUNT + len(ACCOUNT_SCALES)
BEFORE = HELD + len(HELD_SHARES)

_USER_SCALES, _ACCOUNT_SCALES = np.array(USER_SCALES), np.array(ACCOUNT_SCALES)
_HELD_SHARES, _MOST_AGES_S = np.array(HELD_SHARES), np.array(MOST_AGES) * DAY_S


class QueuedJobs(NamedTuple):
    """Queued jobs as columns, in the order of submission; times are in seconds.

    Attributes:
        cpus: CPUs.
        run_s, planned_s: expected and planned run times.
        age_s: ages.
        user, account: codes; 0: none.
        queue: places of the weights of their queues.
        priority: the scheduler's priorities; NaN: none.
        barred: whether the scheduler reports a pending reason of the job's own.
        stays_s: time until the job is withdrawn if it does not start; infinity: never.
    """

    cpus: Ints
    run_s: Floats
    planned_s: Floats
    age_s: Floats
    user: Ints
    account: Ints
    queue: Ints
    priority: Floats
    barred: Flags
    stays_s: Floats


class RunningJobs(NamedTuple):
    """Running jobs as columns; times are in seconds.

    Attributes:
        cpus: CPUs.
        remaining_s, planned_s: remaining run times, expected and planned.
        user, account: codes; 0: none.
        queue: places of the weights of their queues.
        whole_s: planned run times at their starts.
    """

    cpus: Ints
    remaining_s: Floats
    planned_s: Floats
    user: Ints
    account: Ints
    queue: Ints
    whole_s: Floats


class DecayedUsage(NamedTuple):
    """Usage by the code of a user or account, (codes, half-lives), in decayed CPU-seconds; and users' running CPUs and
    jobs.
    """

    users: Floats
    accounts: Floats
    held: Ints
    runs: Ints


@njit(cache=True)
def _fill_in_fair(out: Floats, used: Floats, site_cpus: int, half: int, scales: Floats) -> None:
    """The features of usage over one half-life, each 2 to the minus of a share."""
    whole = max(site_cpus, 1) * HALVES[half] / LN_2  # usage of the whole machine, if it was always full
    share = used[half] / whole
    for scale in range(len(scales)):
        out[scale] = 2.0 ** (-share / scales[scale])


@njit(cache=True)
def features_of(queued: QueuedJobs, jobs: Ints, before: Floats, people: DecayedUsage, site_cpus: int) -> Floats:
    """Return the features of some of the queued jobs, (jobs, COUNT).

    Args:
        before: for each of `jobs`, the number of its user's queued jobs before it.
    """
    table, scales = np.ones((len(jobs), COUNT)), len(_USER_SCALES)
    # Users and accounts have several jobs each: the row of their previous one, from 1.
    user_row, account_row = np.zeros(len(people.users), np.int64), np.zeros(len(people.accounts), np.int64)
    for row in range(len(jobs)):
        job, out = jobs[row], table[row]
        age_s, user = max(queued.age_s[job], 0.0), queued.user[job]
        out[0] = age_s / DAY_S
        for place in range(len(_MOST_AGES_S)):
            out[1 + place] = min(age_s / _MOST_AGES_S[place], 1.0)
        whole = queued.cpus[job] / max(site_cpus, 1)
        same = user_row[user] - 1  # the user's previous job; both often have equal values, and logarithms are slow
        if same >= 0 and queued.cpus[jobs[same]] == queued.cpus[job]:
            out[SIZE] = table[same, SIZE]
        else:
            out[SIZE] = np.log2(max(queued.cpus[job], 1))
        if same >= 0 and queued.planned_s[jobs[same]] == queued.planned_s[job]:
            out[SIZE + 1] = table[same, SIZE + 1]
        else:
            out[SIZE + 1] = np.log2(max(queued.planned_s[job], MIN_PLANNED_S))
        out[SIZE + 2] = whole
        out[SIZE + 3] = 1.0 if whole <= SMALL and queued.planned_s[job] <= SHORT_S else 0.0
        account = queued.account[job]
        if same >= 0:
            for place in range(USER, ACCOUNT):  # a slice is slower
                out[place] = table[same, place]
        elif user:
            for half in range(len(HALVES)):
                begin = USER + half * scales
                _fill_in_fair(out[begin : begin + scales], people.users[user], site_cpus, half, _USER_SCALES)
        if account_row[account]:
            for place in range(ACCOUNT, HELD):
                out[place] = table[account_row[account] - 1, place]
        elif account:
            last = len(HALVES) - 1
            _fill_in_fair(out[ACCOUNT:HELD], people.accounts[account], site_cpus, last, _ACCOUNT_SCALES)
        user_row[user] = account_row[account] = row + 1
        share = (people.held[user] + queued.cpus[job]) / max(site_cpus, 1)
        for place in range(len(_HELD_SHARES)):
            out[HELD + place] = 1.0 if share > _HELD_SHARES[place] else 0.0
        out[BEFORE] = np.log2(1.0 + before[row])
        out[BEFORE + 1] = table[same, BEFORE + 1] if same >= 0 else np.log2(1.0 + people.runs[user])
    return table


@njit(cache=True)
def before_each(user: Ints, users: int, stands_for: Floats) -> Floats:
    """Return for each queued job the number of its user's queued jobs before it; 0 for jobs without a user."""
    seen, before = np.zeros(users), np.empty(len(user))
    for job in range(len(user)):
        before[job] = seen[user[job]]
        if user[job] > 0:
            seen[user[job]] += stands_for[job]
    return before


@njit(cache=True)
def accrue(used: Floats, cpus: Ints, codes: Ints, seconds: Floats) -> None:
    """Add the usage of running jobs over `seconds` seconds up to now, at the places of their codes; O(running)."""
    for job in range(len(cpus)):
        for half in range(len(HALVES)):
            used[codes[job], half] += cpus[job] * HALVES[half] / LN_2 * (1.0 - 2.0 ** (-seconds[job] / HALVES[half]))
