"""The commands of who runs queuecast: topics, schema, worker, serve, doctor."""

import sys
from collections.abc import Callable
from typing import Annotated, Literal

import typer

from streams.cli.options import changed, names_in, settings_of
from streams.cli.output import print_json, tell
from streams.errors import read_as
from streams.text.terminal import printable, show_table, show_wrapped

commands = typer.Typer()


@commands.command(epilog="Example: queuecast topics --partitions 24 --replication 3")
def topics(
    context: typer.Context,
    partitions: Annotated[
        int | None,
        typer.Option(min=1, max=10_000, help="Partitions of those made now; with --rehash of all. Default: settings'."),
    ] = None,
    replication: Annotated[
        int | None, typer.Option(min=1, max=32, help="Copies of those made now. Default: the settings'.")
    ] = None,
    rehash: Annotated[bool, typer.Option("--rehash", help="Add partitions, and move the sites to theirs.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the topics as JSON.")] = False,
) -> None:
    """Make the topics that are missing, and print them all.

    With --rehash they get more partitions (--partitions), or all as many as one
    of them has already, and the sites' states move to where their names belong
    then. Stop all workers and sources before.
    """
    from streams.broker.admin import check_topics, create_topics, partitions_of
    from streams.broker.topics import configurations

    settings = settings_of(context)
    if rehash:
        from streams.operate.rehash import rehash as move_sites

        for site, (before, now) in sorted(move_sites(settings, partitions).items()):
            tell(f"{printable(site)}: partition {before} -> {now}")
    settings = changed(settings, "topics", partitions=partitions, replication=replication)
    made = create_topics(settings)
    counts, configured = partitions_of(settings), configurations(settings)
    if partitions is not None and (others := set(counts.values()) - {partitions}):
        numbers = " and ".join(map(str, sorted(others)))
        tell(
            f"the topics have {numbers} partitions and keep them: of {partitions}, most sites would belong to others "
            "than those where they are; --rehash adds partitions and moves the sites with all that they know"
        )
    kept = {name: _retention(configured[name]) for name in made}
    if as_json:
        print_json(
            [{"topic": name, "partitions": counts[name], "kept": kept[name], "made": made[name]} for name in made]
        )
    else:
        cells = [[name, str(counts[name]), kept[name], "made" if new else ""] for name, new in made.items()]
        show_table(["topic", "partitions", "kept", ""], cells)
    check_topics(settings, dict.fromkeys(counts, "describe"))


def _retention(configuration: dict[str, str]) -> str:
    if configuration["cleanup.policy"] == "compact":
        return "latest of each site"
    hours = int(configuration["retention.ms"]) // 3_600_000
    kept = f"{hours // 24} days" if hours % 24 == 0 and hours > 24 else f"{hours} h"
    return f"latest of each shape, {kept}" if "compact" in configuration["cleanup.policy"] else kept


@commands.command(epilog="Example: queuecast schema prediction > prediction.schema.json")
def schema(
    record: Annotated[
        str | None,
        typer.Argument(
            autocompletion=names_in("streams.broker.schema", "RECORDS"),
            help="event, prediction, outcome, dead-letter, estimate, question, answer, notice. Default: all.",
        ),
    ] = None,
) -> None:
    """Print the JSON Schema of the records on the topics."""
    import json

    from streams.broker.schema import schema as schema_of

    sys.stdout.write(json.dumps(schema_of(record), indent=2) + "\n")


@commands.command(epilog="Example: queuecast --config /etc/queuecast.toml worker --web-port 6068")
def worker(
    context: typer.Context,
    processes: Annotated[
        int | None, typer.Option(min=1, max=256, help="Processes. Default: the settings', else the cores.")
    ] = None,
    web_port: Annotated[int | None, typer.Option(min=1, max=65535, help="Port of /metrics.")] = None,
    log_level: Annotated[Literal["debug", "info", "warning", "error"] | None, typer.Option(help="What to log.")] = None,
) -> None:
    """Run a worker: events in, predictions and outcomes out, until it is told to stop.

    Its processes share the partitions, and one web port. One that ends is started
    again.
    """
    from streams.worker.run import run_worker

    settings = settings_of(context)
    run_worker(changed(settings, "worker", processes=processes, web_port=web_port, log_level=log_level))


@commands.command(epilog="Example: queuecast --config /etc/queuecast.toml serve --web-port 8080")
def serve(
    context: typer.Context,
    web_host: Annotated[str | None, typer.Option(help="Where to listen. Default: this machine only.")] = None,
    web_port: Annotated[int | None, typer.Option(min=1, max=65535, help="The port to listen at.")] = None,
    log_level: Annotated[Literal["debug", "info", "warning", "error"] | None, typer.Option(help="What to log.")] = None,
) -> None:
    """Serve estimates, questions and rankings over HTTP, with a page, until it is told to stop."""
    from streams.serve.run import run_serve
    from streams.settings import settings_file

    settings = settings_of(context)
    own = changed(settings, "serve", web_host=web_host, web_port=web_port, log_level=log_level)
    run_serve(own, settings_file(context.obj))


@commands.command(epilog="Example: queuecast --config /etc/queuecast.toml doctor")
def doctor(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON lines.")] = False,
    source: Annotated[
        list[str] | None, typer.Option(metavar="HOST:PORT", help="Look at the source with this web port; repeatable.")
    ] = None,
    notify: Annotated[
        list[str] | None,
        typer.Option(metavar="HOST:PORT", help="Look at the `notify` with this web port; repeatable."),
    ] = None,
    slurm: Annotated[
        list[str] | None,
        typer.Option(metavar="SITE=HOST:PORT", help="Compare a site with its slurmctld's metrics; repeatable."),
    ] = None,
) -> None:
    """Look at Kafka, its topics, the workers and Redis, and say what is wrong and what to do.

    A line a check: ok, warn or fail. The exit code is 1 where any has failed.
    """
    from functools import partial
    from itertools import chain

    import msgspec

    from streams.operate.checks import CheckResult, check_notifier, check_source, url_of
    from streams.operate.doctor import examine
    from streams.operate.slurm_metrics import check_slurm, page_of

    settings, failed = settings_of(context), False
    looks: list[tuple[str, Callable[[str], object], Callable[[str], CheckResult], str]] = [
        *(("--source", url_of, check_source, one) for one in source or ()),
        *(("--notify", url_of, check_notifier, one) for one in notify or ()),
        *(("--slurm", page_of, partial(check_slurm, settings), one) for one in slurm or ()),
    ]
    for option, read, _, given in looks:
        read_as(option, read, given)
    for result in chain(examine(settings), (check(given) for _, _, check, given in looks)):
        if as_json:
            sys.stdout.write(msgspec.json.encode(result).decode() + "\n")
        else:
            show_wrapped(str(result))
        failed |= result.state == "fail"
    raise typer.Exit(int(failed))
