"""Sites to ask without a broker: their grid estimates, engines that answer, and the HTTP service on them."""

from collections.abc import Iterable
from functools import cache
from typing import Any

import msgspec

from models.engine.asking.engine_answers import answer, grid_estimates
from models.engine.engine import Engine
from models.engine.settings import EngineSettings
from models.records import UNKNOWN_SITE, AnyAnswer, AnyEvent, AnyQuestion, NoAnswer, Submit
from models.simulation import generate, run
from models.site.shapes import WALLTIMES, Shape, grid, sizes
from streams.client.client import QuestionClient
from streams.client.estimates import EstimateCache
from streams.client.pending_questions import AnswerTimeout
from streams.serve.service import Service
from streams.serve.web import build_app
from streams.settings import ServeSettings, Settings
from tests.support.deployment import busy_sites

NOW = 1.8e9
"""The wall clock's time (Unix seconds)."""

USER = "u1"

SITES = ("alder", "birch")

TOKEN = "correct horse battery"
"""The token of the HTTP service."""

FRESH_ESTIMATES = {"refresh_seconds": 0.2, "cpu_share": 1.0}
"""Settings with which a worker renews its grid estimates at once."""


def two_sites(jobs: int = 200) -> list[AnyEvent]:
    """The events of two sites up to the middle of their day: the last jobs have not ended yet."""
    return busy_sites(SITES, jobs)[: 5 * jobs]


@cache
def engine(site: str, seed: int, cpus: int = 64) -> Engine:
    """A busy site's engine, in the middle of its day; tests ask it and do not change it."""
    found = Engine(site, EngineSettings(history=100))
    events: list[AnyEvent] = list(run(generate(seed, 80, cpus, 0.9), cpus, site, "easy"))
    for event in events[:170]:
        found.apply(msgspec.structs.replace(event, user=USER) if isinstance(event, Submit) else event)
    return found


def key(site: str, shape: Shape) -> bytes:
    """The message key of a shape's estimate."""
    return msgspec.json.encode([site, *shape])


def outcome(site: str, job: str, method: str = "qespera", **fields: object) -> bytes:
    """An outcome as it comes from its topic."""
    defaults = {"site": site, "job": job, "attempt": 0, "made_at": 1.0, "method": method, "observed_at": 5.0}
    waits = {"predicted_wait_s": 3.0, "predicted_run_s": 9.0, "actual_wait_s": 4.0, "error_s": -1.0}
    return msgspec.json.encode(defaults | waits | fields)


class FakeClient(QuestionClient):
    """A client without a broker: engines in this process answer its questions.

    Parameters:
        silent: sites that have estimates, but whose workers do not answer.
    """

    def __init__(self, engines: Iterable[Engine] = (), silent: Iterable[str] = ()) -> None:
        super().__init__(Settings(serve=ServeSettings(answer_timeout_seconds=60)))  # an engine may compile first
        self.startup_problem = None
        self.broker_problem: str | None = None
        self.cache = EstimateCache(hours=24, clock=lambda: NOW)
        self.requests: list[AnyQuestion] = []
        self._engines = {engine.site: engine for engine in engines}
        self.silent = set(silent)
        for number, one in enumerate(self._engines.values()):
            shapes = grid(sizes(one.context.cpus), WALLTIMES, ())
            for shape, estimate in zip(shapes, grid_estimates(one, shapes, one.time), strict=True):
                self.cache.put_estimate(key(one.site, shape), msgspec.json.encode(estimate), number, NOW - 60)
            for job in range(60):
                self.cache.put_outcome(outcome(one.site, str(job)))

    async def start(self) -> None:
        """It is ready from the beginning."""

    async def _check_broker(self) -> str | None:
        return self.broker_problem

    async def _send(self, question: AnyQuestion) -> None:
        if question.site in self.silent:
            raise AnswerTimeout(f"no worker answers for the site {question.site!r}; is one running?")
        self.requests.append(question)
        known = self._engines.get(question.site)
        found: AnyAnswer = (
            NoAnswer(id=question.id, site=question.site, reason=UNKNOWN_SITE, detail="no such site")
            if known is None
            else answer(question, known, known.time)
        )
        self._pending.resolve(msgspec.json.encode(found))


def answer_of_worker(question: AnyQuestion, engine: Engine) -> AnyAnswer:
    """The answer of a worker that has read all events of a site; it contains its age."""
    found = answer(question, engine, engine.time)
    return msgspec.structs.replace(found, as_of=engine.time, lag_messages=0, lag_s=0.0)


def engines() -> list[Engine]:
    """Two busy sites' engines."""
    return [engine("alder", 1), engine("birch", 2, 128)]


def app_of(questions: QuestionClient, **serve: Any) -> Any:
    """The service over these questions, with these settings of its section; test clients reach it by their names."""
    chosen = {"hosts": ("testserver", "testserver.local"), "requests_per_minute": 100_000} | serve
    settings = Settings(serve=ServeSettings(**chosen))
    return build_app(Service(questions, settings), settings)
