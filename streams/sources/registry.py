"""The sources by name: those of this folder, and those of other packages by entry points.

A package names its source in its pyproject.toml under `[project.entry-points."queuecast.sources"]`. A source is
imported when it is asked for, so that nobody needs what only another scheduler's source needs.
"""

import inspect
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec

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
    "qstat": "streams.sources.schedulers.pbs_qstat:QstatSource",
    "slurm": "streams.sources.slurm.source:SlurmSource",
    "swf": "streams.sources.swf:SwfSource",
    "table": "streams.sources.tables.source:TableSource",
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


def options_for(kind: "type[Source]", given: Iterable[str]) -> dict[str, Any]:
    """A source's own options from `NAME=VALUE`, by the types that its constructor says.

    Raises:
        UserError: it has no such option, or the value is none.
    """
    parameters = dict(list(inspect.signature(kind, eval_str=True).parameters.items())[3:])
    options: dict[str, Any] = {}
    for text in given:
        name, equal, value = text.partition("=")
        if not equal or name not in parameters:
            known = ", ".join(sorted(parameters)) or "none"
            raise NotUnderstood(f"--set {text}: expected NAME=VALUE; the options of {kind.name} are: {known}")
        try:
            options[name] = msgspec.convert(value, parameters[name].annotation, strict=False)
        except msgspec.ValidationError as error:
            raise NotUnderstood(f"--set {text}: {error}") from None
    return options
