"""Explain the scheduler's pending reasons in plain English."""

from models.site.job import Job, Phase
from models.site.pending_reasons import LIMIT, keyword_of

REASONS = {
    "Priority": "jobs of higher priority are ahead of it",
    "Resources": "it is next, once the resources that it requests are free",
    "Dependency": "it waits for a job that it depends on",
    "DependencyNeverSatisfied": "it depends on a job that did not end as it should have, so it never starts",
    "BeginTime": "it requested a later start",
    "JobHeldUser": "its user holds it",
    "JobHeldAdmin": "an administrator holds it",
    "JobArrayTaskLimit": "as many tasks of its array run as may at once",
    "PartitionDown": "its partition is down",
    "PartitionInactive": "its partition is inactive",
    "PartitionNodeLimit": "it requests more nodes than its partition allows",
    "PartitionTimeLimit": "it requests a longer walltime than its partition allows",
    "ReqNodeNotAvail": "nodes that it needs are down, drained or reserved",
    "NodeDown": "a node that it needs is down",
    "Reservation": "its reservation has not started, or is full",
    "ReservationDeleted": "its reservation is gone",
    "Licenses": "it waits for licences",
    "BadConstraints": "no node has the resources that it requests",
    "InvalidAccount": "its account is not valid",
    "InvalidQOS": "its QOS is not valid",
    "Prolog": "it is about to start",
    "Cleaning": "it is being requeued",
    "None": "",
}
"""Slurm's pending reasons; those for limits are parsed (`LIMIT`)."""

_OF = {"QOS": "the QOS", "Assoc": "the account", None: "the site"}
_WHOSE = {
    "PerUser": "your",
    "PerAccount": "your account's",
    "PerJob": "a job's",
    "PerNode": "a node's",
    None: "all jobs'",
}
_WHAT = {"cpu": "CPUs", "gres": "GPUs", "node": "nodes", "nodes": "nodes", "mem": "memory", "memory": "memory"}
_WHAT |= {"jobs": "running jobs", "submit": "jobs", "submitjobs": "jobs", "wall": "walltimes", "billing": "billed use"}


def plainly(reason: str) -> str:
    """Explain a scheduler's pending reason; quote an unknown one.

    >>> plainly("QOSMaxCpuPerUser")
    'held back by a limit of the QOS on your CPUs'
    >>> plainly("AssocGrpGRESMinutes")
    "held back by a limit of the account on all jobs' GPUs over time"
    >>> plainly("ReqNodeNotAvail, UnavailableNodes:n1"), plainly("Elsewhere")
    ('nodes that it needs are down, drained or reserved', 'the reason of the scheduler is "Elsewhere"')
    """
    word = keyword_of(reason)
    known = REASONS.get(word)
    if known is not None:
        return known
    limit = LIMIT.match(word)
    what = None if limit is None else _WHAT.get(limit["what"].lower())
    if limit is None or what is None:
        return f'the reason of the scheduler is "{word}"'
    over_time = " over time" if limit["minutes"] else ""
    return f"held back by a limit of {_OF[limit['of']]} on {_WHOSE[limit['per']]} {what}{over_time}"


def pending_reasons_of(job: Job) -> str:
    """Explain why a pending job waits, apart from the queue; empty without a known reason."""
    if job.start is not None:
        return ""
    reasons = [f"it was {job.progress.requeued} and requeued"] if job.progress.requeued else []
    if job.extras.pending_reason is not None:
        reasons.append(plainly(job.extras.pending_reason))
    elif job.depends:
        reasons.append(REASONS["Dependency"])
    elif job.phase is Phase.HELD:
        reasons.append("it is held")
    return "; ".join(filter(None, dict.fromkeys(reasons)))
