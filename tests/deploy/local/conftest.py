"""A port in use."""

import socket
from collections.abc import Iterator

import pytest

from deploy.local.stack.process import LOOPBACK


@pytest.fixture
def busy_port() -> Iterator[int]:
    with socket.create_server((LOOPBACK, 0)) as listener:
        yield listener.getsockname()[1]
