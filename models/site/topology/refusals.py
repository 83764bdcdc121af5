"""Explain in words why a job can never run at a site."""

from collections.abc import Iterator, Sequence

import numpy as np

from models.durations import duration
from models.records import Limit, Partition
from models.site.job import Job
from models.site.topology.topology import CPUS, GPUS, MEMORY, ResourceRequest, Topology, request_of

GIB = 1 << 30
MAX_NAMED = 3  # maximum number of reasons for a job with several partitions


def cannot_run(topology: Topology, job: Job) -> str | None:
    """Explain why a job can run in none of its partitions; None if it can run in one, as far as known.

    Unknown values are no reason, such as a missing account. Nor is an unknown partition name: it may be a queue that
    routes to any partition.
    """
    request, found = request_of(job), []
    unknown = request.partitions and not any(name in topology.partitions for name in request.partitions)
    for name in topology.partitions if unknown else topology.named(request):
        reason = next(_reasons(topology, job, request, topology.partitions[name]), None)
        if reason is None:
            return None
        found.append(reason)
    return "; ".join(list(dict.fromkeys(found))[:MAX_NAMED])


def _reasons(topology: Topology, job: Job, request: ResourceRequest, partition: Partition) -> Iterator[str]:
    """Yield why it cannot run in this partition, the simplest reason first."""
    name = partition.name
    if not partition.up:
        yield f"partition {name} is down"
    for kind, one, allowed, denied in (
        ("user", job.user, partition.users, None),
        ("group", job.group, partition.groups, None),
        ("account", job.account, partition.accounts, partition.denied_accounts),
        ("QOS", request.qos, partition.qos, partition.denied_qos),
    ):
        if one is not None and ((allowed is not None and one not in allowed) or one in (denied or ())):
            yield f"{kind} {one} may not use partition {name}"
    most_s = partition.max_walltime
    if job.walltime is not None and most_s is not None and job.walltime > most_s:
        time_limit = "no time limit" if job.limit_s is None else f"walltime {duration(job.walltime)}"
        yield f"{time_limit}: at most {duration(most_s)} in {name}"
    if request.nodes is not None and partition.max_nodes is not None and request.nodes > partition.max_nodes:
        yield f"{request.nodes} nodes: at most {partition.max_nodes} in {name}"
    yield from _of_reservation(topology, job, request)
    pools = topology.pools_of(name)
    yield from _of_one_node(topology, request, pools, name)
    yield from _of_all_nodes(topology, request, pools, name)
    for limit in topology.limits:
        if applies(limit, job.user, job.account, request, (name,)):
            yield from _exceeded_resources(limit, request)


def _of_reservation(topology: Topology, job: Job, request: ResourceRequest) -> Iterator[str]:
    for one in topology.reservations:
        if one.name != request.reservation:
            continue
        users, accounts = one.users, one.accounts
        if job.user in (one.denied_users or ()) or job.account in (one.denied_accounts or ()):
            yield f"not for reservation {one.name}"
            continue
        if users is None and accounts is None:
            continue
        known = [(job.user, users), (job.account, accounts)]
        if all(name is not None and name not in (allowed or ()) for name, allowed in known if allowed is not None):
            yield f"not for reservation {one.name}"


def _of_one_node(topology: Topology, request: ResourceRequest, pools: Sequence[int], name: str) -> Iterator[str]:
    """Yield the needs that no single node of the partition satisfies."""
    among = f" in {name}" if name else ""
    types = " or ".join(request.gpu_types)
    nodes = [topology.node_of(place, request.gpu_types) for place in pools]
    most = np.max(nodes, axis=0, initial=0.0) if nodes else np.zeros(3)
    if request.gpus and not most[GPUS]:
        yield f"needs GPUs{f' of type {types}' if types else ''}: none{among}"
    if request.node_features and not any(
        topology.is_possible(ResourceRequest(node_features=request.node_features), one) for one in pools
    ):
        yield f"needs nodes with {' or '.join(' and '.join(one) for one in request.node_features)}: none{among}"
    if request.nodes is None:
        return
    gpus, cpus, memory = (-(-wanted // request.nodes) for wanted in (request.gpus, request.cpus, request.memory))
    if gpus > most[GPUS]:
        yield f"needs {gpus} GPUs a node: none{among} has more than {most[GPUS]:.0f}"
    if cpus > most[CPUS]:
        yield f"needs {cpus} CPUs a node: none{among} has more than {most[CPUS]:.0f}"
    if memory > most[MEMORY]:
        yield f"needs {memory / GIB:.4g} GiB a node: none{among} has more than {most[MEMORY] / GIB:.4g} GiB"
    if pools and not any(topology.is_possible(request, place) for place in pools):
        yield f"no node{among} has all that it needs of one"


def _of_all_nodes(topology: Topology, request: ResourceRequest, pools: Sequence[int], name: str) -> Iterator[str]:
    """Yield the needs that exceed all nodes of the partition together, including those that are down."""
    possible = [place for place in pools if topology.is_possible(request, place)]
    whole = f"partition {name}" if name else "the site"
    count = sum(topology.pools[place].nodes for place in possible)
    if not count:
        yield f"{whole} has no nodes for it"
        return
    if request.nodes is not None and request.nodes > count:
        yield f"larger than {whole}: {request.nodes} of {count} nodes"
    totals = [topology.all_of(place, request.gpu_types) for place in possible]
    share = 0.0
    for place, total in zip(possible, totals, strict=True):
        wanted = topology.demand(request, place)
        share += min((has / needs for has, needs in zip(total, wanted, strict=True) if needs > 0.0), default=1.0)
    if share >= 1.0:
        return
    cpus, gpus, memory = (float(total) for total in np.sum(totals, axis=0))
    if request.cpus > cpus:
        yield f"larger than {whole}: {request.cpus} of {cpus:.0f} CPUs"
    if request.gpus > gpus:
        yield f"larger than {whole}: {request.gpus} of {gpus:.0f} GPUs"
    if request.memory > memory:
        yield f"larger than {whole}: {request.memory / GIB:.4g} of {memory / GIB:.4g} GiB"
    yield f"larger than {whole}"


def applies(
    limit: Limit, user: str | None, account: str | None, request: ResourceRequest, partitions: Sequence[str]
) -> bool:
    """Return whether a limit applies to this job in one of these partitions."""
    if limit.partition is not None and limit.partition not in partitions:
        return False
    if limit.qos is not None and limit.qos != request.qos:
        return False
    if limit.name is None or limit.per == "all":
        return True
    return limit.name == {"user": user, "account": account, "group": request.group}.get(limit.per)


def _exceeded_resources(limit: Limit, request: ResourceRequest) -> Iterator[str]:
    """Yield the resources of which the job alone exceeds the limit."""
    whose = {"all": "all jobs together", "user": "a user", "account": "an account", "group": "a group"}
    who = whose.get(limit.per, limit.per) if limit.name is None else f"{limit.per} {limit.name}"
    within = "".join((f" in {limit.partition}" if limit.partition else "", f" with {limit.qos}" if limit.qos else ""))
    amounts = (
        ("CPUs", request.cpus, limit.cpus),
        ("GPUs", request.gpus, limit.gpus),
        ("nodes", request.nodes or 0, limit.nodes),
    )
    for what, wanted, most in amounts:
        if most is not None and wanted > most:
            yield f"{wanted} {what}: {who} may have at most {most} at once{within}"
    if limit.memory is not None and request.memory > limit.memory:
        yield f"{request.memory / GIB:.4g} GiB: {who} may have at most {limit.memory / GIB:.4g} GiB at once{within}"
    if limit.jobs == 0:
        yield f"{who} may have no job running{within}"
