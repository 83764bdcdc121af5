"""Compare all methods on one log: the same events, and one table each for waits, run times and bounds."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import msgspec

from models.engine.settings import EngineSettings
from models.method_registry import METHODS, RUN_METHODS, TRIVIAL
from streams.bulk.event_log import JobRange
from streams.offline.breakdown import Breakdown
from streams.offline.excerpt import Excerpt
from streams.offline.replay import settings_for
from streams.offline.scored import ScoredReplay
from streams.process.first_start import compile_kernels

MeasureTable = dict[str, dict[str, float]]


class Comparison(msgspec.Struct):
    """Accuracy by method of waits and run times, and of bounds on waits by method and probability.

    `rivals` names the external estimators in `waits`, whose estimates are in the log as `expected_start`.
    """

    waits: MeasureTable = {}
    run_times: MeasureTable = {}
    bounds: MeasureTable = {}
    rivals: list[str] = []
    breakdowns: dict[str, Breakdown] = {}

    def add(self, other: "Comparison") -> None:
        """Add the measures of another process."""
        self.waits |= other.waits
        self.run_times |= other.run_times
        self.bounds |= other.bounds
        self.rivals = sorted({*self.rivals, *other.rivals})
        self.breakdowns |= other.breakdowns

    def pending_reasons_of(self, method: str) -> str:
        """Return the method to report on: this one if it ran, else the best that ran, else the best baseline."""
        if method in self.breakdowns:
            return method
        ran = [name for name in self.breakdowns if name not in (*TRIVIAL, *self.rivals)]
        return min(ran or TRIVIAL, key=lambda name: self.breakdowns[name].every.error_h)

    def ordered(self) -> "Comparison":
        """Return the rows with baselines first, then external estimators, then methods in registry order."""
        waits = [*TRIVIAL, *self.rivals, *(name for name in METHODS if name not in TRIVIAL)]
        return Comparison(
            {name: self.waits[name] for name in waits if name in self.waits},
            {name: self.run_times[name] for name in RUN_METHODS if name in self.run_times},
            {key: self.bounds[key] for name in waits for key in self.bounds if key.split()[0] == name},
            self.rivals,
            {name: self.breakdowns[name] for name in waits if name in self.breakdowns},
        )


def compare(
    excerpt: Excerpt,
    jobs: JobRange,
    settings: EngineSettings,
    methods: Sequence[str] = (),
    workers: int = 2,
    cancelled: bool = True,
    advance: Callable[[int], None] = lambda _: None,
    resume: Path | None = None,
) -> Comparison:
    """Replay a log with every method, in several processes that share the methods.

    Args:
        excerpt: the events to replay.
        jobs: the jobs to score.
        settings: settings of the engine.
        methods: methods to run; by default all.
        workers: number of processes.
        cancelled: score jobs cancelled in the queue too.
        advance: called with the share (of 1000) of the work that is done.
        resume: a file for the state; a process with the same methods resumes from it.

    Raises:
        UserError: there is no such method.
    """
    named = methods or list(dict.fromkeys((*METHODS, *RUN_METHODS)))
    shares = _shares(named, workers)
    run_names = [name for name in named if name in RUN_METHODS]
    found = Comparison()
    compile_kernels(_chosen(settings, [name for share in shares for name in share], run_names))
    context = get_context("spawn")
    with context.Manager() as manager, ProcessPoolExecutor(len(shares), mp_context=context) as pool:
        done = manager.dict()
        tasks = [(share, run_names if place == 0 else []) for place, share in enumerate(shares)]
        futures = [pool.submit(_replayed, excerpt, jobs, settings, *task, cancelled, resume, done) for task in tasks]
        for future in _finished(futures, lambda: advance(int(1000 * sum(done.values()) / len(shares)))):
            found.add(future.result())
    return found.ordered()


def _shares(methods: Sequence[str], workers: int) -> list[list[str]]:
    """Distribute the methods for waits, and unrecognised names, over the workers."""
    waits = [name for name in methods if name not in RUN_METHODS or name in METHODS]
    shares = [waits[place::workers] for place in range(workers)]
    return [share for share in shares if share] or [[]]


def _finished(futures: Sequence[Future[Comparison]], advance: Callable[[], None]) -> Iterator[Future[Comparison]]:
    pending = set(futures)
    while pending:
        ended, pending = wait(pending, timeout=0.5, return_when="FIRST_COMPLETED")
        advance()
        yield from ended


def _replayed(
    excerpt: Excerpt,
    jobs: JobRange,
    settings: EngineSettings,
    methods: list[str],
    run_methods: list[str],
    cancelled: bool,
    resume: Path | None,
    done: Any,
) -> Comparison:
    chosen = _chosen(settings, methods, run_methods)
    part = " ".join(methods)
    run = ScoredReplay(excerpt, chosen, jobs, cancelled, resume=resume, part=part)
    submitted, every = 0, max(excerpt.jobs // 200, 1)

    def advance() -> None:
        nonlocal submitted
        submitted += 1
        if submitted % every == 0:
            done[part] = submitted / excerpt.jobs

    run.run(advance)
    scores, breakdowns = run.scores, run.breakdowns
    rows = scores.rows()
    rivals = [name for name in rows if name not in (*chosen.methods, *chosen.run_methods)]
    shown = (*methods, *TRIVIAL, *rivals)
    waits = {name: row for name, row in rows.items() if name in shown}
    runs = {name: row for name, row in scores.run_rows().items() if name in run_methods}
    found = {name: one for name, one in breakdowns.found.items() if name in shown}
    return Comparison(waits, runs, _own(scores.bound_rows(), settings.bounds), rivals, found)


def _chosen(settings: EngineSettings, methods: Sequence[str], run_methods: Sequence[str]) -> EngineSettings:
    runtimes = [settings.runtimes, *(name for name in run_methods if name != settings.runtimes)]
    return settings_for(settings, [*TRIVIAL, *methods], runtimes)


def _own(bounds: MeasureTable, lender: str) -> MeasureTable:
    """Remove the bounds that a method borrowed from `lender`, which supplies methods without bounds of their own."""
    lent = {key.split()[1]: row for key, row in bounds.items() if key.split()[0] == lender}
    return {key: row for key, row in bounds.items() if key.split()[0] == lender or row != lent.get(key.split()[1])}
