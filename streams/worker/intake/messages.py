"""Decode a message as an event or a question, or return the reason why it is not valid."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import msgspec

from models.records import VERSION, AnyEvent, AnyQuestion, DeadLetter, RawBundle, is_published
from models.records.names import may_have_unsafe_names, unsafe_name
from streams.errors import UNDECODABLE

MAX_MESSAGE_BYTES = 65_536  # maximum size of an event message
MAX_SHOWN_BYTES = 1_000  # maximum number of bytes of a message in its dead letter
_Message = AnyEvent | RawBundle

M = TypeVar("M", _Message, AnyQuestion)

_message: msgspec.json.Decoder[_Message] = msgspec.json.Decoder(_Message)
_event: msgspec.json.Decoder[AnyEvent] = msgspec.json.Decoder(AnyEvent)
_question: msgspec.json.Decoder[AnyQuestion] = msgspec.json.Decoder(AnyQuestion)


class _MessageHead(msgspec.Struct):
    """The fields with the type and version of a message."""

    type: str | None = None
    v: int = VERSION


_decode_head = msgspec.json.Decoder(_MessageHead).decode


MOST_REASONS = 5
"""Maximum number of reasons in the dead letter of a bundle."""


class Unreadable(Exception):
    """A message that cannot be decoded: `reason` is one of a fixed set of words, `detail` describes the problem."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


class EventPart(NamedTuple):
    """An event of a message, or its error, and its JSON; `number` is its index in a bundle, from 0, else None."""

    found: AnyEvent | Unreadable
    value: bytes | msgspec.Raw
    number: int | None = None

    @property
    def event(self) -> AnyEvent:
        """The event.

        Raises:
            Unreadable: It is not valid.
        """
        if isinstance(self.found, Unreadable):
            raise self.found
        return self.found


class SiteMessage(NamedTuple):
    """A decoded message of a site: one event, or the events of a bundle."""

    site: str
    parts: Sequence[EventPart]


def read_site_message(key: bytes | None, value: bytes | None) -> SiteMessage:
    """Decode a message of a site. The events of a bundle are decoded separately, and at least one is valid.

    Raises:
        Unreadable: With the reason empty, too_large, not_json, version, unknown_type, malformed or wrong_key.
    """
    found = _read(key, value, _message, MESSAGE_TYPES)
    if value and may_have_unsafe_names(value):
        _check_names(found)
    if not isinstance(found, RawBundle):
        assert value is not None
        return SiteMessage(found.site, [EventPart(found, value)])
    parts = [EventPart(_old(found.site, raw), raw, number) for number, raw in enumerate(found.events)]
    if isinstance(first := parts[0].found, Unreadable) and all(isinstance(one.found, Unreadable) for one in parts):
        raise Unreadable(first.reason, f"none of {len(parts)} events can be read, the first: {first.detail}"[:500])
    return SiteMessage(found.site, _with_one_unreadable(parts))


def _with_one_unreadable(parts: list[EventPart]) -> list[EventPart]:
    """Replace all invalid parts of a bundle with the first one, so that a bundle has at most one dead letter.

    Dead letters are kept for weeks and contain their part. One per part would need far more space than the bundle.
    """
    unreadable = [part for part in parts if isinstance(part.found, Unreadable)]
    if len(unreadable) < 2:
        return parts
    first = unreadable[0]
    assert isinstance(first.found, Unreadable)
    reasons = Counter(part.found.reason for part in unreadable if isinstance(part.found, Unreadable))
    counts = ", ".join(f"{count} {reason}" for reason, count in reasons.most_common(MOST_REASONS))
    detail = f"{len(unreadable)} of {len(parts)} events cannot be read ({counts}), the first: {first.found.detail}"[
        :500
    ]
    kept = first._replace(found=Unreadable(first.found.reason, detail))
    readable = (part for part in parts if part is first or not isinstance(part.found, Unreadable))
    return [kept if part is first else part for part in readable]


def _old(site: str, raw: msgspec.Raw) -> AnyEvent | Unreadable:
    """Decode an event of a bundle."""
    try:
        event = _event.decode(raw)
    except UNDECODABLE as error:
        return _diagnosis(raw, error, EVENT_TYPES)
    if may_have_unsafe_names(raw) and (wrong := unsafe_name(event)) is not None:
        return Unreadable("malformed", wrong)
    if event.site != site:
        return Unreadable("wrong_key", f"found an event of site {event.site!r} in a bundle of {site!r}")
    if is_published(event):
        return Unreadable(
            "malformed",
            f"found a {event.kind} of a job that is not historical; a bundle may only contain historical jobs",
        )
    return event


def read_question(key: bytes | None, value: bytes | None) -> AnyQuestion:
    """Decode the question in a message.

    Raises:
        Unreadable: See `read_site_message`.
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


def _check_names(record: msgspec.Struct) -> None:
    if (wrong := unsafe_name(record)) is not None:
        raise Unreadable("malformed", wrong)


def _diagnosis(value: bytes | msgspec.Raw, error: Exception, types: tuple[str, ...]) -> Unreadable:
    """Return the reason why a message could not be decoded as one of these types."""
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


EVENT_TYPES = tuple(kind.kind for kind in AnyEvent.__args__)  # all types of events
MESSAGE_TYPES = (*EVENT_TYPES, "bundle")  # all types of event messages

QUESTION_TYPES = tuple(str(kind.__struct_config__.tag) for kind in AnyQuestion.__args__)
"""All types of questions."""


def dead_letter(
    reason: str,
    detail: str,
    site: str | None,
    topic: str,
    partition: int,
    offset: int,
    value: bytes | None,
    implausible: bool = False,
    part: int | None = None,
) -> DeadLetter:
    """Return the dead letter for a message or an event of a bundle, with the start of its value in printable form."""
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
        implausible=implausible,
        part=msgspec.UNSET if part is None else part,
    )


def _printable(text: str) -> str:
    """Escape unprintable characters, which a terminal could interpret as commands."""
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
