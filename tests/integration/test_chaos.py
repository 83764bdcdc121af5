"""Workers, Kafka and Redis are killed, paused and restarted while events arrive: the outputs equal a replay.

A longer run, on real traces: `TESTS_CHAOS_SECONDS=600 pytest tests/integration/test_chaos.py`. Another schedule of
faults: TESTS_CHAOS_SEED.
"""

import os
import random
import signal
import socketserver
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from deploy.local.stack import LocalStack, StackError
from deploy.local.stack.process import Server
from deploy.local.up import WorkerProcess
from models.records import AnyEvent
from streams.sources.swf import read_swf
from tests.support.deployment import (
    PARTITIONS,
    Deployment,
    RecordsByKey,
    busy_sites,
    engine_after,
    metrics,
    parts,
    readiness,
    ready,
    settings_on,
    sites,
    unique,
    until,
)
from tests.support.topic_messages import unread_messages
from tests.support.traces import fed, trace_path

pytestmark = pytest.mark.timeout(3600)

SECONDS = float(os.environ.get("TESTS_CHAOS_SECONDS", "20"))
SEED = int(os.environ.get("TESTS_CHAOS_SEED", "1"))
LONG = SECONDS >= 60
SESSION_S = 30.0
"""Half of it is much longer than any stall of a worker on a busy machine."""

ASLEEP_SESSION_S = 12.0
"""For tests in which a worker loses its membership: as short as a busy machine allows."""

MAX_PAUSE_S = 2.4
MAX_WAIT_S = 600.0
SITES = ("alder", "birch", "cedar", "oak")

_encode = msgspec.json.Encoder().encode


@pytest.fixture
def session_s() -> float:
    return SESSION_S


@pytest.fixture
def here(stack: LocalStack, tmp_path: Path, caplog: pytest.LogCaptureFixture, session_s: float) -> Iterator[Deployment]:
    caplog.set_level("CRITICAL", "kafka")
    worker = {"checkpoint_events": 200, "checkpoint_seconds": 1.0, "session_timeout_seconds": session_s}
    settings = settings_on(stack.kafka.bootstrap, stack.redis.url, worker, {"history": 600 if LONG else 150})
    with closing(Deployment(settings, tmp_path / "first")) as deployment:
        yield deployment


def workload() -> list[AnyEvent]:
    if not LONG:
        return four_sites(200)
    names = ("CTC", "KTH", "SDSC-SP2", "SDSC-BLUE")
    return fed(read_swf(trace_path(name)).first(int(15 * SECONDS)) for name in names)


def four_sites(jobs: int) -> list[AnyEvent]:
    return busy_sites(SITES, jobs)


def as_if_nothing_had_happened(here: Deployment, events: list[AnyEvent], expected: RecordsByKey) -> None:
    """Check that distinct outputs and stored entries equal a replay."""
    here.read_all()
    assert {where: unique(values) for where, values in here.records().items()} == expected
    for site in {event.site for event in events}:
        assert here.stored(site) == here.expected_in_redis(events, site)


class Feeder(threading.Thread):
    """Send events evenly over some seconds, in order and once each, during all faults of the broker."""

    def __init__(self, here: Deployment, events: list[AnyEvent], seconds: float) -> None:
        super().__init__(daemon=True)
        self._events, self._seconds = events, seconds
        self._topic = here.topics.events
        self._producer = KafkaProducer(
            **here.settings.kafka.client_options(),
            acks="all",
            enable_idempotence=True,
            linger_ms=5,
            delivery_timeout_ms=600_000,
            request_timeout_ms=5_000,
            max_block_ms=600_000,
        )
        self.accepted = 0

    def run(self) -> None:
        began, pause = time.monotonic(), self._seconds / len(self._events)
        sent = []
        for number, event in enumerate(self._events):
            time.sleep(max(began + number * pause - time.monotonic(), 0.0))
            sent.append(self._producer.send(self._topic, key=event.site.encode(), value=_encode(event)))
        self._producer.flush(timeout=600)
        self.accepted = sum(one.succeeded() for one in sent)
        self._producer.close(timeout=1)


@dataclass
class Crew:
    """Workers that restart when they end, as under systemd, with a log of the faults."""

    workers: list[WorkerProcess]
    wanted: set[int] = field(default_factory=set)
    killed: set[int] = field(default_factory=set)
    lines: list[str] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)

    def record(self, what: str) -> None:
        self.lines.append(f"{time.monotonic() - self.began:6.1f} s  {what}")

    def look(self) -> None:
        """Start workers that should run, and record workers that ended by themselves."""
        for number in self.wanted:
            self._start(number)

    def _start(self, number: int) -> None:
        worker = self.workers[number]
        if worker.running:
            return
        try:
            worker.start()
            self.killed.discard(number)
        except StackError as error:
            self.killed.add(number)
            self.record(f"worker {number} did not start: {str(error).splitlines()[-1]}")

    def check(self) -> None:
        """Record a worker that ended without being killed."""
        for number in self.wanted:
            worker = self.workers[number]
            if not worker.running and number not in self.killed:
                self.killed.add(number)
                last = worker.log.read_text().rpartition("[^Worker]: Starting")[2]
                if "Worker ready" in last:  # otherwise a server was lost during its start, which ends it
                    self.ended.append(f"worker {number} at {time.monotonic() - self.began:.1f} s")
                self.record(f"worker {number} has ended by itself")


class Chaos:
    """A seeded schedule of faults."""

    def __init__(self, seed: int, stack: LocalStack, crew: Crew) -> None:
        self._dice = random.Random(seed)
        self._stack = stack
        self._crew = crew
        self.kills = 0

    def go_on(self, seconds: float) -> None:
        """Inject faults for this time (s)."""
        strikes = (self._kill_worker, self._kill_servers, self._pause, self._join_or_leave)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self._dice.choices(strikes, weights=(8, 3, 3, 2))[0]()
            self._rest(self._dice.uniform(0.5, 5.0 if LONG else 2.0))

    def _kill_worker(self) -> None:
        number = self._dice.choice(sorted(self._crew.wanted))
        self._crew.check()
        self._crew.record(f"worker {number} is killed")
        self._crew.killed.add(number)
        self._crew.workers[number].kill()
        self.kills += 1

    def _kill_servers(self) -> None:
        dice, stack = self._dice, self._stack
        for server in dice.sample([stack.kafka, stack.redis], dice.choice((1, 1, 2))):
            self._crew.record(f"{server.name} is killed")
            server.kill()
        self._rest(dice.uniform(0.5, 4.0))
        stack.redis.start()
        stack.kafka.start()
        self._crew.record("Kafka and Redis run")

    def _pause(self) -> None:
        workers = [self._crew.workers[number] for number in sorted(self._crew.wanted)]
        server: Server = self._dice.choice([self._stack.kafka, self._stack.redis, *workers])
        seconds = self._dice.uniform(0.5, MAX_PAUSE_S)
        if server.running:
            self._crew.record(f"{server.name} stands still for {seconds:.1f} s")
            os.kill(server.pid, signal.SIGSTOP)
            time.sleep(seconds)
            os.kill(server.pid, signal.SIGCONT)

    def _join_or_leave(self) -> None:
        crew = self._crew
        if crew.wanted == {0}:
            crew.record("worker 1 joins")
            crew.killed.add(1)
            crew.wanted.add(1)
        else:
            crew.check()
            crew.record("worker 1 leaves")
            crew.wanted.discard(1)
            crew.workers[1].stop()

    def _rest(self, seconds: float) -> None:
        time.sleep(seconds)
        self._crew.check()
        self._crew.look()


@pytest.mark.long
def test_chaos_of_kills_and_pauses_loses_and_changes_no_record(
    here: Deployment, stack: LocalStack, tmp_path: Path
) -> None:
    events = workload()
    expected = here.expected(events)
    second = WorkerProcess(tmp_path / "second", here.settings)
    crew = Crew([here.worker, second], {0})
    crew.look()
    chaos = Chaos(SEED, stack, crew)
    feeder = Feeder(here, events, SECONDS)
    crew.record("feeding begins")
    try:
        feeder.start()
        chaos.go_on(SECONDS)
        crew.record("calm")
        feeder.join(MAX_WAIT_S)
        assert feeder.accepted == len(events)
        here.await_outputs(sum(map(len, expected.values())), MAX_WAIT_S)
        crew.check()
        for worker in crew.workers:
            worker.stop()
        as_if_nothing_had_happened(here, events, expected)
        assert not crew.ended
    finally:
        second.kill()
        print(f"TESTS_CHAOS_SEED={SEED} TESTS_CHAOS_SECONDS={SECONDS:g}: {chaos.kills} workers killed")
        print("\n".join(crew.lines))


@pytest.mark.long
def test_worker_without_kafka_or_redis_is_unready_and_stops(here: Deployment, stack: LocalStack) -> None:
    events = four_sites(60)
    expected = here.expected(events)
    first, second, third = parts(events, 3)
    here.worker.start()
    until(lambda: ready(here.worker))
    pid = here.worker.pid

    here.send(first)
    stack.kafka.kill()
    until(lambda: readiness(here.worker) == (503, f"no broker answers at {stack.kafka.bootstrap}\n"))
    stack.kafka.start()
    until(lambda: ready(here.worker))

    stack.redis.kill()
    here.send(second)
    until(lambda: readiness(here.worker)[0] == 503)
    assert "redis: " in readiness(here.worker)[1]
    stack.redis.start()
    until(lambda: ready(here.worker))
    assert here.worker.pid == pid

    stack.redis.kill()
    here.send(third)
    stack.kafka.kill()
    os.kill(pid, signal.SIGTERM)
    until(lambda: not here.worker.running)
    stack.redis.start()
    stack.kafka.start()
    here.worker.start()
    here.await_outputs(sum(map(len, expected.values())))
    here.worker.stop()
    as_if_nothing_had_happened(here, events, expected)


@pytest.mark.parametrize("session_s", [ASLEEP_SESSION_S])
@pytest.mark.long
def test_worker_suspended_during_takeover_ends_without_writes(here: Deployment, tmp_path: Path) -> None:
    events = four_sites(120)
    expected = here.expected(events)
    first, second, third = parts(events, 3)
    here.worker.start()
    here.send(first)
    until(lambda: len(sites(here.worker)) == 4)
    here.send(second)  # partly in processing, partly unread
    pid = here.worker.pid
    os.kill(pid, signal.SIGSTOP)
    with WorkerProcess(tmp_path / "second", here.settings) as other:
        until(lambda: len(sites(other)) == 4)
        here.send(third)
        here.await_outputs(sum(map(len, expected.values())))
        os.kill(pid, signal.SIGCONT)
        until(lambda: not here.worker.running)
        assert here.log.count("] streams.worker.faust_compat: Stopping the worker: this process stood still") == 1
        assert "Traceback" not in here.log and "Event loop is closed" not in here.log
        until(lambda: ready(other))
    with closing(KafkaConsumer(**here.settings.kafka.client_options(), auto_offset_reset="earliest")) as changelog:
        changelog.assign([TopicPartition(here.topics.state, part) for part in range(PARTITIONS)])
        oldest = {m.key: m for m in reversed([*unread_messages(changelog)])}
    for late in oldest.values():  # as a record in flight at the time of the suspension
        here.producer.send(here.topics.state, key=late.key, value=late.value, partition=late.partition)
    here.producer.flush(timeout=30)
    here.worker.start()  # it reads the stored states
    counts = {
        site: engine_after(events, site, here.settings.engine).events for site in ("alder", "birch", "cedar", "oak")
    }
    until(lambda: {s: n for (s,), n in metrics(here.worker)["queuecast_events_total"].items()} == counts)
    here.worker.stop()
    as_if_nothing_had_happened(here, events, expected)


@pytest.mark.long
def test_broker_that_closes_connections_ends_start_with_one_line(stack: LocalStack, here: Deployment) -> None:
    with ThreadPoolExecutor(1) as beside:
        starting = beside.submit(here.worker.start)
        until(lambda: here.worker.running and "Compiled kernels in" in here.log)
        stack.kafka.kill()
        with closing_at(stack.kafka.bootstrap):
            until(starting.done)
            assert isinstance(starting.exception(), StackError)
    stack.kafka.start()
    assert not here.worker.running
    assert here.log.splitlines()[-1].startswith(f"queuecast: kafka at {stack.kafka.bootstrap}: the broker closed")
    assert "Traceback" not in here.log and "Event loop is closed" not in here.log


@contextmanager
def closing_at(address: str) -> Iterator[None]:
    """A server at this address that closes each connection immediately."""
    host, port = address.split(":")
    with socketserver.ThreadingTCPServer((host, int(port)), socketserver.BaseRequestHandler, False) as server:
        server.allow_reuse_address = True
        until(lambda: bound(server))
        server.server_activate()
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()


def bound(server: socketserver.TCPServer) -> bool:
    """Return True if the server has its address, released by another server."""
    with suppress(OSError):
        server.server_bind()
        return True
    return False
