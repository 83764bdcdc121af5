"""Files of queuecast's own events, one JSON object a line: the output of `--anonymise`, or of a site's own translator.

All events of a file belong to one site, regardless of the site in each line: the site named at opening, else the site
in the first line.
"""

from typing import ClassVar

import msgspec

from models.records import AnyEvent
from streams.errors import UNDECODABLE, place_and_problem
from streams.sources.logs.fields import BadRecord
from streams.sources.logs.log_source import LogSource, Records

_decoder: msgspec.json.Decoder[AnyEvent] = msgspec.json.Decoder(AnyEvent)
FIRST_LINES = 10  # number of first lines searched for an event


class EventRecords(Records):
    """Lines that are events."""

    def take(self, line: str) -> list[AnyEvent]:
        """The event of a line."""
        if not line.strip():
            return self.leave_out("empty lines")
        try:
            event = _decoder.decode(line)
        except msgspec.ValidationError as error:
            place, problem = place_and_problem(error)
            raise BadRecord(place or None, problem, "an event as `queuecast schema event` has it") from None
        except UNDECODABLE:
            raise BadRecord(None, repr(line[:40]), "an event as JSON") from None
        return [event if event.site == self.site else msgspec.structs.replace(event, site=self.site)]


class EventsSource(LogSource):
    """The events of one site, as a file has them."""

    name: ClassVar[str] = "events"
    records_of = EventRecords

    @classmethod
    def site_of(cls, head: bytes) -> str | None:
        """The first line's."""
        first = _first(head)
        return None if first is None else first.site

    @classmethod
    def first_time(cls, head: bytes) -> float | None:
        """Return the time of the first event; None if there is none among the first lines."""
        first = _first(head)
        return None if first is None else first.time


def _first(head: bytes) -> AnyEvent | None:
    for line in head.splitlines()[:FIRST_LINES]:
        if line.startswith(b"{"):
            try:
                return _decoder.decode(line.decode("utf-8", "replace"))
            except UNDECODABLE:
                continue
    return None
