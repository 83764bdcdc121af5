import asyncio
import logging
import ssl

import pytest

from streams.client.blocking import on_loop_error

CLOSED = ssl.SSLError(1, "[SSL: APPLICATION_DATA_AFTER_CLOSE_NOTIFY] application data after close notify")
CLOSED.reason = "APPLICATION_DATA_AFTER_CLOSE_NOTIFY"
OTHER = ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong version number")


@pytest.mark.parametrize(
    ("error", "said"), [(CLOSED, []), (OTHER, [logging.ERROR]), (OSError("gone"), [logging.ERROR])]
)
def test_only_a_connection_closed_in_mid_answer_goes_unsaid(
    error: Exception, said: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    async def fail_unnoticed() -> None:
        asyncio.get_running_loop().create_future().set_exception(error)

    with caplog.at_level(logging.INFO), asyncio.Runner() as runner:
        runner.get_loop().set_exception_handler(on_loop_error)
        runner.run(fail_unnoticed())
    assert [record.levelno for record in caplog.records] == said
