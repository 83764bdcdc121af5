"""Resumable search for the distance parameters of `ibl` on a stretch of a trace, and the site's profile."""

from collections.abc import Callable
from pathlib import Path

from models.engine.settings import EngineSettings
from models.method_registry import method_named
from models.papers.ibl.instance_based import Ibl, IblParameters
from models.papers.search.genetic import SearchPlan
from models.papers.search.ibl import Bench, Chromosomes, Examples, Target, collect, decode, encode, settings_of
from streams.errors import UserError
from streams.offline.output_files import as_profile
from streams.offline.searching import SearchResult, SearchStep, process_map, show_errors, show_steps, steps
from streams.offline.tune import TuningInput, events_in
from streams.text.terminal import show_table

TARGET_NAMES: dict[Target, str] = {"wait": "wait", "run": "run time"}


def examples_of(
    stretch: TuningInput, settings: EngineSettings, target: Target, advance: Callable[[], None] = lambda: None
) -> Examples:
    """Collect the jobs that a search for `ibl` learns from and predicts; `advance` is called at each job of the trace.

    Raises:
        UserError: run times are to be predicted, but none of the jobs ran.
    """
    waits, runs = collect(events_in(stretch, advance), stretch.jobs, settings)
    examples = waits if target == "wait" else runs
    if not examples.queries:
        raise UserError(f"{stretch.trace.path}: no job of that range ran")
    return examples


def search(
    examples: Examples,
    plan: SearchPlan,
    settings: EngineSettings,
    report: Callable[[SearchStep], None] = lambda _: None,
    workers: int = 1,
    file: Path | None = None,
) -> SearchResult:
    """Search the distance parameters of `ibl`, starting with the parameters in force.

    `report` is called with each step, whose best is a chromosome. The state is kept in `file`, if one is given.

    Raises:
        UserError: the state file cannot be read or written, or is of another search.
    """
    target, bench, taken = examples.target, Bench(examples), []
    before = in_force(settings)
    try:
        founders = [(encode(before, target),)]
    except ValueError:  # a value that the search does not try
        founders = []
    with process_map(bench.error_s, workers, before) as evaluate:
        for step in steps(Chromosomes(target, evaluate), plan, file, examples.fingerprint, founders, list):
            taken.append(step)
            report(step)
    return SearchResult(taken, bench.error_s(before), bench.mean_s)


def in_force(settings: EngineSettings) -> IblParameters:
    """Return the current parameters of `ibl`."""
    method = method_named(Ibl.name, settings.parameters.get(Ibl.name))
    assert isinstance(method, Ibl)
    return method.parameters


def found(result: SearchResult, target: Target, settings: EngineSettings) -> IblParameters:
    """Return the parameters that were found, next to those in force."""
    return decode(result.best.best[0], target, in_force(settings))


def show(result: SearchResult, target: Target, settings: EngineSettings) -> None:
    """Print the progress of the search, the parameters in force and found, and the errors of both."""
    show_steps(result)
    before = settings_of(in_force(settings), target)
    after = settings_of(found(result, target, settings), target)
    show_table(["", "in force", "found"], [[name, _text(before[name]), _text(after[name])] for name in after])
    show_errors(result, TARGET_NAMES[target])


def _text(value: bool | int | float | str | list[str]) -> str:
    return " ".join(value) or "nothing" if isinstance(value, list) else str(value)


def profile(result: SearchResult, target: Target, settings: EngineSettings) -> str:
    """`ibl` with the parameters found and its other parameters in force, as TOML that `queuecast --config` reads."""
    parameters = settings.parameters.get(Ibl.name, {}) | settings_of(found(result, target, settings), target)
    return as_profile({"method" if target == "wait" else "runtimes": Ibl.name}, Ibl.name, parameters)
