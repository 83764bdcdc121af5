"""API for custom sources: the contract, which `Source` describes, and the events."""

from models.records import AnyEvent
from streams.errors import UserError
from streams.sources.contract import (
    Cursor,
    CursorError,
    Skipped,
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
    "Skipped",
    "Source",
    "Step",
    "UserError",
    "decode_cursor",
    "encode_cursor",
    "refuse",
]
