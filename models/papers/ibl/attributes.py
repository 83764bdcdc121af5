"""The attributes of jobs, and of the states that they find (Li, Groep and Wolters 2005, section 3, tables 1 to 3)."""

from collections.abc import Sequence
from typing import Literal, get_args

import msgspec

from models.durations import DAY_S
from models.method import SiteContext
from models.site.job import Job, Phase

JobAttribute = Literal["group", "user", "executable", "queue", "cpus", "walltime", "time_of_day"]
PolicyAttribute = Literal["group", "user", "queue"]
StateAttribute = Literal[
    "free_cpus",
    "running_jobs",
    "queued_jobs",
    "running_elapsed",
    "running_remaining",
    "queued_elapsed",
    "queued_demand",
]

JOB: tuple[JobAttribute, ...] = get_args(JobAttribute)
"""Table 1, and the queue. All are nominal but the last two."""

POLICY: tuple[PolicyAttribute, ...] = get_args(PolicyAttribute)
"""Table 2."""

STATE: tuple[StateAttribute, ...] = get_args(StateAttribute)
"""Table 3, in its order: all but the first are vectors by category; the last four are processor-seconds."""

NOMINAL = JOB[:5]
NUMERIC = JOB[5:]
VECTORS = STATE[1:]


MAX_EXACT_INTEGER = 2**53
"""Values are whole and not above this, so that floats hold them, and sums of them, exactly."""

Category = tuple[str | None, ...]
"""A job's values of the policy attributes, in the order of `POLICY`."""


class Request(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A job by its own attributes; `walltime` and `time_of_day` (UTC) are in seconds."""

    group: str | None
    user: str | None
    executable: str | None
    queue: str | None
    cpus: int
    walltime: float | None
    time_of_day: float


class CategoryState(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The running and queued jobs that a job finds, by category; `values` has `VECTORS` of each of `categories`."""

    policy: tuple[PolicyAttribute, ...]
    free_cpus: int | None
    categories: list[Category]
    values: list[list[int]]

    def merged(self, policy: tuple[PolicyAttribute, ...]) -> "CategoryState":
        """The same state by fewer policy attributes.

        >>> values = [[1, 0, 9, 9, 0, 0], [1, 2, 1, 1, 8, 8]]
        >>> state = CategoryState(("group", "user"), 3, [("g", "ada"), ("g", "bob")], values)
        >>> state.merged(("group",)).values
        [[2, 2, 10, 10, 8, 8]]
        """
        places = [self.policy.index(attribute) for attribute in policy]
        sums: dict[Category, list[int]] = {}
        for category, values in zip(self.categories, self.values, strict=True):
            fewer = tuple(category[place] for place in places)
            sums[fewer] = [a + b for a, b in zip(sums.get(fewer, [0] * len(VECTORS)), values, strict=True)]
        return CategoryState(policy, self.free_cpus, list(sums), list(sums.values()))


class Instance(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What is compared: a job at its submission, and the state it found where that counts too."""

    request: Request
    state: CategoryState | None = None


def request_of(job: Job) -> Request:
    """The job's own attributes."""
    walltime = job.walltime or None
    return Request(job.group, job.user, job.executable, job.queue, job.cpus, walltime, job.submit % DAY_S)


def state_of(context: SiteContext, now: float, policy: Sequence[PolicyAttribute] = POLICY) -> CategoryState:
    """The state at `now`, categorised by `policy`; O(live jobs), 1 µs each.

    The run times of live jobs, which are not known yet, are those that the site's method for run times predicted.
    """
    by = tuple(attribute for attribute in POLICY if attribute in policy)
    sums: dict[Category, list[int]] = {}
    busy = 0
    for job in context.state.jobs.values():
        if job.phase is not Phase.RUNNING and job.phase is not Phase.QUEUED:
            continue
        category = tuple([getattr(job, attribute) for attribute in by])
        values = sums.get(category)
        if values is None:
            values = sums[category] = [0] * len(VECTORS)
        cpus = job.counted_cpus
        expected_s = job.planned_run_s if job.run_s is None else job.run_s
        if job.start is not None:
            elapsed_s = job.ran_s(now)
            busy += cpus
            values[0] += 1
            values[2] += round(cpus * elapsed_s)
            values[3] += round(cpus * max(expected_s - elapsed_s, 0.0))
        else:
            values[1] += 1
            values[4] += round(cpus * max(now - job.submit, 0.0))
            values[5] += round(cpus * expected_s)
    free = max(context.cpus - busy, 0) if context.cpus else None
    return CategoryState(
        by, free, list(sums), [[min(value, MAX_EXACT_INTEGER) for value in values] for values in sums.values()]
    )
