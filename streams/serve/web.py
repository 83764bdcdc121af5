"""The paths of the service with their answers, and the OpenAPI document about them.

Errors are JSON: `{"status_code": 400, "detail": "cpus: expected a whole number >= 1"}`. The detail names the
parameter that is wrong. An unknown parameter is an error too, so that a misspelt one is noticed.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import msgspec
from litestar import Litestar, MediaType, Request, Response, Router, get
from litestar.datastructures import State
from litestar.di import NamedDependency, Provide
from litestar.exceptions import HTTPException
from litestar.middleware import DefineMiddleware
from litestar.openapi import OpenAPIConfig, ResponseSpec
from litestar.openapi.plugins import JsonRenderPlugin
from litestar.openapi.spec import Components, OpenAPI, OpenAPIResponse, OpenAPIType, Schema, SecurityScheme
from litestar.openapi.spec import Parameter as DocumentedParameter
from litestar.params import FromPath, Parameter
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, generate_latest

from models.ranking import JobRequest, Ranking
from models.records import BUSY, JobAnswer, JobsAnswer, SiteAnswer, SiteTrends, WaitAnswer
from streams.client.estimates import MAX_OUTCOMES
from streams.client.job_requests import RankFields
from streams.client.pending_questions import STATUSES, Overloaded, WorkerCompiling
from streams.errors import UserError, in_words
from streams.serve import login, middleware, parameters
from streams.serve.access import Access, log_request
from streams.serve.pages import page, problem_page, rendered_pages, static, static_files
from streams.serve.service import AccuracyList, Service, SiteEstimateList, SiteList, SiteOutcomes, Status, UserJobs
from streams.serve.sessions import SESSION
from streams.settings import Settings
from streams.settings.sections import Rights
from streams.version import __version__

log = logging.getLogger(__name__)
FIRST_JOBS = 20  # number of jobs of a site's queue in an answer
RETRY_S = 2  # seconds after which a client should try again when the service was not ready
RETRY_COMPILING_S = 10  # the same while the worker compiles


class Problem(msgspec.Struct, kw_only=True, frozen=True):
    """Reason of a failed request; `reason` is "busy" if the service is overloaded, and omitted otherwise."""

    status_code: int
    detail: str
    reason: str | msgspec.UnsetType = msgspec.UNSET


class ClientIdentity(msgspec.Struct, kw_only=True, frozen=True):
    """The authenticated client; `name` is null if authentication is off. `session` is true for a browser session."""

    name: str | None
    rights: Rights
    user: str | None
    session: bool


DESCRIPTIONS = {
    400: "A parameter is wrong; the detail names it.",
    401: "The token is missing or wrong.",
    403: "The token does not allow this.",
    404: "There is no such site, or no such job there.",
    421: "The Host header names another host.",
    429: "Too many requests of this client in the last minute, or too many of its questions wait for the site's worker;"
    " the header Retry-After has the seconds to wait.",
    503: "Not ready: Kafka is away, or the worker compiles at its first start; or, with the reason busy, more questions"
    " come than can be answered. The header Retry-After has the seconds until the next query.",
    504: "The site's worker did not answer in time.",
}


def _errors(*statuses: int) -> dict[int, ResponseSpec]:
    """The error responses of a path for the OpenAPI document; those of all paths are implied."""
    return {
        status: ResponseSpec(Problem, description=DESCRIPTIONS[status], generate_examples=False)
        for status in sorted({400, 401, 403, 421, 429, 503, *statuses})
    }


RANK = {"rights": "rank"}  # what every token allows; without it, a path takes a token for everything
Served = NamedDependency[Service]
Described = NamedDependency[JobRequest]


@get("/sites", responses=_errors(), opt=RANK)
async def sites(service: Served) -> SiteList:
    """All sites that have estimates, with their live state."""
    return service.sites()


@get("/sites/{site:str}", responses=_errors(404, 504), opt=RANK)
async def site_now(site: parameters.NamedSite, service: Served) -> SiteAnswer:
    """A site's state from its worker: its live jobs, the first jobs of its queue, the accuracy of its predictions.

    The queue shows only jobs that the token may see.
    """
    return await service.grid.site(site, FIRST_JOBS)


@get("/sites/{site:str}/estimates", responses=_errors(404), opt=RANK)
async def estimates(site: parameters.NamedSite, service: Served) -> SiteEstimateList:
    """A site's grid estimates, one for each size, walltime and queue."""
    return service.estimates(site)


@get("/sites/{site:str}/outcomes", responses=_errors(404), opt={"query": {"limit"}})
async def outcomes(
    site: parameters.NamedSite, service: Served, limit: Annotated[int, Parameter(ge=1, le=MAX_OUTCOMES)] = MAX_OUTCOMES
) -> SiteOutcomes:
    """The outcomes of a site's latest jobs with their predictions; the newest first."""
    return service.outcomes(site, limit)


@get("/sites/{site:str}/wait", responses=_errors(404, 504), opt={"query": {*parameters.JOB, "why"}, **RANK})
async def wait(
    site: parameters.NamedSite, service: Served, job: Described, why: parameters.Reasons = False
) -> WaitAnswer:
    """Predicted wait of this job if it were submitted to the site now.

    While the site's worker compiles at its first start, the answer is provisional: `low_confidence` has the progress.
    """
    return await service.wait(site, job, why)


@get("/rank", responses=_errors(), opt={"query": parameters.RANK, **RANK})
async def ranking(
    service: Served,
    job: Described,
    site: parameters.SiteNames = (),
    run: parameters.Duration = "",
    start_within: parameters.Duration = "",
    prefer: parameters.Word = "",
    unless_sooner: parameters.Duration = "",
    why: parameters.Reasons = False,
) -> Ranking:
    """The sites for this job, sorted by predicted response time; `run` is its run time at a site of speed 1.

    With `start_within`, each site has the probability that the job starts there within that time. The site `prefer` is
    first unless another one starts sooner by more than `unless_sooner`.
    """
    within_s = parameters.duration_of("start_within", start_within)
    run_s = parameters.duration_of("run", run)
    sooner_s = parameters.duration_of("unless_sooner", unless_sooner)
    parameters.check_preference(prefer, sooner_s)
    fields: RankFields = {"sites": site, "run_s": run_s, "why": why, "start_within": within_s}
    fields |= {"prefer": prefer or None, "unless_sooner": sooner_s}
    return await service.grid.rank(job, **fields)


@get("/sites/{site:str}/jobs/{name:str}", responses=_errors(404, 504), opt={"query": parameters.JOB, **RANK})
async def job_now(
    site: parameters.NamedSite,
    name: FromPath[Annotated[str, Parameter(min_length=1, max_length=256, description="The job's id.")]],
    service: Served,
    job: Described,
    request: Request[Any, Any, State],
) -> JobAnswer:
    """Predicted start of a pending job, also as one line of `text`.

    Status 404 if the token may see no such pending or running job. If the parameters describe a job whose submission
    has not arrived yet, the answer is for a submission now.
    """
    return await service.job(site, name, job if request.query_params else None)


@get("/users/{user:str}/jobs", responses=_errors(), opt={"rights": "own"})
async def jobs(
    user: FromPath[Annotated[str, Parameter(min_length=1, max_length=256, description="The user's name.")]],
    service: Served,
) -> UserJobs:
    """A user's pending and running jobs at all sites, with their predictions."""
    return await service.jobs(user)


@get("/sites/{site:str}/trends", responses=_errors(404, 504), opt=RANK)
async def trends(site: parameters.NamedSite, service: Served) -> SiteTrends:
    """History of a site: its jobs by hour for a week, its waits by day for four weeks and by week for a year."""
    return await service.trends(site)


@get("/status", responses=_errors(), opt=RANK)
async def status(service: Served) -> Status:
    """State of each site (consumer lag, staleness, accuracy) and of its workers (checkpoints, dead letters)."""
    return await service.status()


@get("/accuracy", responses=_errors(), opt=RANK)
async def accuracy(service: Served) -> AccuracyList:
    """Accuracy of each site's estimates: at submission by week, and of pending jobs at fixed ages."""
    return await service.accuracy()


@get("/me", responses=_errors(), opt=RANK)
async def me(request: Request[Any, Any, State]) -> ClientIdentity:
    """The authenticated client: the name of the token, its rights, and whose jobs it may see."""
    access: Access = request.app.state.access
    found = access.authenticate(request)
    if found is None:
        return ClientIdentity(name=None, rights="all", user=None, session=False)
    name, token = found
    return ClientIdentity(name=name, rights=token.rights, user=token.user, session=SESSION in request.cookies)


@get("/healthz", media_type=MediaType.TEXT)
async def healthz() -> str:
    """Liveness of this process."""
    return "ok\n"


@get("/readyz", media_type=MediaType.TEXT, responses={503: ResponseSpec(str, media_type=MediaType.TEXT)})
async def readyz(service: Served) -> Response[str]:
    """Readiness: whether the sites can be queried now, and the reason if not."""
    problem = await service.client.problem()
    return Response("ready\n") if problem is None else Response(f"{problem}\n", status_code=503)


@get("/metrics", media_type=MediaType.TEXT)
async def metrics() -> Response[bytes]:
    """The metrics of this process, for Prometheus."""
    return Response(generate_latest(REGISTRY), media_type=CONTENT_TYPE_LATEST.partition("; charset")[0])


def _error(
    status: int,
    detail: str,
    headers: Mapping[str, str] | None = None,
    reason: str | msgspec.UnsetType = msgspec.UNSET,
) -> Response[Problem]:
    content = Problem(status_code=status, detail=detail, reason=reason)
    return Response(content, status_code=status, headers=dict(headers or {}), media_type=MediaType.JSON)


def _bad_request(request: Request[Any, Any, Any], error: HTTPException) -> Response[Any]:
    """Build an error whose detail names each wrong parameter; a page if the client is a browser."""
    path = request.url.path
    if not path.startswith("/v1/") and "text/html" in request.headers.get("accept", ""):
        content = problem_page(path, error.status_code, error.detail)
        return Response(content, status_code=error.status_code, media_type=MediaType.HTML)
    found = error.extra if isinstance(error.extra, list) else []
    headers = dict(error.headers or {})
    if error.status_code == 429:
        headers["Retry-After"] = headers.get("RateLimit-Reset", str(RETRY_S))
    wrong = [
        f"{item.get('key', 'request')}: {in_words(str(item.get('message')).replace('Expected', 'expected', 1))}"
        for item in found
        if isinstance(item, dict)
    ]
    return _error(error.status_code, "; ".join(wrong) or error.detail, headers)


def _no_answer(_: Request[Any, Any, Any], error: UserError) -> Response[Problem]:
    status = next((code for kind, code in STATUSES.items() if isinstance(error, kind)), 503)
    retry_s = RETRY_COMPILING_S if isinstance(error, WorkerCompiling) else RETRY_S
    headers = {"Retry-After": str(retry_s)} if status in (429, 503) else None
    return _error(status, str(error), headers, BUSY if isinstance(error, Overloaded) else msgspec.UNSET)


def _failed(request: Request[Any, Any, Any], error: Exception) -> Response[Problem]:
    log.error("%s failed", request.url.path, exc_info=error)
    return _error(500, "internal error; see the log")


def build_app(
    service: Service,
    settings: Settings,
    lifespan: "list[Callable[[Litestar], Any]] | None" = None,
    access: Access | None = None,
) -> Litestar:
    """Build the app. If there are tokens, the paths under /v1 require one; `access` holds them, by default the
    settings'.
    """
    serve = settings.serve
    access = access or Access(serve.all_tokens(), serve.user_header, serve.user_header_from)
    scheme = SecurityScheme(type="http", scheme="bearer", description="A token of the settings' section `serve`.")
    api = Router(
        "/v1",
        route_handlers=[
            sites,
            site_now,
            estimates,
            outcomes,
            wait,
            job_now,
            ranking,
            jobs,
            trends,
            status,
            accuracy,
            me,
        ],
        guards=[access.guard, parameters.refuse_unknown_parameters, access.note_client],
        middleware=[middleware.rate_limit(access, serve.requests_per_minute).middleware],
        dependencies={"job": Provide(parameters.job_request, sync_to_thread=False)},
        before_request=middleware.restore_slashes,
        security=[{"token": []}] if access.requires_token else None,
    )
    sessions = Router(
        "/login",
        route_handlers=[login.show_link, login.log_in, login.log_out],
        guards=[login.refuse_other_sites],
        middleware=[middleware.rate_limit(access, serve.requests_per_minute).middleware],
        include_in_schema=False,
    )
    app = Litestar(
        [api, sessions, healthz, readyz, metrics, page, static],
        dependencies={"service": Provide(lambda: service, sync_to_thread=False)},
        exception_handlers={HTTPException: _bad_request, UserError: _no_answer, Exception: _failed},
        state=State({"access": access, "pages": rendered_pages(), "static_files": static_files()}),
        openapi_config=OpenAPIConfig(
            title="queuecast",
            version=__version__,
            description="What batch jobs would wait at each site: durations in seconds, times in Unix seconds.",
            path="/schema",
            render_plugins=[JsonRenderPlugin()],
            use_handler_docstrings=True,
            components=Components(security_schemes={"token": scheme} if access.requires_token else None),
        ),
        middleware=[
            middleware.METRICS.middleware,
            DefineMiddleware(middleware.CheckHost, names=middleware.names_of(serve)),
        ],
        before_send=[middleware.add_security_headers, log_request],
        lifespan=lifespan,
        logging_config=None,
    )
    app.asgi_handler = middleware.answering_head(middleware.keeping_slashes(app.asgi_handler))
    _document_types(app.openapi_schema.components.schemas)
    _document_empty_values(app.openapi_schema)
    _document_answers(app.openapi_schema)
    return app


def _document_types(schemas: Mapping[str, Schema]) -> None:
    """Add the `type` field of answers to the document; msgspec writes it as their tag, and Litestar omits it."""
    for kind in (WaitAnswer, SiteAnswer, JobsAnswer, JobAnswer):
        schema = schemas[kind.__name__]
        schema.properties = {"type": Schema(const=str(kind.__struct_config__.tag)), **(schema.properties or {})}
        schema.required = ["type", *(schema.required or ())]


def _document_answers(document: OpenAPI) -> None:
    """Describe each path's answer by the path's summary; Litestar uses the same text for all."""
    for path in (document.paths or {}).values():
        found = path.get and (path.get.responses or {}).get("200")
        if path.get and isinstance(found, OpenAPIResponse):
            found.description = (path.get.description or "").partition("\n\n")[0] or "The answer."


def _document_empty_values(document: OpenAPI) -> None:
    """Document that empty values are allowed for strings and durations; Litestar declares them forbidden."""
    for path in (document.paths or {}).values():
        for parameter in (path.get and path.get.parameters) or ():
            if isinstance(parameter, DocumentedParameter) and parameter.param_in == "query":
                parameter.allow_empty_value = getattr(parameter.schema, "type", None) == OpenAPIType.STRING
