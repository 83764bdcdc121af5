"""Event rate of the default worker, with one and two processes, compared with a bare Faust loop.

`TESTS_SPEED_JOBS` is the number of jobs of each of the four sites, each with its own partition.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import quantiles
from typing import Any

import msgspec
import pytest
from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition

from models.records import AnyEvent, Capacity, Submit
from tests.support.deployment import PARTITIONS, Deploy, Deployment, busy_sites, ready, sites, until

pytestmark = pytest.mark.timeout(3600)

SITES = ("alder", "birch", "hazel", "rowan")
JOBS = int(os.environ.get("TESTS_SPEED_JOBS", "1500"))
PROCESSES = (1, 2)
LEAST_RATIO = 0.1
"""Minimum ratio to the bare loop's rate; the target is 0.6 with one process. Measured values are printed."""

PACE = 300
"""Events a second at which the latency is measured."""

PACED_S = 8

SETTLING_IN_S = 4
"""Warm-up time at that pace, for first-time work of both programs (s)."""


@pytest.fixture(scope="module")
def events() -> list[AnyEvent]:
    """Return the events of four busy sites, about three per job."""
    return busy_sites(SITES, JOBS)


@contextmanager
def bare_loop(here: Deployment, directory: Path, script: str = "bare_loop.py") -> Iterator["subprocess.Popen[bytes]"]:
    """Run a bare loop as a process, killed at the end, as a normal stop may take minutes."""
    prefix, bootstrap = here.settings.kafka.prefix, here.settings.kafka.bootstrap
    client = KafkaAdminClient(**here.settings.kafka.client_options())
    names = (f"{prefix}bare-outputs", f"{prefix}bare-last-changelog")
    client.create_topics({name: {"num_partitions": PARTITIONS} for name in names}, wait_for_metadata=True)
    client.close()
    program = Path(__file__).parent / script
    process = subprocess.Popen([sys.executable, program, bootstrap, prefix, str(PARTITIONS), directory])
    try:
        yield process
    finally:
        process.kill()
        process.wait()


class Outputs:
    """Read topics from their beginnings."""

    def __init__(self, here: Deployment, *topics: str) -> None:
        self._consumer = KafkaConsumer(**here.settings.kafka.client_options(), auto_offset_reset="earliest")
        self._consumer.assign([TopicPartition(topic, part) for topic in topics for part in range(PARTITIONS)])
        self.messages: list[Any] = []

    def read(self) -> list[Any]:
        """Return the new messages."""
        new = [message for batch in self._consumer.poll(timeout_ms=50).values() for message in batch]
        self.messages += new
        return new

    def await_count(self, count: int, topic: str) -> None:
        """Read until a topic has this number of records."""
        until(lambda: bool(self.read()) and sum(message.topic == topic for message in self.messages) >= count)

    @property
    def written(self) -> int:
        """Return the present number of records, read or not."""
        return sum(self._consumer.end_offsets(self._consumer.assignment()).values())

    @property
    def seconds(self) -> float:
        """Time from the first to the last record (s)."""
        stamps: list[int] = [message.timestamp for message in self.messages]
        return (max(stamps) - min(stamps)) / 1000


def test_worker_event_rate_is_near_bare_loop(deploy: Deploy, events: list[AnyEvent], tmp_path: Path) -> None:
    rates: dict[int, list[float]] = {0: []} | {processes: [] for processes in PROCESSES}
    left = sum(not isinstance(event, (Capacity, Submit)) for event in events)  # each has one outcome
    for turn, processes in enumerate((*PROCESSES, *PROCESSES)):
        worker = {"checkpoint_events": 1000, "checkpoint_seconds": 2.0, "processes": processes}
        here = deploy(history=6000, worker=worker)
        here.worker.start()
        until(partial(ready, here.worker))  # each process has its partitions, and gets them again after a restart
        here.worker.kill()
        here.send(events)
        with bare_loop(here, tmp_path / f"bare-{turn}"):
            outputs = Outputs(here, topic := f"{here.settings.kafka.prefix}bare-outputs")
            outputs.await_count(len(events), topic)
            rates[0].append(len(events) / outputs.seconds)
        here.worker.start()
        outputs = Outputs(here, here.topics.predictions, here.topics.outcomes)
        outputs.await_count(left, here.topics.outcomes)
        rates[processes].append(len(events) / outputs.seconds)
        here.worker.kill()
    bare = max(rates[0])
    print(f"\nbare loop {bare:.0f} events/s")
    for processes in PROCESSES:
        rate = max(rates[processes])
        print(f"worker of {processes}: {rate:.0f} events/s: ratio {rate / bare:.2f}")
    assert max(rates[1]) >= LEAST_RATIO * bare


def paced(here: Deployment, events: list[AnyEvent], topic: str, key: Callable[[bytes], Any]) -> list[float]:
    """Send events evenly; return the time from each submit to its first record by `key` (s).

    Later estimates of a job follow its prediction in the same topic.
    """
    outputs, sent = Outputs(here, topic), dict[Any, float]()
    begin = time.monotonic()
    for number, event in enumerate(events):
        time.sleep(max(begin + number / PACE - time.monotonic(), 0.0))
        value = msgspec.json.encode(event)
        if isinstance(event, Submit):
            sent[key(value)] = time.time()
        here.producer.send(here.topics.events, key=event.site.encode(), value=value)
        here.producer.flush(timeout=30)
    arrived: dict[Any, float] = {}

    def all_there() -> bool:
        for message in outputs.read():
            arrived.setdefault(key(message.value), message.timestamp / 1000)
        return sent.keys() <= arrived.keys()

    until(all_there)
    return [arrived[which] - at for which, at in sent.items()]


def of_job(value: bytes) -> Any:
    """Return the key of a submit event and of its prediction."""
    record = msgspec.json.decode(value)
    return record["site"], record.get("job"), record.get("type", "submit")


def test_worker_latency_is_compared_with_bare_loop(deploy: Deploy, events: list[AnyEvent], tmp_path: Path) -> None:
    first, some = events[: PACE * SETTLING_IN_S], events[PACE * SETTLING_IN_S :][: PACE * PACED_S]
    here = deploy(history=6000)
    with bare_loop(here, tmp_path / "bare"):
        here.send(events[-1:])
        topic = f"{here.settings.kafka.prefix}bare-outputs"
        Outputs(here, topic).await_count(1, topic)
        paced(here, first, topic, of_job)
        bare = paced(here, some, topic, of_job)
    here = deploy(history=6000)
    here.worker.start()
    here.send(events[-1:])
    until(lambda: bool(sites(here.worker)))  # the worker has joined its group
    paced(here, first, here.topics.predictions, of_job)
    ours = paced(here, some, here.topics.predictions, of_job)
    (bare_50, bare_99), (our_50, our_99) = (percentiles(latencies) for latencies in (bare, ours))
    print(f"\nbare loop p50 {bare_50:.1f} ms, p99 {bare_99:.1f} ms; worker p50 {our_50:.1f} ms, p99 {our_99:.1f} ms")
    assert len(ours) == len(bare) > 0


def percentiles(seconds: list[float]) -> tuple[float, float]:
    """Return the median and the 99th percentile (ms)."""
    cuts = quantiles(seconds, n=100)
    return 1000 * cuts[49], 1000 * cuts[98]
