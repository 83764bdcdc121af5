"""The commands on whole traces: other schedulers (simulate), parameters (tune), what new sites begin with (prior)."""

import os
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import typer

from streams.cli.options import (
    Range,
    TraceFile,
    arg,
    flag,
    is_given,
    opt,
    print_json,
    progress,
    read_trace,
    settings_of,
    settings_without_servers,
    tell,
)
from streams.errors import UserError

if TYPE_CHECKING:
    from models.engine.settings import EngineSettings
    from models.papers.search.genetic import SearchPlan
    from streams.offline.template_search import TemplateSearchOptions
    from streams.offline.tune import Stretch
    from streams.sources.swf import Trace

commands = typer.Typer()


@commands.command(
    epilog="Example: queuecast simulate KTH-SP2-1996-2.1-cln.swf.gz --scheduler lwf,easy-kill --runtimes closest"
)
def simulate(
    context: typer.Context,
    trace: TraceFile,
    scheduler: Annotated[
        str, opt("Schedulers, by their names; `all` is every one.", "NAME[,NAME...]")
    ] = "fcfs,lwf,easy,conservative",
    runtimes: Annotated[
        str, opt("What they plan with: `walltime`, `actual`, or methods' names.", "NAME[,NAME...]")
    ] = "walltime,closest,actual",
    cpus: Annotated[int | None, opt("Processors. Default: as the trace says.", min=1)] = None,
    rows: Annotated[Range | None, opt("Only these positions in submit order, from 1, inclusive.", "LO HI")] = None,
    skip_broken: Annotated[bool, flag("--skip-broken", "Report broken lines and go on.")] = False,
    as_json: Annotated[bool, flag("--json", "Print the table as JSON.")] = False,
) -> None:
    """Run a trace's jobs under other schedulers that plan with predicted run times, and print what that is worth.

    Jobs come as in the trace and run as long as there; when they start is the
    scheduler's doing. The columns: utilisation, mean wait, mean response time,
    mean bounded slowdown (10 s), jobs killed at their limit, suspensions.
    """
    from models.simulation import POLICIES
    from streams.offline.simulate import document, plan_of, show
    from streams.offline.simulate import simulate as simulated

    read = read_trace(trace, skip_broken)
    plan = plan_of(read, ",".join(POLICIES) if scheduler == "all" else scheduler, runtimes, cpus, rows)
    with progress("jobs", plan.steps) as advance:
        found = list(simulated(plan, advance))
    if as_json:
        print_json(document(read, plan, found))
        return
    show(found)
    if plan.left_out:
        tell(f"{plan.left_out} jobs that never ran were left out")


@commands.command(epilog="Example: queuecast prior --send")
def prior(
    context: typer.Context,
    logs: Annotated[
        list[Path] | None, arg("One of each site. Default: the events that the topics still have.", "[LOG...]")
    ] = None,
    out: Annotated[Path | None, opt("Write it there.", "FILE")] = None,
    to_young: Annotated[bool, flag("--send", "Have all sites of this deployment with few jobs begin with it.")] = False,
) -> None:
    """Learn from several sites what a new one can begin with.

    Each counts alike, by its first 12,000 jobs. It is decision trees over
    features of queues: no job, no user, no name. `queuecast site NAME use-prior`
    has one site begin with a file, and `queuecast replay --prior` shows what it is worth.
    """
    from streams.offline.prior import learnt_from
    from streams.operate.grid_prior import send_to_young, taught_by_sites

    if out is None and not to_young:
        raise UserError("nothing to do with what is learnt: say --out FILE, --send, or both")
    if logs:
        found, teachers = learnt_from(logs), [log.name for log in logs]
    else:
        with progress("events", None) as advance:
            found, teachers = taught_by_sites(settings_of(context), lambda event: advance(event.time))
    tell(f"learnt from {found.jobs} jobs of {', '.join(teachers)}; version {found.version}")
    if out is not None:
        out.write_bytes(found.encode())
    if to_young:
        young = send_to_young(settings_of(context), found)
        tell(f"sent to {', '.join(young)}" if young else "sent to nobody: no site has few jobs")


Where = tuple[Range | None, Range | None, int]
"""Job numbers, positions, and N where every N-th job of them is predicted."""


@commands.command(epilog="Example: queuecast tune CTC-SP2-1996-3.1-cln.swf.gz --save ctc.toml")
def tune(
    context: typer.Context,
    trace: TraceFile,
    method: Annotated[
        Literal["qespera", "ibl"], opt("Tune this method for waits; ibl: search what it compares by.")
    ] = "qespera",
    runtimes: Annotated[Literal["template", "ibl"] | None, opt("Search this method for run times instead.")] = None,
    ids: Annotated[Range | None, opt("Tune on these job numbers, inclusive. Default: 16000 20000.", "LO HI")] = None,
    rows: Annotated[Range | None, opt("Tune on these positions in submit order, from 1, inclusive.", "LO HI")] = None,
    every: Annotated[int, opt("Predict every N-th job of them.", min=1)] = 2,
    jobs: Annotated[int, opt("Templates: search on the first N jobs.", min=1)] = 10_000,
    search: Annotated[Literal["genetic", "greedy"], opt("How templates are searched.")] = "genetic",
    choice: Annotated[
        Literal["weighted", "surest"], opt("How templates' estimates become one; surest: the papers'.")
    ] = "weighted",
    running: Annotated[
        bool, flag("--running", "Templates: judge those of running jobs too, and search ranges of elapsed time.")
    ] = False,
    population: Annotated[int, opt("Searches: individuals in a generation, an even number.", min=4)] = 20,
    generations: Annotated[int, opt("Searches: generations that are bred.", min=1)] = 20,
    seed: Annotated[int, opt("Searches: the same seed finds the same.", min=0)] = 1,
    workers: Annotated[int | None, opt("Searches: processes. Default: as many as there are cores.", min=1)] = None,
    resume: Annotated[
        Path | None, opt("Searches: keep the state there, and go on from it if it exists.", "FILE")
    ] = None,
    save: Annotated[Path | None, opt("Write what was chosen there, TOML.", "FILE")] = None,
    skip_broken: Annotated[bool, flag("--skip-broken", "Report broken lines and go on.")] = False,
    as_json: Annotated[bool, flag("--json", "Print the errors and what was chosen as JSON.")] = False,
) -> None:
    """Choose the parameters of a method for a site, on a stretch of its trace.

    Qespera: first summaries or distributions; then, one parameter after
    another, the value with the least mean absolute error (AAE) while the
    others stay as they are in force. The trace is read up to the end of the
    stretch: a test on later jobs is a fair one.

    With --method ibl or --runtimes ibl: a genetic search on such a stretch for
    what jobs are compared by, for waits or for run times.

    With --runtimes template: a genetic or greedy search for the templates by
    which run times are predicted best, on the first jobs of the trace.

    `queuecast --config FILE` runs with what was saved.
    """
    kind = runtimes or method
    _check_tune(context, kind)
    settings, read = settings_without_servers(context).engine, read_trace(trace, skip_broken)
    from models.papers.search.genetic import SearchPlan
    from streams.offline.template_search import TemplateSearchOptions

    plan, cores = SearchPlan(population, generations, seed), workers or os.cpu_count() or 1
    if kind == "template":
        options = TemplateSearchOptions(
            kind=search, plan=plan, choice=choice, jobs=jobs, running=running, workers=cores, file=resume
        )
        found = _search_templates(read, settings, options)
    elif kind == "ibl":
        found = _search_ibl(read, settings, "run" if runtimes else "wait", (ids, rows, every), plan, cores, resume)
    else:
        found = _tune_qespera(read, settings, (ids, rows, every))
    if as_json:
        print_json({"method": kind, "errors": found.errors, "settings": tomllib.loads(found.profile)})
    else:
        found.show()
    if save:
        from streams.offline.files import save as write

        write(found.profile, save)


class Tuned(NamedTuple):
    """What was found for a method: the settings as TOML, its mean absolute errors, and what prints them."""

    profile: str
    errors: dict[str, Any]
    show: Callable[[], None]


SEARCHES = frozenset({"population", "generations", "seed", "workers", "resume"})
STRETCH = frozenset({"ids", "rows", "every"})
TUNED_BY = {
    "qespera": STRETCH,
    "ibl": STRETCH | SEARCHES,
    "template": SEARCHES | {"jobs", "search", "choice", "running"},
}
"""The options of `tune` that each method has."""


def _check_tune(context: typer.Context, kind: str) -> None:
    """Refuse options that exclude each other, or that the method does not have, and files that cannot be written."""
    given = {name: value for name, value in context.params.items() if is_given(context, name)}
    for one, other in (("ids", "rows"), ("method", "runtimes")):
        if one in given and other in given:
            raise typer.BadParameter(f"--{one} and --{other} exclude each other.")
    for name in sorted(frozenset.union(*TUNED_BY.values()) - TUNED_BY[kind]):
        if name in given:
            raise typer.BadParameter(f"--{name} says nothing of {kind}.")
    if context.params["search"] == "greedy" and "resume" in given:
        raise typer.BadParameter("--resume is for the genetic search.")
    if context.params["population"] % 2:
        raise typer.BadParameter(f"--population is {context.params['population']}; expected an even number.")
    for file in (given.get("resume"), given.get("save")):
        if file and not file.parent.is_dir():
            raise UserError(f"{file}: cannot be written: there is no such directory")


def _tune_qespera(trace: "Trace", settings: "EngineSettings", where: Where) -> Tuned:
    from models.papers.search.tuning import aae_s
    from streams.offline import tune as tuning
    from streams.offline.tune import stretch_of

    stretch = stretch_of(trace, *where)
    with progress("jobs", stretch.steps) as advance:
        found = tuning.tune(stretch, settings, advance)
    _warn_of_chance(stretch)
    if aae_s(found.together) > aae_s(found.before):
        tell("what was chosen alone does worse together than what is in force")
    return Tuned(tuning.profile(found.profile), tuning.errors(found), lambda: tuning.show(found, stretch))


def _search_ibl(
    trace: "Trace",
    settings: "EngineSettings",
    target: Literal["wait", "run"],
    where: Where,
    plan: "SearchPlan",
    workers: int,
    resume: Path | None,
) -> Tuned:
    from streams.offline import ibl_search as searching
    from streams.offline.tune import stretch_of

    stretch = stretch_of(trace, *where)
    with progress("jobs", len(stretch.trace.jobs)) as advance:
        examples = searching.examples_of(stretch, settings, target, advance)
    with progress("generations", plan.generations) as advance:
        found = searching.search(examples, plan, settings, lambda _: advance(), workers, resume)
    _warn_of_chance(stretch)
    profile = searching.profile(found, target, settings)
    return Tuned(profile, found.errors(), lambda: searching.show(found, target, settings))


def _warn_of_chance(stretch: "Stretch") -> None:
    from streams.offline.tune import MIN_JOBS

    if len(stretch.jobs) < MIN_JOBS:
        tell(f"only {len(stretch.jobs)} jobs were predicted: what was chosen owes much to chance")


def _search_templates(trace: "Trace", settings: "EngineSettings", options: "TemplateSearchOptions") -> Tuned:
    from streams.offline import template_search as searching

    with progress("generations" if options.kind == "genetic" else "steps", options.plan.generations) as advance:
        found = searching.search(trace, options, settings, lambda _: advance())
    profile = searching.profile(found.best.best, options.choice)
    return Tuned(profile, found.errors(), lambda: searching.show(found))
