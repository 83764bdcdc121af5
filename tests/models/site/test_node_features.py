"""Node features that jobs request, in the format of each scheduler."""

import json
from typing import Any

import msgspec
import pytest

from models.records import Capacity, Submit
from models.site.job import Job
from models.site.node_features import alternatives
from models.site.topology import Topology, cannot_run
from streams.bulk.anonymise import Anonymiser
from streams.sources.schedulers import lsf_fields, pbs_request
from streams.sources.schedulers.htcondor import classad, request
from streams.sources.slurm import machine as words
from streams.sources.slurm.json_jobs import read_jobs
from streams.sources.slurm.machine import Machine, capacity_of
from streams.sources.slurm.text import read_sacct

NODES = """\
NodeName=n1 CPUTot=8 State=IDLE Partitions=batch ActiveFeatures=x86,ib
NodeName=n2 CPUTot=8 State=IDLE Partitions=batch ActiveFeatures=x86,big
NodeName=n3 CPUTot=8 State=IDLE Partitions=batch ActiveFeatures=(null)
"""
PARTITION = "PartitionName=batch State=UP"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("", None),
        ("a", [["a"]]),
        ("a|b&c", [["a"], ["b", "c"]]),
        ("[r1*2&r2*4]", [["r1"], ["r2"]]),
        ("[(a&b)*4&c]|d", [["a", "b"], ["c"], ["d"]]),
        ("x&(a*4&b*2)", [["a", "x"], ["b", "x"]]),
        ("|".join(f"n{n:02}" for n in range(64)), [[f"n{n:02}"] for n in range(64)]),
        ("|".join(f"n{n}" for n in range(80)), "one"),
        ("*3", "one"),
        ("&".join(f"(a{n}|b{n})" for n in range(8)), "one"),
        ("a)", "one"),
        ("(" * 3000, "one"),
    ],
)
def test_node_feature_expression_is_parsed_to_alternatives(words: str, expected: Any) -> None:
    assert alternatives(words) == ([[words[:256]]] if expected == "one" else expected)


def of_pbs(words: str) -> Any:
    return pbs_request.request(pbs_request.fields_of(words)).get("node_features")


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (of_pbs("Resource_List.select=1:ncpus=4:big=true:mem=4gb+2:ncpus=2"), [[], ["big=true"]]),
        (of_pbs("Resource_List.nodes=4:ppn=8:big:ib"), [["big", "ib"]]),
        (of_pbs("Resource_List.select=2:ncpus=4:scratch=10gb"), None),
        (of_pbs("Resource_List.select=1:ncpus=4:+2:ncpus=4::mem=1gb+:ncpus=2"), None),
        (of_pbs(f"Resource_List.nodes=4:{'big' * 100}"), [[("big" * 100)[:256]]]),
        (
            of_pbs("Resource_List.nodes=4:" + ":".join(f"f{n:03}" for n in range(300))),
            [[f"f{n:03}" for n in range(32)]],
        ),
        (lsf_fields.request(4, "select[type == any && mem>100] rusage[mem=4000]").get("node_features"), None),
        (lsf_fields.request(4, "select[(big) && (type==X86_64)]").get("node_features"), [["big", "type==X86_64"]]),
        (
            request(classad(["Requirements = (TARGET.HasIb) && (TARGET.Memory >= RequestMemory)"]))["node_features"],
            [["TARGET.HasIb"]],
        ),
    ],
)
def test_node_features_of_other_schedulers_are_parsed(found: Any, expected: Any) -> None:
    assert found == expected


def queued(**fields: Any) -> Any:
    job = {"job_id": 7, "job_state": ["PENDING"], "submit_time": 10, "partition": "batch", "cpus": 1} | fields
    (row,) = read_jobs(json.dumps({"jobs": [job]}).encode(), pytest.fail, "squeue").rows
    return row.request.get("node_features")


def test_slurm_sources_all_report_node_features() -> None:
    assert queued(features="x86&ib") == [["ib", "x86"]]
    assert queued(features="", required_nodes="n[1-2]", excluded_nodes="n3") == [["n[1-2]", "not n3"]]
    assert queued(features="", required_nodes="", excluded_nodes="") is None
    assert queued(features="", excluded_nodes="n" * 254) == [["not " + "n" * 252]]
    row = "7|batch|2026-01-01T10:00:00|2026-01-01T10:01:00|Unknown|RUNNING|x86|ib\n"
    (record,) = read_sacct(
        ["JobID;Partition;Submit;Start;End;State;Constraints", row.replace("|", ";", 6)], pytest.fail
    )
    assert record.request["node_features"] == [["ib"], ["x86"]]
    job = {"job_id": 7, "state": {"current": ["RUNNING"]}, "time": {"submission": 10, "start": 20}, "constraints": "ib"}
    assert read_jobs(json.dumps({"jobs": [job]}).encode(), pytest.fail, "sacct").rows[0].request["node_features"] == [
        ["ib"]
    ]


def test_job_runs_on_nodes_with_the_requested_features() -> None:
    nodes = words.read_text("nodes", NODES)
    node = {"name": "n1", "state": ["IDLE"], "cpus": 8, "partitions": ["batch"], "active_features": ["x86", "ib"]}
    assert words.read_json("nodes", json.dumps({"nodes": [node]}).encode())[0].features == nodes[0].features
    found = capacity_of(Machine(nodes, words.read_text("partitions", PARTITION)), "alder", 0.0)
    assert found is not None
    assert [pool.node_features for pool in found.pools] == [["ib", "x86"], ["big", "x86"], []]
    names = Anonymiser(b"0123456789abcdef")
    other = msgspec.convert(names.event(found), Capacity)
    hidden = [names.name("node_features", one) for one in ("ib", "big")]
    for capacity, (ib, big) in ((found, ("ib", "big")), (other, hidden)):
        topology = Topology.of(capacity)
        assert topology is not None
        where = f"partition {capacity.partitions[0].name}"
        assert cannot_run(topology, job_with_features(ib)) is None
        assert cannot_run(topology, job_with_features(ib, nodes=2)) == f"larger than {where}: 2 of 1 nodes"
        assert f"needs nodes with {ib} and {big}: none in" in (cannot_run(topology, job_with_features(ib, big)) or "")
        assert cannot_run(topology, job_with_features("n7", nodes=3)) is None  # a name that is in no pool


def job_with_features(*features: str, **fields: Any) -> Job:
    return Job.of(Submit(site="alder", time=0.0, job="7", node_features=[list(features)], **fields))


def test_node_feature_names_are_anonymised() -> None:
    submit = Submit(site="alder", time=0.0, job="7", node_features=[["ib", "x86"], ["x86"]])
    (one, other), (again,) = Anonymiser().event(submit)["node_features"]
    assert other == again
    assert not {"ib", "x86"} & {one, other}
