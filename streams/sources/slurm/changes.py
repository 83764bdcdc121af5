"""What of a row can change while its job is live, and is compared from look to look."""

from collections.abc import Iterator
from operator import attrgetter
from typing import Any
from zlib import crc32

import msgspec

from models.records import Alter, JobEvent
from streams.sources.logs.fields import by_name
from streams.sources.slurm.rows import JobRow

_ORDINARY = frozenset({None, "Priority", "Resources", "Cleaning", "WaitingForScheduling", "BeginTime"})

_ALTERED = by_name(
    "account queue partitions cpus gpus gpu_types node_features memory walltime unlimited eligible qos reservation"
    " array_limit"
)
_altered = attrgetter(*_ALTERED)


def fingerprint(request: dict[str, Any]) -> int:
    """What a request is known by again."""
    return crc32(msgspec.json.encode(list(request.values()))) or 1


def reason_of(row: JobRow) -> str:
    """Why it is queued, where that is out of the ordinary; a hold is told as such."""
    return "" if row.held or row.pending_reason in _ORDINARY else (row.pending_reason or "")[:80]


def priority_of(row: JobRow) -> int:
    """Its priority; 0 where it is unknown, or is that of a hold."""
    return 0 if row.held else int(row.priority or 0)


def request_of(row: JobRow) -> dict[str, Any]:
    """What an alteration of a queued job can change; what is empty has been taken away."""
    kept = {"dependency": row.dependency or "", "node_features": row.node_features or []}
    return dict(zip(_ALTERED, _altered(row), strict=True)) | kept


def eligible_again(site: str, row: JobRow, attempt: int) -> Iterator[JobEvent]:
    """A requeued job may have to wait for a while before it may start again."""
    if row.eligible is not None and row.eligible > row.submit:
        yield Alter(site=site, time=row.submit, job=row.job, attempt=attempt, eligible=row.eligible)
