"""Every method on one trace: the same events, one table each for waits, run times and bounds."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from multiprocessing import get_context
from typing import Any

import msgspec

from models.engine import Settings
from models.records import Outcome, Submit
from models.registry import METHODS, RUN_METHODS, TRIVIAL
from streams.replay import Scores, replay, settings_for
from streams.swf import Trace, events_of

Rows = dict[str, dict[str, float]]


class Comparison(msgspec.Struct):
    """The measures by method: of waits, of run times, and of bounds on waits by method and probability."""

    waits: Rows = {}
    run_times: Rows = {}
    bounds: Rows = {}

    def add(self, other: "Comparison") -> None:
        """Take in what another process measured."""
        self.waits |= other.waits
        self.run_times |= other.run_times
        self.bounds |= other.bounds

    def ordered(self) -> "Comparison":
        """The trivial rules first, then as the registry has them."""
        waits = [*TRIVIAL, *(name for name in METHODS if name not in TRIVIAL)]
        return Comparison(
            {name: self.waits[name] for name in waits if name in self.waits},
            {name: self.run_times[name] for name in RUN_METHODS if name in self.run_times},
            {key: self.bounds[key] for name in waits for key in self.bounds if key.split()[0] == name},
        )


def compare(
    trace: Trace,
    jobs: set[str],
    settings: Settings,
    methods: Sequence[str] = (),
    workers: int = 2,
    cancelled: bool = True,
    advance: Callable[[int], None] = lambda _: None,
) -> Comparison:
    """Replay a trace with every method, in so many processes, each with its share of them.

    Parameters:
        trace: the trace, replayed whole.
        jobs: names of those that are scored.
        methods: only these; all where none are named.
        cancelled: whether jobs cancelled in the queue are scored.
        advance: called with the share (of 1000) of the work that has been done.

    Raises:
        UserError: there is no such method.
    """
    shares = _shares(methods or list(dict.fromkeys((*METHODS, *RUN_METHODS))), workers)
    found = Comparison()
    context = get_context("spawn")
    with context.Manager() as manager, ProcessPoolExecutor(len(shares), mp_context=context) as pool:
        done = manager.dict()
        futures = [pool.submit(_replayed, trace, jobs, settings, share, cancelled, done) for share in shares]
        for future in _finished(futures, lambda: advance(int(1000 * sum(done.values()) / len(shares)))):
            found.add(future.result())
    return found.ordered()


def _shares(methods: Sequence[str], workers: int) -> list[list[str]]:
    """The methods dealt out, all those for run times alone to the first: they are quick."""
    waits = [name for name in methods if name in METHODS and name not in TRIVIAL]
    shares = [waits[place::workers] for place in range(workers)]
    shares[0] += [name for name in methods if name not in METHODS or name in TRIVIAL]
    return [share for share in shares if share]


def _finished(futures: Sequence[Future[Comparison]], tell: Callable[[], None]) -> Iterator[Future[Comparison]]:
    left = set(futures)
    while left:
        ended, left = wait(left, timeout=0.5, return_when="FIRST_COMPLETED")
        tell()
        yield from ended


def _replayed(
    trace: Trace, jobs: set[str], settings: Settings, methods: list[str], cancelled: bool, done: Any
) -> Comparison:
    """One process's share of the methods."""
    chosen = settings_for(settings, methods if set(methods) & set(METHODS) else [*methods, *TRIVIAL])
    scores = Scores(lambda outcome: outcome.job in jobs, cancelled, chosen)
    submitted, every = 0, max(len(trace.jobs) // 200, 1)

    def events() -> Iterator[Any]:
        nonlocal submitted
        for event in events_of(trace, trace.site):
            yield event
            if isinstance(event, Submit):
                submitted += 1
                if submitted % every == 0:
                    done[methods[0]] = submitted / len(trace.jobs)

    for record in replay(events(), chosen):
        if isinstance(record, Outcome):
            scores.add(record)
    named = {*methods, *TRIVIAL}
    waits = {name: row for name, row in scores.rows().items() if name in named}
    runs = {name: row for name, row in scores.run_rows().items() if name in named or name not in METHODS}
    return Comparison(waits, runs, scores.bound_rows())
