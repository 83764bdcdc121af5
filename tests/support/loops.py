"""The event loops that a worker may run on."""

import asyncio
from collections.abc import Callable

import pytest


def of_uvloop() -> asyncio.AbstractEventLoop:
    """uvloop's; the test is skipped where it is not there."""
    loop: asyncio.AbstractEventLoop = pytest.importorskip("uvloop").new_event_loop()
    return loop


LOOPS: list[Callable[[], asyncio.AbstractEventLoop]] = [asyncio.new_event_loop, of_uvloop]
