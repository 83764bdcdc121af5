"""What is stored of a site entry by entry: the jobs that started, run times, and the rows of methods."""

from collections.abc import Iterable, Mapping

import msgspec

from models.method import SiteContext
from models.site.history import Started
from models.site.job import Job
from models.site.rows import Row, Rows
from models.site.runs import Run

MAX_ROWS = 1 << 62  # rows that a state may count
MIN_JOBS_TO_RECOVER = 1000
"""Jobs that must start after histories or events were lost before predictions are no longer called degraded."""


class Changes(msgspec.Struct):
    """What was learnt since the stores were last written: rows that are new, and entries that fell out.

    `rows` are the methods' own, by their key (`SiteMethods.rows`); `oldest` says which of each are kept.
    """

    started: list[Started] = msgspec.field(default_factory=list)
    runs: list[Run] = msgspec.field(default_factory=list)
    forgotten_runs: list[Run] = msgspec.field(default_factory=list)
    rows: dict[str, list[Row]] = msgspec.field(default_factory=dict)
    oldest: dict[str, int] = msgspec.field(default_factory=dict)


class Gaps(msgspec.Struct):
    """What a site's knowledge lacks for a while: whether its histories were `lost` lately; until how many jobs have
    started they have a gap, and until how many events are missing (0: none).
    """

    lost: bool = False
    gap_until: int = 0
    missed_until: int = 0

    def see_started(self, count: int) -> None:
        """So many jobs have started."""
        self.lost = self.lost and count < MIN_JOBS_TO_RECOVER

    def miss_events(self, count: int) -> None:
        """Events were lost after so many jobs had started."""
        self.missed_until = count + MIN_JOBS_TO_RECOVER


class RowRange(msgspec.Struct, array_like=True, frozen=True):
    """Which rows of a method a state includes: those from number `oldest`, and before number `count`."""

    count: int
    oldest: int


class SavedHistories(msgspec.Struct):
    """Which of the stored entries a state includes.

    `started` jobs have started, and the last `history` of them are kept, but none before number `first`; `runs` run
    times were learnt, and `runs_kept` of them are kept. `forgotten` are the numbers of the runs that fell out since the
    state before: the stores delete them only once this state is durable, so whoever reads it may still find them.
    """

    started: int
    first: int
    history: int
    runs: int
    runs_kept: int
    forgotten: list[int]
    rows: dict[str, RowRange]

    @property
    def window(self) -> range:
        """The numbers of the jobs that started and are kept."""
        return range(max(self.started - self.history, self.first), self.started)

    def kept_runs(self, runs: Iterable[Run]) -> list[Run]:
        """Those of the stored runs that the state includes."""
        forgotten = set(self.forgotten)
        return [run for run in runs if run.number <= self.runs and run.number not in forgotten]


class SiteHistories:
    """Keeps what is new in a site's histories until it is taken to be stored.

    Parameters:
        context: the site's, which has the histories of jobs that started and of run times.
        rows: those of methods, and which jobs have left, by their keys.
    """

    def __init__(self, context: SiteContext, rows: Mapping[str, Rows]) -> None:
        self._context = context
        self._rows = rows
        self._changes = Changes()

    def add_started(self, job: Job, wait_s: float) -> None:
        """A job has started after `wait_s` seconds."""
        self._changes.started.append(self._context.history.learn(job, wait_s))

    def add_run(self, job: Job, run_s: float) -> None:
        """A job has run for `run_s` seconds."""
        new, gone = self._context.runs.learn(job, run_s)
        self._changes.runs.extend(new)
        self._changes.forgotten_runs.extend(gone)

    def take_changes(self) -> Changes:
        """What is new since this was last called.

        Runs that fell out again are not among the new ones, but forgotten: a checkpoint that failed may have them.
        """
        changes, self._changes = self._changes, Changes()
        gone = {run.number for run in changes.forgotten_runs}
        changes.runs = [run for run in changes.runs if run.number not in gone]
        for name, rows in self._rows.items():
            changes.rows[name], changes.oldest[name] = rows.take_changes(), rows.oldest
        return changes

    def save(self, changes: Changes) -> SavedHistories:
        """Which entries there are, these changes included."""
        history, runs = self._context.history, self._context.runs
        return SavedHistories(
            started=history.count,
            first=history.first,
            history=history.size,
            runs=runs.count,
            runs_kept=len(runs),
            forgotten=[run.number for run in changes.forgotten_runs],
            rows={name: RowRange(rows.count, rows.oldest) for name, rows in self._rows.items()},
        )

    def restore(self, saved: SavedHistories, started: list[Started], runs: list[Run]) -> None:
        """Take the jobs that started and the run times back; runs of categories that no method reads are forgotten.

        Raises:
            ValueError: entries are missing.
        """
        self._context.history.restore(started, saved.started, saved.first, saved.history)
        kept = saved.kept_runs(runs)
        if len(kept) != saved.runs_kept:
            raise ValueError(f"history of run times has {len(kept)} of {saved.runs_kept} entries")
        read: list[Run] = []
        for run in kept:
            if not run.category:
                raise ValueError(f"run time {run.number} is of no category")
            known = run.category[0] in self._context.runs.templates
            (read if known else self._changes.forgotten_runs).append(run)
        self._context.runs.restore(read, saved.runs)

    def store_anew(self) -> None:
        """Have all entries stored once more."""
        self._changes.started, self._changes.runs = self._context.history.stored(), list(self._context.runs)
        for rows in self._rows.values():
            rows.store_anew()


def restore_rows(saved: SavedHistories, own: Mapping[str, Rows], rows: Mapping[str, Iterable[Row]]) -> None:
    """Give methods their stored rows back. Raises ValueError: rows are missing."""
    for name, kept in own.items():
        included = saved.rows.get(name)
        if included is not None:
            if not 0 <= included.oldest <= included.count < MAX_ROWS:
                raise ValueError(f"{name} counts rows from {included.oldest} to {included.count}")
            kept.restore(rows.get(name, ()), included.count, included.oldest)
