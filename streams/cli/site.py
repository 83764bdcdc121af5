"""The commands about one site: show, forget-job, set-capacity, use-prior, begin-anew, rebuild."""

import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streams.cli.options import known_sites, settings_of
from streams.errors import UserError
from streams.text.terminal import printable

if TYPE_CHECKING:
    from models.records import AnyOperation

commands = typer.Typer()
site_commands = typer.Typer(no_args_is_help=True)
commands.add_typer(site_commands, name="site")

Why = Annotated[str, typer.Option(help="Why; it is kept with the change.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do it.")]


@site_commands.callback(epilog="Example: queuecast site ctc show")
def site(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", autocompletion=known_sites, help="The site's name.")],
) -> None:
    """Look at one site, or mend it.

    A change goes among the site's events: it survives crashes, and `show` says who made it, when and why.
    Who may write the site's events may make it.
    """
    context.obj = (context.obj, name)


def _split(context: typer.Context) -> str:
    config, name = context.obj
    context.obj = config
    return str(name)


def _send(context: typer.Context, kind: "type[AnyOperation]", why: str, **fields: Any) -> None:
    from streams.operate.site import operator, send

    site, settings = _split(context), settings_of(context)
    send(settings, kind(site=site, time=time.time(), by=operator(settings), why=why, **fields))
    said = f"sent; `queuecast site {shlex.quote(site)} show` says what became of it"
    sys.stdout.write(printable(said) + "\n")


@site_commands.command(epilog="Example: queuecast site ctc show")
def show(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")] = False,
) -> None:
    """Print the site's size, jobs and age, what is wrong with it, and what operators changed."""
    import msgspec

    from streams.operate.site import ask, lines

    name = _split(context)
    found = ask(settings_of(context), name)
    text = msgspec.json.encode(found).decode() if as_json else "\n".join(map(printable, lines(found)))
    sys.stdout.write(text + "\n")


@site_commands.command("forget-job", epilog="Example: queuecast site ctc forget-job 4711 --why 'its end was lost'")
def forget_job(
    context: typer.Context,
    job: Annotated[str, typer.Argument(metavar="JOB", help="The job's id.")],
    attempt: Annotated[int, typer.Option(min=0, help="Which attempt.")] = 0,
    why: Why = "",
) -> None:
    """Take a job out that queues or runs no longer: neither scored nor learnt, and no later event revives it."""
    from models.records import ForgetJob

    _send(context, ForgetJob, why, job=job, attempt=attempt)


@site_commands.command("set-capacity", epilog="Example: queuecast site ctc set-capacity --cpus 430 --why 'grown'")
def set_capacity(
    context: typer.Context,
    cpus: Annotated[int, typer.Option(min=1, max=1_000_000_000, help="Processors.")],
    nodes: Annotated[int | None, typer.Option(min=1, max=1_000_000_000, help="Nodes.")] = None,
    down_nodes: Annotated[int, typer.Option(min=0, help="Nodes that are down.")] = 0,
    why: Why = "",
) -> None:
    """Say how large the site is; its own next capacity event counts again."""
    from models.records import SetCapacity

    _send(context, SetCapacity, why, cpus=cpus, nodes=nodes, down_nodes=down_nodes)


@site_commands.command("use-prior", epilog="Example: queuecast site ctc use-prior grid.prior --why 'as new'")
def use_prior(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `queuecast prior` has written.")],
    why: Why = "",
) -> None:
    """Let the site's forests start from what other sites of yours taught.

    Until it has a model of its own again, some jobs later, only that speaks: it is for sites that are young.
    """
    from models.records import UsePrior
    from streams.offline.prior import read_prior

    _send(context, UsePrior, why, prior=read_prior(file))


@site_commands.command("begin-anew", epilog="Example: queuecast site ctc begin-anew --yes --why 'another machine'")
def begin_anew(context: typer.Context, yes: Yes = False, why: Why = "") -> None:
    """Forget all that was learnt of the site, where another machine has its name; its size and live jobs stay."""
    from models.records import BeginAnew

    if not yes:
        raise UserError("all that it has learnt will be lost; say --yes to do it")
    _send(context, BeginAnew, why)


@site_commands.command(epilog="Example: queuecast site ctc rebuild --yes --why 'engine_failed in the dead letters'")
def rebuild(context: typer.Context, yes: Yes = False, why: Why = "") -> None:
    """Make the site's state and histories again from its events.

    What it learnt before the oldest event that the topic still has is lost. Its worker reads some 2500 events a
    second meanwhile, and processes no others.
    """
    from models.records import Rebuild

    if not yes:
        raise UserError("what it learnt before its oldest event on the topic will be lost; say --yes to do it")
    _send(context, Rebuild, why)
