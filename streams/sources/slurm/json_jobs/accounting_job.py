"""A job as sacct and slurmdbd tell it."""

from typing import Any

import msgspec

from streams.sources.logs.fields import by_name
from streams.sources.slurm.rows import JobRow
from streams.sources.slurm.shapes import text_of
from streams.sources.slurm.told import Told, row_of

_PLACES = {
    field: tuple(place.split("."))
    for field, place in by_name(
        "job_state:state.current submit_time:time.submission eligible_time:time.eligible start_time:time.start"
        " end_time:time.end elapsed:time.elapsed time_limit:time.limit array_job_id:array.job_id"
        " array_task_id:array.task_id array_task_string:array.task het_job_id:het.job_id required_cpus:required.CPUs"
        " state_reason:state.reason user_name:user group_name:group node_count:allocation_nodes features:constraints"
        " job_id restart_cnt cluster account partition qos name nodes priority hold sluid"
        " original_sluid"
    ).items()
}
"""Where the fields of `Told` are in a job."""

_PARTS = {place[0] for place in _PLACES.values()} | {"reservation", "tres"}
AccountingJob = msgspec.defstruct("AccountingJob", [(name, Any, None) for name in sorted(_PARTS)], gc=False)
"""A job with the parts that are looked at, as they are."""


def row_of_accounting(job: Any) -> JobRow | str:
    """The row of a job as sacct and slurmdbd tell it; the name of the field of `Told` that is wrong.

    Raises:
        ValidationError: it is no such job.
    """
    told = msgspec.convert({field: _inside(job, place) for field, place in _PLACES.items()}, Told, strict=False)
    told.nodes = told.nodes or ""
    reservation = _inside(job, ("reservation", "name"))
    told.resv_name = reservation if isinstance(reservation, str) else None
    asked, got = (_inside(job, ("tres", what)) for what in ("requested", "allocated"))
    told.tres_req_str, told.tres_alloc_str = text_of(asked), text_of(got)
    return row_of(told)


def _inside(job: Any, place: tuple[str, ...]) -> Any:
    found = getattr(job, place[0])
    for name in place[1:]:
        found = found.get(name) if isinstance(found, dict) else None
    return found
