"""From a message to an event, or to the reason why it is none."""

import msgspec

from models.records import VERSION, AnyEvent, DeadLetter

LARGEST = 65_536
"""Bytes of the largest message that is read as an event."""

UNDECODABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What msgspec raises for bytes that do not decode."""

SHOWN = 1_000
"""Bytes of a message that its dead letter repeats."""

_decoder: msgspec.json.Decoder[AnyEvent] = msgspec.json.Decoder(AnyEvent)


class _Head(msgspec.Struct):
    """The fields that tell what a message means to be."""

    type: str | None = None
    v: int = VERSION


_decode_head = msgspec.json.Decoder(_Head).decode


class Unreadable(Exception):
    """A message that is no event: `reason` is one of a few words, `detail` says what was found."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


def read_event(key: bytes | None, value: bytes | None) -> AnyEvent:
    """The event that a message carries; 3 µs.

    Raises:
        Unreadable: for the reasons empty, too_large, not_json, version, unknown_type, malformed or wrong_key.
    """
    if not value:
        raise Unreadable("empty", "the message has no value")
    if len(value) > LARGEST:
        raise Unreadable("too_large", f"{len(value)} bytes; at most {LARGEST} are read")
    try:
        event = _decoder.decode(value)
    except UNDECODABLE as error:
        raise _diagnosis(value, error) from None
    if key != event.site.encode():
        raise Unreadable("wrong_key", f"the message's key must be its site, {event.site!r}")
    return event


def _diagnosis(value: bytes, error: Exception) -> Unreadable:
    """Why a message could not be read as an event."""
    detail = str(error)[:500]
    if not isinstance(error, msgspec.ValidationError):
        return Unreadable("not_json", detail)
    try:
        head = _decode_head(value)
    except UNDECODABLE:
        return Unreadable("malformed", detail)
    if head.v > VERSION:
        return Unreadable("version", f"version {head.v}; this reads up to {VERSION}")
    if head.type not in EVENT_TYPES:
        return Unreadable("unknown_type", f"type {str(head.type)[:64]!r}; expected one of {', '.join(EVENT_TYPES)}")
    return Unreadable("malformed", detail)


EVENT_TYPES = tuple(kind.kind for kind in AnyEvent.__args__)
"""The types of events there are."""


def dead_letter(
    reason: str, detail: str, site: str | None, topic: str, partition: int, offset: int, value: bytes | None
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
        value=_printable(raw[:SHOWN].decode("utf-8", "backslashreplace")),
        value_bytes=len(raw),
    )


def _printable(text: str) -> str:
    """Text with what a terminal would take for a command escaped."""
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
