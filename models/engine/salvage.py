"""Recover an engine from the history entries that the stores have not lost."""

from collections.abc import Iterable, Mapping

import msgspec

from models.engine.components import LEARNT_ROWS
from models.engine.engine import Engine
from models.engine.histories import MIN_JOBS_TO_RECOVER, Changes, RowRange
from models.engine.saved_state import SavedState
from models.engine.settings import EngineSettings
from models.site.history import StartedJob
from models.site.rows import Row
from models.site.runs import Run


def salvage(
    state: SavedState,
    started: list[StartedJob],
    runs: list[Run],
    rows: Mapping[str, Iterable[Row]],
    settings: EngineSettings | None = None,
) -> Engine:
    """Restore the engine of a state with lost entries.

    Its predictions report a gap until the gap has left the history. Its next changes contain all entries under new
    numbers. They must not be stored over the old entries, which the stored state counts. `state` is modified.
    """
    renumbered = _renumber(state, started, runs, rows)
    engine = Engine.load(state, renumbered.started, renumbered.runs, settings, renumbered.rows)
    engine.parts.histories.mark_all_new()
    return engine


def _renumber(
    state: SavedState, started: list[StartedJob], runs: list[Run], rows: Mapping[str, Iterable[Row]]
) -> Changes:
    """Renumber the remaining entries of a state, and modify the state to count only these.

    The remaining entries get consecutive numbers up to the last number that the state counts. Because of the new
    numbers all of them must be stored again, separately from the old ones.

    Returns:
        The renumbered entries.
    """
    counted, window = state.histories, state.histories.window
    found = sorted((row for row in started if row.number in window), key=lambda row: row.number)
    there = {row.number for row in found}
    missing = [number for number in window if number not in there]
    # From this job on, the gap has left the history. Without a gap there, run times or rows of a method are missing.
    until = missing[-1] + 1 + counted.history if missing else counted.started + MIN_JOBS_TO_RECOVER
    state.gaps.gap_until = max(state.gaps.gap_until, until)
    counted.first = counted.started - len(found)
    kept_runs = counted.kept_runs(runs)
    counted.runs_kept, counted.forgotten = len(kept_runs), []
    own = {}
    for name, kept in counted.rows.items():
        there_of = [row for row in rows.get(name, ()) if kept.oldest <= row.number < kept.count]
        there_of.sort(key=lambda row: row.number)
        if name == LEARNT_ROWS and len(there_of) < kept.count - kept.oldest:  # any unknown job may have left
            state.live.learnt.lose(state.live.clock.now)
        counted.rows[name] = RowRange(kept.count, kept.count - len(there_of))
        own[name] = [Row(number, row.value) for number, row in enumerate(there_of, kept.count - len(there_of))]
    renumbered = [msgspec.structs.replace(row, number=number) for number, row in enumerate(found, counted.first)]
    return Changes(started=renumbered, runs=kept_runs, rows=own)
