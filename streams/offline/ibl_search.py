"""The search for what `ibl` compares jobs by, on a stretch of a trace: resumable, and the site's profile."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from models.engine.settings import EngineSettings
from models.papers.ibl.method import Ibl, IblParameters
from models.papers.search.genetic import SearchPlan
from models.papers.search.ibl import (
    Bench,
    Bits,
    Examples,
    RankedGeneration,
    Target,
    collect,
    decode,
    encode,
    settings_of,
)
from models.papers.search.ibl import search as genetic
from models.registry import method_named
from streams.errors import UserError
from streams.offline.files import SearchState, as_profile, read_state, write_state
from streams.offline.processes import process_map
from streams.offline.stretch import Stretch, events_in
from streams.text.terminal import show_table

TARGET_NAMES: dict[Target, str] = {"wait": "wait", "run": "run time"}


class IblSearchOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How to search for what `ibl` compares jobs by.

    After each generation the errors of all chromosomes tried so far are written to `file`. Where that exists already,
    the search begins with the errors in it.
    """

    plan: SearchPlan = SearchPlan()
    workers: int = 1
    file: Path | None = None


class IblSearchState(SearchState, frozen=True, kw_only=True):
    """A search for `ibl`: the error of each chromosome that was tried, by its bits."""

    errors: dict[str, float]


class IblSearchResult(msgspec.Struct, frozen=True):
    """The result of a search: its generations, and the parameters in force and found, with their errors.

    Errors are shares of `mean_s`, the mean wait or run time of the jobs that were predicted, in seconds.
    """

    target: Target
    generations: list[RankedGeneration]
    before: IblParameters
    before_error: float
    parameters: IblParameters
    error: float
    mean_s: float


def examples_of(
    stretch: Stretch, settings: EngineSettings, target: Target, advance: Callable[[], None] = lambda: None
) -> Examples:
    """The jobs that a search for `ibl` learns from and predicts; `advance` is called at each of the trace's jobs.

    Raises:
        UserError: none of the stretch's jobs ran, and run times are to be predicted.
    """
    waits, runs = collect(events_in(stretch, advance), stretch.jobs, settings)
    examples = waits if target == "wait" else runs
    if not examples.asked:
        raise UserError(f"{stretch.trace.path}: no job of that range ran")
    return examples


def search(
    examples: Examples,
    options: IblSearchOptions,
    settings: EngineSettings,
    report: Callable[[RankedGeneration], None] = lambda _: None,
) -> IblSearchResult:
    """Search for what `ibl` should compare jobs by, beginning with the parameters in force.

    `report` is called with each generation.

    Raises:
        UserError: the state file cannot be read or written, or is of another search.
    """
    target, bench, generations = examples.target, Bench(examples), []
    before = _in_force(settings)
    try:
        founders = [encode(before, target)]
    except ValueError:  # a value that the search does not try
        founders = []
    fingerprint = examples.fingerprint
    tried = {} if options.file is None else _tried(options.file, fingerprint)
    with process_map(bench.error, options.workers) as evaluate:
        for generation in genetic(target, options.plan, evaluate, tried, founders):
            generations.append(generation)
            tried |= generation.errors
            if options.file is not None:
                errors = {"".join(map(str, bits)): error for bits, error in tried.items()}
                write_state(options.file, IblSearchState(workload=fingerprint, errors=errors))
            report(generation)
    best = generations[-1].best
    return IblSearchResult(
        target, generations, before, bench.error(before), decode(best, target, before), tried[best], bench.mean_s
    )


def _in_force(settings: EngineSettings) -> IblParameters:
    method = method_named(Ibl.name, settings.parameters.get(Ibl.name))
    assert isinstance(method, Ibl)
    return method.parameters


def _tried(file: Path, workload: str) -> dict[Bits, float]:
    state = read_state(file, IblSearchState, workload)
    return {} if state is None else {tuple(map(int, bits)): error for bits, error in state.errors.items()}


def show(result: IblSearchResult) -> None:
    """Print how the search went, the parameters in force and found, and the errors of both."""
    lines = []
    for generation in result.generations:
        errors = list(generation.errors.values())
        figures = (errors[0], sum(errors) / len(errors), errors[-1])
        lines.append([str(generation.number), *(f"{error * result.mean_s:.2f}" for error in figures)])
    show_table(["generation", "best AAE s", "mean", "worst"], lines)
    before, after = settings_of(result.before, result.target), settings_of(result.parameters, result.target)
    show_table(["", "in force", "found"], [[name, _text(before[name]), _text(after[name])] for name in after])
    rows = (("as in force", result.before_error), ("found", result.error))
    lines = [[name, f"{error * result.mean_s:.2f}", f"{error:.3f}"] for name, error in rows]
    show_table(["", "AAE s", f"of the mean {TARGET_NAMES[result.target]}"], lines)


def errors(result: IblSearchResult) -> dict[str, Any]:
    """The mean absolute errors in seconds: of what is in force, of what was found, and the best of each generation."""
    steps = [generation.errors[generation.best] * result.mean_s for generation in result.generations]
    return {"before_s": result.before_error * result.mean_s, "found_s": result.error * result.mean_s, "steps_s": steps}


def _text(value: bool | int | float | str | list[str]) -> str:
    return " ".join(value) or "nothing" if isinstance(value, list) else str(value)


def profile(result: IblSearchResult, settings: EngineSettings) -> str:
    """`ibl` with the parameters found and its other parameters in force, as TOML that `queuecast --config` reads."""
    parameters = settings.parameters.get(Ibl.name, {}) | settings_of(result.parameters, result.target)
    return as_profile({"method" if result.target == "wait" else "runtimes": Ibl.name}, Ibl.name, parameters)
