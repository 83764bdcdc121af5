"""What a scheduler's own words for why a job waits tell: whether it waits for something of its own."""

import re
from functools import lru_cache

LIMIT = re.compile(
    r"(?P<of>QOS|Assoc)?(?P<scope>Max|Grp|Min)(?P<what>[A-Z][A-Za-z]*?)"
    r"(?P<minutes>(Run)?Minutes)?(?P<per>Per(User|Account|Job|Node))?(Limit)?$"
)
"""Slurm's words for limits."""

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
"""Slurm's other words for what is not the queue."""

_QUEUE = frozenset({"Cleaning", "None", "Priority", "Resources", "WaitingForScheduling"})
"""Its words for the queue itself."""


def word_of(reason: str) -> str:
    """Its word, without what follows; Slurm's one sentence comes with blanks or without.

    >>> word_of("ReqNodeNotAvail, UnavailableNodes:n1"), word_of("(QOSMaxCpuPerUserLimit)"), word_of("no_tape")
    ('ReqNodeNotAvail', 'QOSMaxCpuPerUserLimit', 'no_tape')
    >>> word_of("Nodes_required_for_job_are_DOWN,_DRAINED_or_reserved_for_jobs_in_higher_priority_partitions")
    'Nodes required for job are DOWN'
    """
    word = reason.split(",")[0].strip(" ()")
    return spaced if (spaced := word.replace("_", " ")) in _OWN else word


@lru_cache(1024)
def is_own(reason: str) -> bool:
    """Whether a job that waits for this reason does not compete now: a limit, a dependency or the like keeps it back.

    A word that is not known is taken for the queue.

    >>> is_own("QOSMaxCpuPerUserLimit"), is_own("JobArrayTaskLimit"), is_own("Priority"), is_own("Elsewhere")
    (True, True, False, False)
    """
    word = word_of(reason)
    return word in _OWN or LIMIT.match(word) is not None


def is_known(reason: str) -> bool:
    """Whether a reason is a word of Slurm's, so that it names nobody.

    >>> is_known("QOSMaxCpuPerUserLimit"), is_known("Priority"), is_known("held for ada")
    (True, True, False)
    """
    word = word_of(reason)
    return word in _OWN or word in _QUEUE or (word.endswith("Limit") and LIMIT.match(word) is not None)


def is_of_user_cpus(reason: str) -> bool:
    """Whether a job waits for a limit on how many processors, or nodes, its user may have at once.

    >>> is_of_user_cpus("QOSMaxCpuPerUserLimit"), is_of_user_cpus("AssocMaxJobsLimit")
    (True, False)
    """
    return _of_user(reason) in ("cpu", "node")


def is_of_user_jobs(reason: str) -> bool:
    """Whether a job waits for a limit on how many jobs its user may have running.

    >>> is_of_user_jobs("AssocMaxJobsLimit"), is_of_user_jobs("QOSMaxGRESPerUser")
    (True, False)
    """
    return _of_user(reason) == "jobs"


def _of_user(reason: str) -> str | None:
    """Of what a user has too much, by the scheduler's word; None where that is not why a job waits."""
    limit = LIMIT.match(word_of(reason))
    if limit is None or limit["minutes"]:
        return None
    of_one = limit["per"] == "PerUser" or (limit["of"], limit["scope"], limit["per"]) == ("Assoc", "Max", None)
    return limit["what"].lower() if of_one else None


def is_of_queue(reason: str) -> bool:
    """Whether a job waits for a limit on the processors, or nodes, that the jobs of its queue may hold together.

    >>> is_of_queue("QOSGrpCpuLimit"), is_of_queue("QOSGrpCPUMinutesLimit"), is_of_queue("QOSMaxCpuPerUserLimit")
    (True, False, False)
    """
    limit = LIMIT.match(word_of(reason))
    if limit is None or limit["minutes"]:
        return False
    return (limit["of"], limit["scope"]) == ("QOS", "Grp") and limit["what"].lower() in ("cpu", "node")
