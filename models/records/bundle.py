"""Old events of one site as one message: the history before day one has many, and nothing is told of them."""

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from models.records.capacity import Capacity
from models.records.events import (
    Alter,
    Cancel,
    End,
    ExpectedStart,
    Hold,
    Release,
    Requeue,
    Resume,
    Start,
    Submit,
    Suspend,
)
from models.records.fields import VERSION, Name, Version

AnyJobEvent = Submit | Start | End | Cancel | Hold | Release | Suspend | Resume | Alter | Requeue | ExpectedStart
AnyEvent = AnyJobEvent | Capacity
"""What schedulers say: a job came, started, left, or its request changed. The machine is in `capacity.py`."""

MOST_BYTES: Final = 60_000
"""Bytes of a bundle's events as JSON; some 300 of them."""


class Bundle(msgspec.Struct, tag_field="type", tag="bundle", kw_only=True, frozen=True):
    """Old events of a site in their order, as one message; they do what they would do one by one.

    Raises:
        ValueError: an event is of another site, or submits a job that is to be predicted.
    """

    v: Version = VERSION
    site: Name
    events: Annotated[list[AnyEvent], Meta(min_length=1)]

    def __post_init__(self) -> None:
        for event in self.events:
            if event.site != self.site:
                raise ValueError(f"found an event of site {event.site!r}; expected those of {self.site!r} alone")
            if is_predicted(event):
                raise ValueError(
                    f"found a {event.kind} at {event.time} that is to be predicted; expected old jobs alone"
                )


def is_predicted(event: AnyEvent) -> bool:
    """Whether a job enters the queue that is predicted: a training may begin, and the next event has to wait for it."""
    if isinstance(event, Submit):
        return not (event.old or event.late)
    return isinstance(event, Requeue) and not event.past


def bundled(site: str, events: Iterable[bytes]) -> bytes:
    """A bundle of events that are JSON already."""
    return _encode(_Encoded(site=site, events=[msgspec.Raw(event) for event in events]))


def events_of(message: AnyEvent | Bundle) -> Sequence[AnyEvent]:
    """The events that a message carries."""
    return message.events if isinstance(message, Bundle) else (message,)


class _Encoded(msgspec.Struct, tag_field="type", tag="bundle", kw_only=True):
    v: int = VERSION
    site: str
    events: list[Any]


_encode = msgspec.json.Encoder().encode
