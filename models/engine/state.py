"""What an engine holds of a site, and how that is stored and taken back."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Self

from models.engine.checkpoint import (
    STATE_VERSION,
    Changes,
    Cut,
    RowRange,
    SavedState,
    StoredJob,
    encode,
    encode_job,
    read_saved,
    restore_histories,
    restore_rows,
)
from models.engine.events.alters import Alters
from models.engine.events.arrays import Arrays
from models.engine.events.eligibility import Eligibility
from models.engine.events.groups import Groups
from models.engine.events.rivals import Rivals
from models.engine.events.suspensions import Suspensions
from models.engine.live import LiveJobs
from models.engine.methods import SiteMethods
from models.engine.outgoing import Outgoing
from models.engine.past import Past
from models.engine.queues import Queues
from models.engine.reestimates import Reestimates
from models.engine.scores import Scores
from models.engine.settings import EngineSettings
from models.measures import Accuracy
from models.method import SiteContext
from models.records import JobKey
from models.site.clock import SiteClock
from models.site.expiry import Expiry
from models.site.history import History, Started
from models.site.job import Job
from models.site.rows import Row
from models.site.runs import Run
from models.site.size import MAX_CPUS, SizeSeen
from models.site.state import SiteState

LEARNT_ROWS = "engine.learnt"
"""The key of the rows that say which jobs have left, beside those of the methods."""


class EngineState:
    """All that is known of one site; `Engine` adds what events do to it.

    `context` is what is known of the site, `methods` predict and learn from it, `scores` measure how well.
    """

    def __init__(self, site: str, settings: EngineSettings | None = None) -> None:
        self.site = site
        self.settings = settings or EngineSettings()
        self.methods = SiteMethods(site, self.settings)
        runtimes = self.methods.runs[self.settings.runtimes]
        history = History(self.settings.history)
        self.context = SiteContext(SiteState(), history, self.methods.run_history(), runtimes)
        self.scores = Scores(self.settings)
        self.queues = Queues()
        self.past = Past()
        self.outgoing = Outgoing(site, self.settings, self.scores.rivals)
        self.events = 0
        self.anomalies: dict[str, int] = {}
        self.lost = False
        self.gap_until = 0
        self.missed_until = 0
        self._arrived: float | None = None  # of the event that is being applied
        self._reestimates = Reestimates(self.context.state, self.methods.counting.re_estimates)
        per_job = self.methods.per_job.values()
        most, remembered = self.settings.live_jobs, self.settings.remembered
        self._live = LiveJobs(self.context, most, remembered, self.methods.forget, per_job)
        self._arrays = Arrays(self._live, self.methods.forget)
        self._groups = Groups(self._live)
        self._eligibility = Eligibility(self._live, self._reestimates.watch)
        self._alters = Alters(self._live, self.settings, self._eligibility)
        self._suspensions = Suspensions(self._live)
        self._rivals = Rivals(self._live, self.scores)
        self._rows = {**self.methods.rows, LEARNT_ROWS: self._live.learnt.rows}
        self._changes = Changes()

    @property
    def clock(self) -> SiteClock:
        """Tells the site's time, and which times are not believed."""
        return self._live.clock

    @property
    def time(self) -> float:
        """The site's time: the latest that is believed, Unix seconds; 0 before the first event."""
        return self.clock.now

    def take_changes(self) -> Changes:
        """What was learnt since this was last called. Callers that store nothing call it too, lest it grows."""
        self._live.take_marks()
        changes, self._changes = self._changes, Changes()
        for name, rows in self._rows.items():
            changes.rows[name], changes.oldest[name] = rows.take_new(), rows.oldest
        return changes

    def checkpoint(self) -> tuple[bytes, Changes]:
        """The whole state now, and what was learnt since changes were last taken, which the state does not repeat.

        O(live jobs), 3 µs each; a worker takes a `cut` instead.
        """
        changes, live = self.take_changes(), self._live
        state = self._bounded(changes)
        state.jobs, state.numbers = list(self.context.state.jobs.values()), list(live.numbers.values())
        state.remembered = list(live.remembered)
        found = ((number, self._kept(job.key)) for number, job in live.by_number.items())
        state.kept = {number: kept for number, kept in found if kept is not None}
        return encode(state), changes

    def cut(self) -> Cut:
        """What has changed since changes were last taken, and of the rest what is bounded.

        O(events since then), whatever is live: 3 µs for each job that they changed, and 0.5 ms.
        """
        marks = self._live.take_marks()
        changes = self.take_changes()
        jobs = {number: self._encoded(number, job) for number, job in marks.jobs.items()}
        first_name = self._live.named - len(self._live.remembered)
        return Cut(encode(self._bounded(changes)), jobs, marks.left, marks.names, first_name, changes)

    def encoded_job(self, number: int) -> bytes:
        """A live job as it is stored, by its number, whether or not it has changed; 3 µs."""
        return self._encoded(number, self._live.by_number[number])

    def unmark(self) -> None:
        """The live jobs and the names are stored as they are."""
        self._live.unmark()

    def everything(self) -> tuple[Iterator[tuple[int, bytes]], Mapping[int, JobKey]]:
        """All live jobs as they are stored, with their numbers, and the names; from now on none of it has changed."""
        self.unmark()
        jobs = ((number, self._encoded(number, job)) for number, job in self._live.by_number.items())
        remembered = self._live.remembered
        return jobs, dict(enumerate(remembered, self._live.named - len(remembered)))

    def _encoded(self, number: int, job: Job) -> bytes:
        return encode_job(StoredJob(number, job, self._kept(job.key)))

    def _kept(self, key: JobKey) -> dict[str, bytes] | None:
        """What methods keep of a job."""
        found = {name: kept.encoded(key) for name, kept in self.methods.per_job.items() if key in kept}
        return found or None

    def _bounded(self, changes: Changes) -> SavedState:
        """The state without the live jobs and the names that are remembered."""
        context, scores = self.context, self.scores
        return SavedState(
            v=STATE_VERSION,
            site=self.site,
            jobs=[],
            remembered=[],
            times=list(self._live.expiry.times),
            capacity=context.capacity,
            started=context.history.count,
            first=context.history.first,
            history=context.history.size,
            runs=context.runs.count,
            runs_kept=len(context.runs),
            forgotten=[run.number for run in changes.forgotten_runs],
            events=self.events,
            anomalies=self.anomalies,
            predictions=scores.predictions,
            lost=self.lost,
            accuracy=scores.accuracy,
            cancelled=scores.cancelled,
            methods={name: method.save() for name, method in self.methods.learning.items()},
            run_accuracy=scores.run_accuracy,
            run_predictions=scores.run_predictions,
            run_methods={name: method.save() for name, method in self.methods.runs.items()},
            rows={name: RowRange(rows.count, rows.oldest) for name, rows in self._rows.items()},
            most_cpus=context.most_cpus,
            weeks=list(scores.weeks),
            queues=self.queues.seen,
            gap_until=self.gap_until,
            missed_until=self.missed_until,
            clock=self.clock,
            size=context.size,
            learnt=self._live.learnt.state,
            later=scores.later,
            later_first=scores.later_first,
            early_tasks=self._arrays.early,
            rivals=scores.rivals,
            degraded=scores.degraded,
            entered=self._live.entered,
            named=self._live.named,
            live=len(context.state),
            names=len(self._live.remembered),
            past=self.past.save(),
            looked=self._reestimates.passed,
        )

    @classmethod
    def load(
        cls,
        saved: bytes | SavedState,
        started: list[Started] | None,
        runs: list[Run] | None,
        settings: EngineSettings | None = None,
        rows: Mapping[str, Iterable[Row]] | None = None,
    ) -> Self:
        """An engine that goes on from where the one that was saved had come.

        Rows beyond those the saved state counts are ignored: the stores may be ahead of it. Without rows (None: they
        are lost) it goes on with the live jobs, begins both histories anew, and says so in its predictions until
        `MIN_JOBS_TO_RECOVER` jobs have started.

        Raises:
            ValueError: the state is of a later version, or rows of the history are missing.
        """
        state = read_saved(saved) if isinstance(saved, bytes) else saved
        engine = cls(state.site, settings)
        engine._restore(state)
        lost = started is None or runs is None
        if started is not None and runs is not None:
            engine._changes.forgotten_runs.extend(restore_histories(state, engine.context, started, runs))
            restore_rows(state, engine.methods.rows, rows or {})
        engine._restore_learnt(state, {} if lost else rows or {})
        engine.lost = lost or state.lost
        if not lost:  # else the jobs are counted anew
            engine.gap_until, engine.missed_until = state.gap_until, state.missed_until
        engine.methods.load(state.methods, state.run_methods, with_rows=not lost)
        return engine

    def store_anew(self, started: list[Started]) -> None:
        """Have all entries of the histories stored once more; `started` are those of the jobs that started."""
        self._changes.started, self._changes.runs = list(started), list(self.context.runs)
        self._live.learnt.add_missing(self._live.remembered, self.time)
        for kept in self._rows.values():
            kept.store_anew()

    def _restore_kept(self, state: SavedState) -> None:
        """Give the methods back what they kept of live jobs."""
        for number, kept in state.kept.items():
            key = self._live.by_number[number].key
            for name, encoded in kept.items():
                if name in self.methods.per_job:
                    self.methods.per_job[name].restore(key, encoded)

    def _restore_learnt(self, state: SavedState, rows: Mapping[str, Iterable[Row]]) -> None:
        """Take back which jobs have left; where that is not stored, or lost, those of which the names are there."""
        learnt, saved, included = self._live.learnt, state.learnt, state.rows.get(LEARNT_ROWS)
        if saved is None or included is None or (included.count and LEARNT_ROWS not in rows):
            learnt.state.forgotten_until = 0.0 if saved is None else saved.forgotten_until
            learnt.add_missing(state.remembered, self.time)
        else:
            learnt.restore(saved, rows.get(LEARNT_ROWS, ()), included.count, included.oldest)

    def _restore(self, state: SavedState) -> None:
        """Take back everything but the histories and what the methods keep for themselves."""
        live = self._live
        live.clock, live.expiry = state.clock or SiteClock.of_times(state.times, state.events), Expiry(state.times)
        live.restore(state.jobs, state.numbers, state.entered)
        live.restore_names(state.remembered, state.named)
        self._restore_kept(state)
        self._suspensions.watch(state.jobs)
        self._groups.watch(state.jobs)
        self._arrays.early = dict(state.early_tasks)
        self.context.resize(state.capacity)
        self.context.size = state.size or SizeSeen(state.most_cpus if state.most_cpus <= MAX_CPUS else 0)
        self.events, self.anomalies = state.events, state.anomalies
        self.queues = Queues(state.queues)
        self.past.restore(state.past)
        self.scores.restore(
            state.accuracy,
            state.cancelled,
            state.run_accuracy,
            state.predictions,
            state.run_predictions,
            state.degraded,
            state.weeks,
            state.rivals,
        )
        self.scores.later = state.later or Accuracy()
        self.scores.later_first = state.later_first or Accuracy()
        self._reestimates.restore(state.looked, self.time)
