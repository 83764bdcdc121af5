"""Shared parts of the genetic searches: their steps, the saved state, and the output."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from math import fsum
from multiprocessing import get_context
from pathlib import Path
from signal import SIG_IGN, SIGINT, signal
from typing import Any, TypeVar

import msgspec

from models.papers.search.genetic import Generation, Individual, SearchPlan, SearchProblem, evolve
from streams.errors import UserError
from streams.offline.output_files import read_state, save_state
from streams.process.compiling import compiling_alone
from streams.text.terminal import show_table

Item = TypeVar("Item")
Result = TypeVar("Result")

_function: Callable[[Any], Any] | None = None
"""The function that this worker process of `process_map` applies."""


def _set_function(function: Callable[[Any], Any]) -> None:
    global _function
    _function = function
    signal(SIGINT, SIG_IGN)  # the process that began the work ends it


def _applied(item: Any) -> Any:
    assert _function is not None
    return _function(item)


@contextmanager
def process_map(
    function: Callable[[Item], Result], workers: int, first: Item
) -> Iterator[Callable[[Sequence[Item]], Iterable[Result]]]:
    """Yield a function that maps over items, in order, in `workers` processes; one worker is this process.

    Each process has its own copy of the function, which is sent once. The item `first` is processed here alone before,
    so that its compiled code is in numba's cache, which has no lock.
    """
    if workers == 1:
        yield lambda items: map(function, items)
        return
    with compiling_alone():
        function(first)
    pool = ProcessPoolExecutor(workers, get_context("spawn"), _set_function, (function,))
    try:
        yield lambda items: pool.map(_applied, items)
    finally:
        pool.shutdown(cancel_futures=True)


class SearchStep(msgspec.Struct, frozen=True):
    """A step of a search: its best individual so far, as texts, and a generation's best, mean and worst error (s)."""

    number: int
    best: list[str]
    best_s: float
    mean_s: float
    worst_s: float


class SearchResult(msgspec.Struct, frozen=True):
    """The steps of a search, the error of the settings in force, and the mean of the predicted quantity, in seconds."""

    steps: list[SearchStep]
    before_s: float
    mean_s: float

    @property
    def best(self) -> SearchStep:
        """The step with the smallest error."""
        return min(self.steps, key=lambda step: step.best_s)

    def errors(self) -> dict[str, Any]:
        """Return the mean absolute errors in seconds: in force, found, and the best of each step."""
        return {
            "before_s": self.before_s,
            "found_s": self.best.best_s,
            "steps_s": [step.best_s for step in self.steps],
        }


def steps(
    problem: SearchProblem,
    plan: SearchPlan,
    file: Path | None,
    workload: str,
    founders: Iterable[Individual],
    described: Callable[[Individual], list[str]],
) -> Iterator[SearchStep]:
    """Yield one step for each generation, those of the state file first; the file is written after each.

    `workload` identifies the jobs; `described` formats an individual as texts.

    Raises:
        UserError: the state file cannot be read or written, or is of another search.
    """
    state = None if file is None else _read(file, workload, plan)
    taken = list(state.steps) if state else []
    yield from taken
    for generation in evolve(problem, plan, state.generation if state else None, founders):
        errors = generation.errors
        best = described(generation.ranked()[0])
        taken.append(SearchStep(generation.number, best, min(errors), fsum(errors) / len(errors), max(errors)))
        if file is not None:
            save_state(SearchState(workload, plan, generation, taken), file)
        yield taken[-1]


class SearchState(msgspec.Struct, frozen=True):
    """Content of a state file, from which a search resumes. `workload` identifies its jobs."""

    workload: str
    plan: SearchPlan
    generation: Generation
    steps: list[SearchStep]


def _read(file: Path, workload: str, plan: SearchPlan) -> SearchState | None:
    state = read_state(file, SearchState, "a search")
    if state is None:
        return None
    if state.workload != workload:
        raise UserError(f"{file}: is the state of a search on other jobs")
    if msgspec.structs.replace(state.plan, generations=plan.generations) != plan:
        raise UserError(f"{file}: is the state of another search: {state.plan}, not {plan}")
    return state


def show_steps(result: SearchResult) -> None:
    """Print the progress of the search."""
    lines = [
        [str(step.number), *(f"{seconds:.2f}" for seconds in (step.best_s, step.mean_s, step.worst_s))]
        for step in result.steps
    ]
    show_table(["step", "best AAE s", "mean", "worst"], lines)


def show_errors(result: SearchResult, of: str) -> None:
    """Print the errors found and in force, in seconds and as a share of the mean."""
    errors = (("as in force", result.before_s), ("found", result.best.best_s))
    lines = [[name, f"{error_s:.2f}", f"{error_s / max(result.mean_s, 1.0):.3f}"] for name, error_s in errors]
    show_table(["", "AAE s", f"of the mean {of}"], lines)
