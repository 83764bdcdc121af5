"""The command line: global options, help and error reporting.

An error is one line on stderr with the problem and its remedy. Exit codes: 1 for an external error, 2 for an invalid
command or file, 130 for an interrupt. Commands import slow modules themselves. Plain values are parsed here, since
typer would import pydantic, which takes longer than most commands.
"""

import io
import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple, get_args, get_origin

import typer

from streams.cli import administration, ingestion, logs, look, offline
from streams.cli.options import flag, opt, warn
from streams.errors import UserError, needing

KINDS: dict[Any, Callable[[Any], Any]] = {kind: kind for kind in (str, int, float, bool, Path)}
"""Parsers of plain values, by type."""


GROUPS = {
    "Try it": ("up", "demo"),
    "Query": ("ask", "job", "jobs", "sites", "watch", "notify"),
    "Evaluate on a log": ("replay", "compare", "simulate", "tune", "prior"),
    "Ingest scheduler events": ("source", "ingest"),
    "Operate": ("topics", "worker", "serve", "doctor", "site", "dead-letters", "credentials", "schema"),
}
"""Headings of `queuecast --help` and their commands; other commands follow under "Commands"."""


def command_of(app: typer.Typer) -> Any:
    """Build the command tree of an application; its help shows `--site SITE` instead of types."""
    command: Any = typer.main.get_command(app)
    _prepare(command)
    command.format_commands = lambda ctx, formatter: _write_groups(command.commands, formatter)
    return command


def _write_groups(commands: Mapping[str, Any], formatter: Any) -> None:
    others = tuple(name for name in commands if not any(name in group for group in GROUPS.values()))
    for title, names in {**GROUPS, "Commands": others}.items():
        if lines := [(name, commands[name].get_short_help_str()) for name in names if name in commands]:
            with formatter.section(title):
                formatter.write_dl(lines)


def _prepare(command: Any) -> None:
    of_command = command.get_params

    def get_params(ctx: Any) -> list[Any]:
        found: list[Any] = of_command(ctx)
        for param in found:
            _prepare_value(param)
        return found

    command.get_params = get_params  # includes `--help`, which typer adds there
    for inner in getattr(command, "commands", {}).values():
        whole = " ".join((inner.help or "").partition("\n\n")[0].split())
        inner.get_short_help_str = lambda limit=0, whole=whole: whole  # not truncated
        _prepare(inner)


def _prepare_value(param: Any) -> None:
    shown, limits = _shown(param), _limits(param.min, param.max)
    param.display_type_rich = lambda ctx: shown
    param._get_number_range_help_str = lambda: limits
    annotation, choices = param.type_descriptor.annotation, param.type_descriptor.choices
    kind = KINDS.get(get_args(annotation)[0] if get_origin(annotation) is list else annotation)
    if kind or choices:  # others are left to typer
        param._runtime_param = _Plain(kind or str, choices, (param.min, param.max), limits)


class _Plain(NamedTuple):
    """Parse the value of a parameter, in place of typer's parser."""

    kind: Callable[[Any], Any]
    choices: Sequence[str] | None
    bounds: tuple[float | None, float | None]
    limits: str | None

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """Convert a value.

        Raises:
            typer.BadParameter: The value is invalid.
        """
        several = param.multiple or param.nargs == -1
        if value is None:
            return () if several else None
        try:
            return tuple(map(self._read, value)) if several else self._read(value)
        except ValueError as error:
            raise typer.BadParameter(str(error), ctx=ctx, param=param) from None

    def _read(self, value: Any) -> Any:
        if self.choices and value not in self.choices:
            raise ValueError(f"{value!r} is not valid; expected one of {', '.join(self.choices)}.")
        try:
            found = self.kind(value)
        except ValueError:
            raise ValueError(f"{value!r} is not {'an integer' if self.kind is int else 'a number'}.") from None
        least, most = self.bounds
        if not (least is None or found >= least) or not (most is None or found <= most):  # nor is NaN
            raise ValueError(f"{value} is not {self.limits}.")
        return found


def _limits(least: float | None, most: float | None) -> str | None:
    if least is None or most is None:
        return None if least is None else f"{least} or more"
    return f"{least} to {most}"


def _shown(param: Any) -> str:
    """Return the placeholder of a parameter's value in the help; an argument is named already."""
    if param.param_type_name == "argument":
        return ""
    if param.metavar is not None:
        return str(param.metavar)
    if choices := param.type_descriptor.choices:
        return "|".join(map(str, choices))
    annotation = param.type_descriptor.annotation
    return "N" if annotation in (int, float) else str(param.name).removesuffix("_name").replace("_", "-").upper()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command of `streams` and return the exit code."""
    return run(app, arguments)


def run(app: typer.Typer, arguments: Sequence[str] | None = None) -> int:
    """Run a command (default: `sys.argv`) and return the exit code."""
    for name in ("kafka", "aiokafka", "streams.client"):  # reported as errors of the command
        logging.getLogger(name).addHandler(logging.NullHandler())
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # names that the terminal cannot show
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
        return _fail(f"internal error: {type(error).__name__}: {error}; set QUEUECAST_DEBUG=1 for the traceback")


def _fail(message: str, code: int = 1) -> int:
    warn(f"queuecast: {' '.join(message.split())}")
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


def _show_version(wanted: bool) -> None:
    if wanted:
        from streams.version import __version__

        sys.stdout.write(f"queuecast {__version__}\n")
        raise typer.Exit


def options(
    context: typer.Context,
    config: Annotated[
        Path | None,
        opt("Settings file, TOML. Default: $QUEUECAST_CONFIG, ./queuecast.toml, that of `up`.", "FILE"),
    ] = None,
    version: Annotated[bool, flag("--version", "Print the version.", callback=_show_version, is_eager=True)] = False,
) -> None:
    """Options that come before the command."""
    context.obj = config


def application(*more: typer.Typer) -> typer.Typer:
    """Build the application from the commands of `streams` and further groups."""
    made = typer.Typer(
        name="queuecast",
        help="Predict queue waits and run times of batch jobs from scheduler events, for many HPC sites.",
        no_args_is_help=True,
        rich_markup_mode=None,  # plain help: it costs no import, and no width
        pretty_exceptions_enable=False,
    )
    made.callback()(options)
    for module in (look, logs, offline, administration, ingestion):
        made.add_typer(module.commands)
    for group in more:
        made.add_typer(group)
    return made


app = application()
