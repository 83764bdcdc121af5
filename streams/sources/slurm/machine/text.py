"""The machine as `scontrol --oneliner` and `sacctmgr --parsable2` tell it, which no release has changed."""

import re
from datetime import UTC, datetime

from models.records import Partition, Reservation
from streams.sources.slurm.machine.capacity import Node, gpus_of, hosts, listed, reservation_of, state_of
from streams.sources.slurm.machine.limits import Association, Most, Qos
from streams.sources.slurm.rows import MIB, count_of, name_of, resources_of, time_of, walltime_of

_PAIR = re.compile(r"(?:^|\s)([A-Za-z]\w*)=(\S*)")


def pairs_of(line: str) -> dict[str, str]:
    """The words of a line of `scontrol show … --oneliner`, the first of each name: what people write comes last."""
    found: dict[str, str] = {}
    for name, value in _PAIR.findall(line):
        found.setdefault(name, value)
    return found


def nodes_from_text(text: str) -> list[Node]:
    """Nodes as `scontrol show node --oneliner` tells them."""
    found: list[Node] = []
    for words in map(pairs_of, text.splitlines()):
        state = state_of(words.get("State", "").split("+"))
        if "NodeName" in words and state is not None:
            cpus = words.get("CPUEfctv") or words.get("CPUTot") or "0"
            memory = words.get("RealMemory", "")
            found.append(
                Node(
                    name=words["NodeName"],
                    cpus=(count_of(float(cpus)) or 0) if cpus.isdecimal() else 0,
                    state=state,
                    partitions=tuple(sorted(listed(words.get("Partitions")) or ())),
                    gpus=gpus_of(words.get("Gres")),
                    memory=int(memory) * MIB if memory.isdecimal() and memory != "0" else None,
                    weight=float(weight) if (weight := words.get("Weight", "")).isdecimal() else 0.0,
                )
            )
    return found


def partitions_from_text(text: str) -> list[tuple[Partition, str | None]]:
    """Partitions as `scontrol show partition --oneliner` tells them, with no pools yet; each with its QOS."""
    found: list[tuple[Partition, str | None]] = []
    for words in map(pairs_of, text.splitlines()):
        if (name := name_of(words.get("PartitionName"))) is None:
            continue
        most, tier = words.get("MaxNodes", ""), words.get("PriorityTier", "")
        partition = Partition(
            name=name,
            pools=[],
            up=words.get("State", "UP") == "UP",
            default=words.get("Default") == "YES",
            tier=int(tier) if tier.isdecimal() else 0,
            max_walltime=walltime_of(words.get("MaxTime", ""))[0],
            max_nodes=int(most) if most.isdecimal() else None,
            groups=listed(words.get("AllowGroups")),
            accounts=listed(words.get("AllowAccounts")),
            qos=listed(words.get("AllowQos")),
            denied_accounts=listed(words.get("DenyAccounts")),
            denied_qos=listed(words.get("DenyQos")),
        )
        found.append((partition, name_of(words.get("QoS"))))
    return found


def reservations_from_text(text: str) -> list[tuple[Reservation, list[str]]]:
    """Reservations as `scontrol show reservation --oneliner` tells them with TZ=UTC, each with its nodes."""
    found: list[tuple[Reservation, list[str]]] = []
    for words in map(pairs_of, text.splitlines()):
        name, start, end = words.get("ReservationName"), _utc(words.get("StartTime")), _utc(words.get("EndTime"))
        if name and start is not None and end is not None:
            flags = tuple(words.get("Flags", "").upper().split(","))
            made = reservation_of(name, start, end, words.get("Users"), words.get("Accounts"), flags)
            found.append((made, hosts(words.get("Nodes"))))
    return found


QOS_COLUMNS = ("Name", "GrpTRES", "GrpJobs", "MaxTRESPU", "MaxJobsPU", "MaxTRESPA", "MaxJobsPA")
ASSOCIATION_COLUMNS = ("Cluster", "Account", "User", "ParentName", "GrpTRES", "GrpJobs", "MaxJobs")
"""What `sacctmgr --noheader --parsable2 show … format=…` is asked for."""


def qos_from_text(text: str) -> list[Qos]:
    """Qualities of service, from `QOS_COLUMNS`."""
    rows = (line.split("|") for line in text.splitlines())
    return [
        Qos(row[0], _most(row[1], row[2]), _most(row[3], row[4]), _most(row[5], row[6]))
        for row in rows
        if len(row) == len(QOS_COLUMNS) and row[0]
    ]


def associations_from_text(text: str) -> list[Association]:
    """Associations, from `ASSOCIATION_COLUMNS`; MaxJobs is of a user, and an account's only what its users inherit."""
    rows = (line.split("|") for line in text.splitlines())
    return [
        Association(row[0], row[1], row[2], row[3], _most(row[4], *(row[5:] if row[2] else row[5:6])))
        for row in rows
        if len(row) == len(ASSOCIATION_COLUMNS) and row[1]
    ]


def _most(resources: str, *jobs: str) -> Most:
    return Most(resources_of(resources), min((int(one) for one in jobs if one.isdecimal()), default=None))


def _utc(text: str | None) -> float | None:
    try:
        return time_of(datetime.fromisoformat(text or "").replace(tzinfo=UTC).timestamp())
    except ValueError:
        return None
