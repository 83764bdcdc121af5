"""Slow, one-way and cut links between a worker and its servers: the outputs equal a replay.

Each fault of the catalogue meets each link. `TESTS_LINK_SECONDS=60` makes them longer.
"""

import os
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from deploy.local.stack import LocalStack
from deploy.local.stack.servers import Kafka
from tests.integration.test_chaos import Feeder, as_if_nothing_had_happened, four_sites
from tests.support.deployment import Deployment, ready, settings_on, until
from tests.support.links import Link

pytestmark = pytest.mark.timeout(900)
SECONDS = float(os.environ.get("TESTS_LINK_SECONDS", "4"))
SLOW_S = 0.15
SESSION_S = 12.0
"""As short as a busy machine allows, so that a longer hold of the link costs the worker its partitions."""


def slow(link: Link) -> None:
    link.delay_s = SLOW_S
    time.sleep(SECONDS)
    link.delay_s = 0.0


def one_way(link: Link, direction: str) -> None:
    with link.holding(direction):
        time.sleep(SECONDS)


def flapping(link: Link) -> None:
    for _ in range(int(2 * SECONDS)):
        link.cut()
        time.sleep(0.5)


def partitioned(link: Link) -> None:
    """Until the broker has removed the worker from its group."""
    with link.holding("to", "from"):
        time.sleep(SESSION_S + SECONDS)


FAULTS: dict[str, Callable[[Link], None]] = {
    "slow": slow,
    "requests held back": lambda link: one_way(link, "to"),
    "answers held back": lambda link: one_way(link, "from"),
    "flapping": flapping,
    "partitioned": partitioned,
}


@pytest.fixture(scope="module")
def kafka_link(require_stack: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Link]:
    """A broker that clients reach only through a link, whose address it advertises."""
    with closing(Link()) as link:
        kafka = Kafka(tmp_path_factory.mktemp("linked"))
        kafka.properties["advertised.listeners"] = f"PLAINTEXT://127.0.0.1:{link.port}"
        host, port = kafka.address.split(":")
        link.target = host, int(port)
        kafka.start()
        try:
            yield link
        finally:
            kafka.stop()


def test_link_delays_holds_and_cuts_connections() -> None:
    class Echo(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            for line in self.rfile:
                self.wfile.write(line)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Echo) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with closing(Link(server.server_address)) as link, socket.create_connection(("127.0.0.1", link.port)) as client:
            client.settimeout(0.3)
            client.sendall(b"one\n")
            assert client.recv(10) == b"one\n"
            for direction in ("to", "from"):
                with link.holding(direction):
                    client.sendall(b"two\n")
                    with pytest.raises(TimeoutError):
                        client.recv(10)
                assert client.recv(10) == b"two\n"
            link.delay_s = 0.5
            client.sendall(b"three\n")
            with pytest.raises(TimeoutError):
                client.recv(10)
            client.settimeout(10.0)
            assert client.recv(10) == b"three\n"
            link.cut()
            assert client.recv(10) == b""
        server.shutdown()


@pytest.mark.long
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("linked", ["kafka", "redis"])
def test_faulty_link_changes_no_record(
    linked: str, fault: str, kafka_link: Link, local_stack: LocalStack, tmp_path: Path
) -> None:
    events = four_sites(60)
    with ExitStack() as stack:
        redis = urlsplit(local_stack.redis.url)
        redis_link = stack.enter_context(closing(Link((str(redis.hostname), int(redis.port or 0)))))
        settings = settings_on(
            f"127.0.0.1:{kafka_link.port}",
            redis.geturl().replace(f":{redis.port}", f":{redis_link.port}"),
            {"checkpoint_events": 50, "checkpoint_seconds": 0.5, "session_timeout_seconds": SESSION_S},
            {"method": "qespera", "history": 100},
        )
        here = stack.enter_context(closing(Deployment(settings, tmp_path)))
        expected = here.expected(events)
        here.worker.start()
        until(lambda: ready(here.worker))
        feeder = Feeder(here, events, 2 * SECONDS)
        feeder.start()
        here.await_outputs(10)
        FAULTS[fault](kafka_link if linked == "kafka" else redis_link)
        feeder.join()
        assert feeder.accepted == len(events)
        if not here.worker.running:  # as under systemd
            here.worker.start()
        until(lambda: ready(here.worker))
        here.await_outputs(sum(map(len, expected.values())))
        here.worker.stop()
        as_if_nothing_had_happened(here, events, expected)
