"""Reads a message as an event or a question, or says why it is none."""

from typing import TypeVar

import msgspec

from models.records import VERSION, AnyEvent, AnyQuestion, Bundle, DeadLetter
from streams.errors import UNDECODABLE

MAX_MESSAGE_BYTES = 65_536
"""Bytes of the largest message that is read as an event."""

MAX_SHOWN_BYTES = 1_000
"""Bytes of a message that its dead letter shows."""

Told = AnyEvent | Bundle
"""What is told of a site: an event, or a bundle of old ones."""

M = TypeVar("M", Told, AnyQuestion)

_told: msgspec.json.Decoder[Told] = msgspec.json.Decoder(Told)
_question: msgspec.json.Decoder[AnyQuestion] = msgspec.json.Decoder(AnyQuestion)


class _MessageHead(msgspec.Struct):
    """The fields that say what kind of message it is."""

    type: str | None = None
    v: int = VERSION


_decode_head = msgspec.json.Decoder(_MessageHead).decode


class Unreadable(Exception):
    """A message that cannot be read: `reason` is one of a few words, `detail` says what was found."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


def read_event(key: bytes | None, value: bytes | None) -> Told:
    """The event, or the bundle of events, that a message carries; 3 µs an event.

    Raises:
        Unreadable: for the reasons empty, too_large, not_json, version, unknown_type, malformed or wrong_key.
    """
    return _read(key, value, _told, EVENT_TYPES)


def read_question(key: bytes | None, value: bytes | None) -> AnyQuestion:
    """The question that a message carries.

    Raises:
        Unreadable: as `read_event`.
    """
    return _read(key, value, _question, QUESTION_TYPES)


def _read(key: bytes | None, value: bytes | None, decoder: msgspec.json.Decoder[M], types: tuple[str, ...]) -> M:
    if not value:
        raise Unreadable("empty", "the message has no value")
    if len(value) > MAX_MESSAGE_BYTES:
        raise Unreadable("too_large", f"{len(value)} bytes; at most {MAX_MESSAGE_BYTES} are read")
    try:
        message = decoder.decode(value)
    except UNDECODABLE as error:
        raise _diagnosis(value, error, types) from None
    if key != message.site.encode():
        raise Unreadable("wrong_key", f"the message's key must be its site, {message.site!r}")
    return message


def _diagnosis(value: bytes, error: Exception, types: tuple[str, ...]) -> Unreadable:
    """Why a message could not be read as one of these types."""
    detail = str(error)[:500]
    if not isinstance(error, msgspec.ValidationError):
        return Unreadable("not_json", detail)
    try:
        head = _decode_head(value)
    except UNDECODABLE:
        return Unreadable("malformed", detail)
    if head.v > VERSION:
        return Unreadable("version", f"version {head.v}; this reads up to {VERSION}")
    if head.type not in types:
        return Unreadable("unknown_type", f"type {str(head.type)[:64]!r}; expected one of {', '.join(types)}")
    return Unreadable("malformed", detail)


EVENT_TYPES = tuple(str(kind.__struct_config__.tag) for kind in Told.__args__)
"""The types of events there are, and the bundle's."""

QUESTION_TYPES = tuple(str(kind.__struct_config__.tag) for kind in AnyQuestion.__args__)
"""The types of questions there are."""


def dead_letter(
    reason: str,
    detail: str,
    site: str | None,
    topic: str,
    partition: int,
    offset: int,
    value: bytes | None,
    doubted: bool = False,
) -> DeadLetter:
    """The record for a message that was not processed, with the beginning of it in printable form."""
    raw = value or b""
    return DeadLetter(
        reason=reason,
        detail=detail,
        site=site,
        topic=topic,
        partition=partition,
        offset=offset,
        value=_printable(raw[:MAX_SHOWN_BYTES].decode("utf-8", "backslashreplace")),
        value_bytes=len(raw),
        doubted=doubted,
    )


def _printable(text: str) -> str:
    """Text with unprintable characters escaped, which a terminal could take for commands."""
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
