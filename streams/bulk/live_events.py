"""Events of the jobs that are live at a moment in a log."""

from collections.abc import Iterator
from itertools import pairwise

import msgspec

from models.records import AnyEvent, AnyJobEvent, Cancel, Capacity, End, JobEvent, Submit
from models.site.clock import MAX_STEP_S


class _JobEvents:
    """The events of a job so far; for an array that is pending as one row, those of the row and its tasks.

    `names` are the job's own name and those of its tasks; `size` is the expected number of tasks.
    """

    def __init__(self, job: str) -> None:
        self.names, self.events = [job], list[AnyJobEvent]()
        self.size, self._departed = 1, 0

    def add(self, event: AnyJobEvent) -> None:
        self.events.append(event)
        is_own = event.job == self.names[0]
        if isinstance(event, Submit) and is_own:
            self.size = event.array_size or 1
        elif isinstance(event, End | Cancel) and is_own:
            self.size = len(self.names) - 1  # of an array, tasks may still run
        elif isinstance(event, End | Cancel):
            self._departed += 1

    @property
    def is_over(self) -> bool:
        return self._departed >= self.size

    def moving(self) -> Iterator[float]:
        """Return the times of the events that advance the site's time: all but submissions, which may be late."""
        return (event.time for event in self.events if not isinstance(event, Submit))


class LogPrefixState(dict[tuple[str, str], _JobEvents]):
    """State after a prefix of a log: the machine, and the events of the jobs that are still live.

    Each live job's events are stored under each of its names, so memory grows with the live jobs only.
    """

    def __init__(self) -> None:
        super().__init__()
        self._machines: dict[str, Capacity] = {}
        self._time = 0.0

    def add(self, event: AnyEvent) -> None:
        """Add the next event."""
        self._time = event.time
        if isinstance(event, Capacity):
            self._machines[event.site] = event
        if not isinstance(event, JobEvent):
            return
        name, array = (event.site, event.job), getattr(event, "array", None)
        lifecycle, row = self.get(name), self.get((event.site, array)) if array is not None else None
        if lifecycle is None and row is not None and not isinstance(event, Submit):
            lifecycle = row
            row.names.append(event.job)
        elif lifecycle is None:
            lifecycle = _JobEvents(event.job)
            if row is not None:  # a task that is submitted by itself leaves its row
                row.size -= 1
                self._drop_if_over(event.site, row)
        self[name] = lifecycle
        lifecycle.add(event)
        self._drop_if_over(event.site, lifecycle)

    def _drop_if_over(self, site: str, lifecycle: _JobEvents) -> None:
        if lifecycle.is_over:
            for name in lifecycle.names:
                self.pop((site, name), None)

    def live_events(self, begin: float = 0.0) -> Iterator[AnyEvent]:
        """Yield the machine and all events of the live jobs, by time and as late; the rest begins at `begin`.

        The site's time then reaches the rest without an implausible jump (`MAX_STEP_S`). So the machine event takes the
        time of the first event that advances the time. Jobs whose last such event is long before all others are
        omitted, for example jobs whose end is missing from the log.

        Args:
            begin: time of the first event of the rest, Unix seconds.
        """
        events: list[AnyEvent] = []
        end = max(self._time, begin)
        for site in dict.fromkeys((*self._machines, *(site for site, _ in self))):
            lifecycles = {id(lifecycle): lifecycle for (of, _), lifecycle in self.items() if of == site}
            lived = _without_leaps(list(lifecycles.values()), end)
            if (machine := self._machines.get(site)) is not None:
                moved = min((time for lifecycle in lived for time in lifecycle.moving()), default=end)
                events.append(msgspec.structs.replace(machine, time=max(machine.time, moved)))
            events += (event for lifecycle in lived for event in lifecycle.events)
        for event in sorted(events, key=lambda one: one.time):
            yield msgspec.structs.replace(event, late=True) if isinstance(event, Submit) else event


def _without_leaps(lifecycles: list[_JobEvents], end: float) -> list[_JobEvents]:
    """Select the jobs of a site from which its time reaches `end` in plausible steps."""
    while True:
        times = sorted((end, *(time for lifecycle in lifecycles for time in lifecycle.moving())))
        leap = max((before for before, after in pairwise(times) if after - before > MAX_STEP_S), default=None)
        if leap is None:
            return lifecycles
        lifecycles = [lifecycle for lifecycle in lifecycles if min(lifecycle.moving(), default=end) > leap]
