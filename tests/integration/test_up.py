"""`queuecast up` as a process: its messages, its stored data, and its restarts of servers."""

import json
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from kafka import KafkaProducer

from deploy.local.stack import Prometheus, free_port
from models.records import AnyEvent, Start, Submit
from streams.broker.topics import Topics
from streams.settings import Settings, load_settings
from tests.support.command import PATIENCE_S, Command

pytestmark = [pytest.mark.usefixtures("require_stack"), pytest.mark.long]

SUBMIT = Submit(site="a", time=1000.0, job="1", cpus=4, walltime=3600.0)
START = Start(site="a", time=1060.0, job="1")


class Stack(Command):
    """A `queuecast up` with a data directory."""

    def __init__(self, tmp: Path, *arguments: str) -> None:
        ports = () if "--kafka-port" in arguments else ports_of(tmp)
        own = {"QUEUECAST_ENGINE_METHOD": "median", "XDG_STATE_HOME": str(tmp / "state")}
        super().__init__(tmp, "up", "--data-dir", str(tmp / "data"), *ports, *arguments, **own)
        self.config = tmp / "data" / "queuecast.toml"

    @property
    def settings(self) -> Settings:
        """Return the settings that it prints."""
        assert f"export QUEUECAST_CONFIG={self.config}\n" in self.out
        return load_settings(self.config, {})

    def send(self, event: AnyEvent) -> None:
        """Send an event to its topic."""
        producer = KafkaProducer(**self.settings.kafka.client_options())
        topic = Topics(self.settings.kafka.prefix).events
        producer.send(topic, value=msgspec.json.encode(event), key=event.site.encode()).get(timeout=PATIENCE_S)
        producer.close()

    def watched(self, count: int) -> list[dict[str, Any]]:
        """Return the first records of the topics, after `count` have arrived."""
        command = ["--config", str(self.config), "watch", "--outcomes", "--from-beginning", "--json", "--count"]
        done = subprocess.run(
            [sys.executable, "-m", "queuecast", *command, str(count)],
            capture_output=True,
            timeout=PATIENCE_S,
            check=True,
        )
        return [json.loads(line) for line in done.stdout.splitlines()]

    def found(self) -> str:
        """Return the output of `credentials` without settings."""
        command = Command(self.tmp.parent, "credentials", XDG_STATE_HOME=str(self.tmp.parent / "state"))
        assert command.process.wait(PATIENCE_S) == 0, command.err
        return command.out

    def where(self, name: str) -> str:
        """Return the printed address of a server."""
        return next(line.removeprefix(f"  {name}").strip() for line in self.out.splitlines() if f"  {name}  " in line)


def ports_of(tmp: Path) -> list[str]:
    """Return fixed ports of this test: other programs on this machine may use the default ports."""
    noted = tmp / "ports"
    if not noted.exists():
        noted.write_text(" ".join(f"--{name}-port {free_port()}" for name in ("kafka", "redis", "serve")))
    return noted.read_text().split()


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Callable[..., Stack]]:
    started: list[Stack] = []

    def start(*arguments: str) -> Stack:
        started.append(Stack(tmp_path, *arguments))
        return started[-1]

    yield start
    for stack in started:
        stack.__exit__()


def page(url: str) -> str:
    with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
        text: str = answer.read().decode()
    return text


def test_data_survive_a_restart(up: Callable[..., Stack]) -> None:
    first = up()
    first.until("Ctrl-C stops it.")
    first.send(SUBMIT)
    (prediction,) = first.watched(1)
    assert (prediction["job"], prediction["reason"]) == ("1", "no history")
    kafka = first.settings.kafka.bootstrap
    assert f"Kafka    {kafka}" in first.found()
    assert first.ended(signal.SIGINT) == 0
    assert "the data is kept" in first.out
    assert str(first.config) not in first.found()
    assert not list(first.tmp.iterdir())

    second = up()
    second.until("Ctrl-C stops it.")
    assert second.settings.kafka.bootstrap == kafka
    second.send(START)
    outcome = next(record for record in second.watched(2) if "actual_wait_s" in record)
    assert (outcome["job"], outcome["made_at"], outcome["actual_wait_s"]) == ("1", 1000.0, 60.0)
    assert second.ended(signal.SIGTERM) == 0


def test_dead_worker_is_restarted_and_seen_by_prometheus(up: Callable[..., Stack]) -> None:
    stack = up()
    stack.until("Ctrl-C stops it.")
    stack.child("queuecast", "worker").kill()
    stack.until("worker ended, see")
    stack.until("worker restarted")
    stack.send(SUBMIT)
    assert stack.watched(1)[0]["job"] == "1"
    assert "queuecast_predictions_total" in page(stack.where("Worker"))
    if not Prometheus.available():
        assert stack.where("Prometheus") == "not installed, so left out"
    else:
        deadline = time.monotonic() + PATIENCE_S
        query = f"{stack.where('Prometheus')}/api/v1/query?query=queuecast_predictions_total"
        while not json.loads(page(query))["data"]["result"]:
            assert time.monotonic() < deadline, "Prometheus has not seen the worker's metrics"
            time.sleep(0.2)
    assert stack.ended(signal.SIGINT) == 0


@pytest.mark.parametrize(("option", "name"), [("--kafka-port", "Kafka"), ("--serve-port", "serve")])
def test_up_with_busy_port_fails_in_one_line_before_start(up: Callable[..., Stack], option: str, name: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        stack = up(option, str(port))
        assert stack.ended() == 1
    assert "starting" not in stack.err
    last = stack.err.splitlines()[-1]
    assert last == f"queuecast: {name}: port {port} of 127.0.0.1 is in use; free it or choose another"
    assert "Traceback" not in stack.err


def test_up_with_directory_in_use_fails_in_one_line(up: Callable[..., Stack]) -> None:
    stack = up()
    stack.until("Ctrl-C stops it.")
    second = up()
    assert second.ended() == 1
    assert "is in use by another running instance" in second.err.splitlines()[-1]
    assert stack.process.poll() is None
    assert stack.ended(signal.SIGINT) == 0
