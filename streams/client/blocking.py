"""The client for programs without asyncio."""

import asyncio
import copy
import logging
import ssl
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Sequence
from threading import Thread
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from models.ranking import JobRequest, Ranking
from models.records import JobAnswer, JobsAnswer, Outcome, Prediction, SiteAnswer, StandingEstimate, WaitAnswer
from streams.client.grid import PATIENCE_S, AsyncClient, JobFields
from streams.client.questions import AnswerTimeout
from streams.settings import Settings

if TYPE_CHECKING:
    from streams.client.client import QuestionClient

log = logging.getLogger(__name__)

T = TypeVar("T")


class Client:
    """As `AsyncClient`, for programs that wait: `with Client() as grid: grid.rank(cpus=64, walltime="4h")`.

    Its connections are in a thread of their own, so the standing estimates are kept while the program does something
    else. Several threads may use one client. Parameters and methods are those of `AsyncClient`, which describes them.
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
        """The same client, whose calls raise an `AnswerTimeout` after so many seconds."""
        changed = copy.copy(self)
        changed._timeout_s = seconds
        return changed

    @property
    def settings(self) -> Settings:
        """The settings in force."""
        return self._grid.settings

    def __enter__(self) -> Self:
        """Connect, and read the estimates that stand."""
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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close all connections."""
        try:
            self._call(self._grid.__aexit__(kind, error, trace))
        finally:
            self._end()

    @property
    def sites(self) -> list[str]:
        """The sites that have estimates, sorted by name."""
        return self._call(_now(lambda: self._grid.sites))

    def estimates(self, site: str) -> list[StandingEstimate]:
        """A site's standing estimates as they are now; nobody is asked."""
        return self._call(_now(lambda: self._grid.estimates(site)))

    def estimate(
        self, site: str, cpus: int, walltime: str | float | None = None, queue: str | None = None, gpus: int = 0
    ) -> StandingEstimate | None:
        """The standing estimate for the least shape that such a job fits into; None where there is none."""
        return self._call(_now(lambda: self._grid.estimate(site, cpus, walltime, queue, gpus)))

    def rank(
        self,
        job: JobRequest | None = None,
        *,
        sites: Sequence[str] = (),
        run_s: float | None = None,
        why: bool = False,
        start_within: str | float | None = None,
        **asked: Unpack[JobFields],
    ) -> Ranking:
        """Rank the sites for a job by when it would be done."""
        return self._call(self._grid.rank(job, sites=sites, run_s=run_s, why=why, start_within=start_within, **asked))

    def wait(
        self, site: str, job: JobRequest | None = None, *, why: bool = False, **asked: Unpack[JobFields]
    ) -> WaitAnswer:
        """How long a job would wait if it came to the site now."""
        return self._call(self._grid.wait(site, job, why=why, **asked))

    def site(self, site: str, most: int = 0) -> SiteAnswer:
        """A site's size, jobs and accuracy, and its jobs that have queued longest."""
        return self._call(self._grid.site(site, most))

    def every_site(self, sites: Sequence[str] = (), most: int = 0) -> dict[str, SiteAnswer | None]:
        """The same of these sites, by default of all that are known; None where no worker answers."""
        return self._call(self._grid.every_site(sites, most))

    def job(self, job: str, sites: Sequence[str] = ()) -> dict[str, JobAnswer | None]:
        """When a job starts that was submitted, by site; None where no worker answers."""
        return self._call(self._grid.job(job, sites))

    def jobs(self, user: str, sites: Sequence[str] = (), most: int = 100) -> dict[str, JobsAnswer | None]:
        """A user's jobs that queue or run, by site; None where no worker answers."""
        return self._call(self._grid.jobs(user, sites, most))

    def predictions(
        self,
        *,
        site: str | None = None,
        job: str | None = None,
        outcomes: bool = False,
        group: str | None = None,
        from_beginning: bool = False,
    ) -> Generator[Prediction | Outcome]:
        """Predictions as they are made, without end."""
        found = self._grid.predictions(
            site=site, job=job, outcomes=outcomes, group=group, from_beginning=from_beginning
        )
        return self._each(found)

    def estimate_changes(self, *, site: str | None = None) -> Generator[StandingEstimate]:
        """Standing estimates as they are renewed, those that stand already first, without end."""
        return self._each(self._grid.estimate_changes(site=site))

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


async def _next(found: AsyncGenerator[T]) -> T:
    return await anext(found)


async def _close(found: AsyncGenerator[Any]) -> None:
    await found.aclose()


def on_loop_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Say what went wrong where nobody waited for it; but not that a TLS connection was closed in mid-answer.

    aiokafka does not wait for its connections to close. asyncio would report an answer that comes after that as an
    error that nobody retrieved.
    """
    error = context.get("exception")
    if isinstance(error, ssl.SSLError) and error.reason == "APPLICATION_DATA_AFTER_CLOSE_NOTIFY":
        log.debug("a connection was closed before the broker's last answer: %s", error)
    else:
        loop.default_exception_handler(context)
