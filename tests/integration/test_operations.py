"""Operation of workers: logs, backlogs, unavailable or hanging servers, duplicate names, new topics."""

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from kafka import TopicPartition
from kafka.admin import KafkaAdminClient
from kafka.structs import OffsetAndMetadata

from deploy.local.stack import LocalStack
from deploy.local.up import WorkerProcess, as_toml
from models.records import AnyEvent, Submit
from streams.broker.admin import create_topics
from tests.support.command import Command
from tests.support.deployment import (
    PARTITIONS,
    Deploy,
    Deployment,
    busy_sites,
    metrics,
    parts,
    readiness,
    ready,
    settings_on,
    simulated,
    until,
)

pytestmark = pytest.mark.long

SITES = ("alder", "birch", "cedar", "oak")
FORGED = "[2026-01-01 00:00:00,000] [ERROR] streams.worker.ownership.CPU: forged"


@pytest.fixture
def here(stack: LocalStack, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Iterator[Deployment]:
    caplog.set_level("CRITICAL", "kafka")
    worker = {"checkpoint_events": 200, "checkpoint_seconds": 0.5, "session_timeout_seconds": 30}
    settings = settings_on(stack.kafka.bootstrap, stack.redis.url, worker, {"history": 80})
    with closing(Deployment(settings, tmp_path / "first")) as deployment:
        yield deployment
        stack.redis.start()
        stack.kafka.start()


def four_sites(jobs: int) -> list[AnyEvent]:
    return busy_sites(SITES, jobs)


def count(here: Deployment, events: list[AnyEvent]) -> int:
    """Return the number of predictions and outcomes of the events."""
    return sum(map(len, here.expected(events).values()))


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_log_lines_cannot_be_forged_by_events(deploy: Deploy, log_format: str) -> None:
    here, names = deploy(worker={"log_format": log_format}), (f"evil\n{FORGED}", "alder", "\x1b[2Jbirch\x9b")
    here.send(Submit(site=site, time=1.0, job="1") for site in names)
    here.worker.start()
    here.await_outputs(len(names))
    here.stop()
    here.worker.start()  # it logs the state from which each site continues
    here.send([Submit(site="alder", time=2.0, job="2")])
    here.await_outputs(len(names) + 1)
    here.stop()
    lines = here.log.splitlines()
    assert here.log.replace("\n", "").isprintable()
    if log_format == "text":
        assert not [line for line in lines if line.startswith(FORGED)]
        assert [line for line in lines if 'Restored site with 1 live jobs site="alder" partition=' in line]
        return
    logged = [json.loads(line) for line in lines]
    restored = [one for one in logged if one["message"] == "Restored site with 1 live jobs"]
    assert {one["site"] for one in restored} == {"alder"}, "the others are in the dead letters"
    assert {type(one["partition"]) for one in restored} == {type(one["offset"]) for one in restored} == {int}
    assert {one["instance"] for one in logged} == {here.worker.directory.name}
    assert {one["logger"].split(".")[0] for one in logged} >= {"streams", "faust", "mode", "aiokafka"}
    assert all(one["time"].endswith("+00:00") and one["level"] == "info" for one in logged if one["message"] == "ready")


@pytest.mark.parametrize(("late_after_seconds", "marked"), [(1.0, True), (600.0, False)])
def test_predictions_from_a_backlog_are_marked_and_unchanged(
    deploy: Deploy, late_after_seconds: float, marked: bool
) -> None:
    here, events = deploy(worker={"late_after_seconds": late_after_seconds}), simulated("alder", 60)
    here.send(events)
    time.sleep(1.0)  # so that all events are older than the shorter limit
    here.worker.start()
    here.await_outputs(count(here, events))
    metric_values = metrics(here.worker)
    here.stop()
    assert here.records() == here.expected(events)
    found = here.messages[here.topics.predictions]
    marks = [dict(message.headers) for message in found]
    assert [set(mark) for mark in marks] == [{"late"} if marked else set()] * len(found)
    assert all(int(mark["late"]) >= 1 for mark in marks if mark)
    assert metric_values["queuecast_late_predictions_total"][()] == (len(found) if marked else 0)
    assert not any(message.headers for message in here.messages[here.topics.outcomes])


def test_first_of_two_workers_with_one_name_ends_with_reason(deploy: Deploy, tmp_path: Path) -> None:
    here, events = deploy(), four_sites(40)
    first, second = parts(events, 2)
    here.worker.start()
    until(lambda: ready(here.worker))
    here.send(first)
    here.await_outputs(count(here, first))
    with WorkerProcess(tmp_path / "elsewhere" / here.worker.directory.name, here.settings) as namesake:
        until(lambda: not here.worker.running)
        name = here.worker.directory.name
        assert f"another worker was started as '{name}'; give each a worker.instance of its own" in here.log
        assert here.log.splitlines()[-1].startswith("queuecast: another worker was started as ")
        until(lambda: ready(namesake))
        here.send(second)
        here.await_outputs(count(here, events))
    here.read_all()
    assert {where: list(dict.fromkeys(values)) for where, values in here.records().items()} == here.expected(events)


@pytest.mark.parametrize("committed", ["gone", "left"])
def test_recreated_topic_is_read_from_its_beginning(deploy: Deploy, committed: str) -> None:
    here, events = deploy(), four_sites(60)
    first, second = events[: len(events) * 2 // 3], events[len(events) * 2 // 3 :]
    here.send(first)
    here.worker.start()
    here.await_outputs(count(here, first))
    here.stop()
    with KafkaAdminClient(**here.settings.kafka.client_options()) as client:
        before = client.list_group_offsets({here.topics.group: None})[here.topics.group]
        client.delete_topics([here.topics.events])
        until(lambda: not client.describe_topics([here.topics.events])[0]["partitions"])
        create_topics(here.settings)
        until(lambda: len(client.describe_topics([here.topics.events])[0]["partitions"]) == PARTITIONS)
        if committed == "left":
            places = {place: OffsetAndMetadata(old.offset, "", -1) for place, old in before.items()}
            assert any(old.offset for place, old in before.items() if place.topic == here.topics.events)
            client.alter_group_offsets(here.topics.group, places)
        else:
            client.delete_group_offsets(here.topics.group, [TopicPartition(here.topics.events, p) for p in range(4)])
    here.send(second)
    here.worker.start()
    here.await_outputs(count(here, events))
    metric_values = metrics(here.worker)
    here.worker.kill()
    here.worker.start()  # already in the new epoch
    until(lambda: ready(here.worker))
    again = metrics(here.worker)
    here.stop()
    assert {where: list(dict.fromkeys(values)) for where, values in here.records().items()} == here.expected(events)
    assert metric_values["queuecast_topic_recreations_total"]
    assert not again["queuecast_topic_recreations_total"]
    assert "the events topic was recreated or cut short" in here.log


def test_worker_log_during_kafka_outage_is_short(here: Deployment, stack: LocalStack) -> None:
    here.worker.start()
    until(lambda: ready(here.worker))
    before = len(here.log.splitlines())
    stack.kafka.kill()
    until(lambda: readiness(here.worker)[0] == 503)
    until(lambda: len(here.log.splitlines()) > before)
    time.sleep(10.0)  # enough for many lines if the worker logged each attempt
    logged = here.log.splitlines()[before:]
    assert metrics(here.worker)["queuecast_broker_up"][()] == 0
    assert 1 <= len(logged) <= 10, logged
    assert "Traceback" not in "".join(logged)
    stack.kafka.start()
    until(lambda: ready(here.worker))
    assert metrics(here.worker)["queuecast_broker_up"][()] == 1
    until(lambda: "like it)" in "".join(here.log.splitlines()[before:]))


def test_idle_worker_detects_a_hanging_redis(here: Deployment, stack: LocalStack) -> None:
    here.worker.start()
    until(lambda: ready(here.worker))
    os.kill(stack.redis.pid, signal.SIGSTOP)
    try:
        until(lambda: readiness(here.worker) == (503, "redis: no answer within 1 s\n"))
        assert metrics(here.worker)["queuecast_redis_up"][()] == 0
    finally:
        os.kill(stack.redis.pid, signal.SIGCONT)
    until(lambda: ready(here.worker))
    assert metrics(here.worker)["queuecast_redis_up"][()] == 1


def test_worker_started_before_its_servers_waits_for_them(here: Deployment, stack: LocalStack, tmp_path: Path) -> None:
    stack.kafka.kill()
    stack.redis.kill()
    config = tmp_path / "queuecast.toml"
    config.write_text(as_toml(here.settings))

    def worker(**environment: str) -> Command:
        given = {f"QUEUECAST_{name}": value for name, value in environment.items()}
        return Command(tmp_path, "--config", str(config), "worker", QUEUECAST_WORKER_WEB_PORT=port, **given)

    port = str(here.worker.port)
    with worker(WORKER_STARTUP_TIMEOUT_SECONDS="1") as gives_up:
        assert gives_up.ended() == 1
        assert gives_up.err.splitlines()[-1].startswith("queuecast: kafka: no broker answers at ")
    with worker() as waits:
        for server, what in (
            (stack.kafka, "Waiting for server: kafka: "),
            (stack.redis, "Waiting for server: redis at "),
        ):
            until(lambda what=what: what in waits.err)  # type: ignore[misc]
            server.start()
        until(lambda: "Worker ready" in waits.err)
        assert waits.ended(signal.SIGTERM) == 0
        assert "Traceback" not in waits.err


def test_worker_ended_by_force_leaves_no_files(here: Deployment, stack: LocalStack) -> None:
    def scratch() -> list[Any]:
        return list(here.worker.directory.glob("queuecast-*"))

    here.worker.start()
    until(lambda: ready(here.worker))
    assert scratch()
    servers = (stack.redis, stack.kafka)
    for server in servers:  # after a kill of the servers the worker could still stop normally
        os.kill(server.pid, signal.SIGSTOP)
    try:
        until(lambda: readiness(here.worker)[0] == 503)
        os.kill(here.worker.pid, signal.SIGTERM)
        until(lambda: not here.worker.running)
    finally:
        for server in servers:
            os.kill(server.pid, signal.SIGCONT)
    assert "not stopped within" in here.log
    assert not scratch()
