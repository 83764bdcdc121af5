"""Classify the scheduler's pending reasons by cause: the job itself, or the queue."""

import re
from functools import lru_cache

LIMIT = re.compile(
    r"(?P<of>QOS|Assoc)?(?P<scope>Max|Grp|Min)(?P<what>[A-Z][A-Za-z]*?)"
    r"(?P<minutes>(Run)?Minutes)?(?P<per>Per(User|Account|Job|Node))?(Limit)?$"
)
"""Slurm's pending reasons for limits."""

_OWN = frozenset({
    "AccountNotAllowed", "AccountingPolicy", "AssociationJobLimit", "AssociationResourceLimit", "AssociationTimeLimit",
    "BadConstraints", "BeginTime", "BurstBufferOperation", "BurstBufferResources", "BurstBufferStageIn", "Constraints",
    "DeadLine", "Dependency", "DependencyNeverSatisfied", "FedJobLock", "FrontEndDown", "InactiveLimit",
    "InvalidAccount", "InvalidQOS", "JobArrayTaskLimit", "JobHeldAdmin", "JobHeldUser", "JobHoldMaxRequeue",
    "JobLaunchFailure", "Licenses", "NodeDown", "Nodes required for job are DOWN", "NonZeroExitCode", "OutOfMemory",
    "PartitionConfig", "PartitionDown", "PartitionInactive", "PartitionNodeLimit", "PartitionTimeLimit", "Prolog",
    "QOSJobLimit", "QOSNotAllowed", "QOSResourceLimit", "QOSTimeLimit", "QOSUsageThreshold", "RaisedSignal",
    "ReqNodeNotAvail", "Reservation", "ReservationDeleted", "ReservationInvalid", "SystemFailure", "TimeLimit",
})  # fmt: skip
"""Slurm's other pending reasons that keep a job from competing."""

_QUEUE = frozenset({"Cleaning", "None", "Priority", "Resources", "WaitingForScheduling"})
"""Slurm's pending reasons for waiting in the queue."""


def keyword_of(reason: str) -> str:
    """Return the keyword of a pending reason; Slurm's only sentence may contain blanks or underscores.

    >>> keyword_of("ReqNodeNotAvail, UnavailableNodes:n1"), keyword_of("(QOSMaxCpuPerUserLimit)"), keyword_of("no_tape")
    ('ReqNodeNotAvail', 'QOSMaxCpuPerUserLimit', 'no_tape')
    >>> keyword_of("Nodes_required_for_job_are_DOWN,_DRAINED_or_reserved_for_jobs_in_higher_priority_partitions")
    'Nodes required for job are DOWN'
    """
    word = reason.split(",")[0].strip(" ()")
    return spaced if (spaced := word.replace("_", " ")) in _OWN else word


@lru_cache(1024)
def is_own(reason: str) -> bool:
    """Return whether this reason keeps a job from competing now: a limit, a dependency or the like.

    An unknown reason counts as waiting in the queue.

    >>> is_own("QOSMaxCpuPerUserLimit"), is_own("JobArrayTaskLimit"), is_own("Priority"), is_own("Elsewhere")
    (True, True, False, False)
    """
    word = keyword_of(reason)
    return word in _OWN or LIMIT.match(word) is not None


def is_known(reason: str) -> bool:
    """Return whether a reason is one of Slurm's, so that it contains no personal data.

    >>> is_known("QOSMaxCpuPerUserLimit"), is_known("Priority"), is_known("held for ada")
    (True, True, False)
    """
    word = keyword_of(reason)
    return word in _OWN or word in _QUEUE or (word.endswith("Limit") and LIMIT.match(word) is not None)


def is_of_user_cpus(reason: str) -> bool:
    """Return whether the reason is a limit on the CPUs or nodes of a user.

    >>> is_of_user_cpus("QOSMaxCpuPerUserLimit"), is_of_user_cpus("AssocMaxJobsLimit")
    (True, False)
    """
    return _of_user(reason) in ("cpu", "node")


def is_of_user_jobs(reason: str) -> bool:
    """Return whether the reason is a limit on the running jobs of a user.

    >>> is_of_user_jobs("AssocMaxJobsLimit"), is_of_user_jobs("QOSMaxGRESPerUser")
    (True, False)
    """
    return _of_user(reason) == "jobs"


def _of_user(reason: str) -> str | None:
    """Return the resource that a per-user limit restricts; None for other reasons."""
    limit = LIMIT.match(keyword_of(reason))
    if limit is None or limit["minutes"]:
        return None
    of_one = limit["per"] == "PerUser" or (limit["of"], limit["scope"], limit["per"]) == ("Assoc", "Max", None)
    return limit["what"].lower() if of_one else None


def is_of_queue(reason: str) -> bool:
    """Return whether the reason is a limit on the CPUs or nodes of all jobs in the queue together.

    >>> is_of_queue("QOSGrpCpuLimit"), is_of_queue("QOSGrpCPUMinutesLimit"), is_of_queue("QOSMaxCpuPerUserLimit")
    (True, False, False)
    """
    limit = LIMIT.match(keyword_of(reason))
    if limit is None or limit["minutes"]:
        return False
    return (limit["of"], limit["scope"]) == ("QOS", "Grp") and limit["what"].lower() in ("cpu", "node")
