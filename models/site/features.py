"""The sixteen features of a job at its submission (Murali and Vadhiyar 2015, section 3.1, table II).

The state is the one that the job finds: the job itself is not counted in it.
"""

import numpy as np

from models.site.job import Job, Phase
from models.site.state import MICRO, SITE, SiteState, Totals

FEATURES = (
    "cpus",
    "ert",
    "queued_cpus",
    "queued_ert",
    "queued_elapsed",
    "running_cpus",
    "running_ert",
    "running_elapsed",
    "user_queued_work",
    "user_queued_cpus",
    "user_queued_ert",
    "user_queued_jobs",
    "user_running_work",
    "user_running_cpus",
    "user_running_ert",
    "user_running_jobs",
)
"""Names, in the order of the table. Times in seconds, work in processor-seconds, sizes in processors."""

COUNT = len(FEATURES)


def features_of(job: Job, state: SiteState, now: float) -> np.ndarray:
    """The features of `job` (float64[16]) in the state it finds at `now`; O(1), 8 µs."""
    queued, running = state.totals(SITE, Phase.QUEUED), state.totals(SITE, Phase.RUNNING)
    values = [
        float(job.cpus),
        job.planned_run_s,
        queued.cpus,
        queued.planned_run_us / MICRO,
        queued.elapsed_s(now),
        running.cpus,
        running.planned_run_us / MICRO,
        running.elapsed_s(now),
        *_user_features(job, state, Phase.QUEUED),
        *_user_features(job, state, Phase.RUNNING),
    ]
    return np.array(values, dtype=np.float64)


def _user_features(job: Job, state: SiteState, phase: Phase) -> tuple[float, float, float, float]:
    """Features 9 to 12 or 13 to 16: work, processors, estimated run times and number of the user's jobs."""
    own = state.totals(("user", job.user), phase) if job.user is not None else Totals()
    return own.work / MICRO, own.cpus, own.planned_run_us / MICRO, own.count
