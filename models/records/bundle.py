"""Past events of one site as one message: the history before day one has many, and nothing is told of them."""

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
AnyEvent = AnyJobEvent | Capacity
"""What schedulers say: a job came, started, left, or its request changed. The machine is in `capacity.py`."""

MOST_BYTES: Final = 60_000  # bytes of a bundle's events as JSON; some 300 of them

MOST_EVENTS: Final = 1_200
"""Events of a bundle. So many of the shortest have `MOST_BYTES`; each that is refused is a dead letter."""

_Length: Final = Meta(min_length=1, max_length=MOST_EVENTS)


class Bundle(msgspec.Struct, tag_field="type", tag="bundle", kw_only=True, frozen=True):
    """Past events of a site in their order, as one message; they do what they would do one by one.

    Each is read by itself (`RawBundle`). One that is none, is of another site, or brings a job of which is told, is
    refused, and the others stay.
    """

    v: Version = VERSION
    site: Name
    events: Annotated[list[AnyEvent], _Length]


class RawBundle(msgspec.Struct, tag_field="type", tag="bundle", kw_only=True, frozen=True):
    """A bundle whose events are JSON still."""

    v: Version = VERSION
    site: Name
    events: Annotated[list[msgspec.Raw], _Length]


def is_told(event: AnyEvent) -> bool:
    """Whether it brings a job of which is told: its prediction is awaited, and what becomes of it."""
    if isinstance(event, Submit):
        return not (event.past or event.late)
    return isinstance(event, Requeue) and not event.past


def bundled(site: str, events: Iterable[bytes]) -> bytes:
    """A bundle of events that are JSON already."""
    return _encode(RawBundle(site=site, events=list(map(msgspec.Raw, events))))


def without_first(bundle: bytes, events: int) -> bytes:
    """A bundle without so many of its first events."""
    found = _decode(bundle)
    return _encode(msgspec.structs.replace(found, events=found.events[events:]))


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(RawBundle).decode
