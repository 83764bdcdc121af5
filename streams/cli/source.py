"""The command of who plugs in a scheduler: source."""

import os
import signal
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from streams.cli.options import names_in, settings_of
from streams.cli.output import tell

commands = typer.Typer()


@commands.command(epilog="Example: queuecast source slurm squeue+sacct --site alder --cursors /var/lib/queuecast")
def source(
    context: typer.Context,
    name: Annotated[
        str,
        typer.Argument(
            autocompletion=names_in("streams.sources.registry", "SOURCES"),
            help="Which scheduler or format, such as slurm.",
        ),
    ],
    location: Annotated[str, typer.Argument(help="What it reads: a path, an address, or what the source says.")],
    site: Annotated[str, typer.Option(help="The site's name.")],
    cursors: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Keep here how far it is, and go on there. Default: $STATE_DIRECTORY."),
    ] = None,
    web_port: Annotated[int | None, typer.Option(min=1, max=65535, help="Port of /metrics. Default: none.")] = None,
    web_host: Annotated[str, typer.Option(help="Where to listen. Default: this machine only.")] = "127.0.0.1",
    options: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="An option of the source; repeatable.")
    ] = None,
) -> None:
    """Follow a scheduler and send what happens there to the events topic, until it is told to stop.

    With --cursors it goes on where it stopped the last time, however it stopped:
    no event is lost, the last ones may be sent twice, and workers pass these over.
    What cannot be read is told here and counted, and the rest goes on.
    """
    from streams.process.scraping import serve_metrics
    from streams.sources.publisher import stop_on_sigterm
    from streams.sources.registry import options_for, source_named
    from streams.sources.run import Watch, run_source

    settings, watch, kind = settings_of(context), Watch(tell), source_named(name)
    opened = kind.open(location, site, watch.on_skipped, **options_for(kind, options or ()))
    directory = cursors or (Path(state) if (state := os.environ.get("STATE_DIRECTORY")) else None)
    if directory is None:
        tell("without --cursors the source begins at the beginning at each start")
    with ExitStack() as stack:
        stop = stack.enter_context(stop_on_sigterm())
        if web_port is not None:
            stack.callback(serve_metrics(watch, web_host, web_port))
        stack.callback(lambda: tell(watch.report()))
        run_source(settings, opened, watch, directory, stop)
    if stop.requested:
        raise typer.Exit(128 + signal.SIGTERM)


@commands.command(epilog="Example: queuecast capture slurm looks --looks 20")
def capture(
    scheduler: Annotated[
        str, typer.Argument(help="Which scheduler: slurm, pbs, lsf, gridengine, htcondor, flux or kueue.")
    ],
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Where to write the answers.")],
    looks: Annotated[int | None, typer.Option(min=1, help="How many looks. Default: 5 at Slurm, else one.")] = None,
    every: Annotated[str, typer.Option(metavar="DURATION", help="From one look to the next.")] = "30s",
    log: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Record the end of this log; repeatable. Default: what a command answers."),
    ] = None,
) -> None:
    """Record what a scheduler answers or logs, with other names: a folder that can be sent to us, and replayed.

    Names of users, accounts, jobs, partitions, nodes and all words that are not
    the scheduler's own become hashes with a random key that is kept nowhere.
    Numbers of jobs, times and sizes stay. Slurm, PBS, HTCondor and Kueue are asked
    by commands; of the others, and with --log, the last 8 MB of logs are taken.
    """
    from streams.errors import NotUnderstood, read_as
    from streams.operate.capture import SCHEDULERS
    from streams.operate.capture import capture as captured
    from streams.text.durations import seconds_of

    if scheduler not in SCHEDULERS:
        raise NotUnderstood(f"{scheduler}: cannot be captured; expected {', '.join(SCHEDULERS)}")
    captured(scheduler, directory, log or (), tell, looks, read_as("--every", seconds_of, every))
    tell(f"`queuecast replay {directory} --site here` reads it")
