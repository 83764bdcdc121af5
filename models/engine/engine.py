"""Engine of one site: it consumes events, and emits predictions and outcomes.

`state(n) = apply(state(n-1), event n)`. The engine reads no clock and no random numbers. So the same events from the
same state give the same records, to the last bit. The stream, the replay and the tests all use `Engine.apply`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from statistics import median
from typing import Any, Self

from models.engine.attempts.ends import EndHandler
from models.engine.attempts.starts import StartHandler
from models.engine.attempts.submits import SubmitHandler
from models.engine.attempts.updates import UpdateHandler
from models.engine.components import LEARNT_ROWS, EngineComponents
from models.engine.events.plausible import doubt
from models.engine.histories import Changes, Gaps, RowRange, restore_rows
from models.engine.live_jobs import SavedLive
from models.engine.outgoing import EFFECTIVE, Anomaly, Record
from models.engine.saved_state import STATE_VERSION, EngineSnapshot, SavedState, encode, encode_job, read_saved
from models.engine.settings import EngineSettings
from models.records import (
    Alter,
    AnyEvent,
    Cancel,
    Capacity,
    End,
    ExpectedStart,
    Heartbeat,
    Hold,
    JobEvent,
    JobKey,
    Release,
    Requeue,
    Resume,
    Start,
    Submit,
    Suspend,
)
from models.site.clock import SiteClock
from models.site.history import StartedJob
from models.site.rows import Row
from models.site.runs import Run

EVENTS_PER_SWEEP = 64  # events between two scans for expired jobs


class Engine:
    """The state, history and methods of one site.

    >>> from models.engine.settings import EngineSettings
    >>> engine = Engine("ctc", EngineSettings(method="median"))
    >>> engine.apply(Submit(site="ctc", time=100.0, job="1", user="ada", cpus=8, walltime=3600.0))[0].reason
    'no history'
    >>> engine.apply(Start(site="ctc", time=160.0, job="1"))[0].actual_wait_s
    60.0
    """

    def __init__(self, site: str, settings: EngineSettings | None = None) -> None:
        self.site = site
        self.settings = settings or EngineSettings()
        self.events = 0
        self.anomalies: dict[str, int] = {}
        self.parts = parts = EngineComponents(site, self.settings)
        self.context, self.methods, self.scores = parts.context, parts.methods, parts.scores
        self.queues, self.trends, self.outgoing = parts.queues, parts.trends, parts.outgoing
        self._ends = ends = EndHandler(parts)
        self._submits = submits = SubmitHandler(parts, ends)
        in_place = UpdateHandler(parts)
        # None of these references the engine, so an unused engine is freed immediately, without a cycle.
        self._handlers: Mapping[type, Callable[[Any], Iterable[Record]]] = {
            Submit: submits.submit,
            Start: StartHandler(parts, ends).start,
            End: ends.end,
            Cancel: ends.cancel,
            Requeue: submits.requeue,
            Hold: in_place.hold,
            Release: in_place.release,
            Suspend: in_place.suspend,
            Resume: in_place.resume,
            ExpectedStart: in_place.expect,
            Alter: in_place.alter,
            Capacity: in_place.take_capacity,
        }

    def apply(self, event: AnyEvent, arrived: float | None = None) -> list[Record]:
        """Apply one event and return the records that it causes. O(1) in the live jobs, plus the cost of the methods.

        Args:
            arrived: when the event arrived at the broker (Unix seconds, by the broker's clock); None offline. It is
                stored with the message, so a redelivered event has the same value.
        """
        self.events += 1
        implausible = doubt(event, arrived, self.clock, self.context)
        records: list[Record] = [implausible] if implausible is not None else self._take(event, arrived)
        times = self.parts.live.expiry.times
        if self.events % EVENTS_PER_SWEEP == 0 and times:
            records.extend(self._ends.give_up())
            self.scores.begin_week(median(times))  # the median, because some events may be late
        if isinstance(event, Capacity):
            self.context.prepared = None  # it is in use, or the event was rejected
        for record in records:
            if isinstance(record, Anomaly):
                self.anomalies[record.reason] = self.anomalies.get(record.reason, 0) + 1
        self.parts.live.event_time = 0.0  # it is not stored
        return records

    def _take(self, event: AnyEvent, arrived: float | None) -> list[Record]:
        """Apply a plausible event. An event that changes no job does not advance the clock either."""
        parts, live = self.parts, self.parts.live
        if isinstance(event, Heartbeat):
            if not self.clock.believed:
                return []  # the first event of a site must be another one
            self.clock.confirm(event.time, arrived)
            return self._follow_time()
        parts.arrived, live.event_time = arrived, event.time
        if isinstance(event, JobEvent) and live.may_be_forgotten(event.key, event.time):
            return [Anomaly("forgotten_job", f"job {event.job} is unknown, and may have left before", rejected=True)]
        records = list(self._handlers[type(event)](event))
        for record in records:
            if isinstance(record, Anomaly) and record.reason not in EFFECTIVE:
                return records
        if isinstance(event, Submit) and event.late:
            return records  # a late event does not advance the clock
        live.expiry.tick(self.clock.of(event.time, arrived))
        self.clock.tick(event.time, arrived)
        return records + self._follow_time()

    def _follow_time(self) -> list[Record]:
        """Update everything that depends on the site's time, and return the estimates that have moved."""
        parts, now = self.parts, self.clock.now
        self.trends.pass_to(now, self.context.state)
        parts.landmarks.pass_to(now)
        return [*self._submits.estimate_again()] if parts.reestimates.any_due(now) else []

    def forget_job(self, key: JobKey) -> str:
        """Remove a live job on an operator's request; return a description of the result."""
        job = self.parts.live.get(key)
        if job is None:
            return f"job {key[0]} is not live"
        self.parts.live.leave(job)
        self.methods.forget(key)
        return f"job {key[0]}, {job.phase}, is forgotten"

    # Read access.

    @property
    def clock(self) -> SiteClock:
        """The site's clock, which also rejects implausible times."""
        return self.parts.live.clock

    @property
    def time(self) -> float:
        """The site's time: the latest plausible event time, Unix seconds; 0 before the first event."""
        return self.clock.now

    @property
    def degraded(self) -> str | None:
        """The reason why predictions are currently degraded; None if they are not."""
        return self.parts.degraded

    def pending(self) -> Future[Any] | None:
        """Return what `apply` would wait for, such as a training in another thread; None if nothing."""
        return self.methods.pending()

    def prepare(self, event: AnyEvent) -> Iterator[None] | None:
        """Return an iterator over the slow part of an event; None if there is none. `apply` is then fast for it too.

        Only a capacity that changes the areas of a site with many live jobs has one. It changes no record and no state.
        No event may be applied in between.
        """
        known = self.context.capacity
        if not isinstance(event, Capacity) or (known is not None and event.time < known.time):
            return None
        return self.context.prepare(event)

    def miss_events(self) -> None:
        """Record that events were lost; predictions are marked as degraded until enough jobs have started."""
        self.parts.gaps.miss_events(self.context.history.count)

    def open_queues(self, most: int) -> list[str]:
        """Return the queues with live jobs or a submission in the last week, at most the `most` busiest."""
        return self.queues.open(self.context.state, self.time, most)

    # Saving and restoring.

    def take_changes(self) -> Changes:
        """Return the changes since the last call. Call it even if nothing is stored, so that they do not accumulate."""
        self.parts.live.take_changes()
        return self.parts.histories.take_changes()

    def checkpoint(self) -> tuple[bytes, Changes]:
        """Return the complete state, and the changes since the last call, which the state does not contain.

        O(live jobs); a worker uses `cut` instead.
        """
        changes, live = self.take_changes(), self.parts.live
        saved = live.save()
        saved.take_in(live.stored(number, job) for number, job in live.by_number.items())
        return encode(self._save(changes, saved)), changes

    def cut(self) -> EngineSnapshot:
        """Return an incremental snapshot: the changes since the last call, and the complete bounded part of the state.

        O(events since then), independent of the number of live jobs.
        """
        live = self.parts.live
        marks = live.take_changes()
        changes = self.parts.histories.take_changes()
        jobs = {number: encode_job(live.stored(number, job)) for number, job in marks.jobs.items()}
        return EngineSnapshot(encode(self._save(changes, live.save())), jobs, marks.departed, changes)

    def encoded_job(self, number: int) -> bytes:
        """Return a live job by its number as it is stored, changed or not."""
        return encode_job(self.parts.live.stored(number, self.parts.live.by_number[number]))

    def all_stored_jobs(self) -> Iterator[tuple[int, bytes]]:
        """Return all live jobs as they are stored, with their numbers, and mark all as unchanged."""
        live = self.parts.live
        live.take_changes()
        return ((number, encode_job(live.stored(number, job))) for number, job in live.by_number.items())

    def _save(self, changes: Changes, live: SavedLive) -> SavedState:
        parts = self.parts
        return SavedState(
            v=STATE_VERSION,
            site=self.site,
            events=self.events,
            anomalies=self.anomalies,
            live=live,
            histories=parts.histories.save(changes),
            methods=self.methods.save(),
            scores=self.scores,
            gaps=parts.gaps,
            capacity=self.context.capacity,
            size=self.context.size,
            queues=parts.queues.seen,
            trends=parts.trends.save(),
            early_tasks=parts.arrays.early,
            estimate_budget=parts.reestimates.budget,
            recent_remaining=parts.landmarks.recent.save(),
        )

    @classmethod
    def load(
        cls,
        saved: bytes | SavedState,
        started: list[StartedJob] | None,
        runs: list[Run] | None,
        settings: EngineSettings | None = None,
        rows: Mapping[str, Iterable[Row]] | None = None,
    ) -> Self:
        """Restore an engine from a saved state.

        Rows beyond those in the saved state are ignored, because the stores may be ahead of it. If the rows are lost
        (None), the engine continues with the live jobs and empty histories. Its predictions are then degraded until
        `MIN_JOBS_TO_RECOVER` jobs have started.

        Raises:
            ValueError: the state has another version, or rows of the history are missing.
        """
        state = read_saved(saved) if isinstance(saved, bytes) else saved
        engine = cls(state.site, settings)
        engine._restore(state)
        lost = started is None or runs is None
        if started is not None and runs is not None:
            engine.parts.histories.restore(state.histories, started, runs)
            restore_rows(state.histories, engine.methods.rows, rows or {})
        else:
            engine.parts.gaps = Gaps(lost=True)  # jobs are counted from 0 again
        included = state.histories.rows.get(LEARNT_ROWS, RowRange(0, 0))
        learnt_rows = ({} if lost else rows or {}).get(LEARNT_ROWS, None if included.count else ())
        engine.parts.live.restore_learnt(state.live.learnt, learnt_rows, included.count, included.oldest)
        engine.methods.load(state.methods, with_rows=not lost)
        return engine

    def _restore(self, state: SavedState) -> None:
        """Restore everything except the histories and the state of the methods."""
        parts = self.parts
        self.events, self.anomalies = state.events, state.anomalies
        parts.live.restore(state.live)
        parts.groups.watch(state.live.jobs)
        self.context.resize(state.capacity)
        self.context.size = state.size
        self.scores.restore(state.scores)
        parts.gaps, parts.queues.seen, parts.arrays.early = state.gaps, state.queues, state.early_tasks
        parts.trends.restore(state.trends)
        parts.reestimates.restore(state.estimate_budget)
        parts.landmarks.restore(state.recent_remaining)
