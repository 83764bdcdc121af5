"""The state of a site's partitions and its effect on wait questions."""

from typing import Any

import msgspec
import pytest

from models.engine.asking.engine_answers import answer
from models.engine.asking.partitions import considered, left_out, never_runs_reason, partition_states
from models.engine.engine import Engine
from models.engine.settings import EngineSettings
from models.records import (
    Capacity,
    End,
    Partition,
    PartitionState,
    Pool,
    Reservation,
    SiteAnswer,
    SiteQuestion,
    Start,
    Submit,
    WaitAnswer,
    WaitQuestion,
)
from models.site.job import EXTRAS

POOLS = [
    Pool(name="thin", nodes=4, cpus=16, down_nodes=1),
    Pool(name="card", nodes=2, cpus=32, gpus={"a100": 4}),
]
PARTITIONS = [
    Partition(name="batch", pools=["thin"], max_walltime=7200.0),
    Partition(name="any", pools=["thin", "card"], up=False),
    Partition(name="gpu", pools=["card"]),
]


def site(**more: Any) -> Engine:
    engine = Engine("a", EngineSettings(method="median", shadows=()))
    engine.apply(Capacity(site="a", time=0.0, cpus=128, pools=POOLS, partitions=PARTITIONS, **more))
    return engine


def run(engine: Engine, job: str, queue: str, partition: str | None = None, **request: Any) -> None:
    engine.apply(Submit(site="a", time=1.0, job=job, queue=queue, walltime=600.0, **request))
    if partition is not None:
        engine.apply(Start(site="a", time=2.0, job=job, partition=partition))


def states(engine: Engine, now: float = 10.0) -> dict[str, PartitionState]:
    return {one.name: one for one in partition_states(engine.context, now)}


def test_partition_state_counts_its_pools_minus_running_jobs() -> None:
    engine = site()
    run(engine, "1", "batch", "batch", cpus=20)
    run(engine, "2", "gpu", "gpu", cpus=8, gpus=3)
    run(engine, "3", "gpu", cpus=8, gpus=8)
    run(engine, "4", "batch", partitions=["batch", "any"])
    found = states(engine)
    assert list(found) == ["batch", "any", "gpu"]
    batch, both, gpu = found.values()
    assert (batch.cpus, batch.free_cpus, batch.gpus, batch.running_jobs, batch.queued_jobs) == (64, 28, 0, 1, 1)
    assert (gpu.cpus, gpu.free_cpus, gpu.gpus, gpu.free_gpus, gpu.queued_jobs) == (64, 56, 8, 5, 1)
    assert (both.up, both.cpus, both.free_cpus, both.free_gpus) == (False, 128, 28 + 56, 5)
    assert (both.queued_jobs, both.running_jobs) == (1, 0)
    engine.apply(End(site="a", time=20.0, job="2"))
    assert states(engine, 20.0)["gpu"].free_gpus == 8


def test_reserved_nodes_are_not_free_during_reservation() -> None:
    engine = site(reservations=[Reservation(name="r", start=100.0, end=200.0, pools=["thin"], nodes=2)])
    assert [states(engine, now)["batch"].free_cpus for now in (50.0, 150.0, 250.0)] == [48, 16, 48]


def test_site_answer_has_partitions_only_where_there_are_some() -> None:
    reply = answer(SiteQuestion(id="1", site="a"), site(), 10.0)
    assert isinstance(reply, SiteAnswer) and reply.partitions
    assert [one.name for one in reply.partitions] == ["batch", "any", "gpu"]
    plain = Engine("a", EngineSettings(method="median", shadows=()))
    plain.apply(Capacity(site="a", time=0.0, cpus=128))
    assert partition_states(plain.context, 1.0) == []
    for question in (SiteQuestion(id="1", site="a"), WaitQuestion(id="1", site="a", cpus=129)):
        fields = msgspec.to_builtins(answer(question, plain, 10.0))
        assert not {"partitions", "cannot_run", "left_out"} & set(fields)


def test_wait_question_becomes_job_with_the_same_request() -> None:
    question = WaitQuestion(id="1", site="a", queue="gpu", gpus=2, gpu_types={"a100": 2}, qos="high", exclusive=True)
    job = considered(question, 5.0)
    assert (job.submit, job.queue, job.gpus) == (5.0, "gpu", 2)
    assert (job.extras.gpu_types, job.extras.qos, job.extras.exclusive) == ({"a100": 2}, "high", True)
    assert considered(WaitQuestion(id="1", site="a", cpus=4), 5.0).extras is EXTRAS


def test_never_runs_reason_is_given_for_each_partition() -> None:
    engine = site()
    too_long = considered(WaitQuestion(id="1", site="a", queue="batch", walltime=9000.0), 5.0)
    assert never_runs_reason(engine, too_long) == "walltime 2h30m: at most 2h in batch"
    named = ["batch", "gpu", "any", "elsewhere"]
    some = considered(WaitQuestion(id="1", site="a", queue="batch", partitions=named, walltime=9000.0), 5.0)
    assert never_runs_reason(engine, some) is None
    assert left_out(engine, some) == {
        "batch": "walltime 2h30m: at most 2h in batch",
        "any": "partition any is down",
        "elsewhere": "there is no such partition",
    }
    reply = answer(WaitQuestion(id="1", site="a", queue="gpu", gpus=9), engine, 5.0)
    assert isinstance(reply, WaitAnswer) and reply.predicted_wait_s is None
    assert reply.cannot_run == reply.reason == "larger than partition gpu: 9 of 8 GPUs"


def test_node_features_decide_if_partition_can_run_the_job() -> None:
    pools = [
        msgspec.structs.replace(POOLS[0], node_features=["ib"]),
        msgspec.structs.replace(POOLS[1], node_features=["hdr"]),
    ]
    engine = Engine("a", EngineSettings(method="median", shadows=()))
    engine.apply(Capacity(site="a", time=0.0, cpus=128, pools=pools, partitions=PARTITIONS))

    def wait_answer(features: list[list[str]], queue: str = "batch") -> WaitAnswer:
        found = answer(WaitQuestion(id="1", site="a", queue=queue, node_features=features), engine, 10.0)
        assert isinstance(found, WaitAnswer)
        return found

    assert wait_answer([["hdr"]]).cannot_run == "needs nodes with hdr: none in batch"
    assert wait_answer([["hdr"], ["ib"]]).cannot_run is msgspec.UNSET
    assert "does not report" not in str(wait_answer([["ib"]]).low_confidence)
    misspelt = wait_answer([["ib", "hrd"]])
    assert misspelt.cannot_run is msgspec.UNSET and str(misspelt.low_confidence).endswith(
        "the site does not report which nodes have hrd"
    )


def test_node_features_not_reported_give_low_confidence() -> None:
    engine = Engine("a", EngineSettings(method="median", shadows=()))
    found = answer(WaitQuestion(id="1", site="a", node_features=[["ib"]]), engine, 10.0)
    assert isinstance(found, WaitAnswer) and str(found.low_confidence).endswith(
        "the site does not report which nodes have ib"
    )


def wait_answer(engine: Engine, *partitions: str) -> WaitAnswer:
    question = WaitQuestion(id="1", site="a", partitions=list(partitions), queue=partitions[0])
    found = answer(question, engine, 10.0)
    assert isinstance(found, WaitAnswer)
    return found


@pytest.mark.parametrize(
    ("partitions", "reason"),
    [
        (["bacth"], "there is no partition bacth: its partitions are batch, any, gpu; did you mean 'batch'?"),
        (["GPU"], "there is no partition GPU: its partitions are batch, any, gpu; did you mean 'gpu'?"),
        (["x", "y"], "there is no partition x or y: its partitions are batch, any, gpu"),
    ],
)
def test_missing_partition_cannot_run(partitions: list[str], reason: str) -> None:
    assert wait_answer(site(), *partitions).cannot_run == reason


def test_missing_partition_is_refused_without_pools() -> None:
    engine = Engine("a", EngineSettings(method="median", shadows=()))
    engine.apply(Capacity(site="a", time=0.0, cpus=128, partitions=[Partition(name="batch", pools=[])]))
    assert str(wait_answer(engine, "gpu").cannot_run).startswith("there is no partition gpu")
    assert wait_answer(engine, "batch", "gpu").left_out == {"gpu": "there is no such partition"}


def test_partition_seen_in_jobs_is_not_missing() -> None:
    engine = site()
    run(engine, "1", "routed")
    found = wait_answer(engine, "routed")
    assert (found.cannot_run, found.unverified) == (msgspec.UNSET, msgspec.UNSET)


@pytest.mark.parametrize("pools", [[], POOLS[:1]], ids=["without pools", "with pools"])
def test_partition_not_seen_in_jobs_is_unverified(pools: list[Pool]) -> None:
    engine = Engine("a", EngineSettings(method="median", shadows=()))
    engine.apply(Capacity(site="a", time=0.0, cpus=64, pools=pools))
    none_seen = wait_answer(engine, "bacth")
    assert (none_seen.cannot_run, none_seen.unverified) == (msgspec.UNSET, msgspec.UNSET)
    assert "unknown partition 'bacth': no job has named any" in str(none_seen.degraded)
    run(engine, "1", "batch")
    found = wait_answer(engine, "bacth")
    unknown = "unknown partition 'bacth': its partitions are batch; did you mean 'batch'?"
    assert (found.cannot_run, found.unverified) == (msgspec.UNSET, unknown)
    assert wait_answer(engine, "bacth", "batch").unverified is msgspec.UNSET


def test_gpus_not_stated_are_unverified() -> None:
    engine = Engine("a", EngineSettings(method="median", shadows=()))
    engine.apply(Capacity(site="a", time=0.0, cpus=128))
    found = answer(WaitQuestion(id="1", site="a", gpus=4), engine, 10.0)
    assert isinstance(found, WaitAnswer) and found.unverified == "the site does not report whether it has such GPUs"
