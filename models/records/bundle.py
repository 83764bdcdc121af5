"""Bundles: many historical events of one site in one message."""

from collections.abc import Iterable
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from models.records.events import (
    VERSION,
    Alter,
    Cancel,
    Capacity,
    End,
    ExpectedStart,
    Heartbeat,
    Hold,
    Name,
    Release,
    Requeue,
    Resume,
    Start,
    Submit,
    Suspend,
    Version,
)

AnyJobEvent = Submit | Start | End | Cancel | Hold | Release | Suspend | Resume | Alter | Requeue | ExpectedStart
AnyEvent = AnyJobEvent | Capacity | Heartbeat
"""Any event of a scheduler."""

MAX_BYTES: Final = 60_000  # bytes of a bundle's events as JSON; some 300 of them

MAX_EVENTS: Final = 1_200
"""Maximum events in a bundle: the shortest ones reach `MAX_BYTES` with that number."""

_Length: Final = Meta(min_length=1, max_length=MAX_EVENTS)


class Bundle(msgspec.Struct, tag_field="type", tag="bundle", kw_only=True, frozen=True):
    """Historical events of a site in order, as one message, with the same effect as single events.

    Each event is decoded on its own (`RawBundle`). An event that is malformed, names another site, or submits a job
    that is not historical is rejected; the others are accepted.
    """

    v: Version = VERSION
    site: Name
    events: Annotated[list[AnyEvent], _Length]


class RawBundle(msgspec.Struct, tag_field="type", tag="bundle", kw_only=True, frozen=True):
    """A bundle whose events are still JSON."""

    v: Version = VERSION
    site: Name
    events: Annotated[list[msgspec.Raw], _Length]


def is_published(event: AnyEvent) -> bool:
    """Return whether the event submits a job whose prediction is published."""
    if isinstance(event, Submit):
        return not (event.historical or event.late)
    return isinstance(event, Requeue) and not event.historical


def bundled(site: str, events: Iterable[bytes]) -> bytes:
    """Encode a bundle of events that are already JSON."""
    return _encode(RawBundle(site=site, events=list(map(msgspec.Raw, events))))


def without_first(bundle: bytes, events: int) -> bytes:
    """Remove the first `events` events of a bundle."""
    found = _decode(bundle)
    return _encode(msgspec.structs.replace(found, events=found.events[events:]))


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(RawBundle).decode
