"""Kafka with TLS, SASL and ACLs, Redis with TLS and a password: permitted users and error messages."""

import re
import signal
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager

import msgspec
import psutil
import pytest
from kafka import KafkaProducer
from kafka.admin import KafkaAdminClient, ResourceType
from kafka.errors import KafkaError

from deploy.local.stack.process import LOOPBACK
from models.records import DeadLetter, Submit
from tests.support.command import Command
from tests.support.deployment import until
from tests.support.doors import Doors, assert_no_secrets, permissions
from tests.support.topic_messages import messages_of

pytestmark = pytest.mark.long


def listening(command: Command) -> set[str]:
    """Return the addresses on which a command listens."""
    return {found.laddr.ip for found in command.process.net_connections() if found.status == psutil.CONN_LISTEN}


def page(port: str) -> str:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"http://{LOOPBACK}:{port}/metrics", timeout=60) as answer:
        return str(answer.read(), "utf-8")


def test_secured_servers_admit_permitted_users(doors: Doors) -> None:
    assert doors.run("ingest", "ingest", str(doors.trace))[0] == 0
    with doors.command("worker", "worker", "--log-level", "debug") as worker:
        code, out, err = doors.run("reader", "watch", "--from-beginning", "--outcomes", "--count", "60")
        assert code == 0 and (not err or err.startswith("Waiting for predictions; none received yet")), err
        assert len(out.splitlines()) == 60
        assert listening(worker) == {LOOPBACK}
        result = doors.run("client", "ask", "--cpus", "2", "--walltime", "1h", SERVE_ANSWER_TIMEOUT_SECONDS="60")
        assert result[0] == 0 and "made" in result[1], result
        assert_no_secrets(page(doors.web_port))
        worker_ends(worker)


def test_worker_listens_on_other_hosts_only_if_configured(doors: Doors) -> None:
    with doors.command("worker", "worker", WORKER_WEB_HOST="0.0.0.0") as worker:
        until(lambda: bool(listening(worker)))
        assert listening(worker) == {"0.0.0.0"}
        until(lambda: 'queuecast_events_total{site="made"}' in page(doors.web_port))
        worker_ends(worker)


def worker_ends(worker: Command) -> None:
    """Check that the worker stops on a signal and has printed no secret."""
    assert worker.ended(signal.SIGTERM) == 0
    assert_no_secrets(worker.out + worker.err)
    assert "Traceback" not in worker.out + worker.err


def test_wrong_kafka_password_is_reported(doors: Doors) -> None:
    message = doors.refusal("worker", "worker", KAFKA_PASSWORD="wr0ng")
    assert re.search(r"user 'worker'.*; is it this username, this password", message)


def test_broker_with_untrusted_certificate_is_rejected(doors: Doors) -> None:
    message = doors.refusal("admin", "topics", "create", KAFKA_CA_FILE=str(doors.stranger))
    assert "its certificate is not trusted: " in message
    assert "is ca_file the authority that signed it?" in message


@pytest.mark.parametrize(
    ("user", "arguments", "message"),
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
def test_missing_kafka_permission_is_reported(doors: Doors, user: str, arguments: list[str], message: str) -> None:
    assert message in doors.refusal(user, *arguments)


def test_source_with_dedicated_topic_writes_only_its_site(doors: Doors) -> None:
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
            with pytest.raises(KafkaError):  # the broker also hides that the topic exists
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
    """Return all dead letters, read through the inner listener."""
    found = messages_of({"bootstrap_servers": doors.inner}, "queuecast.dead-letters")
    return [msgspec.json.decode(message.value, type=DeadLetter) for message in found]


@contextmanager
def without_the_group(doors: Doors) -> Iterator[None]:
    """Deny all users the workers' group."""
    with KafkaAdminClient(bootstrap_servers=doors.inner) as client:
        of_group = [acl for acl in permissions() if acl.resource_pattern.resource_type == ResourceType.GROUP]
        client.delete_acls(of_group)
        try:
            yield
        finally:
            client.create_acls(of_group)


def test_worker_without_group_permission_fails(doors: Doors) -> None:
    with without_the_group(doors):
        assert "user 'worker' may not use the group queuecast.worker" in doors.refusal("worker", "worker")


def test_worker_that_loses_group_permission_ends_with_message(doors: Doors) -> None:
    with doors.command("worker", "worker") as worker:
        until(lambda: "Worker ready" in worker.err)
        with without_the_group(doors):
            assert worker.ended() == 1
        message = "queuecast: kafka: this worker may no longer use the group queuecast.worker; "
        assert worker.err.splitlines()[-1].startswith(message)
        assert "Traceback" not in worker.err


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"REDIS_PASSWORD": "wr0ng"}, "refused; is it this username and this password?"),
        ({"REDIS_USERNAME": "nobody"}, "refused; is it this username and this password?"),
        ({"REDIS_CA_FILE": "other.pem"}, "its certificate is not trusted: "),
    ],
)
def test_redis_login_or_certificate_error_is_reported(doors: Doors, changes: dict[str, str], message: str) -> None:
    assert re.search(rf"redis at 127.0.0.1:\d+: {re.escape(message)}", doors.refusal("worker", "worker", **changes))


def test_doctor_on_secured_servers_lacks_only_redis_details(doors: Doors) -> None:
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
