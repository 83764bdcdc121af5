import asyncio

import pytest

from streams.broker.consumer import started
from streams.errors import Unreachable
from streams.settings import Settings


class Connecting:
    """A client that is still connecting when this comes."""

    def __init__(self, error: BaseException) -> None:
        self.error, self.stopped = error, False

    async def start(self) -> None:
        raise self.error

    async def stop(self) -> None:
        self.stopped = True


@pytest.mark.parametrize(
    ("error", "told"), [(OSError("refused"), Unreachable), (asyncio.CancelledError(), asyncio.CancelledError)]
)
def test_a_client_that_never_gets_there_is_stopped(error: BaseException, told: type[BaseException]) -> None:
    client = Connecting(error)

    async def use() -> None:
        with pytest.raises(told):
            async with started(client, Settings()):
                pass

    asyncio.run(use())
    assert client.stopped
