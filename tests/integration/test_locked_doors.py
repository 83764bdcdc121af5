"""Kafka with TLS, SASL and permissions, and Redis with TLS and a password: who may come in can work, others learn why.

The permissions are those that deploy/README.md says are needed.
"""

import asyncio
import re
import signal
import ssl
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest
import redis
from kafka.admin import (
    ACL,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    KafkaAdminClient,
    ResourcePattern,
    ResourceType,
    UserScramCredentialUpsertion,
)

from deploy.local.stack import Kafka, Redis, free_port
from deploy.local.stack.process import LOOPBACK
from tests.support.certificates import Authority
from tests.support.command import Command
from tests.support.deployment import until
from tests.support.traces import made_trace

pytestmark = pytest.mark.stack

README = (Path(__file__).parents[2] / "deploy/README.md").read_text(encoding="utf-8")
USERS = ("admin", "worker", "feeder", "reader", "asker", "doctor", "stranger")
REDIS_PASSWORD, REDIS_WORKER_PASSWORD = "redis-s3cret", "redis-worker-s3cret"
SECRETS = (*(f"{user}-s3cret" for user in USERS), "wr0ng", REDIS_PASSWORD, REDIS_WORKER_PASSWORD)


class Doors:
    """The locked servers, and the commands that are run at them."""

    def __init__(self, inner: str, kafka: str, redis: str, authority: Path, stranger: Path, directory: Path) -> None:
        self.inner, self.stranger, self.directory = inner, stranger, directory
        self.trace = made_trace(directory / "made.swf", jobs=60)
        self.web_port = str(free_port())
        self._common = {
            "KAFKA_BOOTSTRAP": kafka,
            "KAFKA_SECURITY": "sasl_tls",
            "KAFKA_CA_FILE": str(authority),
            "TOPICS_PARTITIONS": "2",
            "REDIS_URL": f"rediss://{redis}/0",
            "REDIS_USERNAME": "worker",
            "REDIS_PASSWORD": REDIS_WORKER_PASSWORD,
            "REDIS_CA_FILE": str(authority),
            "WORKER_WEB_PORT": self.web_port,
            "WORKER_CHECKPOINT_SECONDS": "0.5",
        }

    def command(self, user: str, *arguments: str, **changes: str) -> Command:
        """A command that runs as a user, with other settings than the right ones where they are given."""
        settings = self._common | {"KAFKA_USERNAME": user, "KAFKA_PASSWORD": f"{user}-s3cret"} | changes
        return Command(self.directory, *arguments, **{f"QUEUECAST_{name}": value for name, value in settings.items()})

    def run(self, user: str, *arguments: str, **changes: str) -> tuple[int, str, str]:
        """The same, to its end: exit code, stdout and stderr, in which there is no secret."""
        with self.command(user, *arguments, **changes) as command:
            code = command.ended()
            assert_no_secrets(command.out + command.err)
            return code, command.out, command.err

    def refusal(self, user: str, *arguments: str, **changes: str) -> str:
        """The one line that a command ends with."""
        code, out, err = self.run(user, *arguments, **changes)
        assert (code, out) == (1, ""), err
        assert err.startswith("queuecast: ")
        assert err.count("\n") == 1, err
        return err


def assert_no_secrets(text: str) -> None:
    assert not [secret for secret in SECRETS if secret in text]


@pytest.fixture(scope="module")
def doors(require_stack: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    directory = tmp_path_factory.mktemp("doors")
    authority = Authority("The authority")
    ours, other = authority.write(directory / "ca.pem"), Authority("Another one").write(directory / "other.pem")
    server = authority.write_server(directory / "server.pem")
    locked = f"{LOOPBACK}:{free_port()}"
    kafka, store = Kafka(directory / "kafka"), Redis(directory / "redis", password=REDIS_PASSWORD)
    kafka.properties["listeners"] += f",SASL_SSL://{locked}"
    kafka.properties |= {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(server),
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        ),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",  # who comes through the inner listener
    }
    with kafka, store, tls_before(store.address, server) as redis_address:
        let_in(kafka.bootstrap)
        let_in_redis(store.url)
        found = Doors(kafka.bootstrap, locked, redis_address, ours, other, directory)
        assert found.run("admin", "topics")[0] == 0
        yield found
        assert_no_secrets(kafka.log.read_text() + store.log.read_text())


def let_in(bootstrap: str) -> None:
    """Give each user a password, and the permissions that the table says."""
    client = KafkaAdminClient(bootstrap_servers=bootstrap)
    words = [UserScramCredentialUpsertion(user, "SCRAM-SHA-512", f"{user}-s3cret") for user in USERS]
    client.alter_user_scram_credentials(words)
    found = client.create_acls(permissions())
    assert not found["failed"]
    client.close()


def permissions() -> list[ACL]:
    rows = re.findall(r"^\| (\w+)[^|]*\| (topics?|group)[^|]* \| `([^`]+)` \| (.+) \|$", README, re.MULTILINE)
    assert len(rows) == 20
    found = []
    for user, kind, name, operations in rows:
        pattern = ACLResourcePatternType.PREFIXED if kind == "topics" else ACLResourcePatternType.LITERAL
        resource = ResourcePattern(ResourceType.GROUP if kind == "group" else ResourceType.TOPIC, name, pattern)
        found += [
            ACL(f"User:{user}", "*", ACLOperation[operation], ACLPermissionType.ALLOW, resource)
            for operation in re.sub("(?<=[a-z])C", "_C", operations).upper().split(", ")
        ]
    return found


def let_in_redis(url: str) -> None:
    (line,) = re.findall(r"^ +(ACL SETUSER .*)$", README, re.MULTILINE)
    with redis.Redis.from_url(url) as client:
        client.execute_command(*line.replace("…", REDIS_WORKER_PASSWORD).split())


@contextmanager
def tls_before(address: str, server: Path) -> Iterator[str]:
    """TLS in front of a server that has none; gives the address."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(server)
    host, port = address.split(":")
    outside = free_port()
    loop = asyncio.new_event_loop()

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_connection(host, int(port))
        await asyncio.gather(copy(reader, inner_writer), copy(inner_reader, writer))

    loop.run_until_complete(asyncio.start_server(carry, LOOPBACK, outside, ssl=context))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield f"{LOOPBACK}:{outside}"
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def listening(command: Command) -> set[str]:
    """The addresses at which a command listens."""
    return {found.laddr.ip for found in command.process.net_connections() if found.status == psutil.CONN_LISTEN}


def page(port: str) -> str:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"http://{LOOPBACK}:{port}/metrics", timeout=10) as answer:
        return str(answer.read(), "utf-8")


def test_who_may_come_in_can_work(doors: Doors) -> None:
    assert doors.run("feeder", "feed", str(doors.trace))[0] == 0
    with doors.command("worker", "worker", "--log-level", "debug") as worker:
        code, out, err = doors.run("reader", "watch", "--from-beginning", "--outcomes", "--count", "60")
        assert (code, err) == (0, "")
        assert len(out.splitlines()) == 60
        assert listening(worker) == {LOOPBACK}
        asked = doors.run("asker", "ask", "--cpus", "2", "--walltime", "1h", SERVE_ANSWER_SECONDS="20")
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
    said = doors.refusal("admin", "topics", KAFKA_CA_FILE=str(doors.stranger))
    assert "its certificate is not trusted: " in said
    assert "is ca_file the authority that signed it?" in said


@pytest.mark.parametrize(
    ("user", "arguments", "said"),
    [
        ("reader", ["topics"], "user 'reader' may not make queuecast.events"),
        ("stranger", ["feed", "made.swf"], "user 'stranger' may not see queuecast.events"),
        ("worker", ["feed", "made.swf"], "user 'worker' may not write to queuecast.events"),
        ("worker", ["watch"], "user 'worker' may not read queuecast.predictions"),
        ("feeder", ["watch"], "user 'feeder' may not see queuecast.predictions"),
        ("reader", ["worker"], "user 'reader' may not see queuecast."),
        ("feeder", ["ask", "--cpus", "2"], "user 'feeder' may not see queuecast."),
        ("admin", ["worker"], "user 'admin' may not read queuecast.events"),
    ],
)
def test_what_is_not_permitted_is_told(doors: Doors, user: str, arguments: list[str], said: str) -> None:
    assert said in doors.refusal(user, *arguments)


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
    hidden = [line for line in out.splitlines() if "cannot be looked at" in line or "not told" in line]
    assert [line.split(":")[0].removeprefix("warn  ") for line in hidden] == [
        "redis version",
        "redis clock",
        "redis durability",
        "redis memory",
    ]


def test_help_shows_no_secrets(doors: Doors) -> None:
    assert doors.run("admin", "worker", "--help")[0] == 0
