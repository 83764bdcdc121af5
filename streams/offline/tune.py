"""Tuning on a trace: its validation stretch, the tables of what was found, and the profile to run the site with.

`qespera` is tuned one parameter after another; what `ibl` compares jobs by is searched, as templates are.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import msgspec

from models.engine.engine import Settings
from models.measures import Accuracy
from models.records import AnyEvent, Submit
from models.registry import method_named
from models.search.ibl import (
    Bench,
    Bits,
    Examples,
    Generation,
    Plan,
    Target,
    collect,
    decode,
    encode,
    settings_of,
)
from models.search.ibl import search as genetic
from models.search.tuning import PASSES, STATISTICS, Truth, Tuning, aae_s
from models.search.tuning import tune as tuned
from models.waits.ibl.method import Ibl, Parameters
from streams.errors import UserError
from streams.offline.replay import jobs_in
from streams.offline.search import Kept, judging, read_state, write_state
from streams.sources.swf import Trace, events_of
from streams.terminal import show_table

IDS = (16_000, 20_000)
"""Job numbers that are tuned on where none are named: the paper's, just before those that it tests on."""

FEW = 500
"""Of fewer jobs than this, what is chosen owes much to chance."""

SHOWN = dict(zip(STATISTICS, ("summaries", "distributions"), strict=True))
"""How the tables call the methods."""

SPANS: dict[Target, str] = {"wait": "wait", "run": "run time"}


class Stretch(msgspec.Struct, frozen=True):
    """What tuning reads of a trace: it from its beginning to the last job of the stretch, and the jobs to predict."""

    trace: Trace
    jobs: dict[str, Truth]
    of: int

    @property
    def steps(self) -> int:
        """How often `tune` reports that it goes on."""
        return PASSES * len(self.trace.jobs)


def stretch_of(trace: Trace, ids: tuple[int, int] | None, rows: tuple[int, int] | None, every: int) -> Stretch:
    """The stretch of these job numbers or positions, and of its jobs every so manieth. Nothing later is in it.

    Raises:
        UserError: there is no job in it.
    """
    names = jobs_in(trace, ids if ids or rows else IDS, rows)
    places = [place for place, job in enumerate(trace.jobs) if str(job.number) in names]
    picked = [trace.jobs[place] for place in places[::every]]
    jobs = {str(job.number): Truth(job.wait, max(job.run, 0.0) if job.started else 0.0) for job in picked}
    return Stretch(msgspec.structs.replace(trace, jobs=trace.jobs[: places[-1] + 1]), jobs, len(places))


def tune(stretch: Stretch, settings: Settings, advance: Callable[[], None] = lambda: None) -> Tuning:
    """Tune on a stretch; `advance` is called at each of its `steps`."""

    return tuned(lambda: _events(stretch, advance), stretch.jobs, settings)


def _events(stretch: Stretch, advance: Callable[[], None]) -> Iterator[AnyEvent]:
    for event in events_of(stretch.trace, stretch.trace.site):
        yield event
        if isinstance(event, Submit):
            advance()


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """How what `ibl` compares by is searched.

    After each generation what is known of chromosomes is kept in `file`; where that exists, nothing in it is found
    again.
    """

    plan: Plan = Plan()
    workers: int = 1
    file: Path | None = None


class Tried(Kept, frozen=True, kw_only=True):
    """A search that may go on: the error of each chromosome that was tried, by its bits."""

    errors: dict[str, float]


class Found(msgspec.Struct, frozen=True):
    """What a search found: its generations, and the parameters and their errors in force and found.

    Errors are shares of `mean_s`, the mean wait or run time of the jobs that were predicted, in seconds.
    """

    target: Target
    generations: list[Generation]
    before: Parameters
    before_error: float
    parameters: Parameters
    error: float
    mean_s: float


def examples_of(
    stretch: Stretch, settings: Settings, target: Target, advance: Callable[[], None] = lambda: None
) -> Examples:
    """What a search for `ibl` learns and predicts; `advance` is called at each of the trace's jobs.

    Raises:
        UserError: none of the stretch's jobs ran, and run times are to be predicted.
    """
    waits, runs = collect(_events(stretch, advance), stretch.jobs, settings)
    examples = waits if target == "wait" else runs
    if not examples.asked:
        raise UserError(f"{stretch.trace.path}: no job of that range ran")
    return examples


def search(
    examples: Examples, wanted: Wanted, settings: Settings, report: Callable[[Generation], None] = lambda _: None
) -> Found:
    """Search what `ibl` is to compare jobs by, beginning from what is in force; `report` is told of each generation.

    Raises:
        UserError: the state file cannot be read or written, or is of another search.
    """
    target, bench, generations = examples.target, Bench(examples), []
    before = _in_force(settings)
    try:
        founders = [encode(before, target)]
    except ValueError:  # a number that the search does not try
        founders = []
    fingerprint = examples.fingerprint
    tried = {} if wanted.file is None else _tried(wanted.file, fingerprint)
    with judging(bench.error, wanted.workers) as evaluate:
        for generation in genetic(target, wanted.plan, evaluate, tried, founders):
            generations.append(generation)
            tried |= generation.errors
            if wanted.file is not None:
                errors = {"".join(map(str, bits)): error for bits, error in tried.items()}
                write_state(wanted.file, Tried(workload=fingerprint, errors=errors))
            report(generation)
    best = generations[-1].best
    return Found(
        target, generations, before, bench.error(before), decode(best, target, before), tried[best], bench.mean_s
    )


def _in_force(settings: Settings) -> Parameters:
    method = method_named(Ibl.name, settings.parameters.get(Ibl.name))
    assert isinstance(method, Ibl)
    return method.parameters


def _tried(file: Path, workload: str) -> dict[Bits, float]:
    state = read_state(file, Tried, workload)
    return {} if state is None else {tuple(map(int, bits)): error for bits, error in state.errors.items()}


def show_search(found: Found) -> None:
    """Print how the search went, what it found beside what is in force, and the errors of both."""
    lines = []
    for generation in found.generations:
        errors = list(generation.errors.values())
        figures = (errors[0], sum(errors) / len(errors), errors[-1])
        lines.append([str(generation.number), *(f"{error * found.mean_s:.2f}" for error in figures)])
    show_table(["generation", "best AAE s", "mean", "worst"], lines)
    before, after = settings_of(found.before, found.target), settings_of(found.parameters, found.target)
    show_table(["", "in force", "found"], [[name, _text(before[name]), _text(after[name])] for name in after])
    rows = (("as in force", found.before_error), ("found", found.error))
    lines = [[name, f"{error * found.mean_s:.2f}", f"{error:.3f}"] for name, error in rows]
    show_table(["", "AAE s", f"of the mean {SPANS[found.target]}"], lines)


def _text(value: bool | int | float | str | list[str]) -> str:
    return " ".join(value) or "nothing" if isinstance(value, list) else str(value)


def show(tuning: Tuning, stretch: Stretch) -> None:
    """Print the statistics as the paper's table VI has them, then the parameters."""
    best = tuning.profile.method
    heads = [f"{SHOWN[name]} AAE s" for name in STATISTICS]
    errors = [f"{_seconds(tuning.statistics[name])}{' *' if name == best else ''}" for name in STATISTICS]
    jobs = f"{len(stretch.jobs)} of {stretch.of}"
    line = [stretch.trace.site, *errors, f"{tuning.non_uniformity:.2f}", jobs]
    show_table(["", *heads, "non-uniformity", "jobs"], [line])
    lines, last = [], ""
    for row in tuning.rows:
        mark = "*" if row.chosen else "in force" if row.in_force else ""
        lines.append([row.parameter if row.parameter != last else "", f"{row.value:g}", *_figures(row.accuracy), mark])
        last = row.parameter
    lines.append(["as in force", "", *_figures(tuning.before), ""])
    lines.append(["all chosen, together", "", *_figures(tuning.together), ""])
    show_table([f"with {SHOWN[best]}", "value", "AAE s", "PPE", "* chosen"], lines)


def _figures(accuracy: Accuracy) -> tuple[str, str]:
    return _seconds(accuracy), f"{accuracy.measures()['PPE']:.3f}"


def _seconds(accuracy: Accuracy) -> str:
    return f"{aae_s(accuracy):.2f}"


def profile(settings: Settings) -> str:
    """The method, its history and its parameters as TOML that `queuecast --config` reads."""
    engine = {"method": settings.method, "history": settings.history}
    return _toml(engine, settings.method, settings.parameters.get(settings.method, {}))


def search_profile(found: Found, settings: Settings) -> str:
    """`ibl` with what was found, beside its other parameters in force, as TOML that `queuecast --config` reads."""
    parameters = settings.parameters.get(Ibl.name, {}) | settings_of(found.parameters, found.target)
    return _toml({"method" if found.target == "wait" else "runtimes": Ibl.name}, Ibl.name, parameters)


def _toml(engine: Mapping[str, object], name: str, parameters: Mapping[str, object]) -> str:
    sections = {"engine": engine, f"engine.parameters.{name}": parameters}
    return "\n".join(f"[{head}]\n{_lines(values)}" for head, values in sections.items())


def _lines(values: Mapping[str, object]) -> str:
    return "".join(f"{name} = {msgspec.json.encode(value).decode()}\n" for name, value in values.items())
