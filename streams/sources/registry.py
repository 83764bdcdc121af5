"""The sources by name: those of this folder, and those of other packages by entry points.

A package names its source in its pyproject.toml under `[project.entry-points."queuecast.sources"]`. A source is
imported when it is asked for, so that nobody needs what only another scheduler's source needs.
"""

from typing import TYPE_CHECKING

from models.plugins import Registry
from streams.errors import NotUnderstood

if TYPE_CHECKING:
    from streams.sources.contract import Source

SOURCES = {
    "events": "streams.sources.logs.events:EventsSource",
    "flux": "streams.sources.schedulers.flux:FluxSource",
    "flux-log": "streams.sources.schedulers.flux:FluxLogSource",
    "gridengine": "streams.sources.schedulers.gridengine:GridEngineSource",
    "htcondor": "streams.sources.schedulers.htcondor:HTCondorSource",
    "kueue": "streams.sources.schedulers.kueue:KueueSource",
    "kueue-log": "streams.sources.schedulers.kueue:KueueLogSource",
    "lsf": "streams.sources.schedulers.lsf:LsfSource",
    "pbs": "streams.sources.schedulers.pbs:PbsSource",
    "slurm": "streams.sources.slurm.source:SlurmSource",
    "swf": "streams.sources.swf:SwfSource",
}
"""The sources that are built in: name to "module:Class"."""


def sources() -> "Registry[Source]":
    """All sources that are installed now, by name."""
    return Registry("source", "streams.sources.contract:Source", "queuecast.sources", SOURCES)


def source_named(name: str) -> "type[Source]":
    """The class of the source with this name.

    Raises:
        UserError: there is no such source, or it cannot be loaded; or two packages give a source the same name.
    """
    found = sources()
    try:
        found.check(name)
        return found[name]
    except ValueError as error:
        raise NotUnderstood(str(error)) from None
