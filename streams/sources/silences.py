"""Heartbeats of silent sites: when they are due, in recorded logs and for live sources."""

from collections.abc import Iterator
from math import inf

from models.durations import DAY_S
from models.records import AnyEvent, Cancel, End, Heartbeat, JobKey, Requeue, Start, Submit

HEARTBEAT_S = 300.0
"""A heartbeat is due after so many seconds without an event, by default."""

MIN_INTERVAL_S = 1.0
"""The least time between two heartbeats. A Unix time has too few digits to advance by much less."""

SILENCE_SHARE, MAX_INTERVAL_S = 0.1, 6 * 3600.0
"""The time between two heartbeats grows to this share of the silence, and to this many seconds at most."""

MAX_SILENCE_S = 7 * DAY_S
"""No heartbeat is due later in a silence: a site that is switched off needs none."""


class Silence:
    """The silence of one site since its last event.

    >>> silence = Silence(0.0, 300.0)
    >>> silence.next, silence.sent(300.0), silence.next
    (300.0, None, 600.0)

    Args:
        since: time of the last event, Unix seconds.
        interval_s: seconds without an event after which a heartbeat is due, at least `MIN_INTERVAL_S`.
    """

    def __init__(self, since: float, interval_s: float) -> None:
        self._since = self._last = since
        self._interval_s = max(interval_s, MIN_INTERVAL_S)

    @property
    def next(self) -> float:
        """When the next heartbeat is due, Unix seconds; infinity after a long silence."""
        if self._last - self._since >= MAX_SILENCE_S:
            return inf
        share_s = min(SILENCE_SHARE * (self._last - self._since), MAX_INTERVAL_S)
        return self._last + max(self._interval_s, float(int(share_s)))

    def sent(self, time: float) -> None:
        """Record that a heartbeat of this time was sent."""
        self._last = max(self._last, time)

    def end(self, time: float) -> None:
        """Record an event of this time; a late one changes nothing."""
        if time >= self._last:
            self._since = self._last = time


class _PendingJobs:
    """Number of pending jobs of a recorded log's site. Memory grows with the pending jobs."""

    def __init__(self) -> None:
        self._tasks: dict[JobKey, int] = {}  # pending tasks of each job that is not an array's task

    def __bool__(self) -> bool:
        return bool(self._tasks)

    def add(self, event: AnyEvent) -> None:
        """Follow an event."""
        if isinstance(event, Submit):
            self._tasks[event.key] = event.array_size or 1
            self._lose_task(event.array, event.attempt)
        elif isinstance(event, Requeue):
            self._tasks[event.job, event.attempt + 1] = 1
        elif isinstance(event, Start | Cancel | End):
            is_own = self._tasks.pop(event.key, None) is not None
            if not is_own and not isinstance(event, End):
                self._lose_task(event.array, event.attempt)

    def _lose_task(self, array: str | None, attempt: int) -> None:
        if array is None or (count := self._tasks.get((array, attempt))) is None:
            return
        if count > 1:
            self._tasks[array, attempt] = count - 1
        else:
            del self._tasks[array, attempt]


class LogHeartbeats:
    """Heartbeats that a live source would have sent of a recorded log, while jobs are pending.

    >>> beats = LogHeartbeats(300.0)
    >>> [*beats.before(Submit(site="s", time=0.0, job="1"))]
    []
    >>> [beat.time for beat in beats.before(Start(site="s", time=700.0, job="1"))]
    [300.0, 600.0]

    Args:
        interval_s: seconds without an event after which a heartbeat is due; 0 for no heartbeats.

    Attributes:
        count: number of heartbeats so far.
    """

    def __init__(self, interval_s: float) -> None:
        self.count = 0
        self._interval_s = interval_s
        self._sites: dict[str, tuple[Silence, _PendingJobs]] = {}

    def before(self, event: AnyEvent) -> Iterator[Heartbeat]:
        """Yield the heartbeats that are due before an event; events come in time order."""
        if not self._interval_s:
            return
        found = self._sites.get(event.site)
        if found is None:
            found = self._sites[event.site] = (Silence(event.time, self._interval_s), _PendingJobs())
        silence, pending = found
        while pending and (due := silence.next) < event.time:
            silence.sent(due)
            self.count += 1
            yield Heartbeat(site=event.site, time=due)
        if isinstance(event, Heartbeat):
            silence.sent(event.time)
        else:
            silence.end(event.time)
            pending.add(event)
