"""Records and stored entries of a replay, computed once for all tests of the same events."""

from functools import lru_cache
from typing import NamedTuple

import msgspec

from models.engine.engine import Engine
from models.engine.histories import Changes
from models.engine.outgoing import Anomaly
from models.engine.settings import EngineSettings
from models.records import AnyEvent, Prediction
from models.site.runs import Run

_encode = msgspec.json.Encoder().encode


class EncodedRecord(NamedTuple):
    """A prediction or an outcome as JSON, and the number of the event that caused it."""

    event: int
    site: str
    is_prediction: bool
    value: bytes


class SiteEntries(NamedTuple):
    """The kept runs of a site, the number of its oldest job in the history, and all changes since its first event."""

    runs: list[Run]
    oldest: int
    changes: Changes


class Replayed:
    """The records of events, and an engine for each site after them.

    Each event is applied once: events that continue the previous ones go to the same engines, and the records of the
    first part of the previous ones are present.
    """

    def __init__(self, settings: EngineSettings) -> None:
        self._settings = settings
        self._reset()

    def _reset(self) -> None:
        self._events: list[AnyEvent] = []
        self._records: list[EncodedRecord] = []
        self._engines: dict[str, Engine] = {}
        self._entries: dict[str, SiteEntries] = {}

    def records(self, events: list[AnyEvent]) -> list[EncodedRecord]:
        """Return the predictions and outcomes of these events."""
        self._apply(events)
        return [record for record in self._records if record.event < len(events)]

    def entries(self, events: list[AnyEvent], site: str) -> SiteEntries:
        """Return the entries of a site after these events."""
        if len(events) < len(self._events):
            self._reset()
        self._apply(events)
        if site not in self._entries:
            engine = self._engine(site)
            runs, oldest = list(engine.context.runs), engine.context.history.oldest
            self._entries[site] = SiteEntries(runs, oldest, engine.checkpoint()[1])
        return self._entries[site]

    def _apply(self, events: list[AnyEvent]) -> None:
        both = min(len(events), len(self._events))
        if events[:both] != self._events[:both] or (len(events) > both and self._entries):
            self._reset()  # other events, or engines whose changes were taken
        for number in range(len(self._events), len(events)):
            event = events[number]
            self._events.append(event)
            for record in self._engine(event.site).apply(event):
                if not isinstance(record, Anomaly):
                    encoded = EncodedRecord(number, event.site, isinstance(record, Prediction), _encode(record))
                    self._records.append(encoded)

    def _engine(self, site: str) -> Engine:
        if site not in self._engines:
            self._engines[site] = Engine(site, self._settings)
        return self._engines[site]


@lru_cache(maxsize=1)
def _replayed(settings: bytes) -> Replayed:
    return Replayed(msgspec.json.decode(settings, type=EngineSettings))


def replayed(settings: EngineSettings) -> Replayed:
    """Return the replay with these settings; tests with the same settings and events share it."""
    return _replayed(msgspec.json.encode(settings))
