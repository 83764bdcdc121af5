"""Kafka with TLS, SASL and permissions, Redis with TLS and a password: who may work there, and what others are told."""

import re
import signal
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager

import msgspec
import psutil
import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, ResourceType
from kafka.errors import KafkaError

from deploy.local.stack.process import LOOPBACK
from models.records import DeadLetter, Submit
from tests.support.command import Command
from tests.support.deployment import until
from tests.support.doors import Doors, assert_no_secrets, permissions

pytestmark = pytest.mark.long


def listening(command: Command) -> set[str]:
    """The addresses at which a command listens."""
    return {found.laddr.ip for found in command.process.net_connections() if found.status == psutil.CONN_LISTEN}


def page(port: str) -> str:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"http://{LOOPBACK}:{port}/metrics", timeout=60) as answer:
        return str(answer.read(), "utf-8")


def test_who_may_come_in_can_work(doors: Doors) -> None:
    assert doors.run("ingest", "ingest", str(doors.trace))[0] == 0
    with doors.command("worker", "worker", "--log-level", "debug") as worker:
        code, out, err = doors.run("reader", "watch", "--from-beginning", "--outcomes", "--count", "60")
        assert code == 0 and (not err or err.startswith("Waiting for predictions; none received yet")), err
        assert len(out.splitlines()) == 60
        assert listening(worker) == {LOOPBACK}
        asked = doors.run("client", "ask", "--cpus", "2", "--walltime", "1h", SERVE_ANSWER_TIMEOUT_SECONDS="60")
        assert asked[0] == 0 and "made" in asked[1], asked
        assert_no_secrets(page(doors.web_port))
        worker_ends(worker)


def test_a_worker_is_open_to_others_only_when_told(doors: Doors) -> None:
    with doors.command("worker", "worker", WORKER_WEB_HOST="0.0.0.0") as worker:
        until(lambda: bool(listening(worker)))
        assert listening(worker) == {"0.0.0.0"}
        until(lambda: 'queuecast_events_total{site="made"}' in page(doors.web_port))
        worker_ends(worker)


def worker_ends(worker: Command) -> None:
    """It stops when told to, and has said nothing that it should not."""
    assert worker.ended(signal.SIGTERM) == 0
    assert_no_secrets(worker.out + worker.err)
    assert "Traceback" not in worker.out + worker.err


def test_a_wrong_password_is_told(doors: Doors) -> None:
    said = doors.refusal("worker", "worker", KAFKA_PASSWORD="wr0ng")
    assert re.search(r"user 'worker'.*; is it this username, this password", said)


def test_a_broker_of_another_authority_is_not_talked_to(doors: Doors) -> None:
    said = doors.refusal("admin", "topics", "create", KAFKA_CA_FILE=str(doors.stranger))
    assert "its certificate is not trusted: " in said
    assert "is ca_file the authority that signed it?" in said


@pytest.mark.parametrize(
    ("user", "arguments", "said"),
    [
        ("reader", ["topics", "create"], "user 'reader' may not make queuecast.events"),
        ("stranger", ["ingest", "made.swf"], "user 'stranger' may not see queuecast.events"),
        ("worker", ["ingest", "made.swf"], "user 'worker' may not write to queuecast.events"),
        ("worker", ["watch"], "user 'worker' may not read queuecast.predictions"),
        ("ingest", ["watch"], "user 'ingest' may not see queuecast.predictions"),
        ("reader", ["worker"], "user 'reader' may not see queuecast."),
        ("ingest", ["ask", "--cpus", "2"], "user 'ingest' may not see queuecast."),
        ("admin", ["worker"], "user 'admin' may not read queuecast.events"),
    ],
)
def test_what_is_not_permitted_is_told(doors: Doors, user: str, arguments: list[str], said: str) -> None:
    assert said in doors.refusal(user, *arguments)


def test_who_has_a_topic_of_its_own_speaks_for_its_site_alone(doors: Doors) -> None:
    assert doors.run("source", "ingest", str(doors.trace), "--site", "alder")[0] == 0
    for site, topic in (("birch", "queuecast.events.birch"), ("made", "queuecast.events")):
        assert f"user 'source' may not see {topic}" in doors.refusal(
            "source", "ingest", str(doors.trace), "--site", site
        )
    assert "may not see queuecast.events.alder" in doors.refusal(
        "ingest", "ingest", str(doors.trace), "--site", "alder"
    )
    forged = msgspec.json.encode(Submit(site="birch", time=1e9, job="1", cpus=1))
    with closing(KafkaProducer(**doors.client_options("source"), enable_idempotence=False)) as producer:
        for topic in ("queuecast.events", "queuecast.events.birch"):
            with pytest.raises(KafkaError):  # of a topic that it may not see it is not even told that it is there
                producer.send(topic, forged, b"birch").get(20)
        producer.send("queuecast.events.alder", forged, b"birch").get(20)
        producer.send("queuecast.events.alder", forged, b"alder").get(20)
    with closing(KafkaProducer(**doors.client_options("ingest"), enable_idempotence=False)) as producer:
        producer.send("queuecast.events", forged.replace(b"birch", b"alder"), b"alder").get(20)
    with doors.command("worker", "worker") as worker:
        until(lambda: len(letters(doors)) >= 3)
        assert sorted((letter.topic, letter.reason) for letter in letters(doors)) == [
            ("queuecast.events", "wrong_topic"),
            ("queuecast.events.alder", "wrong_key"),
            ("queuecast.events.alder", "wrong_site"),
        ]
        until(lambda: 'queuecast_events_total{site="alder"}' in page(doors.web_port))
        assert "birch" not in page(doors.web_port)
        worker_ends(worker)


def letters(doors: Doors) -> list[DeadLetter]:
    """All dead letters, as who comes by the inner door sees them."""
    topic = "queuecast.dead-letters"
    with closing(KafkaConsumer(bootstrap_servers=doors.inner, auto_offset_reset="earliest")) as consumer:
        places = [TopicPartition(topic, number) for number in consumer.partitions_for_topic(topic)]
        consumer.assign(places)
        ends, found = consumer.end_offsets(places), []
        while any(consumer.position(place) < end for place, end in ends.items()):
            for batch in consumer.poll(timeout_ms=100).values():
                found += [msgspec.json.decode(message.value, type=DeadLetter) for message in batch]
    return found


@contextmanager
def without_the_group(doors: Doors) -> Iterator[None]:
    """Nobody may use the workers' group."""
    with KafkaAdminClient(bootstrap_servers=doors.inner) as client:
        of_group = [acl for acl in permissions() if acl.resource_pattern.resource_type == ResourceType.GROUP]
        client.delete_acls(of_group)
        try:
            yield
        finally:
            client.create_acls(of_group)


def test_a_worker_needs_its_group(doors: Doors) -> None:
    with without_the_group(doors):
        assert "user 'worker' may not use the group queuecast.worker" in doors.refusal("worker", "worker")


def test_a_worker_that_loses_its_group_ends_and_says_so(doors: Doors) -> None:
    with doors.command("worker", "worker") as worker:
        until(lambda: "Worker ready" in worker.err)
        with without_the_group(doors):
            assert worker.ended() == 1
        said = "queuecast: kafka: this worker may no longer use the group queuecast.worker; "
        assert worker.err.splitlines()[-1].startswith(said)
        assert "Traceback" not in worker.err


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"REDIS_PASSWORD": "wr0ng"}, "refused; is it this username and this password?"),
        ({"REDIS_USERNAME": "nobody"}, "refused; is it this username and this password?"),
        ({"REDIS_CA_FILE": "other.pem"}, "its certificate is not trusted: "),
    ],
)
def test_a_redis_that_does_not_let_in_or_is_not_trusted_is_told(
    doors: Doors, changes: dict[str, str], said: str
) -> None:
    assert re.search(rf"redis at 127.0.0.1:\d+: {re.escape(said)}", doors.refusal("worker", "worker", **changes))


def test_the_doctor_sees_all_but_what_redis_hides(doors: Doors) -> None:
    code, out, err = doors.run("doctor", "doctor")
    assert (code, err) == (0, "")
    hidden = [line for line in out.splitlines() if "cannot be read" in line or "not visible" in line]
    assert [line.split(":")[0].removeprefix("warn  ") for line in hidden] == [
        "redis version",
        "redis clock",
        "redis durability",
        "redis memory",
    ]


def test_help_shows_no_secrets(doors: Doors) -> None:
    assert doors.run("admin", "worker", "--help")[0] == 0
