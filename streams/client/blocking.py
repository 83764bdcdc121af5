"""The client for programs without asyncio."""

import asyncio
import copy
import logging
import ssl
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from functools import wraps
from threading import Thread
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar

from streams.client.grid import PATIENCE_S, AsyncClient
from streams.client.pending_questions import AnswerTimeout
from streams.settings import Settings

if TYPE_CHECKING:
    from streams.client.client import QuestionClient

log = logging.getLogger(__name__)

T = TypeVar("T")
P = ParamSpec("P")


def _waiting(
    method: Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate["Client", P], T]:
    """Wrap a method of `AsyncClient` so that it blocks until the result is there."""

    @wraps(method)
    def call(client: "Client", /, *given: P.args, **named: P.kwargs) -> T:
        return client._call(method(client._grid, *given, **named))

    return call


def _looking(method: Callable[Concatenate[AsyncClient, P], T]) -> Callable[Concatenate["Client", P], T]:
    """Wrap a synchronous method of `AsyncClient` so that it runs on the loop thread."""

    @wraps(method)
    def call(client: "Client", /, *given: P.args, **named: P.kwargs) -> T:
        return client._call(_now(lambda: method(client._grid, *given, **named)))

    return call


def _following(
    method: Callable[Concatenate[AsyncClient, P], AsyncGenerator[T]],
) -> Callable[Concatenate["Client", P], Generator[T]]:
    """Wrap a method of `AsyncClient` that yields records as they arrive."""

    @wraps(method)
    def call(client: "Client", /, *given: P.args, **named: P.kwargs) -> Generator[T]:
        return client._each(method(client._grid, *given, **named))

    return call


class Client:
    """The blocking version of `AsyncClient`: `with Client() as grid: grid.rank(cpus=64, walltime="4h")`.

    Its connections run in a background thread, so the grid estimates stay current while the program does other work.
    Several threads may share one client. `AsyncClient` describes the parameters and methods.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        patience_s: float = PATIENCE_S,
        questions: "QuestionClient | None" = None,
    ) -> None:
        self._grid = AsyncClient(settings, patience_s=patience_s, questions=questions)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: Thread | None = None
        self._timeout_s: float | None = None

    def within(self, seconds: float) -> Self:
        """Return the same client with a limit: calls raise `AnswerTimeout` after `seconds`."""
        changed = copy.copy(self)
        changed._timeout_s = seconds
        return changed

    @property
    def settings(self) -> Settings:
        """The settings in force."""
        return self._grid.settings

    def __enter__(self) -> Self:
        """Connect, and read the current estimates."""
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(on_loop_error)
        self._thread = Thread(target=self._loop.run_forever, name="queuecast-client", daemon=True)
        self._thread.start()
        try:
            self._call(self._grid.__aenter__())
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        """Close all connections."""
        try:
            self._call(self._grid.__aexit__(*error))
        finally:
            self._end()

    @property
    def sites(self) -> list[str]:
        """The sites that have estimates, sorted by name."""
        return self._call(_now(lambda: self._grid.sites))

    estimates = _looking(AsyncClient.estimates)
    estimate = _looking(AsyncClient.estimate)
    rank = _waiting(AsyncClient.rank)
    wait = _waiting(AsyncClient.wait)
    site = _waiting(AsyncClient.site)
    every_site = _waiting(AsyncClient.every_site)
    job = _waiting(AsyncClient.job)
    jobs = _waiting(AsyncClient.jobs)
    predictions = _following(AsyncClient.predictions)
    estimate_changes = _following(AsyncClient.estimate_changes)

    def _each(self, found: AsyncGenerator[T]) -> Generator[T]:
        try:
            while True:
                yield self._call(_next(found))
        finally:
            self._call(_close(found))

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        if self._loop is None:
            work.close()
            raise RuntimeError("the client is not open; use it as `with Client() as grid:`")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(self._timeout_s)
        except TimeoutError:
            future.cancel()
            raise AnswerTimeout(f"no answer within {self._timeout_s:g} s") from None
        except BaseException:  # such as Ctrl-C, while it still runs
            future.cancel()
            raise

    def _end(self) -> None:
        if self._loop is not None and self._thread is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()
            self._loop = None


async def _now(look: Callable[[], T]) -> T:
    return look()


def iterate(found: AsyncGenerator[T]) -> Generator[T]:
    """Yield the items of an asynchronous generator, blocking this thread."""
    with asyncio.Runner() as runner:
        runner.get_loop().set_exception_handler(on_loop_error)
        try:
            while True:
                yield runner.run(_next(found))
        finally:
            runner.run(_close(found))


async def _next(found: AsyncGenerator[T]) -> T:
    return await anext(found)


async def _close(found: AsyncGenerator[Any]) -> None:
    await found.aclose()


def on_loop_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Report an error that no caller awaits, except for a TLS connection that closes before the last answer.

    aiokafka does not wait for its connections to close. asyncio would report a later answer as an unretrieved error.
    """
    error = context.get("exception")
    if isinstance(error, ssl.SSLError) and error.reason == "APPLICATION_DATA_AFTER_CLOSE_NOTIFY":
        log.debug("Connection closed before the broker's last response: %s", error)
    else:
        loop.default_exception_handler(context)
