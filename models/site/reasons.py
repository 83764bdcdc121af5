"""What a scheduler's own words for why a job waits tell: whether it waits for something of its own."""

import re
from functools import lru_cache

LIMIT = re.compile(
    r"(?P<of>QOS|Assoc)?(?P<scope>Max|Grp|Min)(?P<what>[A-Z][A-Za-z]*?)"
    r"(?P<minutes>(Run)?Minutes)?(?P<per>Per(User|Account|Job|Node))?(Limit)?$"
)
"""Slurm's words for limits."""

_OWN = frozenset({
    "BadConstraints", "BeginTime", "Dependency", "DependencyNeverSatisfied", "InvalidAccount", "InvalidQOS",
    "JobArrayTaskLimit", "JobHeldAdmin", "JobHeldUser", "Licenses", "NodeDown", "PartitionDown", "PartitionInactive",
    "PartitionNodeLimit", "PartitionTimeLimit", "ReqNodeNotAvail", "Reservation", "ReservationDeleted",
})  # fmt: skip
"""Slurm's other words for what is not the queue."""

_QUEUE = frozenset({"Cleaning", "None", "Priority", "Resources", "WaitingForScheduling"})
"""Its words for the queue itself."""


def word_of(reason: str) -> str:
    """Its word, without what follows.

    >>> word_of("ReqNodeNotAvail, UnavailableNodes:n1"), word_of("(QOSMaxCpuPerUserLimit)")
    ('ReqNodeNotAvail', 'QOSMaxCpuPerUserLimit')
    """
    return reason.split(",")[0].strip(" ()")


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


def is_of_user(reason: str) -> bool:
    """Whether a job waits for a limit on what its user may have running.

    >>> is_of_user("QOSMaxCpuPerUserLimit"), is_of_user("AssocMaxJobsLimit"), is_of_user("QOSGrpCpuLimit")
    (True, True, False)
    """
    limit = LIMIT.match(word_of(reason))
    if limit is None:
        return False
    return limit["per"] == "PerUser" or (limit["of"], limit["scope"], limit["per"]) == ("Assoc", "Max", None)


def is_of_queue(reason: str) -> bool:
    """Whether a job waits for a limit on what the jobs of its queue may hold together.

    >>> is_of_queue("QOSGrpCpuLimit"), is_of_queue("QOSMaxCpuPerUserLimit")
    (True, False)
    """
    limit = LIMIT.match(word_of(reason))
    return limit is not None and (limit["of"], limit["scope"]) == ("QOS", "Grp")
