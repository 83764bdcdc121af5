"""Limits of QOS and associations, as sacctmgr lists them."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple, Self

import msgspec

from models.records import Limit
from streams.sources.logs.fields import MAX_NAME
from streams.sources.slurm.attempt_rows import (
    NO_RESOURCES,
    Resources,
    resources_of,
)

QOS_COLUMNS = ("Name", "GrpTRES", "GrpJobs", "MaxTRESPU", "MaxJobsPU", "MaxTRESPA", "MaxJobsPA")
ASSOCIATION_COLUMNS = ("Cluster", "Account", "User", "ParentName", "GrpTRES", "GrpJobs", "MaxJobs")
"""Columns requested from `sacctmgr --noheader --parsable2 show … format=…`."""


class ResourceCap(NamedTuple):
    """Limits on the resources in use and on running jobs; None if unlimited."""

    resources: Resources = NO_RESOURCES
    jobs: int | None = None

    @classmethod
    def read(cls, resources: str, *jobs: str) -> Self:
        """Parse sacctmgr's notation; the smallest of several job limits counts."""
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
                found += ResourceCap.read(*most).of(per, qos=row[0])
    return found


def limits_of_associations(rows: Iterable[list[str]]) -> list[Limit]:
    """Return the limits of the root, of leaf accounts, and of users with only one account, from `ASSOCIATION_COLUMNS`.

    MaxJobs applies to a user; for an account it is only the default of its users. An event cannot represent the other
    limits. With several clusters none is returned, because the own cluster is not identified.
    """
    known = [row for row in rows if len(row) == len(ASSOCIATION_COLUMNS) and row[1]]
    if len({row[0] for row in known}) > 1:
        return []
    parents, users = {row[3] for row in known}, dict[str, list[ResourceCap]]()
    limits: list[Limit] = []
    for _, account, user, parent, resources, together, each_jobs in known:
        if user:
            users.setdefault(user, []).append(ResourceCap.read(resources, together, each_jobs))
        elif not parent:
            limits += ResourceCap.read(resources, together).of("all")
        elif account not in parents:
            limits += ResourceCap.read(resources, together).of("account", account)
    each = [own[0] if len(own) == 1 else ResourceCap() for own in users.values()]
    if each and all(most == each[0] for most in each):
        return [*limits, *each[0].of("user")]
    return [*limits, *(limit for user, most in zip(users, each, strict=True) for limit in most.of("user", user))]
