"""What qualities of service (QOS) and associations let run at once, as limits of the site."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from models.records import Limit, Partition
from streams.sources.slurm.rows import MAX_NAME, NO_RESOURCES, Resources


class Most(NamedTuple):
    """So much, and so many jobs, may run at once; None where that is not limited."""

    resources: Resources = NO_RESOURCES
    jobs: int | None = None

    def of(self, per: str, name: str | None = None, qos: str | None = None) -> Iterator[Limit]:
        """The limit, if there is one."""
        whose = Limit(per=per, name=name and name[:MAX_NAME], qos=qos and qos[:MAX_NAME])
        found = self.resources
        limit = msgspec.structs.replace(
            whose, cpus=found.cpus, gpus=found.gpus or None, nodes=found.nodes, memory=found.memory, jobs=self.jobs
        )
        if limit != whose:
            yield limit


class Qos(NamedTuple):
    """A quality of service: what all its jobs, those of a user, and those of an account may have."""

    name: str
    all: Most
    user: Most
    account: Most


class Association(NamedTuple):
    """An account of a cluster, or a user of it; `most` is of all its jobs together."""

    cluster: str
    account: str
    user: str
    parent: str
    most: Most


def limits_of_qos(found: Iterable[Qos]) -> list[Limit]:
    """The limits of qualities of service."""
    return [
        limit
        for qos in found
        for per, most in (("all", qos.all), ("user", qos.user), ("account", qos.account))
        for limit in most.of(per, qos=qos.name)
    ]


def limits_of_associations(found: Iterable[Association]) -> list[Limit]:
    """The limits of the root, of accounts without accounts below them, and of users of one account alone.

    An event cannot say those of the others. Of several clusters none is told: it is not known which is this one.
    """
    rows = list(found)
    if len({row.cluster for row in rows}) > 1:
        return []
    parents, users = {row.parent for row in rows}, dict[str, list[Association]]()
    limits: list[Limit] = []
    for row in rows:
        if row.user:
            users.setdefault(row.user, []).append(row)
        elif not row.parent:
            limits += row.most.of("all")
        elif row.account not in parents:
            limits += row.most.of("account", row.account)
    each = [own[0].most if len(own) == 1 else Most() for own in users.values()]
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
