"""The commands that work on whole traces in this process: replay, compare, simulate."""

import os
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from streams.cli.options import Range, TraceFile, read_trace, settings_of
from streams.cli.output import progress, tell
from streams.errors import UserError
from streams.terminal import show_accuracy

if TYPE_CHECKING:
    from streams.offline.replay import ReplayScores
    from streams.sources.swf import Trace

commands = typer.Typer()


@commands.command(epilog="Example: queuecast replay KTH-SP2-1996-2.1-cln.swf.gz --method qespera --rows 10001 20000")
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
    from models.engine.outgoing import Anomaly
    from streams.offline.replay import RecordFile, ReplayScores, jobs_in, replay, score_and_write, settings_for
    from streams.sources.swf import check_site, events_of

    if ids and rows:
        raise typer.BadParameter("--ids and --rows exclude each other.")
    settings = settings_for(settings_of(context).engine, method or (), runtimes or ())
    jobs = read_trace(trace, skip_broken)
    check_site(name := jobs.site if site is None else site)
    range_ = jobs_in(jobs, ids, rows)
    scores = ReplayScores(lambda outcome: outcome.job in range_, cancelled=not started, settings=settings)
    anomalies: Counter[str] = Counter()
    with RecordFile(out) as predicted, RecordFile(outcomes) as happened, progress("jobs", len(jobs.jobs)) as advance:
        records = replay(events_of(jobs, name), settings)
        for item in score_and_write(
            records, scores, predicted, happened, lambda ran: shadows or ran == settings.method
        ):
            if isinstance(item, Anomaly):
                anomalies[item.reason] += 1
            elif item.method == settings.method:
                advance()
    _report(jobs, scores, anomalies, as_json)


def _report(trace: "Trace", scores: "ReplayScores", anomalies: Counter[str], as_json: bool) -> None:
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
        tell(f"{trace.without_wait} jobs without a wait were left out")
    for reason, count in anomalies.most_common():
        tell(f"{count} × {reason}")


@commands.command(epilog="Example: queuecast compare KTH-SP2-1996-2.1-cln.swf.gz --rows 10001 20000")
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
    jobs = read_trace(trace, skip_broken)
    range_ = jobs_in(jobs, ids, rows)
    with progress("‰", 1000) as advance:
        told = 0

        def tell(share: int) -> None:
            nonlocal told
            for _ in range(told, share):
                advance()
            told = max(told, share)

        found = compared(
            jobs, range_, settings_of(context).engine, method or (), workers or os.cpu_count() or 1, not started, tell
        )
    if as_json:
        sys.stdout.write(msgspec.json.encode(found).decode() + "\n")
        return
    measures = {name: {key: row[key] for key in row if not key.startswith("cov_")} for name, row in found.waits.items()}
    show_accuracy(measures, "waits")
    show_accuracy(found.run_times, "run times")
    if found.bounds:
        show_accuracy(found.bounds, "bounds")


@commands.command(
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

    read = read_trace(trace, skip_broken)
    plan = plan_of(read, ",".join(POLICIES) if scheduler == "all" else scheduler, runtimes, cpus, rows)
    with progress("jobs", plan.steps) as advance:
        found = list(simulated(plan, advance))
    if as_json:
        sys.stdout.write(msgspec.json.encode(document(read, plan, found)).decode() + "\n")
        return
    show(found)
    if plan.left_out:
        tell(f"{plan.left_out} jobs that never ran were left out")
