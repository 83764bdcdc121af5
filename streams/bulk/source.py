"""A log that was read whole, as a source: its events in the order of time, each with a cursor."""

from collections.abc import Iterator

from models.records import Capacity
from streams.bulk.event_log import EventLog
from streams.sources.contract import Cursor, Source, Step, counted


class SortedSource(Source):
    """The events of one site's log, as long as `read_log` keeps its file; `name` is the format that it was read as."""

    def __init__(self, name: str, log: EventLog) -> None:
        self.name = name  # type: ignore[misc]  # of its cursors: those of another format are not this one's
        self.site, self._log = log.site, log
        self.sites = (log.site,)

    @property
    def begin(self) -> float:
        """Unix time of the first event."""
        return self._log.begin

    @property
    def seconds(self) -> float:
        """From the first event to the last."""
        return self._log.surveys[self.site].end - self.begin

    @property
    def guessed(self) -> Capacity | None:
        """The machine, where the log does not say it: what was in use. It is the first of the events."""
        return self._log.capacity.get(self.site)

    @property
    def count(self) -> int:
        """How many events it has."""
        return self._log.count

    def events(self, cursor: Cursor | None = None) -> Iterator[Step]:
        """The events in time order, each with its cursor, which counts those before."""
        return counted(self._log.events, self._log.fingerprint, self.site, cursor)
