"""A real Grid Engine: what its file `reporting` says as it grows agrees with what `accounting` says in the end."""

import time
from collections.abc import Iterator
from itertools import islice

import pytest

from models.engine.outgoing import Anomaly
from models.engine.settings import EngineSettings
from models.records import Outcome, Prediction
from streams.offline.replay import replay
from streams.sources.schedulers.gridengine import GridEngineSource
from tests.support.gridengine import RealGridEngine

SLOW_S = 3.0
"""Seconds between the start that the master tells and the one that the execution daemon accounts."""


@pytest.fixture(scope="module")
def gridengine() -> Iterator[RealGridEngine]:
    RealGridEngine.require()
    with RealGridEngine() as running:
        yield running


def a_day(gridengine: RealGridEngine) -> dict[str, str]:
    """Jobs of all kinds: they wait, are held, suspended, requeued and deleted; an array of three."""
    jobs = {"parallel": gridengine.submit("-pe", "smp", "3", "-l", "h_rt=600", sleep=2)}
    jobs["array"] = gridengine.submit("-t", "1-3", sleep=1)
    jobs["held"] = gridengine.submit("-h", sleep=1)
    jobs["never"] = gridengine.submit("-pe", "smp", "9", sleep=1)
    jobs["again"] = gridengine.submit("-pe", "smp", "4", sleep=8)
    gridengine.run("qrls", jobs["held"])
    gridengine.run("qdel", jobs["never"])
    gridengine.until(lambda: f":delivered:{jobs['again']}:" in reporting(gridengine))
    gridengine.run("qmod", "-sj", jobs["again"])
    time.sleep(1.5)  # times are in seconds
    gridengine.run("qmod", "-usj", jobs["again"])
    time.sleep(1.0)
    gridengine.run("qmod", "-rj", jobs["again"])
    gridengine.until(lambda: reporting(gridengine).count(":acct:") == 1 + 3 + 1 + 2)
    gridengine.until(lambda: f":deleted:{jobs['again']}:" in reporting(gridengine))
    return jobs


def reporting(gridengine: RealGridEngine) -> str:
    path = gridengine.common / "reporting"
    return path.read_text() if path.exists() else ""


def test_a_real_grid_engine_is_followed(gridengine: RealGridEngine) -> None:
    source = GridEngineSource.open(str(gridengine.common / "reporting"), "alder", pytest.fail, pause_s=0.2)
    steps = source.events()
    gridengine.until(lambda: "# Version" in reporting(gridengine))
    assert next(steps)[0] is None  # it is followed before anything has happened
    jobs = a_day(gridengine)
    told = list(source.whole())
    followed = [event for event, _ in islice(steps, len(told)) if event is not None]
    assert followed == told
    check(gridengine, jobs, told)
    said = [record for record in replay(told, EngineSettings()) if not isinstance(record, Anomaly)]
    predicted = {record.job for record in said if isinstance(record, Prediction)}
    assert predicted == {event.job for event in told if event.kind == "submit"}
    ended = {record.job for record in said if isinstance(record, Outcome) and record.actual_run_s is not None}
    assert {event.job for event in told if event.kind == "end"} <= ended


def check(gridengine: RealGridEngine, jobs: dict[str, str], told: list) -> None:
    """What was reported is what was accounted; what happened to each job was told."""
    accounted = list(GridEngineSource.open(str(gridengine.common / "accounting"), "alder").whole())
    for kind, slow_s in (("submit", 0.0), ("start", SLOW_S), ("end", SLOW_S)):
        found = sorted(
            event.time for event in told if event.kind == kind and event.job not in (jobs["never"], jobs["again"])
        )
        expected = sorted(event.time for event in accounted if event.kind == kind and event.job != jobs["again"])
        if kind == "submit":  # the array is one job there, its tasks are three here
            found, expected = sorted(set(found)), sorted(set(expected))
        assert found == pytest.approx(expected, abs=slow_s), kind

    def kinds(job: str) -> list[str]:
        return [event.kind for event in told if event.job == job]

    assert kinds(jobs["parallel"]) == ["submit", "start", "alter", "end"]
    assert kinds(jobs["never"]) == ["submit", "cancel"]
    assert kinds(jobs["held"]) == ["submit", "start", "alter", "end"]
    assert [kind for kind in kinds(jobs["again"]) if kind != "alter"] == [
        "submit",
        "start",
        "suspend",
        "resume",
        "requeue",
        "start",
        "end",
    ]
    (request,) = (event for event in told if event.kind == "alter" and event.job == jobs["parallel"])
    assert (request.cpus, request.walltime, request.queue) == (3, 600.0, "all.q")
    assert sum(event.kind == "start" and event.job.startswith(jobs["array"]) for event in told) == 3
