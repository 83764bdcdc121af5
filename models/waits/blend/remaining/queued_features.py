"""Features of a queued job at a moment, as one row of numbers for the trees."""

from typing import Final

import numpy as np

from models.arrays import Floats, Ints, Records
from models.kernels import njit
from models.site.table import QUEUED, RUNNING
from models.waits.boosted.prior import WHOLE, is_share
from models.waits.boosted.queued import QueuedFeatures
from models.waits.boosted.submit_features import Stored as Rows
from models.waits.boosted.submit_features import as_they_are

_SELECTED: Final = (
    "recent_wait_size_time_ago",
    "recent_wait_user_queue_mean",
    "recent_wait_queue_size_last",
    "recent_wait_user_size_ago",
    "recent_wait_queue_size_time_ago",
    "recent_wait_user_ago",
    "recent_wait_size_mean",
    "recent_wait_user_size_time_mean",
    "last_200_mean",
    "last_200_median",
    "last_200_at_once",
    "starts_in_hour",
    "arrivals_in_hour",
    "hour",
    "weekday",
    "run",
    "walltime",
    "ert",
    "running_ert",
    "running_elapsed",
    "user_queued_work",
    "queued_all_oldest",
    "queued_smaller_oldest",
    "queued_smaller_work",
    "queued_shorter_oldest",
    "queued_less_work_oldest",
    "queued_less_work_work",
    "queued_same_queue_oldest",
    "queued_same_queue_cpus",
    "queued_same_queue_work",
    "queued_similar_oldest",
    "queued_own_similar_work",
    "queue_running_cpus",
    "left_planned",
    "head_planned",
    "head_slack_expected",
    "head_slack_planned",
    "drain_less_work",
    "drain_all",
)
"""Features of a submission that are most important for the remaining wait too (by the gain of splits on five
traces)."""

SUBMISSION: Final = QueuedFeatures((*_SELECTED, "fits_in_planned"))
"""Reads these features of queued jobs, and the time until enough CPUs are free by time limits, for the reason."""

_OF_WAIT = (
    "age",
    "remaining_0.1",
    "remaining_0.5",
    "remaining_0.9",
    "remaining_0.95",
    "first_estimate",
    "bound_ahead",
)

OF_QUEUE: Final = (
    "ahead_jobs",
    "ahead_cpus",
    "ahead_work",
    "own_ahead_jobs",
    "behind_jobs",
    "overtaking_jobs",
    "overtaking_cpus",
    "overtaking_larger_jobs",
    "own_overtaking_jobs",
    "started_jobs",
    "started_cpus",
    "free",
    "cpus",
)

NAMES: Final = (*_OF_WAIT, *OF_QUEUE, *_SELECTED)
"""The features in their order. Seconds, CPUs and work stand as log2(1 + x), with the sign of x. CPUs and work are
shares of the site, so that forests of other sites apply.

`remaining_q` are quantiles of what is left by the first prediction, given the age; `bound_ahead` is how far ahead its
bound of 0.9 lies. `ahead` are queued jobs that came before it, `overtaking` running jobs that came after it, and
`started` running jobs that started since it came; the rest are those that a job submitted now would find.
"""


_OF_WAIT_AND_QUEUE = len(_OF_WAIT) + len(OF_QUEUE)
_AS_THEY_ARE = np.concatenate([np.zeros(_OF_WAIT_AND_QUEUE, np.bool_), as_they_are(_SELECTED)])
_SHARES = np.array([is_share(name) for name in NAMES])


def rows_of(
    ages_s: Floats, conditional_s: Floats, bounds_s: Floats, queue: Floats, submissions: Floats, site_cpus: float
) -> Rows:
    """Return the features of queued jobs as they are stored, (jobs, NAMES).

    Args:
        ages_s: how long each has waited, (jobs,).
        conditional_s: quantiles of what is left by their first predictions, (jobs, 4) seconds.
        bounds_s: the bounds of these predictions, (jobs, 4) seconds of the whole wait.
        queue: what `queue_features` found, (jobs, 13).
        submissions: what `SUBMISSION` read.
        site_cpus: the CPUs of the site.
    """
    found = np.empty((len(ages_s), len(NAMES)))
    _fill(found, ages_s, conditional_s, bounds_s, queue, submissions, WHOLE / max(site_cpus, 1.0))
    return found.astype(np.float16)


@njit(cache=True, nogil=True)
def _fill(
    found: Floats,
    ages_s: Floats,
    conditional_s: Floats,
    bounds_s: Floats,
    queue: Floats,
    submissions: Floats,
    scale: float,
) -> None:
    quantiles, of_queue = conditional_s.shape[1], queue.shape[1]
    begin = 3 + quantiles + of_queue
    for job in range(len(found)):
        row = found[job]
        row[0] = ages_s[job]
        row[1 : 1 + quantiles] = conditional_s[job]
        row[1 + quantiles], row[2 + quantiles] = bounds_s[job, 1], bounds_s[job, 2] - ages_s[job]
        row[3 + quantiles : begin] = queue[job]
        row[begin:] = submissions[job, : len(row) - begin]
        for place in range(len(row)):
            value = row[place] * (scale if _SHARES[place] else 1.0)
            if not _AS_THEY_ARE[place]:
                value = np.copysign(np.log2(1.0 + abs(value)), value)
            row[place] = min(max(value, -60_000.0), 60_000.0)


@njit(cache=True, nogil=True)
def queue_features(table: Records, seen: Ints, stands_for: Floats, rows: Ints, site_cpus: float, found: Floats) -> None:
    """Fill in the queued and running work around the jobs in these rows of the table, (rows, 13) zeros.

    O(rows · live jobs), for the live jobs in `seen` (`models.site.seen`).
    """
    for nth in range(len(rows)):
        job, out = table[rows[nth]], found[nth]
        free = site_cpus
        for number in range(len(seen)):
            other, many = table[seen[number]], stands_for[number]
            size, own = float(other.cpus), other.user == job.user and job.user >= 0
            if other.phase == QUEUED:
                if other.ready < job.ready:
                    out[0] += many
                    out[1] += many * size
                    out[2] += many * size * other.planned_s
                    out[3] += many if own else 0.0
                elif other.ready > job.ready:
                    out[4] += many
            elif other.phase == RUNNING:
                free -= size
                if other.ready > job.ready:
                    out[5] += 1.0
                    out[6] += size
                    out[7] += 1.0 if size >= job.cpus else 0.0
                    out[8] += 1.0 if own else 0.0
                if other.start > job.ready:
                    out[9] += 1.0
                    out[10] += size
        out[11] = free
        out[12] = float(job.cpus)
