"""Commands on whole traces: other schedulers (simulate), parameters (tune), pre-trained forests (prior)."""

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
    warn,
)
from streams.errors import UserError
from streams.settings.usable_cpus import usable_cpus

if TYPE_CHECKING:
    from models.engine.settings import EngineSettings
    from models.papers.search.genetic import SearchPlan
    from streams.offline.template_search import TemplateSearchOptions
    from streams.offline.tune import TuningInput
    from streams.sources.swf import Trace

commands = typer.Typer()


@commands.command(
    epilog="Example: queuecast simulate KTH-SP2-1996-2.1-cln.swf.gz --scheduler lwf,easy-kill --runtimes closest"
)
def simulate(
    context: typer.Context,
    trace: TraceFile,
    scheduler: Annotated[str, opt("Schedulers, or `all`.", "NAME[,NAME...]")] = "fcfs,lwf,easy,conservative",
    runtimes: Annotated[
        str, opt("Run times for planning: `walltime`, `actual`, or methods.", "NAME[,NAME...]")
    ] = "walltime,closest,actual",
    cpus: Annotated[int | None, opt("CPUs. Default: from the trace.", min=1)] = None,
    rows: Annotated[Range | None, opt("Range of positions in submit order, from 1, inclusive.", "LO HI")] = None,
    skip_invalid: Annotated[bool, flag("--skip-invalid", "Report invalid lines and continue.")] = False,
    as_json: Annotated[bool, flag("--json", "Print the table as JSON.")] = False,
) -> None:
    """Simulate a trace under other schedulers that plan with predicted run times.

    Submissions and run times are those of the trace; the scheduler decides the
    starts. Columns: utilisation, mean wait, mean response time, mean bounded
    slowdown (10 s), jobs killed at their limit, suspensions.
    """
    from models.simulation import POLICIES
    from streams.offline.simulate import document, plan_of, show
    from streams.offline.simulate import simulate as simulated

    read = read_trace(trace, skip_invalid)
    plan = plan_of(read, ",".join(POLICIES) if scheduler == "all" else scheduler, runtimes, cpus, rows)
    with progress("jobs", plan.steps) as advance:
        found = list(simulated(plan, advance))
    if as_json:
        print_json(document(read, plan, found))
        return
    show(found)
    if plan.left_out:
        warn(f"skipped {plan.left_out} jobs that never ran")


@commands.command(epilog="Example: queuecast prior --send")
def prior(
    context: typer.Context,
    logs: Annotated[
        list[Path] | None, arg("Logs, one per site. Default: the events on the topics.", "[LOG...]")
    ] = None,
    out: Annotated[Path | None, opt("Output file.", "FILE")] = None,
    to_young: Annotated[bool, flag("--send", "Load it into all sites with little history.")] = False,
) -> None:
    """Pre-train forests on several sites, for new ones.

    Sites have equal weight, with their first 12,000 jobs each. A prior consists of
    decision trees over queue features, without any job, user or name. Load it into
    one site with `queuecast site NAME load-prior`, and evaluate it with
    `queuecast replay --prior`.
    """
    from streams.offline.pretraining import learnt_from
    from streams.operate.grid_prior import load_into_new_sites, pretrain_on_sites

    if out is None and not to_young:
        raise UserError("nothing to do: expected --out FILE, --send, or both")
    if logs:
        found, teachers = learnt_from(logs), [log.name for log in logs]
    else:
        with progress("events", None) as advance:
            found, teachers = pretrain_on_sites(settings_of(context), lambda event: advance(event.time))
    warn(f"trained on {found.jobs} jobs of {', '.join(teachers)}; version {found.version}")
    if out is not None:
        out.write_bytes(found.encode())
    if to_young:
        young = load_into_new_sites(settings_of(context), found)
        warn(f"sent to {', '.join(young)}" if young else "not sent: no site has little history")


Where = tuple[Range | None, Range | None, int]
"""Job numbers, positions, and N where every N-th job of them is predicted."""


@commands.command(epilog="Example: queuecast tune CTC-SP2-1996-3.1-cln.swf.gz --save ctc.toml")
def tune(
    context: typer.Context,
    trace: TraceFile,
    method: Annotated[
        Literal["qespera", "ibl"], opt("Method for waits to tune; ibl: search its distance.")
    ] = "qespera",
    runtimes: Annotated[Literal["template", "ibl"] | None, opt("Method for run times to tune instead.")] = None,
    ids: Annotated[Range | None, opt("Range of job ids to tune on, inclusive. Default: 16000 20000.", "LO HI")] = None,
    rows: Annotated[
        Range | None, opt("Range of positions in submit order to tune on, from 1, inclusive.", "LO HI")
    ] = None,
    every: Annotated[int, opt("Predict every N-th of these jobs.", min=1)] = 2,
    jobs: Annotated[int, opt("Templates: number of jobs to search on.", min=1)] = 10_000,
    search: Annotated[Literal["genetic", "greedy"], opt("Templates: search algorithm.")] = "genetic",
    choice: Annotated[
        Literal["weighted", "surest"], opt("Templates: combination of estimates; surest: as in the papers.")
    ] = "weighted",
    running: Annotated[
        bool, flag("--running", "Templates: also score running jobs, and search ranges of elapsed time.")
    ] = False,
    population: Annotated[int, opt("Search: individuals per generation, an even number.", min=4)] = 20,
    generations: Annotated[int, opt("Search: number of generations.", min=1)] = 20,
    seed: Annotated[int, opt("Search: random seed.", min=0)] = 1,
    workers: Annotated[int | None, opt("Search: number of processes. Default: the number of CPUs.", min=1)] = None,
    resume: Annotated[Path | None, opt("Search: state file to resume from.", "FILE")] = None,
    save: Annotated[Path | None, opt("Write the chosen settings, TOML.", "FILE")] = None,
    skip_invalid: Annotated[bool, flag("--skip-invalid", "Report invalid lines and continue.")] = False,
    as_json: Annotated[bool, flag("--json", "Print the errors and the chosen settings as JSON.")] = False,
) -> None:
    """Tune the parameters of a method on a range of jobs of a trace.

    Qespera: choose summaries or distributions; then, for one parameter after
    another, the value with the smallest mean absolute error (AAE), with the other
    parameters unchanged. Jobs after the range are not read, so they can serve as a
    test set.

    With --method ibl or --runtimes ibl: a genetic search for the distance between
    jobs, for waits or for run times.

    With --runtimes template: a genetic or greedy search for the templates with the
    smallest run-time error, on the first jobs of the trace.

    `queuecast --config FILE` applies the saved settings.
    """
    kind = runtimes or method
    _check_tune(context, kind)
    settings, read = settings_without_servers(context).engine, read_trace(trace, skip_invalid)
    from models.papers.search.genetic import SearchPlan
    from streams.offline.template_search import TemplateSearchOptions

    plan, processes = SearchPlan(population, generations, seed), workers or usable_cpus()
    if kind == "template":
        options = TemplateSearchOptions(
            kind=search, plan=plan, choice=choice, jobs=jobs, running=running, workers=processes, file=resume
        )
        found = _search_templates(read, settings, options)
    elif kind == "ibl":
        found = _search_ibl(read, settings, "run" if runtimes else "wait", (ids, rows, every), plan, processes, resume)
    else:
        found = _tune_qespera(read, settings, (ids, rows, every))
    if as_json:
        print_json({"method": kind, "errors": found.errors, "settings": tomllib.loads(found.profile)})
    else:
        found.show()
    if save:
        from streams.offline.output_files import save as write

        write(found.profile, save)


class TuningOutput(NamedTuple):
    """Tuning result: the settings as TOML, the mean absolute errors, and a function that prints them."""

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
            raise typer.BadParameter(f"--{one} and --{other} are mutually exclusive.")
    for name in sorted(frozenset.union(*TUNED_BY.values()) - TUNED_BY[kind]):
        if name in given:
            raise typer.BadParameter(f"--{name} does not apply to {kind}.")
    if context.params["search"] == "greedy" and "resume" in given:
        raise typer.BadParameter("--resume requires the genetic search.")
    if context.params["population"] % 2:
        raise typer.BadParameter(f"--population is {context.params['population']}; expected an even number.")
    for file in (given.get("resume"), given.get("save")):
        if file and not file.parent.is_dir():
            raise UserError(f"{file}: cannot be written: no such directory")


def _tune_qespera(trace: "Trace", settings: "EngineSettings", where: Where) -> TuningOutput:
    from models.papers.search.tuning import aae_s
    from streams.offline import tune as tuning
    from streams.offline.tune import stretch_of

    stretch = stretch_of(trace, *where)
    with progress("jobs", stretch.steps) as advance:
        found = tuning.tune(stretch, settings, advance)
    _warn_of_chance(stretch)
    if aae_s(found.together) > aae_s(found.before):
        warn("the values chosen one by one are worse in combination than the current settings")
    return TuningOutput(tuning.profile(found.profile), tuning.errors(found), lambda: tuning.show(found, stretch))


def _search_ibl(
    trace: "Trace",
    settings: "EngineSettings",
    target: Literal["wait", "run"],
    where: Where,
    plan: "SearchPlan",
    workers: int,
    resume: Path | None,
) -> TuningOutput:
    from streams.offline import ibl_search as searching
    from streams.offline.tune import stretch_of

    stretch = stretch_of(trace, *where)
    with progress("jobs", len(stretch.trace.jobs)) as advance:
        examples = searching.examples_of(stretch, settings, target, advance)
    with progress("generations", plan.generations) as advance:
        found = searching.search(examples, plan, settings, lambda _: advance(), workers, resume)
    _warn_of_chance(stretch)
    profile = searching.profile(found, target, settings)
    return TuningOutput(profile, found.errors(), lambda: searching.show(found, target, settings))


def _warn_of_chance(stretch: "TuningInput") -> None:
    from streams.offline.tune import MIN_JOBS

    if len(stretch.jobs) < MIN_JOBS:
        warn(f"only {len(stretch.jobs)} jobs were predicted: the choice is not significant")


def _search_templates(trace: "Trace", settings: "EngineSettings", options: "TemplateSearchOptions") -> TuningOutput:
    from streams.offline import template_search as searching

    with progress("generations" if options.kind == "genetic" else "steps", options.plan.generations) as advance:
        found = searching.search(trace, options, settings, lambda _: advance())
    profile = searching.profile(found.best.best, options.choice)
    return TuningOutput(profile, found.errors(), lambda: searching.show(found))
