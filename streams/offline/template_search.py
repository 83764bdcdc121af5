"""The search for a site's templates on its trace: on all cores, resumable, and the profile to run the site with."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from models.engine.engine import Settings
from models.records import End, Start, Submit
from models.registry import run_method_named
from models.runtimes.run_template import RunTemplate
from models.runtimes.template import DEFAULT, Choice, Templates
from models.search.templates import genetic, greedy
from models.search.templates.encoding import Encoding
from models.search.templates.genetic import Evaluate, Generation, Plan
from models.search.templates.workload import Moment, Set, Workload, complete
from models.site.state import Job
from streams.errors import UserError
from streams.offline.files import Kept, read_state, write_state
from streams.offline.processes import judging
from streams.sources.swf import Trace, events_of
from streams.terminal import show_table


class Step(msgspec.Struct, frozen=True):
    """How far a search has come: the best set by then, its error, and the mean and the greatest of the generation's."""

    number: int
    templates: list[str]
    best_s: float
    mean_s: float
    worst_s: float


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be searched, and how.

    `jobs` of the trace are read, from its first; with `running`, jobs that run are predicted too, and not only at
    their submission. The plan is the genetic search's; the greedy one takes its `choice` alone. After each generation
    the state is kept in `file`; where that exists, the search goes on from it.
    """

    kind: Literal["genetic", "greedy"] = "genetic"
    plan: Plan = Plan()
    jobs: int = 10_000
    running: bool = False
    workers: int = 1
    file: Path | None = None


class Found(msgspec.Struct, frozen=True):
    """What a search found: its best step, all of them, and the error of the set in force, in seconds as the run times.

    `run_s` is the mean run time of the jobs that were predicted.
    """

    best: Step
    steps: list[Step]
    before_s: float
    run_s: float


class State(Kept, frozen=True, kw_only=True):
    """A genetic search for templates."""

    plan: Plan
    generation: Generation
    steps: list[Step]


def workload_of(trace: Trace, count: int, running: bool = False) -> Workload:
    """The first jobs of a trace, in the order of its events: each that started is predicted at its submission.

    Parameters:
        count: jobs of the trace, in the order of submission.
        running: have one job that runs predicted too at each submission, in turn.

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


def search(trace: Trace, wanted: Wanted, settings: Settings, report: Callable[[Step], None] = lambda _: None) -> Found:
    """Search a trace's templates; `report` is told of each step.

    Raises:
        UserError: there is no job to predict; or the state file cannot be read or written, or is of another search.
    """
    workload = workload_of(trace, wanted.jobs, wanted.running)
    in_force = run_method_named(Templates.name, settings.parameters.get(Templates.name))
    assert isinstance(in_force, Templates)
    steps: list[Step] = []
    with judging(workload.estimates, wanted.workers) as evaluate:
        before_s = workload.error_s([*evaluate(in_force.set)], in_force.choice)
        if wanted.kind == "greedy":
            found = _greedy(workload, wanted.plan, evaluate)
        else:
            founders = [tuple(in_force.set), tuple(map(RunTemplate.parse, DEFAULT))]
            found = _genetic(workload, wanted.plan, evaluate, wanted.file, founders)
        for step in found:
            steps.append(step)
            report(step)
    return Found(
        min(steps, key=lambda step: step.best_s), steps, before_s, float(workload.run_s[workload.asked].mean())
    )


def _genetic(
    workload: Workload, plan: Plan, evaluate: Evaluate, file: Path | None, founders: Iterable[Set]
) -> Iterator[Step]:
    """A step a generation, those of the state file first; it is written after each."""
    state = None if file is None else _read(file, workload, plan)
    steps = list(state.steps) if state else []
    yield from steps
    encoding = Encoding.of(workload)
    for generation in genetic.search(workload, plan, evaluate, state.generation if state else None, founders):
        errors = generation.errors_s
        best = [*map(str, complete(tuple(map(encoding.decode, generation.individuals[generation.best])), plan.choice))]
        steps.append(Step(generation.number, best, min(errors), sum(errors) / len(errors), max(errors)))
        if file is not None:
            write_state(file, State(workload=workload.fingerprint, plan=plan, generation=generation, steps=steps))
        yield steps[-1]


def _greedy(workload: Workload, plan: Plan, evaluate: Evaluate) -> Iterator[Step]:
    """A step each set that is arrived at; its error is the best, the mean and the worst."""
    for number, found in enumerate(greedy.search(workload, evaluate, plan.choice), 1):
        yield Step(number, [*map(str, found.templates)], found.error_s, found.error_s, found.error_s)


def _read(file: Path, workload: Workload, plan: Plan) -> State | None:
    state = read_state(file, State, workload.fingerprint)
    if state is not None and msgspec.structs.replace(state.plan, generations=plan.generations) != plan:
        raise UserError(f"{file}: the state of another search: {state.plan}, not {plan}")
    return state


def show(found: Found) -> None:
    """Print how the search went, the set it found, and its error beside that of the set in force."""
    lines = [[str(step.number), *map(_minutes, (step.best_s, step.mean_s, step.worst_s))] for step in found.steps]
    show_table(["step", "best MAE min", "mean", "worst"], lines)
    show_table(["template", "predictor", "data", "history"], [text.split() for text in found.best.templates])
    errors = (("as in force", found.before_s), ("found", found.best.best_s))
    lines = [[name, _minutes(error_s), f"{error_s / max(found.run_s, 1.0):.3f}"] for name, error_s in errors]
    show_table(["", "MAE min", "of the mean run time"], lines)


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.2f}"


def profile(templates: Sequence[str], choice: Choice) -> str:
    """The set as TOML that `queuecast --config` reads."""
    listed = "".join(f"    {msgspec.json.encode(text).decode()},\n" for text in templates)
    engine = f'[engine]\nruntimes = "{Templates.name}"\n'
    return f'{engine}\n[engine.parameters.{Templates.name}]\nchoice = "{choice}"\ntemplates = [\n{listed}]\n'
