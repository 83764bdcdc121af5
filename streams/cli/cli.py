"""The command line, `queuecast`.

Errors are one line on stderr that says what is wrong and what to do: exit code 1 for what is wrong outside, 2 for a
command that was not understood, 130 when interrupted. What is slow to import is imported by the commands that use it.
"""

import io
import logging
import math
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from streams.errors import UserError, place_and_problem
from streams.terminal import printable, show_accuracy, show_table

if TYPE_CHECKING:
    from models.engine.engine import Settings as EngineSettings
    from streams.offline.replay import Scores
    from streams.offline.tune import Stretch
    from streams.settings import Settings
    from streams.sources.feed import Publisher
    from streams.sources.swf import Trace

app = typer.Typer(
    name="queuecast",
    help="Predicts batch queue waits and run times from schedulers' events, as a stream, for many HPC sites.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Range = tuple[int, int]
Where = tuple[Range | None, Range | None, int]
"""Job numbers or positions, and every so manieth of them."""

TraceFile = Annotated[Path, typer.Argument(metavar="TRACE", help="Standard Workload Format, plain or gzip.")]
PORT = typer.Option(min=1, max=65535, help="Default: the one of last time, or a free one.")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; gives the exit code."""
    for name in ("kafka", "aiokafka", "streams.client.client"):  # what they have to say comes as errors
        logging.getLogger(name).addHandler(logging.NullHandler())
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a name that this terminal cannot show is no error
    try:
        code = app(args=arguments, prog_name="queuecast", standalone_mode=False)
        sys.stdout.flush()
        return int(code or 0)
    except BrokenPipeError:  # whoever read has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except _faults_outside() as error:
        return _fail(str(error))
    except typer.TyperException as error:
        return _misunderstood(error)
    except OSError as error:
        return _fail(f"{error.filename or 'input or output'}: {error.strerror or error}")
    except Exception as error:
        if os.environ.get("QUEUECAST_DEBUG"):
            raise
        return _fail(
            f"internal error: {type(error).__name__}: {error}; QUEUECAST_DEBUG=1 in the environment says where"
        )


def _faults_outside() -> tuple[type[BaseException], ...]:
    """The errors that are the user's to mend; the local stack's among them once it is in use."""
    stack = sys.modules.get("deploy.local.stack")
    return (UserError, stack.StackError) if stack else (UserError,)


def _fail(message: str, code: int = 1) -> int:
    _tell(f"queuecast: {' '.join(message.split())}")
    return code


def _misunderstood(error: typer.TyperException) -> int:
    if message := error.format_message():  # without one, the help was printed
        command = getattr(getattr(error, "ctx", None), "command_path", "queuecast")
        return _fail(f"{message} See `{command} --help`.", error.exit_code)
    return error.exit_code


def _tell(message: str) -> None:
    """A line on stderr."""
    sys.stderr.write(printable(message) + "\n")


def _settings(context: typer.Context) -> "Settings":
    from streams.settings import load_settings

    return load_settings(context.obj)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import PackageNotFoundError, version

        try:
            sys.stdout.write(f"queuecast {version('queuecast')}\n")
        except PackageNotFoundError:
            sys.stdout.write("queuecast, not installed\n")
        raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Settings, TOML. Default: QUEUECAST_CONFIG, else queuecast.toml here."),
    ] = None,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """What is said before the command."""
    context.obj = config


@app.command(epilog="Example: queuecast replay KTH-SP2-1996-2.1-cln.swf.gz --method qespera --rows 10001 20000")
def replay(
    context: typer.Context,
    trace: TraceFile,
    method: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Method to run; repeatable, the first one counts. Default: the settings'."),
    ] = None,
    runtimes: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Method for run times; repeatable, as --method."),
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the predictions there, JSON lines.")] = None,
    outcomes: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the outcomes there.")] = None,
    shadows: Annotated[bool, typer.Option("--shadows", help="Write every method's records, not the first's.")] = False,
    ids: Annotated[Range | None, typer.Option(metavar="LO HI", help="Score these job numbers, inclusive.")] = None,
    rows: Annotated[
        Range | None, typer.Option(metavar="LO HI", help="Score these positions in submit order, from 1, inclusive.")
    ] = None,
    started: Annotated[bool, typer.Option("--started", help="Leave out jobs cancelled in the queue.")] = False,
    site: Annotated[str | None, typer.Option(help="The site's name. Default: the file's.")] = None,
    skip_broken: Annotated[bool, typer.Option("--skip-broken", help="Report broken lines and go on.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the table as JSON.")] = False,
) -> None:
    """Predict every job of a trace in time order, in this process, and print how good that was.

    Each job is predicted at its submission, from what was known by then.
    The trivial rules, "zero" and "median", always run beside.

    The columns: mean absolute error (AAE), median error, error as a share of
    the response time (PPE; PPE600 and PPE1200 with that at least 600 or 1200 s),
    shares of jobs predicted within a factor of 2 or 3, within 1 or 10 minutes,
    jobs without an estimate, jobs, and for each bound the share of jobs at or
    below it. A second table has the run times: mean absolute error in minutes
    and as a share of the mean run time, and the share within its interval.
    """
    from models.engine.engine import Anomaly
    from streams.offline.replay import Lines, Scores, jobs_in, record, replay, settings_for
    from streams.sources.swf import check_site, events_of

    if ids and rows:
        raise typer.BadParameter("--ids and --rows exclude each other.")
    settings = settings_for(_settings(context).engine, method or (), runtimes or ())
    jobs = _read(trace, skip_broken)
    check_site(name := jobs.site if site is None else site)
    range_ = jobs_in(jobs, ids, rows)
    scores = Scores(lambda outcome: outcome.job in range_, cancelled=not started, settings=settings)
    anomalies: Counter[str] = Counter()
    with Lines(out) as predicted, Lines(outcomes) as happened, _progress("jobs", len(jobs.jobs)) as advance:
        records = replay(events_of(jobs, name), settings)
        for item in record(records, scores, predicted, happened, lambda ran: shadows or ran == settings.method):
            if isinstance(item, Anomaly):
                anomalies[item.reason] += 1
            elif item.method == settings.method:
                advance()
    _report(jobs, scores, anomalies, as_json)


def _report(trace: "Trace", scores: "Scores", anomalies: Counter[str], as_json: bool) -> None:
    rows, run_rows = scores.rows(), scores.run_rows()
    if not rows:
        raise UserError(f"{trace.path}: no job of that range is scored")
    if as_json:
        import msgspec

        found = {"trace": str(trace.path), "jobs": len(trace.jobs), "without_wait": trace.without_wait}
        document = msgspec.json.encode(found | {"methods": rows, "run_times": run_rows, "anomalies": anomalies})
        sys.stdout.write(document.decode() + "\n")
        return
    show_accuracy(rows, "waits")
    show_accuracy(run_rows, "run times")
    if trace.without_wait:
        _tell(f"{trace.without_wait} jobs without a wait were left out")
    for reason, count in anomalies.most_common():
        _tell(f"{count} × {reason}")


@app.command(epilog="Example: queuecast compare KTH-SP2-1996-2.1-cln.swf.gz --rows 10001 20000")
def compare(
    context: typer.Context,
    trace: TraceFile,
    method: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only this method; repeatable. Default: every one.")
    ] = None,
    ids: Annotated[Range | None, typer.Option(metavar="LO HI", help="Score these job numbers, inclusive.")] = None,
    rows: Annotated[
        Range | None, typer.Option(metavar="LO HI", help="Score these positions in submit order, from 1, inclusive.")
    ] = None,
    started: Annotated[bool, typer.Option("--started", help="Leave out jobs cancelled in the queue.")] = False,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes. Default: as many as there are cores.")] = None,
    skip_broken: Annotated[bool, typer.Option("--skip-broken", help="Report broken lines and go on.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the tables as JSON.")] = False,
) -> None:
    """Run every method over a trace, and print how good each was: waits, run times, bounds on waits.

    The trivial rules stand on top. The columns are those of `queuecast replay`;
    of a bound, the share of jobs at or below it, its mean, and its mean
    quantile loss.
    """
    import msgspec

    from streams.offline.compare import compare as compared
    from streams.offline.replay import jobs_in

    if ids and rows:
        raise typer.BadParameter("--ids and --rows exclude each other.")
    jobs = _read(trace, skip_broken)
    range_ = jobs_in(jobs, ids, rows)
    with _progress("‰", 1000) as advance:
        told = 0

        def tell(share: int) -> None:
            nonlocal told
            for _ in range(told, share):
                advance()
            told = max(told, share)

        found = compared(
            jobs, range_, _settings(context).engine, method or (), workers or os.cpu_count() or 1, not started, tell
        )
    if as_json:
        sys.stdout.write(msgspec.json.encode(found).decode() + "\n")
        return
    measures = {name: {key: row[key] for key in row if not key.startswith("cov_")} for name, row in found.waits.items()}
    show_accuracy(measures, "waits")
    show_accuracy(found.run_times, "run times")
    if found.bounds:
        show_accuracy(found.bounds, "bounds")


@app.command(
    epilog="Example: queuecast simulate KTH-SP2-1996-2.1-cln.swf.gz --scheduler lwf,easy-kill --runtimes closest"
)
def simulate(
    context: typer.Context,
    trace: TraceFile,
    scheduler: Annotated[
        str, typer.Option(metavar="NAME[,NAME...]", help="Schedulers, by their names; `all` is every one.")
    ] = "fcfs,lwf,easy,conservative",
    runtimes: Annotated[
        str,
        typer.Option(metavar="NAME[,NAME...]", help="What they plan with: `walltime`, `actual`, or methods' names."),
    ] = "walltime,closest,actual",
    cpus: Annotated[int | None, typer.Option(min=1, help="Processors. Default: as the trace says.")] = None,
    rows: Annotated[
        Range | None, typer.Option(metavar="LO HI", help="Only these positions in submit order, from 1, inclusive.")
    ] = None,
    skip_broken: Annotated[bool, typer.Option("--skip-broken", help="Report broken lines and go on.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the table as JSON.")] = False,
) -> None:
    """Run a trace's jobs under other schedulers that plan with predicted run times, and print what that is worth.

    Jobs come as in the trace and run as long as there; when they start is the
    scheduler's doing. The columns: utilisation, mean wait, mean response time,
    mean bounded slowdown (10 s), jobs killed at their limit, suspensions.
    """
    import msgspec

    from models.simulation import POLICIES
    from streams.offline.simulate import document, plan_of, show
    from streams.offline.simulate import simulate as simulated

    read = _read(trace, skip_broken)
    plan = plan_of(read, ",".join(POLICIES) if scheduler == "all" else scheduler, runtimes, cpus, rows)
    with _progress("jobs", plan.steps) as advance:
        found = list(simulated(plan, advance))
    if as_json:
        sys.stdout.write(msgspec.json.encode(document(read, plan, found)).decode() + "\n")
        return
    show(found)
    if plan.left_out:
        _tell(f"{plan.left_out} jobs that never ran were left out")


@app.command(epilog="Example: queuecast tune CTC-SP2-1996-3.1-cln.swf.gz --save ctc.toml")
def tune(
    context: typer.Context,
    trace: TraceFile,
    method: Annotated[
        Literal["qespera", "ibl"], typer.Option(help="Tune this method for waits; ibl: search what it compares by.")
    ] = "qespera",
    runtimes: Annotated[
        Literal["template", "ibl"] | None, typer.Option(help="Search this method for run times instead.")
    ] = None,
    ids: Annotated[
        Range | None, typer.Option(metavar="LO HI", help="Tune on these job numbers, inclusive. Default: 16000 20000.")
    ] = None,
    rows: Annotated[
        Range | None, typer.Option(metavar="LO HI", help="Tune on these positions in submit order, from 1, inclusive.")
    ] = None,
    every: Annotated[int, typer.Option(min=1, help="Predict every so manieth job of them.")] = 2,
    jobs: Annotated[int, typer.Option(min=1, help="Templates: search on the first so many jobs.")] = 10_000,
    search: Annotated[Literal["genetic", "greedy"], typer.Option(help="How templates are searched.")] = "genetic",
    choice: Annotated[
        Literal["weighted", "surest"],
        typer.Option(help="How templates' estimates become one; surest: the papers'."),
    ] = "weighted",
    running: Annotated[
        bool,
        typer.Option(
            "--running", help="Templates: judge those of running jobs too, and search ranges of elapsed time."
        ),
    ] = False,
    population: Annotated[
        int, typer.Option(min=4, help="Searches: individuals in a generation; of templates, an even number.")
    ] = 20,
    generations: Annotated[int, typer.Option(min=1, help="Searches: generations that are bred.")] = 20,
    seed: Annotated[int, typer.Option(min=0, help="Searches: the same seed finds the same.")] = 1,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Searches: processes. Default: as many as there are cores.")
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Searches: keep the state there, and go on from it if it exists."),
    ] = None,
    save: Annotated[Path | None, typer.Option(metavar="FILE", help="Write what was chosen there, TOML.")] = None,
    skip_broken: Annotated[bool, typer.Option("--skip-broken", help="Report broken lines and go on.")] = False,
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
    settings, read = _settings(context).engine, _read(trace, skip_broken)
    plan, cores = (population, generations, seed), workers or os.cpu_count() or 1
    if kind == "template":
        profile = _search_templates(read, settings, search, (*plan, choice), jobs, running, cores, resume)
    elif kind == "ibl":
        profile = _search_ibl(read, settings, "run" if runtimes else "wait", (ids, rows, every), plan, cores, resume)
    else:
        profile = _tune_qespera(read, settings, (ids, rows, every))
    if save:
        from streams.offline.search import save as write

        write(profile, save)


SEARCHES = frozenset({"population", "generations", "seed", "workers", "resume"})
STRETCH = frozenset({"ids", "rows", "every"})
TUNED_BY = {
    "qespera": STRETCH,
    "ibl": STRETCH | SEARCHES,
    "template": SEARCHES | {"jobs", "search", "choice", "running"},
}
"""The options of `tune` that say something of each method."""


def _check_tune(context: typer.Context, kind: str) -> None:
    """Refuse options that exclude each other, or would say nothing, and files that could not be written in the end."""
    given = {name: value for name, value in context.params.items() if _is_given(context, name)}
    for one, other in (("ids", "rows"), ("method", "runtimes")):
        if one in given and other in given:
            raise typer.BadParameter(f"--{one} and --{other} exclude each other.")
    for name in sorted(frozenset.union(*TUNED_BY.values()) - TUNED_BY[kind]):
        if name in given:
            raise typer.BadParameter(f"--{name} says nothing of {kind}.")
    if context.params["search"] == "greedy" and "resume" in given:
        raise typer.BadParameter("--resume is for the genetic search.")
    if kind == "template" and context.params["population"] % 2:
        raise typer.BadParameter(f"--population is {context.params['population']}; expected an even number.")
    for file in (given.get("resume"), given.get("save")):
        if file and not file.parent.is_dir():
            raise UserError(f"{file}: cannot be written: there is no such directory")


def _is_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _tune_qespera(trace: "Trace", settings: "EngineSettings", where: Where) -> str:
    from models.search.tuning import aae_s
    from streams.offline import tune as tuning

    stretch = tuning.stretch_of(trace, *where)
    with _progress("jobs", stretch.steps) as advance:
        found = tuning.tune(stretch, settings, advance)
    tuning.show(found, stretch)
    _warn_of_few(stretch)
    if aae_s(found.together) > aae_s(found.before):
        _tell("what was chosen alone does worse together than what is in force")
    return tuning.profile(found.profile)


def _search_ibl(
    trace: "Trace",
    settings: "EngineSettings",
    target: Literal["wait", "run"],
    where: Where,
    plan: tuple[int, int, int],
    workers: int,
    resume: Path | None,
) -> str:
    from models.search.ibl import Plan
    from streams.offline import tune as tuning

    stretch = tuning.stretch_of(trace, *where)
    with _progress("jobs", len(stretch.trace.jobs)) as advance:
        examples = tuning.examples_of(stretch, settings, target, advance)
    wanted = tuning.Wanted(plan=Plan(*plan), workers=workers, file=resume)
    with _progress("generations", wanted.plan.generations) as advance:
        found = tuning.search(examples, wanted, settings, lambda _: advance())
    tuning.show_search(found)
    _warn_of_few(stretch)
    return tuning.search_profile(found, settings)


def _warn_of_few(stretch: "Stretch") -> None:
    from streams.offline.tune import FEW

    if len(stretch.jobs) < FEW:
        _tell(f"only {len(stretch.jobs)} jobs were predicted: what was chosen owes much to chance")


def _search_templates(
    trace: "Trace",
    settings: "EngineSettings",
    kind: Literal["genetic", "greedy"],
    plan: tuple[int, int, int, Literal["weighted", "surest"]],
    jobs: int,
    running: bool,
    workers: int,
    resume: Path | None,
) -> str:
    from models.search.templates.genetic import Plan
    from streams.offline import search as searching

    wanted = searching.Wanted(kind=kind, plan=Plan(*plan), jobs=jobs, running=running, workers=workers, file=resume)
    with _progress("generations" if kind == "genetic" else "steps", wanted.plan.generations) as advance:
        found = searching.search(trace, wanted, settings, lambda _: advance())
    searching.show(found)
    return searching.profile(found.best.templates, wanted.plan.choice)


def _read(path: Path, skip_broken: bool = False) -> "Trace":
    from streams.sources.swf import read_swf

    return read_swf(path, _tell if skip_broken else None)


@contextmanager
def _progress(unit: str, total: int | None) -> Iterator[Callable[[], None]]:
    """A bar on stderr, where that is a terminal; gives what moves it on by one."""
    if not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TimeRemainingColumn
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(f"{unit}, {task.speed or 0:,.0f}/s")

    columns = (BarColumn(), MofNCompleteColumn(), Rate(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task, done = bar.add_task(unit, total=total), 0
        step = 200 if total is None or total > 1000 else 1

        def advance() -> None:
            nonlocal done
            done += 1
            if done % step == 0:
                bar.update(task, completed=done)

        yield advance


@app.command(epilog="Example: queuecast topics --partitions 24 --replication 3")
def topics(
    context: typer.Context,
    partitions: Annotated[
        int | None, typer.Option(min=1, max=10_000, help="Partitions of those made now. Default: the settings'.")
    ] = None,
    replication: Annotated[
        int | None, typer.Option(min=1, max=32, help="Copies of those made now. Default: the settings'.")
    ] = None,
) -> None:
    """Make the topics that are missing, and print them all."""
    import msgspec

    from streams.topics import check_topics, configurations, create_topics, partitions_of

    settings = _settings(context)
    changes = {"partitions": partitions, "replication": replication}
    wanted = {name: value for name, value in changes.items() if value is not None}
    settings = msgspec.structs.replace(settings, topics=msgspec.structs.replace(settings.topics, **wanted))
    made = create_topics(settings)
    counts, kept = partitions_of(settings), configurations(settings)
    lines = [[name, str(counts[name]), _kept(kept[name]), "made" if new else "was there"] for name, new in made.items()]
    show_table(["topic", "partitions", "kept", ""], lines)
    check_topics(settings, dict.fromkeys(counts, "describe"))


def _kept(configuration: dict[str, str]) -> str:
    if configuration["cleanup.policy"] == "compact":
        return "the latest of each site"
    hours = int(configuration["retention.ms"]) // 3_600_000
    kept = f"{hours // 24} days" if hours % 24 == 0 and hours > 24 else f"{hours} h"
    return f"the latest of each shape, {kept}" if "compact" in configuration["cleanup.policy"] else kept


@app.command(epilog="Example: queuecast schema prediction > prediction.schema.json")
def schema(
    record: Annotated[
        str | None,
        typer.Argument(help="event, prediction, outcome, dead-letter, estimate, question or answer. Default: all."),
    ] = None,
) -> None:
    """Print the JSON Schema of the records on the topics."""
    import json

    from streams.schema import schema as schema_of

    sys.stdout.write(json.dumps(schema_of(record), indent=2) + "\n")


@app.command(epilog="Example: queuecast feed KTH.swf.gz CTC.swf.gz --site kth --site ctc --speed 3600")
def feed(
    context: typer.Context,
    traces: Annotated[
        list[Path], typer.Argument(metavar="TRACE...", help="Standard Workload Format, plain or gzip; one a site.")
    ],
    site: Annotated[
        list[str] | None, typer.Option(help="The site of each trace, in their order. Default: the files' names.")
    ] = None,
    speed: Annotated[
        str, typer.Option(metavar="max|N", help="N times the pace at which it happened, or as fast as it goes.")
    ] = "max",
    limit: Annotated[
        int | None, typer.Option(min=1, help="The first jobs of each trace only, and what became of them.")
    ] = None,
    until: Annotated[
        float | None, typer.Option(min=0, metavar="HOURS", help="The first hours only, and leave the jobs there.")
    ] = None,
    skip_broken: Annotated[bool, typer.Option("--skip-broken", help="Report broken lines and go on.")] = False,
) -> None:
    """Send traces to the events topic, each as a site, side by side from their beginnings.

    Events keep their own times; the messages are stamped with the wall clock.
    """
    from streams.sources import feed as feeding

    pace = _speed(speed)
    settings = _settings(context)
    whole = feeding.sources_of([_read(path, skip_broken) for path in traces], site or ())
    sources = [source if limit is None else source.first(limit) for source in whole]
    events = feeding.until(feeding.timeline(sources), math.inf if until is None else until * 3600)
    with _progress("events", sum(source.count for source in sources) if until is None else None) as advance:
        feeding.feed(settings, feeding.paced(events, pace), lambda _: advance(), _show_fed)


def _speed(text: str) -> float:
    try:
        speed = math.inf if text == "max" else float(text)
    except ValueError:
        speed = math.nan
    if not speed > 0:
        raise typer.BadParameter(f"--speed is {text!r}; expected max, 1 for real time, or how many times faster.")
    return speed


def _show_fed(publisher: "Publisher", seconds: float) -> None:
    for site, count in publisher.events.items():
        sys.stdout.write(printable(f"{site}: {count} events, {publisher.jobs.get(site, 0)} jobs") + "\n")
    total = sum(publisher.events.values())
    sys.stdout.write(f"{total} events sent in {seconds:.1f} s, {total / max(seconds, 1e-3):,.0f}/s\n")


@app.command(epilog="Example: queuecast watch --site ctc --outcomes --from-beginning --count 20")
def watch(
    context: typer.Context,
    site: Annotated[str | None, typer.Option(help="Those of this site only.")] = None,
    job: Annotated[str | None, typer.Option(help="Those of this job only.")] = None,
    outcomes: Annotated[bool, typer.Option("--outcomes", help="What became of predictions too.")] = False,
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="What the topics hold already too, not just what comes.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The records as they are, JSON lines.")] = False,
    count: Annotated[int | None, typer.Option(min=1, help="Stop after this many.")] = None,
) -> None:
    """Print predictions as they come, one a line; Ctrl-C ends it."""
    from streams.client.watch import Skipped, Wanted, json_line, line
    from streams.client.watch import watch as records

    shown = 0
    with closing(records(_settings(context), Wanted(site, job), outcomes, from_beginning)) as found:
        for record, raw, late in found:
            if isinstance(record, Skipped):
                _tell(f"skipped: {record.reason}")
                continue
            sys.stdout.write((json_line(raw) if as_json else line(record, late)) + "\n")
            sys.stdout.flush()
            shown += 1
            if shown == count:
                return


@app.command(epilog="Example: queuecast --config /etc/queuecast.toml worker --web-port 6067")
def worker(
    context: typer.Context,
    web_port: Annotated[int | None, typer.Option(min=1, max=65535, help="Port of /metrics.")] = None,
    log_level: Annotated[Literal["debug", "info", "warning", "error"] | None, typer.Option(help="What to log.")] = None,
) -> None:
    """Run a worker: events in, predictions and outcomes out, until it is told to stop."""
    import msgspec

    from streams.worker.app import run_worker

    settings = _settings(context)
    changes = {"web_port": web_port, "log_level": log_level}
    wanted = {name: value for name, value in changes.items() if value is not None}
    run_worker(msgspec.structs.replace(settings, worker=msgspec.structs.replace(settings.worker, **wanted)))


@app.command(epilog="Example: queuecast --config /etc/queuecast.toml serve --web-port 8080")
def serve(
    context: typer.Context,
    web_host: Annotated[str | None, typer.Option(help="Where to listen. Default: this machine only.")] = None,
    web_port: Annotated[int | None, typer.Option(min=1, max=65535, help="The port to listen at.")] = None,
    log_level: Annotated[Literal["debug", "info", "warning", "error"] | None, typer.Option(help="What to log.")] = None,
) -> None:
    """Serve estimates, questions and rankings over HTTP, with a page, until it is told to stop."""
    import msgspec

    try:
        from streams.serve.run import run_serve
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("litestar", "uvicorn"):
            raise
        raise UserError(f"{error.name} is not installed; install it with pip install 'queuecast[serve]'") from None
    settings = _settings(context)
    changes = {"web_host": web_host, "web_port": web_port, "log_level": log_level}
    wanted = {name: value for name, value in changes.items() if value is not None}
    run_serve(msgspec.structs.replace(settings, serve=msgspec.structs.replace(settings.serve, **wanted)))


@app.command(epilog="Example: queuecast ask --cpus 64 --walltime 4h --site ctc --site kth")
def ask(
    context: typer.Context,
    cpus: Annotated[int, typer.Option(help="Processors.")] = 1,
    walltime: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Requested: 4h, 90m, 1d12h, 04:00:00, or seconds.")
    ] = None,
    nodes: Annotated[int | None, typer.Option(help="Nodes; no site is left out for them.")] = None,
    queue: Annotated[str | None, typer.Option(help="The queue.")] = None,
    user: Annotated[str | None, typer.Option(help="Who submits it.")] = None,
    group: Annotated[str | None, typer.Option(help="The user's group.")] = None,
    account: Annotated[str | None, typer.Option(help="Who pays for it.")] = None,
    executable: Annotated[str | None, typer.Option(help="What it runs.")] = None,
    gpus: Annotated[int, typer.Option(help="GPUs; likewise.")] = 0,
    memory: Annotated[int | None, typer.Option(metavar="BYTES", help="Memory; likewise.")] = None,
    run: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="How long it runs at a site of speed 1. Default: as predicted."),
    ] = None,
    site: Annotated[list[str] | None, typer.Option(help="Only this site; repeatable. Default: all.")] = None,
    url: Annotated[str | None, typer.Option(help="Ask this service, not through Kafka.")] = None,
    token: Annotated[str | None, typer.Option(help="The service's token. Default: the settings'.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the ranking as JSON.")] = False,
) -> None:
    """Ask where a job would be done first, if it were submitted now.

    The sites by response time: the wait and the run time. Nothing is submitted,
    and asking changes nothing. The exit code is 1 where no site has an estimate.
    """
    import msgspec

    from models.ranking import JobRequest
    from streams.client import ask as asking
    from streams.durations import seconds_of

    names = JobRequest.__struct_fields__
    described = {name: value for name, value in context.params.items() if name in names and value is not None}
    if "" in (site or ()):
        raise typer.BadParameter("--site: expected a name.")
    described["walltime"] = None if walltime is None else seconds_of(walltime)
    try:
        job = msgspec.convert(described, JobRequest)
    except msgspec.ValidationError as error:
        place, problem = place_and_problem(error)
        raise typer.BadParameter(f"--{place}: {problem}.") from None
    run_s = None if run is None else seconds_of(run)
    settings = _settings(context)
    if url:
        found = asking.ask_service(url, token or settings.serve.token, job, site or (), run_s)
    else:
        found = asking.ask(settings, job, site or (), run_s)
    if as_json:
        sys.stdout.write(msgspec.json.encode(found).decode() + "\n")
    else:
        asking.show(found)
    asking.check(found)


@app.command(epilog="Example: queuecast --config /etc/queuecast.toml doctor")
def doctor(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON lines.")] = False,
) -> None:
    """Look at Kafka, its topics, the workers and Redis, and say what is wrong and what to do.

    A line a check: ok, warn or fail. The exit code is 1 where any has failed.
    """
    import msgspec

    from streams.operate.doctor import examine

    failed = False
    for result in examine(_settings(context)):
        sys.stdout.write(msgspec.json.encode(result).decode() if as_json else printable(str(result)))
        sys.stdout.write("\n")
        failed |= result.state == "fail"
    raise typer.Exit(int(failed))


@app.command(epilog="Example: queuecast demo KTH-SP2-1996-2.1-cln.swf.gz --seconds 30")
def demo(
    context: typer.Context,
    trace: Annotated[
        Path | None, typer.Argument(metavar="TRACE", help="One site, from a trace. Default: a simulated grid.")
    ] = None,
    jobs: Annotated[int, typer.Option(min=30, help="How many there are at most, in all.")] = 6000,
    seconds: Annotated[float, typer.Option(min=1, help="How long it shows predictions come true.")] = 50,
) -> None:
    """Show predictions beside what then happens, on a Kafka and Redis of its own that leave nothing behind."""
    from deploy.local.demo import demo as play

    play(_settings(context), None if trace is None else _read(trace), jobs, seconds)


@app.command(epilog="Example: queuecast up --data-dir /srv/queuecast --kafka-port 9092")
def up(
    context: typer.Context,
    data_dir: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where data are kept. Default: the user's data directory.")
    ] = None,
    workers: Annotated[int, typer.Option(min=1, max=64, help="How many workers share the sites.")] = 1,
    kafka_port: Annotated[int | None, PORT] = None,
    redis_port: Annotated[int | None, PORT] = None,
    web_port: Annotated[int | None, PORT] = None,
    serve_port: Annotated[int | None, PORT] = None,
    prometheus_port: Annotated[int | None, PORT] = None,
) -> None:
    """Run Kafka, Redis, a worker, the web page and, if it is installed, Prometheus, until Ctrl-C; data are kept."""
    from deploy.local.up import Ports, data_home
    from deploy.local.up import up as run

    ports = Ports(kafka_port, redis_port, web_port, serve_port, prometheus_port)
    run(_settings(context), data_dir or data_home(), ports, workers)
