"""The paths of the service and their parameters, what each may answer, and the OpenAPI document that says so.

Errors are JSON: `{"status_code": 400, "detail": "cpus: Expected `int` >= 1"}`. What is wrong with a request is said by
the name of the parameter; a parameter that there is not is wrong too, lest a misspelt one goes unseen.
"""

import hmac
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from mimetypes import guess_type
from pathlib import Path
from typing import Annotated, Any

import msgspec
from litestar import Litestar, MediaType, Request, Response, Router, get
from litestar.connection import ASGIConnection
from litestar.datastructures import State
from litestar.di import NamedDependency, Provide
from litestar.exceptions import HTTPException, NotAuthorizedException, NotFoundException, ValidationException
from litestar.handlers import BaseRouteHandler
from litestar.openapi import OpenAPIConfig, ResponseSpec
from litestar.openapi.plugins import JsonRenderPlugin
from litestar.openapi.spec import Components, OpenAPIType, Schema, SecurityScheme
from litestar.params import FromPath, Parameter
from litestar.types import ControllerRouterHandler
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from models.ranking import JobRequest, Ranking
from models.records import JobsAnswer, Name, SiteAnswer, WaitAnswer
from streams.client.estimates import KEPT_OUTCOMES
from streams.client.questions import Silent
from streams.durations import EXPECTED, PATTERN, seconds_of
from streams.errors import UserError
from streams.serve.middleware import Requests
from streams.serve.service import Accuracy, Service, SiteEstimatesTold, SiteOutcomes, Sites, UnknownSite, UserJobs
from streams.settings import Settings

log = logging.getLogger(__name__)

PAGE = Path(__file__).parent / "page"

RETRY_S = 2
"""Seconds after which it is worth asking again who was not ready."""


class Problem(msgspec.Struct, kw_only=True, frozen=True):
    """Why a request has no answer."""

    status_code: int
    detail: str


SAID = {
    400: "A parameter is wrong; the detail names it.",
    401: "The token is missing or wrong.",
    404: "There is no such site.",
    503: "Not ready: Kafka is away, or too much is asked.",
    504: "The site's worker has not answered in time.",
}


def _may(*statuses: int) -> dict[int, ResponseSpec]:
    """The problems that a path may answer with."""
    return {
        status: ResponseSpec(Problem, description=SAID[status], generate_examples=False) for status in sorted(statuses)
    }


MOST = 1_000_000_000
JOB = frozenset(JobRequest.__struct_fields__)
"""The parameters that describe a job."""


Duration = Annotated[
    str, Parameter(description=f"A duration: {EXPECTED}.", schema_extra={"pattern": f"^({PATTERN})?$"})
]
Whole = Annotated[int, Parameter(ge=0, le=MOST)]
Word = Annotated[str, Parameter(max_length=256)]
NamedSite = FromPath[Annotated[str, Parameter(min_length=1, max_length=256, description="The site's name.")]]
SiteNames = Annotated[
    tuple[Name, ...],
    Parameter(
        max_items=1000,
        description="Only these sites; by default all that are known.",
        # Of names within a list the document would not tell by itself what they are.
        schema_extra={"items": Schema(type=OpenAPIType.STRING, min_length=1, max_length=256)},
    ),
]
Served = NamedDependency[Service]
Described = NamedDependency[JobRequest]


def job_asked(
    cpus: Annotated[int, Parameter(ge=1, le=MOST, description="Processors.")] = 1,
    walltime: Duration = "",
    nodes: Whole = 0,
    gpus: Whole = 0,
    memory: Annotated[int, Parameter(ge=0, le=1 << 50, description="Bytes.")] = 0,
    queue: Word = "",
    user: Word = "",
    group: Word = "",
    account: Word = "",
    executable: Word = "",
) -> JobRequest:
    """The job that a request describes; what is empty, or 0, is not said."""
    return JobRequest(
        cpus=cpus,
        walltime=_seconds("walltime", walltime),
        nodes=nodes or None,
        gpus=gpus,
        memory=memory or None,
        queue=queue or None,
        user=user or None,
        group=group or None,
        account=account or None,
        executable=executable or None,
    )


def _seconds(name: str, text: str) -> float | None:
    if not text.strip():
        return None
    try:
        return seconds_of(text)
    except UserError as error:
        raise ValidationException(detail=f"{name}: {error}") from None


@get("/sites", responses=_may(400, 401, 503))
async def sites(service: Served) -> Sites:
    """The sites of which estimates stand, and how they are."""
    return service.sites()


@get("/sites/{site:str}", responses=_may(400, 401, 404, 503, 504))
async def site_now(site: NamedSite, service: Served) -> SiteAnswer:
    """A site as its worker knows it: its live jobs, the head of its queue, how good its predictions were."""
    return await service.site(site)


@get("/sites/{site:str}/estimates", responses=_may(400, 401, 404, 503))
async def estimates(site: NamedSite, service: Served) -> SiteEstimatesTold:
    """A site's standing estimates, one a size, walltime and queue."""
    return service.estimates(site)


@get("/sites/{site:str}/outcomes", responses=_may(400, 401, 404, 503), opt={"query": {"most"}})
async def outcomes(
    site: NamedSite, service: Served, most: Annotated[int, Parameter(ge=1, le=KEPT_OUTCOMES)] = KEPT_OUTCOMES
) -> SiteOutcomes:
    """What became of a site's latest jobs, beside what had been predicted; the newest first."""
    return service.outcomes(site, most)


@get("/sites/{site:str}/wait", responses=_may(400, 401, 404, 503, 504), opt={"query": JOB})
async def wait(site: NamedSite, service: Served, job: Described) -> WaitAnswer:
    """How long this job would wait at a site, if it came now."""
    return await service.wait(site, job)


@get("/rank", responses=_may(400, 401, 503), opt={"query": {*JOB, "run", "site"}})
async def ranking(
    service: Served,
    job: Described,
    site: SiteNames = (),
    run: Duration = "",
) -> Ranking:
    """The sites for this job, by the response time that it can expect; `run` is its run time at a site of speed 1."""
    return await service.rank(job, site, _seconds("run", run))


@get("/users/{user:str}/jobs", responses=_may(400, 401, 503))
async def jobs(
    user: FromPath[Annotated[str, Parameter(min_length=1, max_length=256, description="The user's name.")]],
    service: Served,
) -> UserJobs:
    """A user's live jobs at all sites, and what was predicted of them."""
    return await service.jobs(user)


@get("/accuracy", responses=_may(400, 401, 503))
async def accuracy(service: Served) -> Accuracy:
    """How good the predictions of all sites were, week by week."""
    return await service.accuracy()


@get("/healthz", media_type=MediaType.TEXT)
async def healthz() -> str:
    """That this process answers."""
    return "ok\n"


@get("/readyz", media_type=MediaType.TEXT, responses={503: ResponseSpec(str, media_type=MediaType.TEXT)})
async def readyz(service: Served) -> Response[str]:
    """Whether sites can be asked just now; if not, why."""
    hindrance = await service.hindrance()
    return Response("ready\n") if hindrance is None else Response(f"{hindrance}\n", status_code=503)


@get("/metrics", media_type=MediaType.TEXT)
async def metrics(state: State) -> Response[bytes]:
    """What Prometheus reads."""
    return Response(generate_latest(state.requests.registry), media_type=CONTENT_TYPE_LATEST.partition("; charset")[0])


@get("/", include_in_schema=False)
async def index(state: State) -> Response[bytes]:
    """The page."""
    return _file(state.page, "index.html")


@get("/static/{name:str}", include_in_schema=False)
async def static(name: FromPath[str], state: State) -> Response[bytes]:
    """What the page consists of."""
    return _file(state.page, name)


def _file(files: Mapping[str, bytes], name: str) -> Response[bytes]:
    if name not in files:
        raise NotFoundException(detail="there is no such file")
    return Response(files[name], media_type=guess_type(name)[0] or "application/octet-stream")


def let_in(token: str) -> Callable[[ASGIConnection[Any, Any, Any, Any], BaseRouteHandler], None]:
    """A guard that lets in those who show the token, and takes as long over a nearly right one as over any other."""
    expected = token.encode()

    def guard(connection: ASGIConnection[Any, Any, Any, Any], _: BaseRouteHandler) -> None:
        scheme, _space, given = connection.headers.get("authorization", "").partition(" ")
        right = hmac.compare_digest(given.strip().encode("latin-1", "replace"), expected)
        if not right or scheme.lower() != "bearer":
            detail = "the token is missing or wrong; expected the header `Authorization: Bearer TOKEN`"
            raise NotAuthorizedException(detail=detail, headers={"WWW-Authenticate": "Bearer"})

    return guard


def no_others(connection: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler) -> None:
    """A guard against parameters that there are not, and those that are given twice."""
    known = handler.opt.get("query", frozenset())
    for name, times in Counter(name for name, _ in connection.query_params.multi_items()).items():
        if name not in known:
            there_are = f"there are: {', '.join(sorted(known))}" if known else "there are none here"
            raise ValidationException(detail=f"{name[:64]!r} is not a parameter; {there_are}")
        if times > 1 and name != "site":
            raise ValidationException(detail=f"{name}: expected once, it is given {times} times")


def _told(status: int, detail: str, headers: Mapping[str, str] | None = None) -> Response[Problem]:
    content = Problem(status_code=status, detail=detail)
    return Response(content, status_code=status, headers=dict(headers or {}), media_type=MediaType.JSON)


def _refused(_: Request[Any, Any, Any], error: HTTPException) -> Response[Problem]:
    """What is wrong with a request, each parameter by its name."""
    found = error.extra if isinstance(error.extra, list) else []
    wrong = [f"{item.get('key', 'request')}: {item.get('message')}" for item in found if isinstance(item, dict)]
    return _told(error.status_code, "; ".join(wrong) or error.detail, error.headers)


def _unanswered(_: Request[Any, Any, Any], error: UserError) -> Response[Problem]:
    if isinstance(error, UnknownSite):
        return _told(404, str(error))
    if isinstance(error, Silent):
        return _told(504, str(error))
    return _told(503, str(error), {"Retry-After": str(RETRY_S)})


def _failed(request: Request[Any, Any, Any], error: Exception) -> Response[Problem]:
    log.error("%s failed", request.url.path, exc_info=error)
    return _told(500, "internal error; the log says more")


def build_app(
    service: Service, settings: Settings, requests: Requests, lifespan: "list[Callable[[Litestar], Any]] | None" = None
) -> Litestar:
    """The app; with a token in the settings, it asks for it under /v1."""
    token = settings.serve.token
    v1: list[ControllerRouterHandler] = [sites, site_now, estimates, outcomes, wait, ranking, jobs, accuracy]
    scheme = SecurityScheme(type="http", scheme="bearer", description="The `token` of the settings' section `serve`.")
    asked = Router(
        "/v1",
        route_handlers=v1,
        guards=[*([let_in(token)] if token else []), no_others],
        dependencies={"job": Provide(job_asked, sync_to_thread=False)},
        security=[{"token": []}] if token else None,
    )
    app = Litestar(
        [asked, healthz, readyz, metrics, index, static],
        dependencies={"service": Provide(lambda: service, sync_to_thread=False)},
        exception_handlers={HTTPException: _refused, UserError: _unanswered, Exception: _failed},
        state=State({"requests": requests, "page": {file.name: file.read_bytes() for file in PAGE.glob("*")}}),
        openapi_config=OpenAPIConfig(
            title="queuecast",
            version=_version(),
            description="What batch jobs would wait at each site: durations in seconds, times in Unix seconds.",
            path="/schema",
            render_plugins=[JsonRenderPlugin()],
            use_handler_docstrings=True,
            components=Components(security_schemes={"token": scheme} if token else None),
        ),
        lifespan=lifespan,
        logging_config=None,
    )
    _tell_types(app.openapi_schema.components.schemas)
    return app


def _tell_types(schemas: Mapping[str, Schema]) -> None:
    """Answers say of which type they are, which the document would not tell by itself."""
    for kind in (WaitAnswer, SiteAnswer, JobsAnswer):
        schema = schemas[kind.__name__]
        schema.properties = {"type": Schema(const=str(kind.__struct_config__.tag)), **(schema.properties or {})}
        schema.required = ["type", *(schema.required or ())]


def _version() -> str:
    try:
        return version("queuecast")
    except PackageNotFoundError:
        return "not installed"
