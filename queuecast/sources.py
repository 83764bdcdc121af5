"""API for custom sources: the contract, which `Source` describes, and the events."""

from models.records import AnyEvent
from streams.errors import UserError
from streams.sources.contract import (
    Cursor,
    CursorError,
    SkippedPart,
    Source,
    Step,
    decode_cursor,
    encode_cursor,
    refuse,
)
from streams.sources.logs.log_source import LogSource

__all__ = [
    "AnyEvent",
    "Cursor",
    "CursorError",
    "LogSource",
    "SkippedPart",
    "Source",
    "Step",
    "UserError",
    "decode_cursor",
    "encode_cursor",
    "refuse",
]
