"""A real Slurm, followed into a real Kafka and predicted by a real worker, with kills of the source."""

import os
import random
import shutil
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from kafka import KafkaProducer
from kafka.admin import KafkaAdminClient, NewTopic

from deploy.local.stack import LocalStack
from deploy.local.stack.process import free_port
from models.records import AnyEvent, Limit
from streams.sources.slurm.attempt_rows import JobRow
from streams.sources.slurm.source import SlurmSource
from streams.sources.slurm.text import read_sacct
from tests.support.deployment import Deploy, Deployment, metrics, until
from tests.support.followed import await_predictions, command, events, following, sent
from tests.support.made_slurm import MadeJob, records, squeue
from tests.support.real_scheduler import PATH
from tests.support.slurm import RealSlurm

pytestmark = pytest.mark.long

WHOLE = "--format=JobID,JobIDRaw,Submit,Eligible,Start,End,State,TimelimitRaw,Partition,NodeList,ReqTRES,AllocTRES"


@pytest.fixture(scope="module")
def slurm() -> Iterator[RealSlurm]:
    RealSlurm.require()
    with RealSlurm() as running:
        yield running


def accounted(slurm: RealSlurm) -> list[JobRow]:
    """Return each attempt of each job, from the final output of sacct."""
    text = slurm.run("sacct", "--allusers", "--allocations", "--duplicates", "--parsable2", WHOLE)
    return list(read_sacct(text.splitlines(), lambda skipped: pytest.fail(str(skipped))))


def a_day(slurm: RealSlurm) -> dict[str, str]:
    """Submit jobs that wait, are held, suspended, requeued and cancelled, and drain a node."""
    jobs = {"first": slurm.submit("--nodes=2", "--exclusive", "--time=1", sleep=6)}
    jobs["gpus"] = slurm.submit("--partition=gpu", "--gpus=2", "--nodelist=g1", "--time=1", sleep=8)
    slurm.until(lambda: slurm.states()[jobs["gpus"]] == "RUNNING")
    jobs["again"] = slurm.submit("--partition=gpu", "--gpus=1", "--time=1", "--requeue", sleep=4)
    jobs["waits"] = slurm.submit("--ntasks=2", "--time=1", "--job-name=a|b\nc", sleep=1)
    jobs["array"] = slurm.submit("--nodes=2", "--exclusive", "--array=1-3%1", "--time=1", sleep=1)
    jobs["held"] = slurm.submit("--hold", "--time=1", sleep=1)
    jobs["cancelled"] = slurm.submit("--nodes=2", "--exclusive", "--time=1", sleep=1)
    slurm.run("scontrol", "suspend", jobs["gpus"])
    time.sleep(2.5)  # each state must last longer than a poll to be observed
    slurm.run("scontrol", "resume", jobs["gpus"])
    slurm.run("scancel", jobs["cancelled"])
    slurm.run("scontrol", "release", jobs["held"])
    slurm.run("scontrol", "update", "NodeName=n1", "State=DRAIN", "Reason=test")
    slurm.until(lambda: slurm.states()[jobs["again"]] == "RUNNING")
    time.sleep(2.0)
    slurm.run("scontrol", "requeue", jobs["again"])
    time.sleep(1.5)
    slurm.run("scontrol", "update", "NodeName=n1", "State=RESUME")
    slurm.until(lambda: not {"PENDING", "RUNNING", "COMPLETING"} & set(slurm.states().values()))
    return jobs


def test_slurm_source_events_agree_with_accounting(slurm: RealSlurm, deploy: Deploy, tmp_path: Path) -> None:
    here, port, log = deploy(), free_port(), tmp_path / "source.log"
    here.worker.start()
    often = [word for option in ("poll=1s", "accounting=5s", "machine=1s") for word in ("--set", option)]
    words, environment = command(here, tmp_path, "slurm", "squeue+sacct", *often, "--web-port", str(port))
    with following(words, environment | slurm.environment, log):
        until(lambda: any(b'"capacity"' in message.value for message in sent(here)))
        jobs = a_day(slurm)
        attempts = 6 + 1 + 3  # one of them twice, and an array of three
        slurm.until(lambda: sum(row.end is not None for row in accounted(slurm)) == attempts)
        rows = accounted(slurm)
        ends = ("end", "requeue", "cancel")
        until(lambda: sum(event.kind in ends for event in events(here)) >= attempts)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            shown = answer.read().decode()
    log_text = log.read_text()
    assert "Traceback" not in log_text, log_text
    assert ", 0 skipped" in log_text, log_text
    emitted = events(here)
    check_times(rows, emitted)
    check_kinds(jobs, emitted)
    assert 'queuecast_source_calls_total{call="squeue",site="alder",source="slurm"}' in shown
    check_predictions(here, rows)


def check_times(rows: list[JobRow], emitted: list[Any]) -> None:
    """Check that the events of all attempts have exactly the times of the accounting."""
    submits = {(event.job, event.attempt): event.time for event in emitted if event.kind == "submit"}
    starts = {(event.job, event.attempt): event.time for event in emitted if event.kind == "start"}
    ends = {(event.job, event.attempt): event.time for event in emitted if event.kind in ("end", "requeue", "cancel")}
    attempts: dict[str, int] = {}
    for row in sorted(rows, key=lambda row: row.submit):
        number = attempts.get(row.job, 0)
        attempts[row.job] = number + 1
        if number == 0:
            assert submits[row.array or row.job, 0] == row.submit
        assert starts.get((row.job, number)) == row.start, row
        assert ends[row.job, number] == row.end, row
    assert len(starts) == sum(row.start is not None for row in rows)
    assert len(ends) == len(rows)
    decided = [event for event in emitted if event.kind in ("submit", "start", "end", "requeue", "cancel")]
    assert len(decided) == len({(event.kind, event.job, event.attempt) for event in decided})


def check_kinds(jobs: dict[str, str], emitted: list[Any]) -> None:
    """Check the event kinds of each job."""

    def kinds(job: str) -> list[str]:
        return [event.kind for event in emitted if getattr(event, "job", None) == job]

    assert [kind for kind in kinds(jobs["gpus"]) if kind != "expected_start"] == [
        "submit",
        "start",
        "suspend",
        "resume",
        "end",
    ]
    assert {"hold", "release"} <= set(kinds(jobs["held"]))
    assert kinds(jobs["cancelled"])[-1] == "cancel"
    assert kinds(jobs["again"]).count("start") == 2
    assert "requeue" in kinds(jobs["again"])
    (row,) = [event for event in emitted if event.kind == "submit" and event.job == jobs["array"]]
    assert row.array_size == 3
    assert {e.job for e in emitted if e.kind == "start" and e.array == jobs["array"]} == {
        f"{jobs['array']}_{task}" for task in (1, 2, 3)
    }
    gpus = next(event for event in emitted if event.kind == "submit" and event.job == jobs["gpus"])
    assert (gpus.gpus, gpus.queue) == (2, "gpu")
    assert any(event.kind == "expected_start" and event.by == "slurm" for event in emitted)
    machines = [event for event in emitted if event.kind == "capacity"]
    assert {pool.name for pool in machines[0].pools} == {"batch", "gpu", "batch+gpu"}
    assert machines[0].pools[0].gpus == {"a100": 2}
    assert (machines[0].cpus, machines[0].nodes) == (12, 3)
    assert any(pool.drained_nodes for event in machines for pool in event.pools)
    assert not any(pool.drained_nodes for pool in machines[-1].pools)


def check_predictions(here: Deployment, rows: list[JobRow]) -> None:
    """Check that each job has a prediction before its start, and that Slurm's estimates are scored."""
    made = await_predictions(here, {row.array or row.job for row in rows})
    waited = 0
    for row in rows:
        if row.start is not None and row.restarts in (None, 0):
            first = made[row.array or row.job]
            assert first.at <= row.start
            if row.start >= row.submit + 4:  # it queued longer than a poll and a prediction take
                assert first.sent < row.start + 1
                waited += 1
    assert waited >= 4
    scored = metrics(here.worker)["queuecast_wait_error_seconds_count"]
    assert any("slurm" in labels for labels in scored), scored
    assert not here.dead_letters()


def ways() -> list[str]:
    """Return the ways to poll Slurm: its commands, and slurmrestd if that package is installed."""
    return ["squeue+sacct", *(["rest"] if shutil.which("slurmrestd", path=PATH) else [])]


LIMITS = {"GrpTRES": "cpu=64", "GrpJobs": "90", "MaxTRESPerUser": "cpu=60", "MaxJobsPerUser": "80"}


@pytest.mark.parametrize("way", ways())
def test_resized_slurm_job_is_one_attempt_and_limits_are_read(
    slurm: RealSlurm, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    slurm.run("sacctmgr", "--immediate", "modify", "qos", "normal", "set", *(f"{k}={v}" for k, v in LIMITS.items()))
    for name in ("PATH", "SLURM_CONF"):
        monkeypatch.setenv(name, slurm.environment[name])
    address = f"{slurm.rest()}+slurmdb" if way == "rest" else way
    source = SlurmSource(address, "alder", lambda part: pytest.fail(str(part)), "1s", "2s", "1s")
    steps, emitted = source.events(), list[Any]()

    def has_event(kind: str, job: str = "") -> bool:
        event, _ = next(steps)
        emitted.extend([] if event is None else [event])
        return any(one.kind == kind and getattr(one, "job", "") == job for one in emitted)

    slurm.until(lambda: has_event("capacity"))
    job = slurm.submit("--nodes=2", "--ntasks=2", "--time=5", sleep=200)
    slurm.until(lambda: has_event("start", job))
    slurm.run("scontrol", "update", f"JobId={job}", "NumNodes=1")
    slurm.until(lambda: has_event("alter", job))
    slurm.run("scancel", job)
    slurm.until(lambda: has_event("end", job))
    slurm.until(lambda: len([row for row in accounted(slurm) if row.job == job and row.end]) == 1)
    accounting = source.calls["sacct" if way != "rest" else "slurmdb jobs"]
    looked = accounting.count
    # After reading both rows, it emits no further event.
    slurm.until(lambda: has_event("never") or accounting.count >= looked + 2)
    kinds = [one.kind for one in emitted if getattr(one, "job", "") == job and one.kind != "expected_start"]
    assert kinds == ["submit", "start", "alter", "end"]
    assert [one.cpus for one in emitted if one.kind == "alter" and one.job == job] == [1]
    machine = next(one for one in emitted if one.kind == "capacity")
    assert Limit(per="all", qos="normal", cpus=64, jobs=90) in machine.limits
    assert Limit(per="user", qos="normal", cpus=60, jobs=80) in machine.limits


def history(count: int) -> list[MadeJob]:
    """Return a long history, so that a source can be killed in the middle of it."""
    draw = random.Random(7)
    made = [MadeJob(number=n, submit=n * 3, start=n * 3 + draw.randrange(1, 200)) for n in range(1, count)]
    for job in made:
        job.end = (job.start or 0) + draw.randrange(1, 200)
    return made


def recorded(directory: Path) -> str:
    """Return a directory of recorded polls of the queue."""
    made = history(1500)
    (directory / "looks").mkdir()
    for number, at in enumerate(range(0, 5200, 20), 1):
        around = [job for job in made if job.submit <= at and job.end >= at - 300]
        (directory / "looks" / f"{number:05}-squeue.json").write_bytes(squeue(around, at))
    return str(directory / "looks")


def in_topics(bootstrap: str) -> str:
    """Send jobcomp records to two topics, without keys, some of them twice."""
    topics = [f"alder{os.getpid()}", f"alder{os.getpid()}-job-start"]
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    admin.create_topics([NewTopic(topic, num_partitions=3, replication_factor=1) for topic in topics])
    admin.close()
    producer, draw = KafkaProducer(bootstrap_servers=bootstrap, acks="all"), random.Random(1)
    flat = sorted((at, b'"@end"' in value, value) for job in history(2500) for at, value in records(job))
    for at, ended, value in flat:
        for _ in range(draw.choice((1, 1, 1, 2))):
            place = {"partition": draw.randrange(3), "timestamp_ms": 1_767_355_200_000 + at * 1000}
            producer.send(topics[not ended], value=value, **place)
    producer.flush()
    producer.close()
    return f"kafka://{bootstrap}/{','.join(topics)}"


def followed(source: SlurmSource) -> Iterator[AnyEvent]:
    """Return all events that the source has now."""
    for event, _ in source.events():
        if event is not None:
            yield event
        elif source.records and not source.lag.get("records"):
            return


@pytest.mark.parametrize("way", ["looks", "records"])
def test_killed_slurm_source_resumes_without_loss(
    local_stack: LocalStack, deploy: Deploy, tmp_path: Path, way: str
) -> None:
    make: Callable[[], str] = lambda: recorded(tmp_path) if way == "looks" else in_topics(local_stack.kafka.bootstrap)  # noqa: E731
    here, location, log = deploy(), make(), tmp_path / "source.log"
    whole = [msgspec.json.encode(event) for event in followed(SlurmSource(location, "alder"))]
    assert len(whole) > 4000
    words, environment = command(here, tmp_path / "cursors", "slurm", location)
    for share in (0.2, 0.5):
        with following(words, environment, log) as process:
            until(lambda share=share: len(sent(here)) > share * len(whole) or process.poll() is not None)  # type: ignore[misc]
            process.kill()
            process.wait()
    with following(words, environment, log):
        until(lambda: len({message.value for message in sent(here)}) >= len(set(whole)))
    values = [message.value for message in sent(here)]
    assert list(dict.fromkeys(values)) == list(dict.fromkeys(whole))
    before = len(values)
    with following(words, environment, log):  # it has no further event
        time.sleep(3)
    assert len(sent(here)) == before
    assert "Traceback" not in log.read_text()
