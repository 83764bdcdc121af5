"""The sources by name: those of this package, and those of other packages by entry points.

A package registers its source in its pyproject.toml under `[project.entry-points."queuecast.sources"]`. A source is
imported on first use, so that its dependencies are needed only there. The format of a file without a named source is
detected from its beginning.
"""

import inspect
import re
from codecs import BOM_UTF8
from collections.abc import Iterable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import msgspec

from models.plugins import Registry
from streams.errors import InvalidInput, UserError, file_error
from streams.sources.contract import HEAD_BYTES, Source
from streams.sources.logs.log_files import first_bytes, open_log

SOURCES = {
    "events": "streams.sources.logs.event_files:EventsSource",
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
    "table": "streams.sources.tables.table_source:TableSource",
}
"""The sources that are built in: name to "module:Class"."""


def sources() -> Registry[Source]:
    """All sources that are installed now, by name."""
    return Registry("source", "streams.sources.contract:Source", "queuecast.sources", SOURCES)


def source_named(name: str) -> type[Source]:
    """Return the source class with this name.

    Raises:
        UserError: there is no such source, it cannot be loaded, or two packages use the same name.
    """
    found = sources()
    try:
        found.check(name)
        return found[name]
    except ValueError as error:
        raise InvalidInput(str(error)) from None


def options_for(kind: type[Source], given: Iterable[str]) -> dict[str, Any]:
    """Parse a source's own options from `NAME=VALUE`, by the types in its constructor.

    Raises:
        UserError: the source has no such option, or the value is invalid.
    """
    parameters = dict(list(inspect.signature(kind, eval_str=True).parameters.items())[3:])
    options: dict[str, Any] = {}
    for text in given:
        name, equal, value = text.partition("=")
        if not equal or name not in parameters:
            known = ", ".join(sorted(parameters)) or "none"
            raise InvalidInput(f"--set {text}: expected NAME=VALUE; the options of {kind.name} are: {known}")
        try:
            options[name] = msgspec.convert(value, parameters[name].annotation, strict=False)
        except msgspec.ValidationError as error:
            raise InvalidInput(f"--set {text}: {error}") from None
    return options


_COBALT = re.compile(rb"\d\d/\d\d/\d{4} \d\d:\d\d:\d\d;[A-Za-z]{1,2};")
_NO_JOBS = re.compile(rb'^\s*\{.*"jobs"\s*:\s*\[\s*\]', re.DOTALL)
_TABLE = re.compile(rb"[A-Za-z_][\w .-]*(?:[,;\t][A-Za-z_][\w .-]*)+\r?\n")
_ROWS = re.compile(rb"(?:[^|\n]*\|){6,}[^|\n]*(?:\n|$)")

_WIDE = "its text is UTF-16, as Windows writes it; `iconv -f UTF-16 -t UTF-8` makes it readable"
_SHEET = "it is a workbook of a spreadsheet program; export the sheet with the jobs as CSV, and name that file"
_FIRST = {
    b"\x28\xb5\x2f\xfd": "it is packed by zstd; unpack it with `zstd -d`, or use gzip, bzip2 or xz",
    b"\xd0\xcf\x11\xe0": _SHEET,
    b"PK\x03\x04": "it is a zip archive; unpack it with `unzip`, or use gzip, bzip2 or xz",
    b"\xff\xfe": _WIDE,
    b"\xfe\xff": _WIDE,
}
"""Unsupported formats by their first bytes, with a remedy."""

_WORKBOOK = re.compile(
    rb"PK\x03\x04.{26}(?:\[Content_Types\]\.xml|_rels/|docProps/|xl/|mimetypeapplication/vnd\.oasis)", re.DOTALL
)
"""An .xlsx or .ods file, by the name of the first file in it: a zip archive has no use for who wants its jobs."""


class UnknownFormat(InvalidInput):
    """No source, or more than one, recognises a file."""


def format_of(path: Path) -> type[Source]:
    """Return the source that recognises a file, or any file of a folder.

    Raises:
        UnknownFormat: no source does, or more than one.
        UserError: the file cannot be read.
    """
    if path.is_dir():
        return _format_in(path)
    head, known = head_of(path).removeprefix(BOM_UTF8), sources()
    if _WORKBOOK.match(head):
        raise UnknownFormat(f"{path}: {_SHEET}")
    if why := next((why for begins, why in _FIRST.items() if head.startswith(begins)), None):
        raise UnknownFormat(f"{path}: {why}")
    found = [name for name in known if _recognises(name, head)]
    if len(found) == 1:
        return source_named(found[0])
    if not found and (why := _why_unknown(head)):
        raise UnknownFormat(f"{path}: {why}")
    names = ", ".join(found or known)
    what = f"may be one of: {names}" if found else f"the format is not recognised; there are: {names}"
    raise UnknownFormat(f"{path}: {what}; name it with --format NAME")


def _why_unknown(head: bytes) -> str | None:
    """Explain the probable format of an unrecognised file and the remedy; None if it cannot be guessed."""
    if not head.strip():
        return "the file is empty"
    if _COBALT.match(head):
        return "the accounting log of Cobalt, which no source reads; a CSV with a row for each job made of it will do"
    if _NO_JOBS.search(head):
        return "there are no jobs in it: the requested time span has none, or none that this user may see"
    if head.lstrip().startswith((b"{", b"[")):
        return "JSON of no known kind; convert it to a CSV with a row for each job, and map its columns with --map FILE"
    if _ROWS.match(head):
        return "rows between bars without a header; sacct prints one without --noheader"
    if table := _TABLE.match(head):
        names = ", ".join(re.split(r"[,;\t]", table[0].decode().strip()))
        return f"a table whose columns are those of no known data set: {names}; map them with --map FILE"
    return None


def _format_in(folder: Path) -> type[Source]:
    try:
        files = sorted(path for path in folder.iterdir() if path.is_file() and not path.name.startswith("."))
    except OSError as error:
        raise file_error(folder, error) from None
    for path in files:
        with suppress(UnknownFormat):
            return format_of(path)
    raise UnknownFormat(f"{folder}: no file in it is recognised; name their format with --format NAME")


def head_of(path: Path) -> bytes:
    """Return the beginning of a file, decompressed: at most `HEAD_BYTES`.

    Raises:
        UserError: the file cannot be read.
    """
    try:
        with closing(open_log(path)) as file:
            return first_bytes(file, HEAD_BYTES)
    except OSError as error:
        raise file_error(path, error) from None


def is_own(path: Path) -> bool:
    """Check if a file has queuecast's own events, such as the machine's size beside a log of any format."""
    return path.is_file() and _recognises("events", head_of(path))


def _recognises(name: str, head: bytes) -> bool:
    """Check if this source recognises the file; False if the source cannot be loaded here."""
    try:
        return source_named(name).recognises(head)
    except UserError:
        return False
