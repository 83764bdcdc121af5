"""The command line, `queuecast`: the commands of `streams`, and those that run a complete local deployment."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from streams.cli.app import application, run
from streams.cli.options import arg, changed, flag, opt, read_trace, settings_without_servers
from streams.errors import needing

commands = typer.Typer()


def _port(server: str, usual: int | None = None) -> Any:
    """Return the option for a server's port; `usual` is its default if that is free."""
    default = "" if usual is None else f" Default: {usual} if free."
    return typer.Option(min=1, max=65535, help=f"{server}.{default}")


@commands.command(epilog="Example: queuecast demo KTH-SP2-1996-2.1-cln.swf.gz --seconds 30")
def demo(
    context: typer.Context,
    trace: Annotated[Path | None, arg("One site, from a trace. Default: a simulated grid.", "TRACE")] = None,
    jobs: Annotated[int, opt("Approximate number of jobs; for a trace, the maximum.", min=30)] = 3000,
    seconds: Annotated[float, opt("Duration of the measured part, in seconds.", min=1)] = 30,
) -> None:
    """Compare predictions with actual waits live, on a temporary Kafka and Redis."""
    with needing("local"):
        from deploy.local.demo.demo import demo as play

    play(settings_without_servers(context), None if trace is None else read_trace(trace), jobs, seconds)


@commands.command(epilog="Example: queuecast up --data-dir /srv/queuecast --kafka-port 9092")
def up(
    context: typer.Context,
    data_dir: Annotated[Path | None, opt("Data directory. Default: the user's data directory.", "DIR")] = None,
    processes: Annotated[
        int | None,
        opt("Number of worker processes. Default: from the settings, else the number of CPUs.", min=1, max=256),
    ] = None,
    kafka_port: Annotated[int | None, _port("Port of Kafka", 9092)] = None,
    redis_port: Annotated[int | None, _port("Port of Redis", 6379)] = None,
    web_port: Annotated[int | None, _port("Port of the worker's metrics")] = None,
    serve_port: Annotated[int | None, _port("Port of the web page", 6067)] = None,
    prometheus_port: Annotated[int | None, _port("Port of Prometheus")] = None,
    open_to_all: Annotated[
        bool,
        flag(
            "--open",
            "Every user of this machine may use Kafka and the page without a password.",
            envvar="QUEUECAST_UP_OPEN",
            show_envvar=False,
        ),
    ] = False,
) -> None:
    """Run Kafka, Redis, a worker, the web page and, if installed, Prometheus, until Ctrl-C. The data is kept.

    A port without a default, or whose default is in use, is the previous one if that is free, else any free one.
    """
    with needing("local"):
        from deploy.local.stack import Ports
        from deploy.local.up import data_home
        from deploy.local.up import up as run_stack

    ports = Ports(kafka_port, redis_port, web_port, serve_port, prometheus_port)
    settings = changed(settings_without_servers(context), "worker", processes=processes)
    run_stack(settings, data_dir or data_home(), ports, open_to_all)


app = application(commands)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return the exit code."""
    return run(app, arguments)
