"""The client of an HTTP service; it needs neither Kafka nor the dependencies of a worker."""

import copy
import math
import urllib.error
import urllib.request
from collections.abc import Sequence
from http.client import HTTPException
from typing import Any, Generic, Self, TypeVar, Unpack
from urllib.parse import quote, urlencode

import msgspec

from models.ranking import JobRequest, Ranking
from models.records import BUSY, GridEstimate, JobAnswer, JobsAnswer, LiveState, SiteAnswer, WaitAnswer
from models.site.shapes import Shape, covering
from streams.client.job_requests import JobFields, RankFields, RankRequest, described, several
from streams.client.pending_questions import (
    STATUSES,
    AnswerTimeout,
    NotFound,
    Overloaded,
    QuestionRejected,
    UnknownJob,
    UnknownSite,
)
from streams.errors import InvalidInput, Unreachable, UserError
from streams.text.quantities import seconds_of

T = TypeVar("T")

TIMEOUT_S = 90.0
"""Timeout of a request; the service itself waits `serve.answer_timeout_seconds` for workers, at most a minute."""


class SiteSummary(msgspec.Struct, frozen=True):
    """The fields of a site in a service's list that the client reads, as in `models.records.SiteAnswer`."""

    site: str
    cpus: int
    live: LiveState
    as_of: float | None = None
    lag_messages: int = 0
    stale: str | None = None


class _Sites(msgspec.Struct, Generic[T]):
    sites: list[T]


class _Estimates(msgspec.Struct):
    estimates: list[GridEstimate]


class HttpClient:
    """The `Client` for an HTTP service: `HttpClient("https://queuecast.example.org").rank(cpus=64)`.

    `AsyncClient` describes the methods. The service limits the number of jobs per site. Several threads may share one
    client. Streams of predictions are available over Kafka only.

    Args:
        url: address of the service, http://host:port or https://….
        token: access token, if the service requires one.
        timeout_s: timeout of a call in seconds.

    Every method may raise a `UserError`: `Unreachable` if the service is unreachable or not ready, `AnswerTimeout` if
    no worker answers the service, `NotFound` if there is no such site or job, `QuestionRejected` if the service denies
    access or rejects the question.
    """

    def __init__(self, url: str, token: str | None = None, *, timeout_s: float = TIMEOUT_S) -> None:
        if not url.startswith(("http://", "https://")):
            raise InvalidInput(f"the service's address is {url!r}; expected http://host:port or https://…")
        self._url = url.rstrip("/")
        self._token = token
        self._timeout_s = timeout_s

    def __enter__(self) -> Self:
        """Return the client; no connection is kept open between calls."""
        return self

    def __exit__(self, *error: object) -> None:
        """Do nothing."""

    def within(self, seconds: float) -> Self:
        """Return the same client with another timeout: calls fail after `seconds`."""
        changed = copy.copy(self)
        changed._timeout_s = seconds
        return changed

    @property
    def sites(self) -> list[str]:
        """The sites that have estimates, sorted by name."""
        return sorted(one.site for one in self.summaries())

    def summaries(self, sites: Sequence[str] = ()) -> list[SiteSummary]:
        """Return the state of these sites, by default of all, from their grid estimates, in one request."""
        found = self._get("/v1/sites", _Sites[SiteSummary]).sites
        return [one for one in found if not sites or one.site in several(sites)]

    def estimates(self, site: str) -> list[GridEstimate]:
        """Return a site's current grid estimates."""
        return self._get(f"{_path(site)}/estimates", _Estimates, UnknownSite).estimates

    def estimate(
        self, site: str, cpus: int, walltime: str | float | None = None, queue: str | None = None, gpus: int = 0
    ) -> GridEstimate | None:
        """Return the grid estimate of the smallest shape that fits the job; None without one."""
        shapes = {Shape(one.cpus, one.walltime, one.queue, one.gpus or 0): one for one in self.estimates(site)}
        seconds = seconds_of(walltime) if isinstance(walltime, str) else walltime
        shape = covering(shapes, cpus, seconds, queue, gpus)
        return None if shape is None else shapes[shape]

    def rank(self, job: JobRequest | None = None, **fields: Unpack[RankFields]) -> Ranking:
        """Rank the sites by the response time of a job."""
        found = RankRequest.of(job, fields)
        more = {"run": _with_unit(found.run_s), "start_within": _with_unit(found.start_within_s)}
        if found.preference is not None:
            sooner = _with_unit(found.preference.unless_sooner_s)
            more |= {"prefer": found.preference.site, "unless_sooner": sooner}
        return self._get(f"/v1/rank?{_query(found.job, found.why, site=list(found.sites), **more)}", Ranking)

    def wait(
        self, site: str, job: JobRequest | None = None, *, why: bool = False, **fields: Unpack[JobFields]
    ) -> WaitAnswer:
        """Predict the wait of a job submitted to the site now."""
        return self._get(f"{_path(site)}/wait?{_query(described(job, fields), why)}", WaitAnswer, UnknownSite)

    def site(self, site: str, limit: int = 0) -> SiteAnswer:
        """Return a site's size, jobs and accuracy, and its longest-pending jobs."""
        return self._get(_path(site), SiteAnswer, UnknownSite)

    def every_site(self, sites: Sequence[str] = (), limit: int = 0) -> dict[str, SiteAnswer | None]:
        """Return the answer of `site` for these sites, by default for all; None if no worker answers."""
        found: dict[str, SiteAnswer | None] = {}
        for site in several(sites) or self.sites:
            try:
                found[site] = self.site(site)
            except AnswerTimeout:
                found[site] = None
        return found

    def job(self, job: str, sites: Sequence[str] = ()) -> dict[str, JobAnswer | None]:
        """Predict the start of a submitted job, by site, as `AsyncClient.job`.

        Raises:
            UnknownJob: the job is registered at no site.
        """
        found: dict[str, JobAnswer | None] = {}
        unknown: dict[str, list[str]] = {}
        for site in several(sites) or self.sites:
            try:
                found[site] = self._get(f"{_path(site)}/jobs/{quote(job, safe='')}", JobAnswer, UnknownJob)
            except NotFound as error:
                what = str(error).removeprefix(f"{self._url}: ").removeprefix(f"{site}: ")
                unknown.setdefault(what, []).append(site)
            except AnswerTimeout:
                found[site] = None
        if unknown and not any(found.values()):
            problems = "; ".join(f"{', '.join(names)}: {what}" for what, names in unknown.items())
            raise UnknownJob(f"{self._url}: {problems}")
        return found

    def jobs(self, user: str, sites: Sequence[str] = (), limit: int = 100) -> dict[str, JobsAnswer | None]:
        """Return a user's pending and running jobs, by site."""
        answers = self._get(f"/v1/users/{quote(user, safe='')}/jobs", _Sites[JobsAnswer]).sites
        return {answer.site: answer for answer in answers if not sites or answer.site in several(sites)}

    def _get(self, path: str, kind: type[T], unknown: type[NotFound] = NotFound) -> T:
        """Return the service's answer at a path; `unknown` is the error for a missing site or job."""
        headers = {} if self._token is None else {"Authorization": f"Bearer {self._token}"}
        request = urllib.request.Request(f"{self._url}{path}", headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=self._timeout_s) as answer:
                return msgspec.json.decode(answer.read(), type=kind)
        except urllib.error.HTTPError as error:
            problem = _problem(error)
            raise _kind(error.code, problem, unknown)(f"{self._url}: {problem.detail}") from None
        except msgspec.MsgspecError:
            raise UserError(f"{self._url}: the server is not a queuecast service") from None
        except urllib.error.URLError as error:
            why = getattr(error.reason, "strerror", None) or error.reason
            raise Unreachable(f"{self._url}: {why}; is `queuecast serve` running there?") from None
        except (OSError, ValueError, HTTPException) as error:  # the last: the service died in mid-answer
            raise Unreachable(f"{self._url}: {error}") from None


def _path(site: str) -> str:
    return f"/v1/sites/{quote(site, safe='')}"


def _query(job: JobRequest, why: bool, **more: Any) -> str:
    fields = {**msgspec.structs.asdict(job), "walltime": _with_unit(job.walltime), **more}
    fields |= {
        "exclusive": "true" if job.exclusive else None,
        "why": "true" if why else None,
        "unlimited": "true" if job.unlimited else None,
    }
    return urlencode({name: value for name, value in fields.items() if value is not None}, doseq=True)


def _with_unit(seconds: float | None) -> str | None:
    return None if seconds is None else f"{math.ceil(seconds)}s"


class _Problem(msgspec.Struct):
    """The service's description of a failed request."""

    detail: str
    reason: str | None = None


def _problem(error: urllib.error.HTTPError) -> _Problem:
    try:
        return msgspec.json.decode(error.read(), type=_Problem)
    except (OSError, ValueError, HTTPException):
        return _Problem(f"status {error.code}")


def _kind(status: int, problem: _Problem, unknown: type[NotFound]) -> type[UserError]:
    if status == STATUSES[Overloaded]:
        return Overloaded if problem.reason == BUSY else Unreachable
    found = next((one for one, its in STATUSES.items() if its == status), QuestionRejected)
    return unknown if found is NotFound else found
