"""The search for a site's templates on its trace: on all cores, resumable, and the profile to run the site with."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from models.engine.settings import EngineSettings
from models.papers.run_template import RunTemplate
from models.papers.search.genetic import Generation
from models.papers.search.templates import genetic, greedy
from models.papers.search.templates.encoding import Encoding
from models.papers.search.templates.genetic import Evaluate, Individual, TemplateSearchPlan
from models.papers.search.templates.workload import Moment, TemplateSet, Workload, complete
from models.papers.template import DEFAULT, Choice, Templates
from models.records import End, Start, Submit
from models.registry import run_method_named
from models.site.job import Job
from streams.errors import UserError
from streams.offline.files import SearchState, as_profile, read_state, write_state
from streams.offline.processes import process_map
from streams.sources.swf import Trace, events_of
from streams.text.terminal import show_table


class SearchStep(msgspec.Struct, frozen=True):
    """How far a search has come: its best set so far with its error, and the generation's mean and greatest error."""

    number: int
    templates: list[str]
    best_s: float
    mean_s: float
    worst_s: float


class TemplateSearchOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What to search for, and how.

    The first `jobs` of the trace are read. With `running`, jobs are predicted while they run too, not only at their
    submission. The plan is the genetic search's; the greedy one takes its `choice` alone. After each generation
    the state is kept in `file`; where that exists, the search goes on from it.
    """

    kind: Literal["genetic", "greedy"] = "genetic"
    plan: TemplateSearchPlan = TemplateSearchPlan()
    jobs: int = 10_000
    running: bool = False
    workers: int = 1
    file: Path | None = None


class TemplateSearchResult(msgspec.Struct, frozen=True):
    """The result of a search: its best step, all steps, and the error (s) of the set in force.

    `run_s` is the mean run time (s) of the jobs that were predicted.
    """

    best: SearchStep
    steps: list[SearchStep]
    before_s: float
    run_s: float


class TemplateSearchState(SearchState, frozen=True, kw_only=True):
    """A genetic search for templates."""

    plan: TemplateSearchPlan
    generation: Generation[Individual]
    steps: list[SearchStep]


def workload_of(trace: Trace, count: int, running: bool = False) -> Workload:
    """The first jobs of a trace, in the order of its events: each that started is predicted at its submission.

    Parameters:
        count: jobs of the trace, in the order of submission.
        running: at each submission one of the running jobs is predicted too, in turn.

    Raises:
        UserError: none of them has started.
    """
    first = msgspec.structs.replace(trace, jobs=trace.jobs[:count])
    started = {str(job.number) for job in first.jobs if job.started}
    jobs: list[Job] = []
    moments: list[Moment] = []
    places: dict[str, int] = {}
    starts: dict[str, float] = {}
    turns: deque[str] = deque()
    run_s = [0.0] * len(started)
    for event in events_of(first, trace.site):
        if isinstance(event, Submit) and event.job in started:
            places[event.job] = len(jobs)
            jobs.append(Job.of(event))
            moments.append(Moment(places[event.job], 0.0))
            if running and turns:
                turns.rotate(-1)
                moments.append(Moment(places[turns[-1]], event.time - starts[turns[-1]]))
        elif isinstance(event, Start):
            starts[event.job] = event.time
            turns.append(event.job)
        elif isinstance(event, End):
            turns.remove(event.job)
            run_s[places[event.job]] = event.time - starts.pop(event.job)
            moments.append(Moment(places[event.job], None))
    if not jobs:
        raise UserError(f"{trace.path}: no job started among the first {count}")
    return Workload(jobs, run_s, moments)


def search(
    trace: Trace,
    options: TemplateSearchOptions,
    settings: EngineSettings,
    report: Callable[[SearchStep], None] = lambda _: None,
) -> TemplateSearchResult:
    """Search a trace's templates; `report` is called with each step.

    Raises:
        UserError: there is no job to predict; or the state file cannot be read or written, or is of another search.
    """
    workload = workload_of(trace, options.jobs, options.running)
    in_force = run_method_named(Templates.name, settings.parameters.get(Templates.name))
    assert isinstance(in_force, Templates)
    steps: list[SearchStep] = []
    with process_map(workload.estimates, options.workers) as evaluate:
        before_s = workload.error_s([*evaluate(in_force.set)], in_force.choice)
        if options.kind == "greedy":
            found = _greedy(workload, options.plan, evaluate)
        else:
            founders = [tuple(in_force.set), tuple(map(RunTemplate.parse, DEFAULT))]
            found = _genetic(workload, options.plan, evaluate, options.file, founders)
        for step in found:
            steps.append(step)
            report(step)
    return TemplateSearchResult(
        min(steps, key=lambda step: step.best_s), steps, before_s, float(workload.run_s[workload.asked].mean())
    )


def _genetic(
    workload: Workload, plan: TemplateSearchPlan, evaluate: Evaluate, file: Path | None, founders: Iterable[TemplateSet]
) -> Iterator[SearchStep]:
    """One step for each generation, those of the state file first; the file is written after each."""
    state = None if file is None else _read(file, workload, plan)
    steps = list(state.steps) if state else []
    yield from steps
    encoding = Encoding.of(workload)
    for generation in genetic.search(workload, plan, evaluate, state.generation if state else None, founders):
        errors = generation.errors
        best = [*map(str, complete(tuple(map(encoding.decode, generation.individuals[generation.best])), plan.choice))]
        steps.append(SearchStep(generation.number, best, min(errors), sum(errors) / len(errors), max(errors)))
        if file is not None:
            write_state(
                file, TemplateSearchState(workload=workload.fingerprint, plan=plan, generation=generation, steps=steps)
            )
        yield steps[-1]


def _greedy(workload: Workload, plan: TemplateSearchPlan, evaluate: Evaluate) -> Iterator[SearchStep]:
    """One step for each set that the search arrives at; its error is the best, the mean and the worst."""
    for number, found in enumerate(greedy.search(workload, evaluate, plan.choice), 1):
        yield SearchStep(number, [*map(str, found.templates)], found.error_s, found.error_s, found.error_s)


def _read(file: Path, workload: Workload, plan: TemplateSearchPlan) -> TemplateSearchState | None:
    state = read_state(file, TemplateSearchState, workload.fingerprint)
    if state is not None and msgspec.structs.replace(state.plan, generations=plan.generations) != plan:
        raise UserError(f"{file}: the state of another search: {state.plan}, not {plan}")
    return state


def show(result: TemplateSearchResult) -> None:
    """Print how the search went, the set it found, and its error beside that of the set in force."""
    lines = [[str(step.number), *map(_minutes, (step.best_s, step.mean_s, step.worst_s))] for step in result.steps]
    show_table(["step", "best MAE min", "mean", "worst"], lines)
    show_table(["template", "predictor", "data", "history"], [text.split() for text in result.best.templates])
    errors = (("as in force", result.before_s), ("found", result.best.best_s))
    lines = [[name, _minutes(error_s), f"{error_s / max(result.run_s, 1.0):.3f}"] for name, error_s in errors]
    show_table(["", "MAE min", "of the mean run time"], lines)


def errors(result: TemplateSearchResult) -> dict[str, Any]:
    """The mean absolute errors in seconds: of what is in force, of what was found, and the best of each step."""
    steps = [step.best_s for step in result.steps]
    return {"before_s": result.before_s, "found_s": result.best.best_s, "steps_s": steps}


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.2f}"


def profile(templates: Sequence[str], choice: Choice) -> str:
    """The set as TOML that `queuecast --config` reads."""
    return as_profile({"runtimes": Templates.name}, Templates.name, {"choice": choice, "templates": list(templates)})
