"""Where questions wait for their answers."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from models.records import AnyAnswer, AnyQuestion
from streams.errors import Unreachable, UserError

MOST_OPEN = 5000
"""Questions that may be open at once: the bound on memory."""


class Silent(UserError):
    """No worker has answered in time."""


class Busy(UserError):
    """Too many questions are open."""


def new_id() -> str:
    """An id that no other question has."""
    return uuid.uuid4().hex


class _Head(msgspec.Struct):
    """Whose answer it is."""

    id: str


_decode_head = msgspec.json.Decoder(_Head).decode
_answer: msgspec.json.Decoder[AnyAnswer] = msgspec.json.Decoder(AnyAnswer)


class Desk:
    """Where questions wait for their answers.

    Parameters:
        send: sends a question; done when the broker has it.
        seconds: how long an answer is waited for; after a third of that the question is sent once more, for it may
            have come while its site was on the way from one worker to another.
    """

    def __init__(self, send: Callable[[AnyQuestion], Awaitable[Any]], seconds: float, most: int = MOST_OPEN) -> None:
        self._send = send
        self._seconds = seconds
        self._most = most
        self._open: dict[str, asyncio.Future[AnyAnswer]] = {}

    async def ask(self, question: AnyQuestion) -> AnyAnswer:
        """The answer, whatever it says.

        Raises:
            Silent: no worker has answered in time.
            Unreachable: nor has a broker taken the question.
            Busy: too many questions are open.
        """
        if len(self._open) >= self._most:
            raise Busy(f"{self._most} questions are open; ask again later")
        answer: asyncio.Future[AnyAnswer] = asyncio.get_running_loop().create_future()
        self._open[question.id] = answer
        sent = False
        try:
            async with asyncio.timeout(self._seconds):
                await self._send(question)
                sent = True
                await asyncio.wait([answer], timeout=self._seconds / 3)
                if not answer.done():
                    await self._send(question)
                return await answer
        except TimeoutError:
            if sent:
                raise Silent(f"no worker answers for the site {question.site!r}; is one running?") from None
            raise Unreachable(f"kafka: no broker took the question within {self._seconds:g} s") from None
        finally:
            del self._open[question.id]

    def take(self, value: bytes) -> None:
        """Hand an answer to who waits for it, where somebody here does.

        Raises:
            msgspec.MsgspecError: it is none.
        """
        answer = self._open.get(_decode_head(value).id)
        if answer is not None and not answer.done():
            answer.set_result(_answer.decode(value))
