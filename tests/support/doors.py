"""Kafka with TLS, SASL and permissions, and Redis with TLS and a password.

The permissions are those that docs/howto/secure.md lists.
"""

import asyncio
import re
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
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
from streams.settings import KafkaSettings
from tests.support.certificates import Authority
from tests.support.command import Command
from tests.support.traces import made_trace

README = (Path(__file__).parents[2] / "docs/howto/secure.md").read_text(encoding="utf-8")
USERS = ("admin", "worker", "ingest", "source", "reader", "client", "notifier", "doctor", "stranger")
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
            "SITES_DEDICATED_TOPICS": "alder,birch",
            "REDIS_URL": f"rediss://{redis}/0",
            "REDIS_USERNAME": "worker",
            "REDIS_PASSWORD": REDIS_WORKER_PASSWORD,
            "REDIS_CA_FILE": str(authority),
            "WORKER_WEB_PORT": self.web_port,
            "WORKER_CHECKPOINT_SECONDS": "0.5",
            "WORKER_PROCESSES": "1",
        }

    def client_options(self, user: str) -> dict[str, Any]:
        """How a client that is none of ours comes in as a user."""
        chosen = {field: self._common[f"KAFKA_{field.upper()}"] for field in ("bootstrap", "security", "ca_file")}
        return msgspec.convert(
            chosen | {"username": user, "password": f"{user}-s3cret"}, KafkaSettings
        ).client_options()

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


@contextmanager
def locked_doors(directory: Path) -> Iterator[Doors]:
    """Start the servers, with their data in this directory."""
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
        assert found.run("admin", "topics", "create")[0] == 0
        yield found
        assert_no_secrets(kafka.log.read_text() + store.log.read_text())


def let_in(bootstrap: str) -> None:
    """Give each user a password, and the permissions in the table."""
    client = KafkaAdminClient(bootstrap_servers=bootstrap)
    words = [UserScramCredentialUpsertion(user, "SCRAM-SHA-512", f"{user}-s3cret") for user in USERS]
    client.alter_user_scram_credentials(words)
    found = client.create_acls(permissions())
    assert not found["failed"]
    client.close()


def permissions() -> list[ACL]:
    rows = re.findall(r"^\| (\w+)[^|]*\| (topics?|group)[^|]* \| `([^`]+)` \| (.+) \|$", README, re.MULTILINE)
    assert len(rows) == 29
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
