"""Protection of `queuecast up` against other users of the machine, who cannot read its files."""

import signal
import stat
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import redis
from kafka import KafkaProducer
from kafka.admin import KafkaAdminClient
from kafka.errors import KafkaError

from deploy.local.stack import free_port
from streams.settings import Settings, load_settings
from tests.support.command import Command

pytestmark = [pytest.mark.usefixtures("require_stack"), pytest.mark.long]


class Up(Command):
    """A ready `queuecast up` with a data directory."""

    def __init__(self, tmp: Path, *arguments: str, **environment: str) -> None:
        ports = [word for name in ("kafka", "redis", "serve") for word in (f"--{name}-port", str(free_port()))]
        arguments = ("up", "--data-dir", str(tmp / "data"), *ports, *arguments)
        environment = {"QUEUECAST_ENGINE_METHOD": "median", "XDG_STATE_HOME": str(tmp / "state"), **environment}
        super().__init__(tmp, *arguments, **environment)
        self.until("Ctrl-C stops it.")
        self.data = tmp / "data"
        self.settings: Settings = load_settings(self.data / "queuecast.toml", {})


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with Up(tmp_path_factory.mktemp("locked")) as found:
        yield found
        assert found.ended(signal.SIGTERM) == 0


def page(url: str, token: str | None = None) -> int:
    """Return the HTTP status of a page."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        with opener.open(urllib.request.Request(url, headers=headers), timeout=60) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def secrets_of(settings: Settings) -> list[str]:
    """Return its three passwords."""
    redis_password = redis.connection.parse_url(settings.redis.url)["password"]
    found = [settings.kafka.password, redis_password, settings.serve.token]
    assert all(found)
    return [str(secret) for secret in found]


def test_up_redis_requires_password(up: Up) -> None:
    address = up.settings.redis.url.rpartition("@")[2]
    for user in ("", "default:guess@", "queuecast:guess@"):
        with redis.Redis.from_url(f"redis://{user}{address}") as client, pytest.raises(redis.AuthenticationError):
            client.config_set("dir", "/tmp")


@pytest.mark.parametrize(
    "command",
    [
        "CONFIG SET dir /tmp",
        "CONFIG REWRITE",
        "DEBUG SLEEP 0",
        "MODULE LOAD /tmp/x.so",
        "REPLICAOF 127.0.0.1 1",
        "SLAVEOF 127.0.0.1 1",
        "SHUTDOWN NOSAVE",
        "FLUSHALL",
        "BGREWRITEAOF",
        "SAVE",
        "ACL SETUSER x",
        "SCRIPT FLUSH",
        "EVAL return(redis.call('config','get','dir')) 0",
        "MONITOR",
        "KEYS *",
        "SET other 1",
        "HGETALL other",
    ],
)
def test_up_redis_password_permits_only_its_keys(up: Up, command: str) -> None:
    refused = r"(?i)no permissions|NOPERM|executing the script can't run|not allowed from scripts"
    with (
        redis.Redis.from_url(up.settings.redis.url) as client,
        pytest.raises((redis.exceptions.NoPermissionError, redis.ResponseError), match=refused),
    ):
        client.execute_command(*command.split())


def test_up_kafka_requires_password(up: Up) -> None:
    kafka = up.settings.kafka
    guess = {"sasl_mechanism": "PLAIN", "sasl_plain_username": "queuecast", "sasl_plain_password": "guess"}
    for options in ({}, {"security_protocol": "SASL_PLAINTEXT", **guess}):
        with pytest.raises(KafkaError):
            KafkaProducer(bootstrap_servers=kafka.bootstrap, bootstrap_timeout_ms=5000, **options)


def test_up_kafka_controller_requires_password(up: Up) -> None:
    process = up.child("kafka.Kafka")
    ports = {found.laddr.port for found in process.net_connections() if found.status == psutil.CONN_LISTEN}
    (controller,) = ports - {int(up.settings.kafka.bootstrap.rpartition(":")[2])}
    with pytest.raises((KafkaError, ValueError)):
        KafkaAdminClient(bootstrap_controllers=f"127.0.0.1:{controller}", bootstrap_timeout_ms=5000).close()


def test_up_service_requires_token_for_jobs(up: Up) -> None:
    url = next(line.split()[1] for line in up.out.splitlines() if line.strip().startswith("Page "))
    assert page(url) == 200
    assert page(f"{url}v1/users/ada/jobs") == 401
    assert page(f"{url}v1/users/ada/jobs", up.settings.serve.token) == 200


def test_up_worker_port_serves_no_faust_pages(up: Up) -> None:
    url = next(line.split()[1] for line in up.out.splitlines() if line.strip().startswith("Worker "))
    base = url.removesuffix("/metrics")
    assert page(f"{base}/healthz") == 200
    for path in ("/", "/router/", "/table/", "/tables/", "/table/sites/", "/graph/", "/performance/"):
        assert page(base + path) == 404, path


def test_up_files_are_readable_by_owner_only(up: Up) -> None:
    assert stat.S_IMODE(up.data.stat().st_mode) == 0o700
    private = [up.data / "queuecast.toml", *up.data.glob("*.password")]
    private += [up.data / "redis" / name for name in ("redis.conf", "users.acl")]
    private += [up.data / "kafka" / "server.properties", *up.data.glob("*/queuecast.toml")]
    assert len(private) == 9
    for file in private:
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
    for server in ("kafka", "redis", "worker", "serve"):  # directories of data and logs
        assert stat.S_IMODE((up.data / server).stat().st_mode) == 0o700, server


def test_up_passwords_are_in_no_argument_environment_or_log(up: Up) -> None:
    processes = (up.process, *up.children())
    commands = [word for child in processes for word in (*child.cmdline(), *child.environ().values())]
    outputs = [up.out, up.err, *(log.read_text() for log in up.data.glob("*/server.log"))]
    for secret in secrets_of(up.settings):
        assert not [text for text in (*commands, *outputs) if secret in text]


def test_open_up_opens_kafka_and_page_but_not_redis(tmp_path: Path) -> None:
    with Up(tmp_path, QUEUECAST_UP_OPEN="1") as up:  # like `--open`, for programs that start it
        assert "Every user of this machine may use Kafka and the page" in up.out
        KafkaProducer(bootstrap_servers=up.settings.kafka.bootstrap).close()
        assert up.settings.serve.token is None
        address = up.settings.redis.url.rpartition("@")[2]
        with redis.Redis.from_url(f"redis://{address}") as client, pytest.raises(redis.AuthenticationError):
            client.ping()
        assert up.ended(signal.SIGTERM) == 0
