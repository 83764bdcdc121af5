"""What commands ask: the workers through Kafka, or an HTTP service. Both are asked with the same calls."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from models.ranking import JobRequest, Ranking
from models.records import JobAnswer, JobsAnswer, LiveJob, LiveState, SiteAnswer
from streams.client.blocking import Client
from streams.errors import NotUnderstood, Unreachable, UserError
from streams.settings import Settings

if TYPE_CHECKING:
    from urllib.error import HTTPError

NO_SITE = "no site is known yet: does a worker run, and have events come to it?"

SERVICE_TIMEOUT_S = 90.0
"""How long to wait for a service, which itself waits `serve.answer_seconds` for workers, a minute at most."""

T = TypeVar("T")


class SiteJobs(msgspec.Struct, frozen=True):
    """Jobs of one site, of the moment `as_of` (its last event, Unix seconds); `more` are left out."""

    site: str
    as_of: float | None
    jobs: list[LiveJob]
    more: int = 0
    stale: str | None = None


class SiteRow(msgspec.Struct, frozen=True):
    """A site in a list, of the moment `as_of`; `problem` says why it cannot be gone by, null where it can."""

    site: str
    cpus: int | None
    live: LiveState | None
    as_of: float | None
    lag_events: int
    problem: str | None


class NotFound(UserError):
    """The service knows no such site or job."""


class Asked(Protocol):
    """Who is asked. Sites are all that are known, unless some are named.

    Each call raises a `UserError` where nobody can be asked, or nobody answers.
    """

    def rank(self, job: JobRequest, sites: Sequence[str] = (), run_s: float | None = None) -> Ranking:
        """Rank the sites for a job; `run_s` is its run time at a site of speed 1, where the user knows it."""

    def job(self, job: str, sites: Sequence[str] = ()) -> list[JobAnswer]:
        """When a job starts that was submitted."""

    def user_jobs(self, user: str, sites: Sequence[str], most: int) -> list[SiteJobs]:
        """A user's jobs, `most` of a site; a service gives as many as it does by itself."""

    def longest_queued(self, sites: Sequence[str], most: int) -> list[SiteJobs]:
        """The jobs that have queued longest, `most` of a site; a service gives as many as it does by itself."""

    def sites(self, names: Sequence[str] = ()) -> list[SiteRow]:
        """The sites with their state."""


def asked_of(settings: Settings, url: str | None, token: str | None) -> Asked:
    """Who is asked: the service at this address, with this token or that of the settings; without one the workers."""
    return Workers(settings) if not url else HttpService(url, token or settings.serve.token)


class Workers:
    """The sites' workers, asked through Kafka."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def rank(self, job: JobRequest, sites: Sequence[str] = (), run_s: float | None = None) -> Ranking:
        """Rank the sites for a job."""
        with self._client() as client:
            return client.rank(job, sites=sites, run_s=run_s, why=True)

    def job(self, job: str, sites: Sequence[str] = ()) -> list[JobAnswer]:
        """When a job starts that was submitted."""
        with self._client() as client:
            return _answered(client.job(job, sites))

    def user_jobs(self, user: str, sites: Sequence[str], most: int) -> list[SiteJobs]:
        """A user's jobs."""
        with self._client() as client:
            return [_of_user(answer) for answer in _answered(client.jobs(user, sites, most))]

    def longest_queued(self, sites: Sequence[str], most: int) -> list[SiteJobs]:
        """The jobs that have queued longest."""
        with self._client() as client:
            return [_of_site(answer) for answer in _answered(client.every_site(sites, most))]

    def sites(self, names: Sequence[str] = ()) -> list[SiteRow]:
        """The sites with their state, also those whose worker is silent."""
        with self._client() as client:
            answers = client.every_site(names)
        return [
            SiteRow(site, None, None, None, 0, "no worker answers") if answer is None else _row(answer)
            for site, answer in answers.items()
        ]

    def _client(self) -> Client:
        return Client(self._settings, patience_s=0)


class _UserJobs(msgspec.Struct):
    """What is read here of a service's list of a user's jobs."""

    sites: list[JobsAnswer]


class _Named(msgspec.Struct):
    site: str


class _Site(_Named):
    """What is read here of a site in a service's list."""

    cpus: int
    live: LiveState
    as_of: float | None = None
    lag_events: int = 0
    stale: str | None = None
    degraded: str | None = None


class _Sites(msgspec.Struct, Generic[T]):
    sites: list[T]


class HttpService:
    """An HTTP service.

    Parameters:
        url: its address, http://host:port or https://….
        token: what lets us in, where it asks for a token.
    """

    def __init__(self, url: str, token: str | None = None) -> None:
        self._url = url
        self._token = token

    def rank(self, job: JobRequest, sites: Sequence[str] = (), run_s: float | None = None) -> Ranking:
        """Rank the sites for a job."""
        durations = {"walltime": _with_unit(job.walltime), "run": _with_unit(run_s)}
        fields: dict[str, Any] = {**msgspec.structs.asdict(job), **durations, "site": list(sites), "why": "true"}
        fields["exclusive"] = "true" if job.exclusive else None
        query = urlencode({name: value for name, value in fields.items() if value is not None}, doseq=True)
        return self.get(f"/v1/rank?{query}", Ranking)

    def job(self, job: str, sites: Sequence[str] = ()) -> list[JobAnswer]:
        """When a job starts that was submitted."""
        found, unknown = list[JobAnswer](), list[str]()
        for site in sites or self._names():
            try:
                found.append(self.get(f"{_path(site)}/jobs/{quote(job, safe='')}", JobAnswer))
            except NotFound as error:
                unknown.append(str(error))
        if not found:
            raise NotFound("; ".join(unknown) or NO_SITE)
        return found

    def user_jobs(self, user: str, sites: Sequence[str], most: int) -> list[SiteJobs]:
        """A user's jobs, as many as the service gives."""
        answers = self.get(f"/v1/users/{quote(user, safe='')}/jobs", _UserJobs).sites
        return [_of_user(answer) for answer in answers if not sites or answer.site in sites]

    def longest_queued(self, sites: Sequence[str], most: int) -> list[SiteJobs]:
        """The jobs that have queued longest, as many as the service gives."""
        return [_of_site(self.get(_path(site), SiteAnswer)) for site in sites or self._names()]

    def sites(self, names: Sequence[str] = ()) -> list[SiteRow]:
        """The sites with their state."""
        return [_row(one) for one in self.get("/v1/sites", _Sites[_Site]).sites if not names or one.site in names]

    def _names(self) -> list[str]:
        return [one.site for one in self.get("/v1/sites", _Sites[_Named]).sites]

    def get(self, path: str, kind: type[T]) -> T:
        """What the service answers at a path.

        Raises:
            UserError: it cannot be reached or refuses, or its address is not one.
        """
        import urllib.error  # who asks through Kafka needs none of these
        import urllib.request
        from http.client import HTTPException

        url, headers = self._url, {} if self._token is None else {"Authorization": f"Bearer {self._token}"}
        if not url.startswith(("http://", "https://")):
            raise NotUnderstood(f"--url is {url!r}; expected http://host:port or https://…")
        request = urllib.request.Request(f"{url.rstrip('/')}{path}", headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=SERVICE_TIMEOUT_S) as answer:
                return msgspec.json.decode(answer.read(), type=kind)
        except urllib.error.HTTPError as error:
            raise (NotFound if error.code == 404 else UserError)(f"{url}: {_detail(error)}") from None
        except msgspec.MsgspecError:
            raise UserError(f"{url}: what answers there is no service of queuecast's") from None
        except urllib.error.URLError as error:
            raise Unreachable(f"{url}: {error.reason}; does `queuecast serve` run there?") from None
        except (OSError, ValueError, HTTPException) as error:  # the last: the service died in mid-answer
            raise Unreachable(f"{url}: {error}") from None


def _path(site: str) -> str:
    return f"/v1/sites/{quote(site, safe='')}"


def _with_unit(seconds: float | None) -> str | None:
    """A duration as the service reads it."""
    return None if seconds is None else f"{math.ceil(seconds)}s"


def _detail(error: "HTTPError") -> str:
    from http.client import HTTPException

    try:
        return str(json.loads(error.read())["detail"])
    except (OSError, ValueError, KeyError, TypeError, HTTPException):
        return f"status {error.code}"


def _answered(by_site: Mapping[str, T | None]) -> list[T]:
    """The answers of the sites that answer.

    Raises:
        UserError: none does.
    """
    found = [answer for answer in by_site.values() if answer is not None]
    if not found:
        raise UserError(f"no worker answers for {', '.join(by_site)}" if by_site else NO_SITE)
    return found


def _of_user(answer: JobsAnswer) -> SiteJobs:
    return SiteJobs(answer.site, answer.as_of or answer.made_at, answer.jobs, answer.more, answer.stale)


def _of_site(answer: SiteAnswer) -> SiteJobs:
    more = answer.live.queued_jobs - len(answer.queued)
    return SiteJobs(answer.site, answer.as_of or answer.made_at, answer.queued, max(more, 0), answer.stale)


def _row(answer: SiteAnswer | _Site) -> SiteRow:
    problem = answer.stale or answer.degraded
    return SiteRow(answer.site, answer.cpus, answer.live, answer.as_of, answer.lag_events, problem)
