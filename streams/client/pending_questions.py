"""Pending questions: sent, and not answered yet."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Iterable
from contextvars import ContextVar
from typing import Any, TypeVar

import msgspec

from models.records import BUSY, QUOTA, UNKNOWN_SITE, AnyAnswer, AnyQuestion, NoAnswer
from models.spelling import nearest_name
from streams.errors import Unreachable, UserError

Kind = TypeVar("Kind", bound=AnyAnswer)
MAX_NAMED = 20  # sites that an error names
MAX_OPEN_QUESTIONS = 5000  # how many questions may be open at the same time; this bounds the memory

on_behalf_of: ContextVar[str | None] = ContextVar("on_behalf_of", default=None)
"""The client behind the questions of a shared connection; workers serve clients in turn."""


class AnswerTimeout(UserError):
    """No worker answered in time."""


class WorkerCompiling(Unreachable):
    """No worker answers, and one of this machine still compiles at its first start."""


class WorkerOverloaded(UserError):
    """The worker is overloaded, or the client exceeded its quota; retry later."""


class Overloaded(WorkerOverloaded):
    """The worker or the service has more questions than it can answer in time; retry later."""


class TooManyQuestions(Overloaded):
    """Too many questions are open."""


class QuestionRejected(UserError):
    """The question was rejected; the message gives the reason."""


class NotFound(QuestionRejected):
    """The site or the job does not exist."""


class UnknownSite(NotFound):
    """No event of this site has arrived."""


class UnknownJob(NotFound):
    """No job of this name is pending or running at the site."""


STATUSES: dict[type[UserError], int] = {
    NotFound: 404,
    Overloaded: 503,
    WorkerOverloaded: 429,
    Unreachable: 503,
    AnswerTimeout: 504,
}
"""The errors as a service's answers have them, the more particular first. `Overloaded` has the reason `BUSY` there."""


def new_id() -> str:
    """Return a unique id for a question."""
    return uuid.uuid4().hex


def unknown_site(site: str, known: Iterable[str]) -> UnknownSite:
    """Return the error for a missing site, with the closest name and the existing sites.

    >>> str(unknown_site("kht", ["ctc", "kth"]))
    "there is no site 'kht'; did you mean 'kth'? There are: ctc, kth"
    """
    sites = sorted(known)
    if not sites:
        return UnknownSite(f"there is no site {site!r}; no event of any site has come yet")
    near = nearest_name(site, sites)
    meant = f"did you mean {near!r}? There are: " if near else "there are: "
    more = ", …" if len(sites) > MAX_NAMED else ""
    return UnknownSite(f"there is no site {site!r}; {meant}{', '.join(sites[:MAX_NAMED])}{more}")


def of_kind(answer: AnyAnswer, kind: type[Kind]) -> Kind:
    """Return the answer if it is of this kind.

    Raises:
        UnknownSite: the site is not registered.
        WorkerOverloaded: the worker is overloaded; retry later.
        QuestionRejected: the question was rejected.
    """
    if isinstance(answer, kind):
        return answer
    if not isinstance(answer, NoAnswer):
        raise QuestionRejected(f"{answer.site}: the answer is to another question")
    errors: dict[str, type[UserError]] = {UNKNOWN_SITE: UnknownSite, BUSY: Overloaded, QUOTA: WorkerOverloaded}
    raise errors.get(answer.reason, QuestionRejected)(f"{answer.site}: {answer.detail}")


class _AnswerId(msgspec.Struct):
    """The id of the question that an answer belongs to."""

    id: str


_decode_id = msgspec.json.Decoder(_AnswerId).decode
_answer: msgspec.json.Decoder[AnyAnswer] = msgspec.json.Decoder(AnyAnswer)


class PendingQuestions:
    """Send questions, at most `max_open` at the same time, and match the answers to them by id.

    Beyond `max_open` the oldest open question fails: its answer would come last, and its client times out first. `send`
    returns once the broker has the question. The timeout is `seconds`. After a third of it the question is sent again,
    because the site may have moved to another worker meanwhile.
    """

    def __init__(
        self, send: Callable[[AnyQuestion], Awaitable[Any]], seconds: float, max_open: int = MAX_OPEN_QUESTIONS
    ) -> None:
        self._send = send
        self._seconds = seconds
        self._max_open = max_open
        self._open: dict[str, asyncio.Future[AnyAnswer]] = {}

    async def ask(self, question: AnyQuestion) -> AnyAnswer:
        """Send a question and return its answer, also when the answer is a refusal.

        Raises:
            AnswerTimeout: no worker answered in time.
            Unreachable: no broker took the question in time.
            TooManyQuestions: later ones came, and too many are open.
        """
        self._make_room()
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
                raise AnswerTimeout(f"no worker answers for the site {question.site!r}; is one running?") from None
            raise Unreachable(f"kafka: no broker accepted the question within {self._seconds:g} s") from None
        finally:
            if self._open.get(question.id) is answer:
                del self._open[question.id]
            if answer.done() and not answer.cancelled():
                answer.exception()  # asyncio warns of an unretrieved exception

    def _make_room(self) -> None:
        while len(self._open) >= self._max_open:
            oldest = self._open.pop(next(iter(self._open)))
            if not oldest.done():
                oldest.set_exception(TooManyQuestions(f"{self._max_open} queries are open; try again later"))

    def resolve(self, value: bytes) -> None:
        """Process an answer from its topic, if its question is open here.

        Raises:
            msgspec.MsgspecError: it is not an answer.
        """
        answer = self._open.get(_decode_id(value).id)
        if answer is not None and not answer.done():
            answer.set_result(_answer.decode(value))
