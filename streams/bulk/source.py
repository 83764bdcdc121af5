"""A log that was read whole, as a source: its events in the order of time, each with a cursor."""

from collections.abc import Iterator
from typing import Self

from models.records import AnyEvent, Capacity
from streams.bulk.event_log import EventLog
from streams.errors import UserError
from streams.sources.contract import OnSkipped, Recorded, refuse


class SortedSource(Recorded):
    """The events of one site's log.

    Parameters:
        name: the format that it was read as.
        log: it lasts as long as its file does.
    """

    def __init__(self, name: str, log: EventLog) -> None:
        self.name = name  # type: ignore[misc]  # of its cursors: those of another format are not this one's
        self.sites, self.input, self._log = (log.site,), log.site, log

    @classmethod
    def open(cls, location: str, site: str | None = None, on_skipped: OnSkipped = refuse) -> Self:
        """A log is read by `streams.bulk.reading.read_log`, which keeps its file.

        Raises:
            UserError: always.
        """
        raise UserError(f"{location}: a log is read by `read_log`")

    @property
    def begin(self) -> float:
        """Unix time of the first event."""
        return self._log.begin

    @property
    def guessed(self) -> Capacity | None:
        """The machine, where the log does not say it: what was in use."""
        return self._log.capacity.get(self._log.site)

    @property
    def count(self) -> int:
        """How many events it has."""
        return self._log.count

    @property
    def fingerprint(self) -> str:
        """Of all events."""
        return self._log.fingerprint

    def after(self, count: int) -> Iterator[AnyEvent]:
        """The events but the first so many."""
        return self._log.events(count)
