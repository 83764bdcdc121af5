"""Request parameters: their types and limits, and the job that they describe."""

from collections import Counter
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from litestar.connection import ASGIConnection
from litestar.exceptions import ValidationException
from litestar.handlers import BaseRouteHandler
from litestar.openapi.spec import OpenAPIType, Schema
from litestar.params import FromPath, Parameter

from models.ranking import JobRequest
from models.records import Name
from streams.client import job_requests
from streams.errors import UserError, read_as
from streams.text.quantities import EXPECTED, EXPECTED_SIZE, PATTERN, SAFE_SIZE_PATTERN, seconds_of

T = TypeVar("T")

MAX_COUNT = 1_000_000_000
JOB = frozenset(JobRequest.__struct_fields__)  # the parameters that describe a job

RANK = JOB | {"prefer", "run", "site", "start_within", "unless_sooner", "why"}  # what a ranking takes

Duration = Annotated[
    str, Parameter(description=f"A duration: {EXPECTED}.", schema_extra={"pattern": f"^({PATTERN})?$"})
]
Walltime = Annotated[
    str,
    Parameter(
        description=f"A duration: {EXPECTED}; or unlimited.", schema_extra={"pattern": f"^(unlimited|{PATTERN})?$"}
    ),
]
Memory = Annotated[
    str,
    Parameter(description=f"Memory in all: {EXPECTED_SIZE}.", schema_extra={"pattern": f"^({SAFE_SIZE_PATTERN})?$"}),
]
Whole = Annotated[int, Parameter(ge=0, le=MAX_COUNT)]
Word = Annotated[str, Parameter(max_length=256)]
NamedSite = FromPath[Annotated[str, Parameter(min_length=1, max_length=256, description="The site's name.")]]
SiteNames = Annotated[
    tuple[Name, ...],
    Parameter(
        max_items=1000,
        description="Only these sites; by default all that are known.",
        # Litestar does not document the type of a list's items when it has constraints.
        schema_extra={"items": Schema(type=OpenAPIType.STRING, min_length=1, max_length=256)},
    ),
]
Reasons = Annotated[bool, Parameter(description="Include reasons for the wait, and changes that start the job sooner.")]


def job_request(
    cpus: Annotated[int, Parameter(ge=1, le=MAX_COUNT, description="CPUs.")] = 1,
    walltime: Walltime = "",
    nodes: Whole = 0,
    gpus: Whole = 0,
    memory: Memory = "",
    queue: Word = "",
    user: Word = "",
    group: Word = "",
    account: Word = "",
    executable: Word = "",
    partition: Annotated[Word, Parameter(description="A partition, or several with commas between.")] = "",
    gpu_type: Annotated[Word, Parameter(description="The type of its GPUs.")] = "",
    tasks: Whole = 0,
    exclusive: Annotated[bool, Parameter(description="Whether it needs whole nodes.")] = False,
    qos: Word = "",
    reservation: Word = "",
    constraint: Annotated[Word, Parameter(description="What its nodes have to have: ib&(a100|h100).")] = "",
    unlimited: Annotated[bool, Parameter(description="Whether it has no time limit.")] = False,
) -> JobRequest:
    """Build the job that a request describes; an empty value, or 0, means that it is not given."""
    given: dict[str, Any] = {name: value for name, value in locals().items() if value and str(value).strip()}
    return _checked(lambda: job_requests.job_request(**given))


def duration_of(name: str, text: str) -> float | None:
    """Return the seconds of a duration parameter; None if it is empty."""
    return _checked(lambda: read_as(name, seconds_of, text)) if text.strip() else None


def check_preference(prefer: str, unless_sooner_s: float | None) -> None:
    """Reject a margin without a preferred site."""
    if unless_sooner_s is not None and not prefer:
        raise ValidationException(detail="unless_sooner: requires prefer, the site that another must beat by this time")


def _checked(read: Callable[[], T]) -> T:
    try:
        return read()
    except UserError as error:
        raise ValidationException(detail=str(error)) from None


def refuse_unknown_parameters(connection: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler) -> None:
    """Guard against unknown parameters and duplicates."""
    known = handler.opt.get("query", frozenset())
    for name, times in Counter(name for name, _ in connection.query_params.multi_items()).items():
        if name not in known:
            there_are = f"there are: {', '.join(sorted(known))}" if known else "there are none here"
            raise ValidationException(detail=f"{name[:64]!r} is not a parameter; {there_are}")
        if times > 1 and name != "site":
            raise ValidationException(detail=f"{name}: expected once, it is given {times} times")
