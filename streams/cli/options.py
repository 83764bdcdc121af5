"""What several commands have in common: the types of their options, and what these give."""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streams.cli.output import tell
from streams.errors import UserError, in_words, place_and_problem

if TYPE_CHECKING:
    from streams.settings import Settings
    from streams.sources.swf import Trace

Range = tuple[int, int]
"""The first and the last, inclusive."""

TraceFile = Annotated[Path, typer.Argument(metavar="TRACE", help="Standard Workload Format, plain or gzip.")]


def settings_of(context: typer.Context, url: str | None = None) -> "Settings":
    """The settings in force: where none are named, those of the `queuecast up` that runs here.

    Parameters:
        url: the HTTP service that is asked, if one is. The token of the `up` that runs here is for its own service.

    Raises:
        UserError: the settings cannot be read, or are wrong.
    """
    from streams.running import config_here, serves
    from streams.settings import load_settings, settings_file

    named, found = settings_file(context.obj), config_here(context.obj)
    settings = load_settings(found)
    if named is None and found is not None and url and not serves(settings.serve, url):
        return load_settings()
    context.obj = found
    return settings


def settings_without_servers(context: typer.Context) -> "Settings":
    """The settings in force for what needs no server, and so is the same whatever runs.

    Raises:
        UserError: as `settings_of`.
    """
    from streams.settings import load_settings

    return load_settings(context.obj)


def changed(settings: "Settings", section: str, **given: Any) -> "Settings":
    """The settings, with these fields of a section where the command line gave them.

    Raises:
        typer.BadParameter: one is out of its bounds.
    """
    from msgspec import ValidationError, convert
    from msgspec.structs import asdict, replace

    before, own = getattr(settings, section), {name: value for name, value in given.items() if value is not None}
    try:
        return replace(settings, **{section: convert(asdict(before) | own, type(before))})
    except ValidationError as error:
        place, problem = place_and_problem(error)
        raise typer.BadParameter(f"--{place.replace('_', '-')}: {in_words(problem)}.") from None


def named(given: Any) -> Any:
    """The name that an option gives, or the names: it is the option's callback.

    Raises:
        typer.BadParameter: one of them is none.
    """
    if any(not 1 <= len(name) <= 256 for name in ([given] if isinstance(given, str) else given or ())):
        raise typer.BadParameter("expected a name.")
    return given


def is_given(context: typer.Context, name: str) -> bool:
    """Whether the command line gives this parameter."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def read_trace(path: Path, skip_broken: bool = False) -> "Trace":
    """A trace; broken lines are told on stderr where they are to be skipped.

    Raises:
        UserError: the trace cannot be read, or has a broken line that is not skipped.
    """
    from streams.sources.contract import refuse
    from streams.sources.swf import read_swf

    return read_swf(path, (lambda skipped: tell(str(skipped))) if skip_broken else refuse)


def names_in(module: str, table: str) -> Callable[[str], list[str]]:
    """What gives the names in a table of a module that begin so, for a shell to complete."""
    return lambda incomplete: [name for name in getattr(import_module(module), table) if name.startswith(incomplete)]


def known_sites(context: typer.Context, incomplete: str) -> list[str]:
    """The sites whose names begin so, for a shell to complete; none where nobody can be asked at once."""
    from streams.client.listing import asked_of

    url, token = context.params.get("url"), context.params.get("token")
    context.obj = context.find_root().params.get("config")
    try:
        with asked_of(settings_of(context, url), url, token) as grid:
            return [site for site in grid.sites if site.startswith(incomplete)]
    except UserError:
        return []


Site = Annotated[str | None, typer.Option(autocompletion=known_sites, callback=named, help="Those of this site only.")]
Format = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="NAME",
        autocompletion=names_in("streams.sources.registry", "SOURCES"),
        help="The source that reads it, such as swf. Default: told by the file.",
    ),
]
