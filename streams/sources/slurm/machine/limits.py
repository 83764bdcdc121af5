"""What qualities of service (QOS) and associations let run at once, as limits of the site."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple, Self

import msgspec

from models.records import Limit, Partition
from streams.sources.slurm.rows import MAX_NAME, NO_RESOURCES, Resources, resources_of

QOS_COLUMNS = ("Name", "GrpTRES", "GrpJobs", "MaxTRESPU", "MaxJobsPU", "MaxTRESPA", "MaxJobsPA")
ASSOCIATION_COLUMNS = ("Cluster", "Account", "User", "ParentName", "GrpTRES", "GrpJobs", "MaxJobs")
"""What `sacctmgr --noheader --parsable2 show … format=…` is asked for."""


class Most(NamedTuple):
    """So much, and so many jobs, may run at once; None where that is not limited."""

    resources: Resources = NO_RESOURCES
    jobs: int | None = None

    @classmethod
    def read(cls, resources: str, *jobs: str) -> Self:
        """From sacctmgr's words; of several numbers of jobs the least counts."""
        return cls(resources_of(resources), min((int(one) for one in jobs if one.isdecimal()), default=None))

    def of(self, per: str, name: str | None = None, qos: str | None = None) -> Iterator[Limit]:
        """The limit, if there is one."""
        whose = Limit(per=per, name=name and name[:MAX_NAME], qos=qos and qos[:MAX_NAME])
        found = self.resources
        limit = msgspec.structs.replace(
            whose, cpus=found.cpus, gpus=found.gpus or None, nodes=found.nodes, memory=found.memory, jobs=self.jobs
        )
        if limit != whose:
            yield limit


def limits_of_qos(rows: Iterable[list[str]]) -> list[Limit]:
    """The limits of qualities of service, from `QOS_COLUMNS`."""
    found: list[Limit] = []
    for row in rows:
        if len(row) == len(QOS_COLUMNS) and row[0]:
            for per, *most in (("all", *row[1:3]), ("user", *row[3:5]), ("account", *row[5:7])):
                found += Most.read(*most).of(per, qos=row[0])
    return found


def limits_of_associations(rows: Iterable[list[str]]) -> list[Limit]:
    """The limits of the root, of accounts without accounts below them, and of users of one account alone, from
    `ASSOCIATION_COLUMNS`; MaxJobs is of a user, and an account's only what its users inherit.

    An event cannot say those of the others. Of several clusters none is told: it is not known which is this one.
    """
    known = [row for row in rows if len(row) == len(ASSOCIATION_COLUMNS) and row[1]]
    if len({row[0] for row in known}) > 1:
        return []
    parents, users = {row[3] for row in known}, dict[str, list[Most]]()
    limits: list[Limit] = []
    for _, account, user, parent, resources, together, each_jobs in known:
        if user:
            users.setdefault(user, []).append(Most.read(resources, together, each_jobs))
        elif not parent:
            limits += Most.read(resources, together).of("all")
        elif account not in parents:
            limits += Most.read(resources, together).of("account", account)
    each = [own[0] if len(own) == 1 else Most() for own in users.values()]
    if each and all(most == each[0] for most in each):
        return [*limits, *each[0].of("user")]
    return [*limits, *(limit for user, most in zip(users, each, strict=True) for limit in most.of("user", user))]


def limits_of_partition(partition: Partition, qos: str | None, limits: Iterable[Limit]) -> list[Limit]:
    """What the QOS of a partition, which counts for all jobs in it, limits there."""
    return [
        msgspec.structs.replace(limit, partition=partition.name, qos=None)
        for limit in limits
        if qos is not None and limit.qos == qos
    ]
