"""The sources by name: those of this folder, and those that other packages bring by entry points.

A package names its source in its pyproject.toml under `[project.entry-points."queuecast.sources"]`. A source is
imported when it is asked for, so that nobody needs what only another scheduler's source needs.
"""

from importlib.metadata import EntryPoint, entry_points

from streams.errors import UserError
from streams.sources.contract import Source

GROUP = "queuecast.sources"

SOURCES = {
    "swf": "streams.sources.swf:SwfSource",
}
"""The sources that are built in: name to `module:Class`."""


def source_names() -> list[str]:
    """The names of all sources that are installed; those built in come first."""
    return [*SOURCES, *sorted({point.name for point in entry_points(group=GROUP)} - SOURCES.keys())]


def source_named(name: str) -> type[Source]:
    """The class of the source with this name. A name that is built in means the source that is built in.

    Raises:
        UserError: there is no such source, it cannot be imported, or it is not a source.
    """
    if name in SOURCES:
        point = EntryPoint(name, SOURCES[name], GROUP)
    elif found := entry_points(group=GROUP, name=name):
        point = min(found, key=lambda point: point.value)
    else:
        raise UserError(f"no source {name!r}; there are: {', '.join(source_names())}")
    try:
        kind = point.load()
    except (ImportError, AttributeError) as error:
        raise UserError(f"source {name}: {point.value} cannot be imported: {error}") from None
    if not (isinstance(kind, type) and issubclass(kind, Source)):
        raise UserError(f"source {name}: {point.value} is not a subclass of streams.sources.contract.Source")
    return kind
