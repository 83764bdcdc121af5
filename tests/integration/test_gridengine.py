"""A real Grid Engine: the events of its file `reporting` agree with `accounting`, although the source is killed."""

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from queuecast.testing_sources import events_there
from streams.sources.schedulers.gridengine import GridEngineSource
from tests.support.deployment import Deploy, Deployment, unique, until
from tests.support.followed import await_predictions, command, events, following, sent
from tests.support.gridengine import RealGridEngine

pytestmark = pytest.mark.long

SLOW_S = 3.0
"""Maximum difference between the start of the master and the start in the accounting (s)."""

QUEUED_S = 4.0
"""Longer than a poll of the file and a prediction: such a job has its prediction before its start (s)."""


@pytest.fixture(scope="module")
def gridengine() -> Iterator[RealGridEngine]:
    RealGridEngine.require()
    with RealGridEngine() as running:
        yield running


class Run(NamedTuple):
    """A run of a job or array task (0 without an array) in `accounting`; times are Unix seconds."""

    job: str
    task: int
    submit: float
    start: float
    end: float


def reporting(gridengine: RealGridEngine) -> str:
    path = gridengine.common / "reporting"
    return path.read_text() if path.exists() else ""


def accounted(gridengine: RealGridEngine) -> list[Run]:
    """Return each ended run. A run of a rescheduled job has no times."""
    lines = (gridengine.common / "accounting").read_text().splitlines()
    fields = [line.split(":") for line in lines if not line.startswith("#")]
    return [Run(found[5], int(found[35]), *map(float, found[8:11])) for found in fields]


def a_morning(gridengine: RealGridEngine) -> dict[str, str]:
    """Submit running, queued and held jobs, and an array of three tasks that run one by one."""
    jobs = {"parallel": gridengine.submit("-pe", "smp", "3", "-l", "h_rt=600", sleep=6)}
    jobs["array"] = gridengine.submit("-t", "1-3", sleep=1)
    jobs["held"] = gridengine.submit("-h", sleep=1)
    jobs["never"] = gridengine.submit("-pe", "smp", "9", sleep=1)
    jobs["again"] = gridengine.submit("-pe", "smp", "4", sleep=12)
    gridengine.run("qdel", jobs["never"])
    gridengine.until(lambda: f":delivered:{jobs['again']}:" in reporting(gridengine))
    gridengine.run("qmod", "-sj", jobs["again"])
    return jobs


def an_afternoon(gridengine: RealGridEngine, jobs: dict[str, str]) -> None:
    """Requeue a running job, which runs again; release a held job, which ends."""
    time.sleep(1.5)  # times are in seconds
    gridengine.run("qmod", "-usj", jobs["again"])
    time.sleep(1.0)
    gridengine.run("qmod", "-rj", jobs["again"])
    gridengine.run("qrls", jobs["held"])


def test_gridengine_events_agree_with_accounting(gridengine: RealGridEngine, deploy: Deploy, tmp_path: Path) -> None:
    here, log, cursors = deploy(), tmp_path / "source.log", tmp_path / "cursors"
    here.worker.start()
    gridengine.until(lambda: "# Version" in reporting(gridengine))
    location = str(gridengine.common / "reporting")
    words, environment = command(here, cursors, "gridengine", location, "--set", "pause_s=0.2")
    with following(words, environment, log) as source:
        until(lambda: any(cursors.glob("*")))  # the source runs
        jobs = a_morning(gridengine)
        until(lambda: any(event.kind == "suspend" for event in events(here)))
        source.kill()
        source.wait()
    before = len(sent(here))
    an_afternoon(gridengine, jobs)
    with following(words, environment, log):
        gridengine.until(lambda: reporting(gridengine).count(":acct:") == 1 + 3 + 1 + 2)
        gridengine.until(lambda: f":deleted:{jobs['again']}:" in reporting(gridengine))
        whole = events_there(GridEngineSource(location, "alder", pytest.fail, pause_s=0.0))
        emitted = [event for event, _ in whole]
        until(lambda: len({message.value for message in sent(here)}) >= len(emitted))
    assert "Traceback" not in log.read_text()
    assert before < len(emitted)
    assert unique(message.value for message in sent(here)) == [msgspec.json.encode(event) for event in emitted]
    check_times(accounted(gridengine), jobs, emitted)
    check_kinds(jobs, emitted)
    check_predictions(here, emitted)


def check_times(runs: list[Run], jobs: dict[str, str], emitted: list[Any]) -> None:
    """Check that the events of all runs have exactly the times of the accounting."""
    submits = {event.job: event.time for event in emitted if event.kind == "submit"}
    starts, ends = (Counter(event.job for event in emitted if event.kind == kind) for kind in ("start", "end"))
    times = {(event.kind, event.job): event.time for event in emitted}  # the last of several attempts
    rescheduled = Counter(run.job for run in runs if not run.end)
    assert rescheduled == {jobs["again"]: 1}
    ended = [run for run in runs if run.end]
    names = {run: f"{run.job}.{run.task}" if f"{run.job}.{run.task}" in submits else run.job for run in ended}
    assert len(set(names.values())) == len(ended) == sum(ends.values())
    for run, name in names.items():
        if rescheduled[run.job]:  # Grid Engine uses this as its submit time
            assert times["requeue", name] == pytest.approx(run.submit, abs=SLOW_S)
        else:
            assert submits[name] == run.submit
        assert times["start", name] == pytest.approx(run.start, abs=SLOW_S)
        assert times["end", name] == pytest.approx(run.end, abs=SLOW_S)
        assert starts[name] == 1 + rescheduled[run.job]
    assert sum(starts.values()) == len(runs)
    assert submits.keys() == {*names.values(), jobs["never"]}


def check_kinds(jobs: dict[str, str], emitted: list[Any]) -> None:
    """Check the event kinds of each job."""

    def kinds(job: str) -> list[str]:
        return [event.kind for event in emitted if event.job == job]

    assert kinds(jobs["parallel"]) == ["submit", "start", "alter", "end"]
    assert kinds(jobs["never"]) == ["submit", "cancel"]
    assert [kind for kind in kinds(jobs["held"]) if kind != "release"] == ["submit", "start", "alter", "end"]
    assert [kind for kind in kinds(jobs["again"]) if kind != "alter"] == [
        "submit",
        "start",
        "suspend",
        "resume",
        "requeue",
        "start",
        "end",
    ]
    (request,) = (event for event in emitted if event.kind == "alter" and event.job == jobs["parallel"])
    assert (request.cpus, request.walltime, request.queue) == (3, 600.0, "all.q")
    assert sum(event.kind == "start" and event.job.startswith(jobs["array"]) for event in emitted) == 3


def check_predictions(here: Deployment, emitted: list[Any]) -> None:
    """Check that outputs equal a replay, and that each job has a prediction before its start."""
    expected = here.expected(emitted)
    here.await_outputs(sum(map(len, expected.values())))
    here.stop()
    assert {key: unique(values) for key, values in here.records().items()} == expected
    made = await_predictions(here, {event.job for event in emitted if event.kind == "submit" and not event.late})
    submits = {event.job: event.time for event in emitted if event.kind == "submit"}
    waited = 0
    for start in (event for event in emitted if event.kind == "start" and not event.attempt):
        first = made[start.job.partition(".")[0]]  # for a task, the prediction of its array
        assert first.at <= start.time
        if start.time >= submits[start.job] + QUEUED_S:
            assert first.sent < start.time + 1
            waited += 1
    assert waited >= 3
