"""Resumable, parallel search for a site's templates on its trace, and the profile that results."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from models.engine.settings import EngineSettings
from models.method_registry import run_method_named
from models.papers.run_template import RunTemplate
from models.papers.search.evaluation_jobs import Workload, WorkloadStep
from models.papers.search.genetic import SearchPlan
from models.papers.search.templates import Evaluate, TemplateSets, greedy
from models.papers.template import DEFAULT, Choice, Templates
from models.records import End, Start, Submit
from models.site.job import Job
from streams.errors import UserError
from streams.offline.output_files import as_profile
from streams.offline.searching import SearchResult, SearchStep, process_map, show_errors, show_steps, steps
from streams.sources.swf import Trace, events_of
from streams.text.terminal import show_table


class TemplateSearchOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a template search.

    The first `jobs` of the trace are read. With `running`, jobs are predicted while they run too, not only at their
    submission. `choice` is the rule that combines the estimates of a set, in the search and in later use. The plan
    configures the genetic search. After each generation its state is saved in `file`; if that exists, the search
    resumes from it.
    """

    kind: Literal["genetic", "greedy"] = "genetic"
    plan: SearchPlan = SearchPlan()
    choice: Choice = "weighted"
    jobs: int = 10_000
    running: bool = False
    workers: int = 1
    file: Path | None = None


def workload_of(trace: Trace, count: int, running: bool = False) -> Workload:
    """Return the first `count` jobs of a trace in event order; each that started is predicted at its submission.

    With `running`, one running job in turn is predicted at each submission, too.

    Raises:
        UserError: no job has started.
    """
    first = msgspec.structs.replace(trace, jobs=trace.jobs[:count])
    started = {str(job.number) for job in first.jobs if job.started}
    jobs: list[Job] = []
    moments: list[WorkloadStep] = []
    places: dict[str, int] = {}
    starts: dict[str, float] = {}
    turns: deque[str] = deque()
    run_s = [0.0] * len(started)
    for event in events_of(first, trace.site):
        if isinstance(event, Submit) and event.job in started:
            places[event.job] = len(jobs)
            jobs.append(Job.of(event))
            moments.append(WorkloadStep(places[event.job], 0.0))
            if running and turns:
                turns.rotate(-1)
                moments.append(WorkloadStep(places[turns[-1]], event.time - starts[turns[-1]]))
        elif isinstance(event, Start):
            starts[event.job] = event.time
            turns.append(event.job)
        elif isinstance(event, End):
            turns.remove(event.job)
            run_s[places[event.job]] = event.time - starts.pop(event.job)
            moments.append(WorkloadStep(places[event.job], None))
    if not jobs:
        raise UserError(f"{trace.path}: no job started among the first {count}")
    return Workload(jobs, run_s, moments)


def search(
    trace: Trace,
    options: TemplateSearchOptions,
    settings: EngineSettings,
    report: Callable[[SearchStep], None] = lambda _: None,
) -> SearchResult:
    """Search a trace's templates; `report` is called with each step, whose best is a set of templates.

    Raises:
        UserError: there is no job to predict, or the state file cannot be read or written, or is of another
            search.
    """
    workload = workload_of(trace, options.jobs, options.running)
    in_force = run_method_named(Templates.name, settings.parameters.get(Templates.name))
    assert isinstance(in_force, Templates)
    taken: list[SearchStep] = []
    with process_map(workload.estimates, options.workers, in_force.set[0]) as evaluate:
        before_s = workload.error_s([*evaluate(in_force.set)], in_force.choice)
        sets = TemplateSets(workload, options.choice, evaluate)
        if options.kind == "greedy":
            found = _greedy(workload, options.choice, evaluate)
        else:
            founders = sets.individuals([tuple(in_force.set), tuple(map(RunTemplate.parse, DEFAULT))])
            name = f"{workload.fingerprint} {options.choice}"
            found = steps(
                sets, options.plan, options.file, name, founders, lambda one: [*map(str, sets.templates(one))]
            )
        for step in found:
            taken.append(step)
            report(step)
    return SearchResult(taken, before_s, float(workload.run_s[workload.queries].mean()))


def _greedy(workload: Workload, choice: Choice, evaluate: Evaluate) -> Iterator[SearchStep]:
    """Yield one step for each set of the greedy search; its error is the best, the mean and the worst."""
    for number, found in enumerate(greedy(workload, evaluate, choice), 1):
        yield SearchStep(number, [*map(str, found.templates)], found.error_s, found.error_s, found.error_s)


def show(result: SearchResult) -> None:
    """Print the progress of the search, the set that was found, and its error next to that of the set in force."""
    show_steps(result)
    show_table(["template", "predictor", "data", "history"], [text.split() for text in result.best.best])
    show_errors(result, "run time")


def profile(templates: Sequence[str], choice: Choice) -> str:
    """Return the set as TOML that `queuecast --config` reads."""
    return as_profile({"runtimes": Templates.name}, Templates.name, {"choice": choice, "templates": list(templates)})
