"""Nodes, partitions, reservations and limits in the formats of scontrol and slurmrestd."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.records import Capacity, Limit
from models.site.job import Job
from models.site.topology import Topology, cannot_run
from streams.sources.slurm import machine as words
from streams.sources.slurm.attempt_rows import hosts
from streams.sources.slurm.machine import Machine, Node, capacity_of

NODES = """\
NodeName=n1 CPUTot=8 CPUEfctv=6 Gres=(null) State=IDLE RealMemory=1000 Partitions=batch Weight=2 Reason=it CPUTot=99
NodeName=n2 CPUTot=8 CPUEfctv=6 Gres=(null) State=MIXED+DRAIN RealMemory=1000 Partitions=batch Weight=2
NodeName=n3 CPUTot=8 CPUEfctv=6 Gres=(null) State=IDLE* RealMemory=1000 Partitions=batch Weight=2
NodeName=g1 CPUTot=8 Gres=gpu:a100:4(S:0-1) State=ALLOCATED+RESERVED RealMemory=2000 Partitions=batch,gpu Weight=1
NodeName=c1 CPUTot=8 Gres= State=IDLE+CLOUD+POWERED_DOWN RealMemory=2000 Partitions=cloud Weight=9
NodeName=f1 CPUTot=8 State=FUTURE Partitions=batch
NodeName=x1 CPUTot=8 State=IDLE RealMemory=1
what is no node
"""
PARTITIONS = """\
PartitionName=batch AllowGroups=ALL AllowAccounts=a,b Default=YES MaxNodes=2 MaxTime=1-00:00:00 PriorityTier=5 State=UP
PartitionName=gpu AllowGroups=g AllowQos=high Default=NO MaxNodes=UNLIMITED MaxTime=UNLIMITED State=DRAIN
"""
RESERVATIONS = """\
ReservationName=maint StartTime=2026-01-02T12:00:00 EndTime=2026-01-02T14:00:00 Nodes=n[1-2],g1 Flags=MAINT,SPEC_NODES
No reservations in the system
"""


def test_capacity_groups_equal_nodes_into_pools() -> None:
    texts = {"nodes": NODES, "partitions": PARTITIONS, "reservations": RESERVATIONS}
    machine = Machine(*(words.read_text(what, lines) for what, lines in texts.items()))
    found = capacity_of(machine, "alder", 100.0)
    assert found is not None
    assert (found.cpus, found.nodes, found.down_nodes) == (34, 5, 2)
    assert [pool.name for pool in found.pools] == ["batch+gpu", "batch", "cloud"]
    gpu, batch, cloud = found.pools
    assert (gpu.gpus, gpu.cpus, gpu.memory, gpu.reserved_nodes) == ({"a100": 4}, 8, 2000 << 20, 1)
    assert (batch.nodes, batch.cpus, batch.down_nodes, batch.drained_nodes) == (3, 6, 1, 1)
    assert cloud.down_nodes == 0
    one, other = found.partitions
    assert (one.pools, one.default, one.max_nodes, one.max_walltime, one.tier) == (
        ["batch+gpu", "batch"],
        True,
        2,
        86400.0,
        5,
    )
    assert (one.accounts, one.groups) == (["a", "b"], None)
    assert (other.pools, other.up, other.groups, other.qos, other.max_walltime) == (
        ["batch+gpu"],
        False,
        ["g"],
        ["high"],
        None,
    )
    assert [(part.pools, part.nodes, part.maintenance) for part in found.reservations] == [
        (["batch"], 2, True),
        (["batch+gpu"], 1, True),
    ]


def test_pools_over_limit_merge_if_only_memory_differs() -> None:
    nodes = [Node(f"n{n}", 8, "up", ("batch",), {}, n << 30) for n in range(1, 400)]
    found = capacity_of(Machine(nodes), "alder", 0.0)
    assert found is not None
    assert [(pool.nodes, pool.memory) for pool in found.pools] == [(399, 1 << 30)]
    assert capacity_of(Machine(), "alder", 0.0) is None


@pytest.mark.parametrize("number", [lambda n: n, lambda n: {"set": True, "infinite": False, "number": n}])
def test_slurmrestd_number_shapes_yield_equal_machines(number: object) -> None:
    node = {
        "name": "g1",
        "state": ["IDLE", "DRAIN"],
        "cpus": 8,
        "real_memory": 2000,
        "gres": "gpu:a100:4",
        "partitions": ["gpu"],
        "weight": number(1),
    }
    (found,) = words.read_json("nodes", json.dumps({"nodes": [node]}).encode())
    assert found == Node("g1", 8, "drained", ("gpu",), {"a100": 4}, 2000 << 20, 1.0)
    new = {
        "name": "gpu",
        "partition": {"state": ["UP"]},
        "maximums": {"time": number(60), "nodes": {"set": False, "infinite": True, "number": 0}},
        "priority": {"tier": 3},
        "accounts": {"allowed": "a,b", "deny": ""},
    }
    old = {"name": "gpu", "state": "UP", "flags": ["default"], "max_time_limit": 60, "priority_tier": 3}
    parts = [part for part, _ in words.read_json("partitions", json.dumps({"partitions": [new, old]}).encode())]
    assert {(part.up, part.max_walltime, part.tier, part.max_nodes) for part in parts} == {(True, 3600.0, 3, None)}
    assert [part.default for part in parts] == [False, True]
    reservation = {"name": "m", "start_time": number(10), "end_time": number(20), "node_list": "g1", "flags": ["MAINT"]}
    ((kept, nodes),) = words.read_json("reservations", json.dumps({"reservations": [reservation]}).encode())
    assert (kept.start, kept.end, kept.maintenance, nodes) == (10.0, 20.0, True, ["g1"])


def test_sacctmgr_qos_text_yields_limits() -> None:
    found = words.read_text("qos", "normal||||||\nhigh|cpu=100,gres/gpu=8|50|cpu=10|5||\nbroken\n")
    assert found == [
        Limit(per="all", qos="high", cpus=100, gpus=8, jobs=50),
        Limit(per="user", qos="high", cpus=10, jobs=5),
    ]


def test_slurmrestd_qos_limits_equal_sacctmgr_limits() -> None:
    cpus, gpus = {"type": "cpu", "name": "", "id": 1, "count": 100}, {"type": "gres", "name": "gpu", "count": 8}
    tres = {"total": [cpus, gpus], "per": {"user": [cpus | {"count": 10}], "account": [], "job": []}}
    most = {
        "tres": tres,
        "active_jobs": {"accruing": number(None), "count": number(50)},
        "jobs": {"active_jobs": {"per": {"user": number(5), "account": number(None)}}, "per": {"user": number(9)}},
    }
    high = {"name": "high", "limits": {"grace_time": 0, "max": most}}
    found = words.read_json("qos", json.dumps({"qos": [{"name": "normal"}, high]}).encode())
    assert found == words.read_text("qos", "normal||||||\nhigh|cpu=100,gres/gpu=8|50|cpu=10|5||\n")


def number(value: int | None) -> dict[str, object]:
    return {"set": value is not None, "infinite": value is None, "number": value or 0}


ASSOCIATIONS = """\
alder|root||||200|
alder|lab||root|cpu=64||9
alder|lab|ada||||3
alder|lab|bob||cpu=8|7|3
alder|lab|eve||||
alder|course||root||10|
alder|course|eve||||2
alder|part||lab|||
"""


def test_sacctmgr_associations_text_yields_limits() -> None:
    assert words.read_text("associations", ASSOCIATIONS) == [
        Limit(per="all", jobs=200),
        Limit(per="account", name="course", jobs=10),  # other accounts are below `lab`, and eve has two accounts
        Limit(per="user", name="ada", jobs=3),
        Limit(per="user", name="bob", cpus=8, jobs=3),
    ]
    assert words.read_text("associations", f"{ASSOCIATIONS}beech|root||||200|\n") == []
    alike = [Limit(per="user", jobs=3)]
    assert words.read_text("associations", "alder|lab|ada||||3\nalder|lab|bob||||3\n") == alike
    one = {"account": "lab", "user": "ada", "cluster": "alder", "parent_account": ""}
    most = {"jobs": {"per": {"count": number(None)}, "active": number(3), "total": number(5)}}
    assert words.read_json("associations", json.dumps({"associations": [one | {"max": most}]}).encode()) == alike


def test_partition_applies_qos_limits_and_denies_accounts() -> None:
    line = "PartitionName=debug State=UP DenyAccounts=course DenyQos=low,old QoS=short"
    ((part, qos),) = words.read_text("partitions", line)
    allowed = {"allowed": "", "deny": "low,old", "assigned": "short"}
    partition = {"name": "debug", "accounts": {"allowed": "", "deny": "course"}, "qos": allowed}
    assert words.read_json("partitions", json.dumps({"partitions": [partition]}).encode()) == [(part, qos)]
    limits = words.read_text("qos", "short|||cpu=8|||\n")
    machine = Machine([Node("n1", 8, "up", ("debug",), {}, None)], [(part, qos)], limits=limits)
    found = capacity_of(machine, "alder", 0.0)
    assert found is not None
    assert found.limits == [Limit(per="user", partition="debug", cpus=8), Limit(per="user", qos="short", cpus=8)]
    topology = Topology.of(found)
    assert topology is not None
    jobs = [Job("1", 0, 0.0, cpus=1, queue="debug", account=account) for account in ("course", "lab")]
    why = [cannot_run(topology, job) for job in jobs]
    assert why == ["account course may not use partition debug", None]


def test_hostlist_expands_to_node_names() -> None:
    assert hosts("n[1-3,7],rack[01-02]-g[1-2],x") == [
        *("n1", "n2", "n3", "n7"),
        *("rack01-g1", "rack01-g2", "rack02-g1", "rack02-g2"),
        "x",
    ]
    assert hosts("(null)") == hosts("") == []
    assert len(hosts("n[1-9999999]")) == 1


@given(st.text("NodeName= PartitionName= ReservationName=State=n[1-9],\n|cpu", max_size=300))
def test_machine_parser_accepts_arbitrary_text(text: str) -> None:
    nodes, parts = words.read_text("nodes", text), words.read_text("partitions", text)
    machine = Machine(nodes, parts, words.read_text("reservations", text), words.read_text("qos", text))
    found = capacity_of(machine, "alder", 0.0)
    assert found is None or msgspec.json.decode(msgspec.json.encode(found), type=Capacity) == found
    hosts(text)
