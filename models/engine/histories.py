"""Histories of a site that are stored entry by entry: started jobs, run times, and rows of methods."""

from collections.abc import Iterable, Mapping

import msgspec

from models.method import SiteContext
from models.site.history import StartedJob
from models.site.job import Job
from models.site.rows import Row, Rows
from models.site.runs import Run

MAX_ROWS = 1 << 62  # maximum row number of a state
MIN_JOBS_TO_RECOVER = 1000
"""Jobs that must start after a loss of histories or events until predictions are no longer marked as degraded."""


class Changes(msgspec.Struct):
    """Changes of the histories since the last write to the stores: new entries and removed entries.

    `rows` are those of the methods by their key (`SiteMethods.rows`); `oldest` is the first row to keep of each.
    """

    started: list[StartedJob] = msgspec.field(default_factory=list)
    runs: list[Run] = msgspec.field(default_factory=list)
    forgotten_runs: list[Run] = msgspec.field(default_factory=list)
    rows: dict[str, list[Row]] = msgspec.field(default_factory=dict)
    oldest: dict[str, int] = msgspec.field(default_factory=dict)


class Gaps(msgspec.Struct):
    """Temporary gaps in the data of a site.

    Attributes:
        lost: whether the histories were lost recently.
        gap_until: number of started jobs until which the histories have a gap; 0 for none.
        missed_until: number of started jobs until which events are missing; 0 for none.
    """

    lost: bool = False
    gap_until: int = 0
    missed_until: int = 0

    def see_started(self, count: int) -> None:
        """Update the gaps after `count` jobs have started."""
        self.lost = self.lost and count < MIN_JOBS_TO_RECOVER

    def miss_events(self, count: int) -> None:
        """Record that events were lost after `count` jobs had started."""
        self.missed_until = count + MIN_JOBS_TO_RECOVER


class RowRange(msgspec.Struct, array_like=True, frozen=True):
    """Range of a method's rows in a state: from number `oldest` to before number `count`."""

    count: int
    oldest: int


class SavedHistories(msgspec.Struct):
    """The stored entries that a state includes.

    Attributes:
        started: number of jobs that have started.
        first: number of the oldest entry that may be kept.
        history: maximum number of started jobs that are kept.
        runs: number of run times learnt.
        runs_kept: number of run times kept.
        forgotten: numbers of the runs removed since the previous state. The stores delete them only after this state is
            durable, so readers may still find them.
        rows: the range of rows of each method by its key.
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
        """The numbers of the started jobs that are kept."""
        return range(max(self.started - self.history, self.first), self.started)

    def kept_runs(self, runs: Iterable[Run]) -> list[Run]:
        """Return the stored runs that the state includes."""
        forgotten = set(self.forgotten)
        return [run for run in runs if run.number <= self.runs and run.number not in forgotten]


class SiteHistories:
    """Collects new entries of a site's histories until they are stored.

    Args:
        context: the context of the site, with the histories of started jobs and of run times.
        rows: the rows of methods and of departed jobs, by their keys.
    """

    def __init__(self, context: SiteContext, rows: Mapping[str, Rows]) -> None:
        self._context = context
        self._rows = rows
        self._changes = Changes()

    def add_started(self, job: Job, wait_s: float) -> None:
        """Add a job that started after `wait_s` seconds."""
        self._changes.started.append(self._context.history.learn(job, wait_s))

    def add_run(self, job: Job, run_s: float) -> None:
        """Add a job that ran for `run_s` seconds."""
        new, gone = self._context.runs.learn(job, run_s)
        self._changes.runs.extend(new)
        self._changes.forgotten_runs.extend(gone)

    def take_changes(self) -> Changes:
        """Return the changes since the last call.

        New runs that were removed again are returned as forgotten, because a failed checkpoint may have stored them.
        """
        changes, self._changes = self._changes, Changes()
        gone = {run.number for run in changes.forgotten_runs}
        changes.runs = [run for run in changes.runs if run.number not in gone]
        for name, rows in self._rows.items():
            changes.rows[name], changes.oldest[name] = rows.take_changes(), rows.oldest
        return changes

    def save(self, changes: Changes) -> SavedHistories:
        """Return which entries exist, including these changes."""
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

    def restore(self, saved: SavedHistories, started: list[StartedJob], runs: list[Run]) -> None:
        """Restore the started jobs and the run times; runs of categories that no method uses are removed.

        Raises:
            ValueError: entries are missing.
        """
        self._context.history.restore(started, saved.started, saved.first, saved.history)
        kept = saved.kept_runs(runs)
        if len(kept) != saved.runs_kept:
            raise ValueError(f"history of run times has {len(kept)} entries; expected {saved.runs_kept}")
        read: list[Run] = []
        for run in kept:
            if not run.category:
                raise ValueError(f"run time {run.number} has no category")
            known = run.category[0] in self._context.runs.templates
            (read if known else self._changes.forgotten_runs).append(run)
        self._context.runs.restore(read, saved.runs)

    def mark_all_new(self) -> None:
        """Mark all entries as new, so that they are stored again."""
        self._changes.started, self._changes.runs = self._context.history.stored(), list(self._context.runs)
        for rows in self._rows.values():
            rows.mark_all_new()


def restore_rows(saved: SavedHistories, own: Mapping[str, Rows], rows: Mapping[str, Iterable[Row]]) -> None:
    """Restore the stored rows of methods.

    Raises:
        ValueError: rows are missing.
    """
    for name, kept in own.items():
        included = saved.rows.get(name)
        if included is not None:
            if not 0 <= included.oldest <= included.count < MAX_ROWS:
                raise ValueError(f"{name} has an invalid range of rows, from {included.oldest} to {included.count}")
            kept.restore(rows.get(name, ()), included.count, included.oldest)
