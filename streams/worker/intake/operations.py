"""Operators' changes to a site: they come among its events, so they are part of its fold and survive a crash."""

import logging
from typing import Any

import msgspec

from models.engine.engine import Engine
from models.engine.operations import operate
from models.records import AnyOperation, BeginAnew, DoneOperation, Rebuild
from streams.errors import UNDECODABLE
from streams.worker.checkpoint.stored import SiteHandle

log = logging.getLogger(__name__)

MAX_KEPT = 20
"""Operations that a site's stored state remembers: the latest ones."""

MIN_BETWEEN_REBUILDS_S = 600.0
"""Seconds, by the broker's stamps, before a site is rebuilt again: a flood of such messages must not stop others."""

MARK = b'"operator_'
"""What is in every operation, and hardly in any event: to look for it takes far less time than to decode."""

_decode = msgspec.json.Decoder(AnyOperation).decode


def read_operation(key: bytes | None, value: bytes | None) -> AnyOperation | None:
    """The operation that a message carries; None where it is none, or its key is not its site."""
    if value is None or MARK not in value:
        return None
    try:
        operation = _decode(value)
    except UNDECODABLE:
        return None
    return operation if key == operation.site.encode() else None


def rebuilt_lately(handle: SiteHandle, arrived: float) -> bool:
    """Whether the site was rebuilt too short a time ago to be so again."""
    rebuilds = [done.at for done in handle.operations if done.type == "operator_rebuild" and done.rebuilt]
    return bool(rebuilds) and arrived - rebuilds[-1] < MIN_BETWEEN_REBUILDS_S


def change(engine: Engine, operation: AnyOperation) -> str:
    """Do what an operation says, but where it is about the engine as a whole; returns in words what was done."""
    return "" if isinstance(operation, Rebuild | BeginAnew) else operate(engine, operation)


def note(handle: SiteHandle, operation: AnyOperation, arrived: float, done: str, rebuilt: bool = False) -> None:
    """Remember who changed what, when and why, and log it."""
    kind: Any = operation.__struct_config__.tag
    entry = DoneOperation(type=kind, at=arrived, by=operation.by, why=operation.why, done=done, rebuilt=rebuilt)
    handle.operations = [*handle.operations, entry][-MAX_KEPT:]
    log.warning("%s by %r (%r): %s", kind, operation.by, operation.why, done, extra={"site": operation.site})
