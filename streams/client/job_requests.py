"""Fields of a job in a query, and the job that they describe."""

from collections.abc import Mapping, Sequence
from typing import Any, Self, TypedDict

import msgspec

from models.preference import Preference
from models.ranking import JobRequest
from models.site.node_features import is_readable
from streams.client.preferred_site import taken_preference
from streams.errors import InvalidInput, in_words, place_and_problem, read_as
from streams.text.quantities import bytes_of, seconds_of


class JobFields(TypedDict, total=False):
    """The fields of `JobRequest` as programs may pass them: `walltime` and `memory` may be text with a unit."""

    cpus: int
    walltime: str | float | None
    nodes: int | None
    gpus: int
    memory: str | int | None
    queue: str | None
    user: str | None
    group: str | None
    account: str | None
    executable: str | None
    partition: str | None
    gpu_type: str | None
    tasks: int | None
    exclusive: bool
    qos: str | None
    reservation: str | None
    constraint: str | None
    unlimited: bool


class RankFields(JobFields, total=False):
    """The arguments of `rank`: the fields of a job and those that `AsyncClient.rank` describes."""

    sites: Sequence[str]
    run_s: float | None
    why: bool
    start_within: str | float | None
    prefer: str | None
    unless_sooner: str | float | None


class RankRequest(msgspec.Struct, frozen=True):
    """A request for a ranking; `start_within_s` and the job's durations are in seconds."""

    job: JobRequest
    sites: Sequence[str] = ()
    run_s: float | None = None
    why: bool = False
    start_within_s: float | None = None
    preference: Preference | None = None

    @classmethod
    def of(cls, job: JobRequest | None, fields: RankFields) -> Self:
        """Build the request from a job, or its fields, and the other arguments.

        Raises:
            InvalidInput: as `described`.
        """
        given: dict[str, Any] = dict(fields)
        within, sites = given.pop("start_within", None), given.pop("sites", ())
        within_s = read_as("start_within", seconds_of, within) if isinstance(within, str) else within
        run_s, why, preference = given.pop("run_s", None), given.pop("why", False), taken_preference(given)
        return cls(described(job, given), several(sites), run_s, why, within_s, preference)


def described(job: JobRequest | None, fields: Mapping[str, Any]) -> JobRequest:
    """Return the job, or build it from its fields.

    Raises:
        InvalidInput: there is no such field, or its value is wrong.
    """
    if job is not None and not isinstance(job, JobRequest):
        raise InvalidInput(f"job: expected a JobRequest, not {job!r}; or pass the fields by name: cpus=64")
    return job or job_request(**fields)


def constraint_of(text: str) -> str:
    """Return the node constraint if it is valid.

    Raises:
        InvalidInput: it cannot be parsed.
    """
    if not is_readable(text):
        raise InvalidInput(f"{text[:40]!r} cannot be read; expected features with & and | between: ib&(a100|h100)")
    return text


UNLIMITED = frozenset({"unlimited", "infinite"})  # words for a job without a time limit, in lower case


def job_request(**fields: Any) -> JobRequest:
    """Build a job request; `walltime` and `memory` may be text with a unit, `walltime` also "unlimited".

    Raises:
        InvalidInput: there is no such field, or its value is wrong.

    >>> job_request(cpus=64, walltime="4h").walltime
    14400.0
    >>> job_request(walltime="unlimited").unlimited
    True
    """
    if isinstance(walltime := fields.get("walltime"), str) and walltime.strip().lower() in UNLIMITED:
        fields |= {"walltime": None, "unlimited": True}
    if unknown := fields.keys() - set(JobRequest.__struct_fields__):
        raise InvalidInput(f"{min(unknown)!r} is not a field of a job")
    for name, read in (("walltime", seconds_of), ("memory", bytes_of), ("constraint", constraint_of)):
        if isinstance(fields.get(name), str):
            fields[name] = read_as(name, read, fields[name])
    try:
        return msgspec.convert(fields, JobRequest)
    except msgspec.ValidationError as error:
        place, problem = place_and_problem(error)
        raise InvalidInput(f"{place}: {in_words(problem)}") from None


def several(sites: Sequence[str]) -> Sequence[str]:
    """Return the sites as a sequence, also if one name is passed as a string."""
    return (sites,) if isinstance(sites, str) else sites
