"""Listening address of the service, and hosts that require a token."""

import socket

import pytest

from streams.errors import UserError
from streams.process.scraping import bound
from streams.serve.http_server import check_closed
from streams.settings import ServeSettings


def test_bind_to_used_port_raises_user_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UserError, match=f"web port {port} of 127.0.0.1: .*; choose another with --web-port"):
            bound("127.0.0.1", port)


def test_bind_to_foreign_address_raises_user_error() -> None:
    with pytest.raises(UserError, match=r"web port 6067 of 192\.0\.2\.1: "):
        bound("192.0.2.1", 6067)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_loopback_host_requires_no_token(host: str) -> None:
    check_closed(ServeSettings(web_host=host), requires_token=False)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "example.org", "192.0.2.1", ""])
def test_public_host_requires_token(host: str) -> None:
    check_closed(ServeSettings(web_host=host), requires_token=True)
    with pytest.raises(UserError, match=r"could query users' jobs: set a token with QUEUECAST_SERVE_TOKEN"):
        check_closed(ServeSettings(web_host=host), requires_token=False)
