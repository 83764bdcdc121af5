"""Reads a message as an event or a question, or says why it is none; and says which events may come where."""

import re
from fnmatch import translate
from typing import TypeVar

import msgspec

from models.records import VERSION, AnyEvent, AnyQuestion, DeadLetter
from streams.errors import UNDECODABLE
from streams.settings import Settings
from streams.topics import event_topics, partition_of

MAX_MESSAGE_BYTES = 65_536
"""Bytes of the largest message that is read as an event."""

MAX_SHOWN_BYTES = 1_000
"""Bytes of a message that its dead letter shows."""

M = TypeVar("M", AnyEvent, AnyQuestion)

_event: msgspec.json.Decoder[AnyEvent] = msgspec.json.Decoder(AnyEvent)
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


class Places:
    """Where each site's events may come: the topic and the partition. 1 µs an event.

    A site has one partition, the one that its name as a key hashes to with murmur2, so one worker and one order. What
    comes elsewhere must change nothing: its offsets are of another log than those that the site's state counts.

    Parameters:
        partitions: how many the topics of events have.
    """

    def __init__(self, settings: Settings, partitions: int) -> None:
        self.partitions = partitions
        self._sites = event_topics(settings)
        self._own = frozenset(settings.sites.own_topic)
        patterns = "|".join(map(translate, settings.sites.allowed))
        self._allowed = re.compile(patterns) if patterns else None

    def check(self, topic: str, partition: int, site: str) -> bool:
        """Make sure that a site's event may come here; returns whether this topic is the site's own.

        Raises:
            Unreadable: for the reasons wrong_site, wrong_topic, site_not_allowed or wrong_partition.
        """
        owner = self.owner(topic)
        if owner is not None and owner != site:
            raise Unreadable("wrong_site", f"{topic} is for events of {owner!r} alone")
        if owner is None and site in self._own:
            raise Unreadable("wrong_topic", f"{site!r} has a topic of its own, {topic}.{site}")
        if owner is None and self._allowed is not None and not self._allowed.match(site):
            raise Unreadable("site_not_allowed", f"{site!r} is none of `sites.allowed`")
        if not self.is_home(site, partition):
            home = self.home(site)
            raise Unreadable("wrong_partition", f"its key belongs to partition {home} of {self.partitions} (murmur2)")
        return owner is not None

    def owner(self, topic: str) -> str | None:
        """The site whose own topic this is; None for the shared one."""
        return self._sites.get(topic)

    def is_home(self, site: str, partition: int) -> bool:
        """Whether this is the partition of the site's events."""
        return self.home(site) == partition

    def home(self, site: str) -> int:
        """The partition of a site's events."""
        return partition_of(site, self.partitions)


def read_event(key: bytes | None, value: bytes | None) -> AnyEvent:
    """The event that a message carries; 3 µs.

    Raises:
        Unreadable: for the reasons empty, too_large, not_json, version, unknown_type, malformed or wrong_key.
    """
    return _read(key, value, _event, EVENT_TYPES)


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


EVENT_TYPES = tuple(kind.kind for kind in AnyEvent.__args__)
"""The types of events there are."""

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
    quarantine: bool = False,
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
        quarantine=quarantine,
    )


def _printable(text: str) -> str:
    """Text with unprintable characters escaped, which a terminal could take for commands."""
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
