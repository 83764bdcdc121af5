"""The commands that run a trace under other schedulers, and learn from logs what new sites can begin with."""

from pathlib import Path
from typing import Annotated

import typer

from streams.cli.options import Range, TraceFile, read_trace, settings_of
from streams.cli.output import print_json, progress, tell
from streams.errors import UserError

commands = typer.Typer()


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
        list[Path] | None,
        typer.Argument(metavar="[LOG...]", help="One of each site. Default: the events that the topics still have."),
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Write it there.")] = None,
    to_young: Annotated[
        bool, typer.Option("--send", help="Have all sites of this deployment with few jobs begin with it.")
    ] = False,
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
