"""Connection limits of a real service on loopback with slow clients, many clients, or both."""

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from socket import SO_SNDBUF, SOL_SOCKET, create_connection, socket

import pytest
import uvicorn

from streams.serve.http_server import DROPPED, MAX_PIPELINED, Connections, _uvicorn
from streams.serve.service import Service
from streams.serve.web import build_app
from streams.settings import ServeSettings, Settings
from tests.support.deployment import PATIENCE_S, until
from tests.support.fake_client import FakeClient, engine

HEADER_S = 2.0
"""Time limit for a request's header: enough to send a complete request on a busy machine."""

GET = b"GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


@contextmanager
def service(of_client: int = 100, header_s: float = 30.0, most: int = 800) -> Iterator[tuple[str, int, Connections]]:
    """Run a service with the given limits in a thread; yield its host, port and connections."""
    settings = Settings(serve=ServeSettings(web_port=1 << 14))
    app = build_app(Service(FakeClient([engine("alder", 1)]), settings), settings)
    limits = Connections(of_client, header_s, answer_s=30.0, most=most)
    listening = socket()
    listening.setsockopt(SOL_SOCKET, SO_SNDBUF, 1 << 14)  # inherited by connections: little of an answer fits unread
    listening.bind(("127.0.0.1", 0))
    server = uvicorn.Server(_uvicorn(app, settings.serve, limits))
    thread = threading.Thread(target=lambda: asyncio.run(server.serve([listening])))
    thread.start()
    try:
        while not server.started:
            time.sleep(0.01)
        yield (*listening.getsockname(), limits)
    finally:
        server.should_exit = True
        thread.join()
        listening.close()


def answered(host: str, port: int, path: bytes = b"/healthz") -> bytes:
    """Send a complete request; return the first line of the response, empty if the connection closed."""
    with create_connection((host, port), timeout=PATIENCE_S) as client:
        client.sendall(GET % path)
        with suppress(ConnectionError):
            return client.recv(4096).partition(b"\r\n")[0]
    return b""


def unread() -> float:
    """Return the number of connections closed because of an unread response."""
    return DROPPED.labels("unread")._value.get()


def closed(client: socket, within_s: float) -> bool:
    """Return true if the service closes the connection in time without sending data."""
    client.settimeout(within_s)
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False


def test_half_open_requests_do_not_block_clients() -> None:
    with service() as (host, port, limits), ExitStack() as open_:
        for _ in range(1001):
            half = open_.enter_context(create_connection((host, port), timeout=PATIENCE_S))
            half.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ")
        for path in (b"/healthz", b"/v1/sites", b"/"):
            assert answered(host, port, path) == b"HTTP/1.1 200 OK"
        assert len(limits) <= 101


def test_idle_connections_do_not_block_clients() -> None:
    with service(of_client=10_000, most=50) as (host, port, limits), ExitStack() as open_:
        for _ in range(300):
            open_.enter_context(create_connection((host, port), timeout=PATIENCE_S))
        assert answered(host, port) == b"HTTP/1.1 200 OK"
        assert len(limits) <= 51


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost: a\r\n", GET % b"/healthz" + b"GET /"])
def test_unfinished_request_closes_connection(sent: bytes) -> None:
    """This includes clients that continue byte by byte, also in a second request."""
    begun = time.monotonic()
    with service(header_s=HEADER_S) as (host, port, _), create_connection((host, port), timeout=PATIENCE_S) as client:
        if sent:
            client.sendall(sent)
        if b"/healthz" in sent:
            assert client.recv(4096).startswith(b"HTTP/1.1 200")
        while not closed(client, 0.2):
            assert time.monotonic() - begun < PATIENCE_S
            client.sendall(b"x")
        assert time.monotonic() - begun >= HEADER_S


@pytest.mark.parametrize("method", [b"GET", b"POST"])
@pytest.mark.parametrize("length", [b"Content-Length: 1000000", b"Transfer-Encoding: chunked"])
def test_slow_request_body_closes_connection(method: bytes, length: bytes) -> None:
    """No request needs a body: the response does not wait for it, and sending more closes the connection."""
    head = method + b" /healthz HTTP/1.1\r\nHost: a\r\n" + length + b"\r\n\r\n"
    with service(header_s=HEADER_S) as (host, port, _), create_connection((host, port), timeout=PATIENCE_S) as client:
        client.sendall(head)
        assert client.recv(4096).startswith(b"HTTP/1.1 200" if method == b"GET" else b"HTTP/1.1 405")
        begun = time.monotonic()
        while not closed(client, 0.2):
            assert time.monotonic() - begun < PATIENCE_S
            client.sendall(b"1\r\nx\r\n" if b"chunked" in length else b"x")


def test_keep_alive_connection_serves_repeated_requests() -> None:
    with service(header_s=5.0) as (host, port, limits), create_connection((host, port), timeout=PATIENCE_S) as client:
        for _ in range(4):  # in total longer than the time limit of a request
            client.sendall(GET % b"/healthz")
            answer = b""
            while not answer.endswith(b"ok\n"):
                answer += client.recv(4096)
            assert answer.startswith(b"HTTP/1.1 200")
            time.sleep(1.4)
        assert len(limits) == 1
    with service() as (host, port, limits):
        assert answered(host, port) == b"HTTP/1.1 200 OK"
        until(lambda: not len(limits))


def ask_without_reading(client: socket) -> None:
    """Pipeline as many requests as a client may: their responses exceed the buffers, and one stays unwritten."""
    client.sendall((GET % b"/schema/openapi.json") * (MAX_PIPELINED + 1))


def test_client_not_reading_response_is_disconnected() -> None:
    with service() as (host, port, limits):
        answered(host, port, b"/schema/openapi.json")  # built once, in seconds
        limits.answer_s, before = 0.5, unread()
        with create_connection((host, port), timeout=PATIENCE_S) as client:
            ask_without_reading(client)
            until(lambda: unread() == before + 1 and not len(limits))


def test_unread_pipelined_requests_do_not_consume_rate_limit() -> None:
    before = DROPPED.labels("pipelined")._value.get()
    with service() as (host, port, limits), ExitStack() as open_:
        for _ in range(90):
            client = open_.enter_context(create_connection((host, port), timeout=PATIENCE_S))
            client.sendall((GET % b"/v1/sites") * 200)
        until(lambda: DROPPED.labels("pipelined")._value.get() == before + 90)
        for _ in range(50):
            assert answered(host, port, b"/v1/sites") == b"HTTP/1.1 200 OK"
        until(lambda: not len(limits))


@pytest.mark.parametrize("end", [b"\r\n", b"\n"])
def test_pipelined_requests_within_limit_are_answered(end: bytes) -> None:
    request = (GET % b"/healthz").replace(b"\r\n", end)
    with service() as (host, port, _), create_connection((host, port), timeout=PATIENCE_S) as client:
        client.sendall(request * 11)
        answer = b""
        while answer.count(b"ok\n") < 11:
            answer += client.recv(4096)
        client.sendall(request * 12)
        assert closed(client, PATIENCE_S)


def test_unread_responses_do_not_block_clients() -> None:
    with service(of_client=3) as (host, port, limits), ExitStack() as open_:
        for _ in range(6):
            client = open_.enter_context(create_connection((host, port), timeout=PATIENCE_S))
            ask_without_reading(client)
        until(lambda: any(one.unread and one.answering for one in [*limits._open]))
        until(lambda: answered(host, port) == b"HTTP/1.1 200 OK")  # succeeds while other responses are unwritten
        assert len(limits) <= 4
