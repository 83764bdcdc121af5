import json
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
import redis
from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import NewTopic
from kafka.errors import KafkaTimeoutError

from deploy.local.stack import (
    Kafka,
    LocalStack,
    Ports,
    Prometheus,
    Redis,
    StackError,
    StackUnavailable,
)
from deploy.local.stack.locks import USER
from tests.support.command import PATIENCE_S, alive
from tests.support.deployment import until
from tests.support.topic_messages import messages_of


def create_topic(bootstrap: str, topic: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=1)])
    admin.close()


def produce(bootstrap: str, topic: str, value: bytes) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all")
    producer.send(topic, value).get(timeout=PATIENCE_S)
    producer.close()


def consume(bootstrap: str, topic: str, **login: str) -> list[bytes]:
    return [message.value for message in messages_of({"bootstrap_servers": bootstrap, **login}, topic)]


@pytest.mark.stack
def test_acknowledged_data_survive_stop_and_kill(local_stack: LocalStack) -> None:
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
def test_kafka_does_not_create_topics_automatically(local_stack: LocalStack) -> None:
    admin = KafkaAdminClient(bootstrap_servers=local_stack.kafka.bootstrap)
    producer = KafkaProducer(bootstrap_servers=local_stack.kafka.bootstrap, max_block_ms=500)
    with pytest.raises(KafkaTimeoutError):
        producer.send("typo", b"")
    producer.close()
    assert "typo" not in admin.list_topics()
    admin.close()


@pytest.mark.stack
def test_locked_stack_keeps_data_of_open_stack(require_stack: None, tmp_path: Path) -> None:
    with LocalStack(tmp_path) as open_to_all:
        create_topic(open_to_all.kafka.bootstrap, "kept")
        produce(open_to_all.kafka.bootstrap, "kept", b"value")
        with redis.Redis.from_url(open_to_all.redis.url) as store:
            store.hset("queuecast:kept", "a", "value")
    with LocalStack(tmp_path, locked=True) as locked:
        login = {"sasl_mechanism": "PLAIN", "sasl_plain_username": USER}
        login |= {"security_protocol": "SASL_PLAINTEXT", "sasl_plain_password": str(locked.kafka_password)}
        assert consume(locked.kafka.bootstrap, "kept", **login) == [b"value"]
        with redis.Redis.from_url(locked.redis.url) as store:
            assert store.hget("queuecast:kept", "a") == b"value"


# Start a stack as a program does, print its addresses, and wait for its end.
PROGRAM = """
import json, sys, time
from pathlib import Path
from deploy.local.stack import LocalStack, Redis

stack = LocalStack(Path(sys.argv[1]))
stack.redis = Redis(stack.data_dir / "redis", password="s'il te plaît")
with stack:
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
def test_servers_end_with_killed_program_and_keep_data(require_stack: None, tmp_path: Path) -> None:
    data_dir = tmp_path / "données, et plus"
    program, pids, bootstrap, url = run_program(data_dir)
    create_topic(bootstrap, "kept")
    produce(bootstrap, "kept", b"value")
    with redis.Redis.from_url(url) as store:
        store.set("kept", "value")
    assert all(map(alive, pids))
    program.kill()  # the program cannot handle this signal
    program.wait()
    until(lambda: not any(map(alive, pids)))

    program, pids, *again = run_program(data_dir)
    assert again == [bootstrap, url]
    assert consume(bootstrap, "kept") == [b"value"]
    with redis.Redis.from_url(url) as store:
        assert store.get("kept") == b"value"
    program.terminate()
    assert program.wait(PATIENCE_S) == 128 + signal.SIGTERM
    assert not any(map(alive, pids))
    assert (data_dir / "kafka" / "data" / ".kafka_cleanshutdown").exists()


@pytest.mark.stack
def test_stack_start_failure_stops_servers_and_removes_data(require_stack: None, busy_port: int) -> None:
    stack, started = LocalStack(ports=Ports(kafka=busy_port)), list[int]()
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
def test_kafka_properties_override_defaults(require_stack: None, tmp_path: Path) -> None:
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
def test_redis_starts_without_installed_locale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    demanding = tmp_path / "redis-server"  # as Redis 8 without C.UTF-8
    demanding.write_text(f'#!/bin/sh\n[ "$LC_ALL" = C ] || exit 1\nexec {Redis.executable()} "$@"\n')
    demanding.chmod(0o755)
    monkeypatch.setattr(Redis, "executable", staticmethod(lambda: str(demanding)))
    with Redis(tmp_path / "data") as server, redis.Redis.from_url(server.url) as store:
        assert store.ping()


@pytest.mark.stack
@pytest.mark.skipif(not Prometheus.available(), reason="Prometheus is not installed")
def test_prometheus_scrapes_itself_and_links_runbook(tmp_path: Path) -> None:
    def up(server: Prometheus, address: str) -> bool:
        query = f"{server.url}/api/v1/query?query=up%7Bjob%3D%22self%22%2Cinstance%3D%22{address}%22%7D"
        with urllib.request.urlopen(query) as answer:
            return [sample["value"][1] for sample in json.load(answer)["data"]["result"]] == ["1"]

    with Prometheus(tmp_path, interval=0.2) as server:
        server.scrape({"self": [server.address]}, "http://127.0.0.1:7777/")
        until(lambda: up(server, server.address))
        with urllib.request.urlopen(f"{server.url}/api/v1/rules?type=alert") as answer:
            groups = json.load(answer)["data"]["groups"]
        links = [rule["annotations"]["runbook_url"] for group in groups for rule in group["rules"]]
        assert links and all(link.startswith("http://127.0.0.1:7777/alerts#") for link in links)
    with Prometheus(tmp_path, interval=0.2, targets={"self": [server.address]}) as again:
        assert again.url == server.url
        until(lambda: up(again, again.address))


def test_prometheus_is_optional(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not Prometheus.available()
    with pytest.raises(StackUnavailable, match="Prometheus is not installed"):
        Prometheus(tmp_path).start()
