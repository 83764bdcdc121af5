"""The command line: what comes before every command, and how a command's errors are told.

Errors are one line on stderr that says what is wrong and what to do: exit code 1 for what is wrong outside, 2 for a
command or a file that was not understood, 130 when interrupted. What is slow to import is imported by the commands that
use it.
"""

import io
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from streams.cli import access, client, logs, look, offline, service, site, source, tune
from streams.cli.help import command_of
from streams.cli.output import tell
from streams.errors import UserError, needing


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command of `streams`; gives the exit code."""
    return run(app, arguments)


def run(app: typer.Typer, arguments: Sequence[str] | None = None) -> int:
    """Run a command, by default the one that the process was started with; gives the exit code."""
    for name in ("kafka", "aiokafka", "streams.client"):  # their warnings come as errors of ours
        logging.getLogger(name).addHandler(logging.NullHandler())
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a name that this terminal cannot show is no error
    try:
        with needing():
            code = command_of(app)(args=arguments, prog_name="queuecast", standalone_mode=False)
        sys.stdout.flush()
        return int(code or 0)
    except BrokenPipeError:  # the reader has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except UserError as error:
        return _fail(str(error), error.exit_code)
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


def _fail(message: str, code: int = 1) -> int:
    tell(f"queuecast: {' '.join(message.split())}")
    return code


def _misunderstood(error: typer.TyperException) -> int:
    if type(error).__name__ == "NoArgsIsHelpError":  # whose message is the help
        sys.stdout.write(error.format_message() + "\n")
    elif message := error.format_message():
        command = getattr(getattr(error, "ctx", None), "command_path", "queuecast")
        return _fail(
            f"{message.rstrip('.')}{'' if message.endswith('?') else '.'} See `{command} --help`.", error.exit_code
        )
    return error.exit_code


def _show_version(asked: bool) -> None:
    if asked:
        from streams.version import __version__

        sys.stdout.write(f"queuecast {__version__}\n")
        raise typer.Exit


def options(
    context: typer.Context,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Settings, TOML. Default: QUEUECAST_CONFIG, else queuecast.toml here, else of the `up` that runs.",
        ),
    ] = None,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options that come before the command."""
    context.obj = config


def application(*more: typer.Typer) -> typer.Typer:
    """`queuecast` with the commands of `streams`, and more groups of commands."""
    made = typer.Typer(
        name="queuecast",
        help="Predicts batch queue waits and run times from schedulers' events, as a stream, for many HPC sites.",
        no_args_is_help=True,
        rich_markup_mode=None,  # plain help: it costs no import, and no width
        pretty_exceptions_enable=False,
    )
    made.callback()(options)
    for module in (client, look, logs, offline, tune, service, site, source, access):
        made.add_typer(module.commands)
    for group in more:
        made.add_typer(group)
    return made


app = application()
