"""The command line: what comes before every command, and how a command's errors are told.

Errors are one line on stderr that says what is wrong and what to do: exit code 1 for what is wrong outside, 2 for a
command or a file that was not understood, 130 when interrupted. What is slow to import is imported by the commands that
use it. Plain values are read here too: typer would import pydantic for them, which takes longer than an answer.
"""

import io
import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple, get_args, get_origin

import typer

from streams.cli import logs, look, offline, service, source
from streams.cli.options import flag, opt, tell
from streams.errors import UserError, needing

KINDS: dict[Any, Callable[[Any], Any]] = {kind: kind for kind in (str, int, float, bool, Path)}
"""What reads values that are plain, by their type."""


GROUPS = {
    "Try it": ("up", "demo"),
    "Ask and watch": ("ask", "job", "jobs", "sites", "watch", "notify"),
    "Judge it by a log": ("replay", "compare", "simulate", "tune", "prior"),
    "Tell it of a scheduler": ("source", "feed", "capture"),
    "Run it": ("topics", "worker", "serve", "doctor", "site", "letters", "access", "schema"),
}
"""What `queuecast --help` shows of commands under which heading; others follow under their own."""


def command_of(app: typer.Typer) -> Any:
    """The command of an application, with its whole tree, whose help shows `--site SITE` and no types."""
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

    command.get_params = get_params  # with `--help`, which is made there
    for inner in getattr(command, "commands", {}).values():
        whole = " ".join((inner.help or "").partition("\n\n")[0].split())
        inner.get_short_help_str = lambda limit=0, whole=whole: whole  # not cut at the line's end
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
    """Reads the value of a parameter, in place of typer's own reader."""

    kind: Callable[[Any], Any]
    choices: Sequence[str] | None
    bounds: tuple[float | None, float | None]
    limits: str | None

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """The value, or what stands for none. Raises typer.BadParameter: it is none of its kind."""
        several = param.multiple or param.nargs == -1
        if value is None:
            return () if several else None
        try:
            return tuple(map(self._read, value)) if several else self._read(value)
        except ValueError as error:
            raise typer.BadParameter(str(error), ctx=ctx, param=param) from None

    def _read(self, value: Any) -> Any:
        if self.choices and value not in self.choices:
            raise ValueError(f"{value!r} is none of {', '.join(self.choices)}.")
        try:
            found = self.kind(value)
        except ValueError:
            raise ValueError(f"{value!r} is no {'whole ' if self.kind is int else ''}number.") from None
        least, most = self.bounds
        if not (least is None or found >= least) or not (most is None or found <= most):  # nor is NaN
            raise ValueError(f"{value} is not {self.limits}.")
        return found


def _limits(least: float | None, most: float | None) -> str | None:
    if least is None or most is None:
        return None if least is None else f"{least} or more"
    return f"{least} to {most}"


def _shown(param: Any) -> str:
    """What stands for a parameter's value: that of an argument is its name already."""
    if param.param_type_name == "argument":
        return ""
    if param.metavar is not None:
        return str(param.metavar)
    if choices := param.type_descriptor.choices:
        return "|".join(map(str, choices))
    annotation = param.type_descriptor.annotation
    return "N" if annotation in (int, float) else str(param.name).removesuffix("_name").replace("_", "-").upper()


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
        opt("Settings, TOML. Default: QUEUECAST_CONFIG, else queuecast.toml here, else of the `up` that runs.", "FILE"),
    ] = None,
    version: Annotated[bool, flag("--version", "Print the version.", callback=_show_version, is_eager=True)] = False,
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
    for module in (look, logs, offline, service, source):
        made.add_typer(module.commands)
    for group in more:
        made.add_typer(group)
    return made


app = application()
