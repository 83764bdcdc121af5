"""Read files of any format into one log, with a report of what was read and what was skipped."""

import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from shutil import copyfileobj

import msgspec

from models.records import AnyEvent
from streams.bulk.event_log import EventLog, Shown, silent
from streams.errors import InvalidInput, UserError
from streams.process.scratch import scratch
from streams.sources.contract import Cursor, IgnoredRecords, OnSkipped, SkippedPart, Source
from streams.sources.source_registry import format_of, is_own, options_for, source_named

MAX_REASONS = 50  # maximum number of distinct reasons; further ones are counted together
MAX_PLACES = 3  # how many lines are named for each reason
READING_SHARE = 0.25  # share of reading in the total time of reading and merging

PRELIMINARY_SHARE = 0.25
"""Maximum share of the total time for a preliminary pass that detects old rows."""

OTHER_REASONS = "other reasons"

LOST = re.compile(r"jobs with|arrays whose")
"""Kinds of omitted records that concern jobs; the others contain nothing about a job, or nothing new."""


class ReadFile(msgspec.Struct):
    """A file with its format and its numbers of records and events."""

    file: str
    format: str
    records: int
    events: int


class SkippedParts(msgspec.Struct):
    """Parts of the input that were skipped for one reason: their number, the first places, and the first example."""

    count: int = 0
    places: list[str] = []
    found: str = ""


class Report(msgspec.Struct):
    """Report of what was read.

    Attributes:
        files: the files.
        skipped: skipped parts by reason.
        left_out: counts of records that are no events by their nature, such as job steps.
        examples: the first record of each kind in `left_out`.
        reached: the cursor at which a live source continues; None if it cannot.
        jobs: number of jobs if old ones were skipped.
    """

    files: list[ReadFile] = []
    skipped: dict[str, SkippedParts] = {}
    left_out: Counter[str] = msgspec.field(default_factory=Counter)
    examples: dict[str, str] = {}
    reached: Cursor | None = None
    jobs: int = 0

    @property
    def events(self) -> int:
        """Number of events in the files, including duplicates."""
        return sum(file.events for file in self.files)

    @property
    def lost_records(self) -> dict[str, int]:
        """Counts of records that gave no event but should have, by reason."""
        skipped = {reason: parts.count for reason, parts in self.skipped.items()}
        return skipped | {what: count for what, count in self.left_out.items() if LOST.match(what)}

    @property
    def records(self) -> int:
        """Number of records in the files, including those without an event."""
        return max(sum(file.records for file in self.files), sum(self.lost_records.values()))

    def skip(self, part: SkippedPart) -> None:
        """Count a part that was skipped."""
        what = part.expected if part.field is None else f"{part.field} to be {part.expected}"
        reason = what if what in self.skipped or len(self.skipped) < MAX_REASONS else OTHER_REASONS
        parts = self.skipped.setdefault(reason, SkippedParts())
        parts.count += 1
        if len(parts.places) < MAX_PLACES:
            name = Path(part.file).name
            parts.places.append(name if part.line is None else f"{name}:{part.line}")
        parts.found = parts.found or part.found


class _Part(msgspec.Struct):
    """A phase of the work: its range of the total progress, and the bytes read of each file."""

    begin: float
    end: float
    read: dict[Path, int] = {}


class _Progress:
    """Progress of reading files by these sources. It never decreases."""

    def __init__(self, paths: Sequence[Path], sources: Sequence[Source]) -> None:
        self._paths, self._sources = paths, sources
        self._part = _Part(0.0, 1.0)
        self._shown = 0.0

    @contextmanager
    def preliminary_pass(self) -> Iterator[None]:
        """Count a preliminary pass over the files."""
        start = self._shown
        self._part = _Part(start, start + (1 - start) * PRELIMINARY_SHARE)
        yield
        self._part = _Part(self._shown, 1.0)

    def share(self) -> float | None:
        """Return the share that is done, of reading and of the merge that follows it; None if unavailable."""
        part = self._part  # another thread may call this
        read = min((one.progress for one in self._sources if one.progress is not None), default=None)
        if read:
            done = READING_SHARE + (1 - READING_SHARE) * read
        else:
            of_all = 1.0 if read is None else READING_SHARE
            done = of_all * _share_read(self._paths, part.read)
        self._shown = max(self._shown, part.begin + (part.end - part.begin) * done)
        return self._shown or None


@contextmanager
def read_log(
    files: Sequence[Path],
    site: str | None = None,
    format_name: str | None = None,
    on_skipped: OnSkipped | None = None,
    options: Sequence[str] = (),
    shown: Shown = silent,
    last: int | None = None,
    heartbeat_s: float = 0.0,
) -> Iterator[tuple[EventLog, Report]]:
    """Read files as one log, in a temporary directory.

    Args:
        files: of one site, in any order; `-` is standard input.
        site: name of the site; by default the name in the first file.
        format_name: source that reads the files, except queuecast's own event files beside others; by default the
            format is detected from the beginning of each file.
        on_skipped: receives each skipped part, in addition to the report.
        options: `NAME=VALUE` for each of these sources, such as its time zone.
        shown: shows progress.
        last: number of last jobs that are needed; earlier ones may be skipped. None: all.
        heartbeat_s: add heartbeats in silences of so many seconds; 0 adds none.

    Raises:
        InvalidInput: no source reads a file, the source has no such option, or the files contain no job.
        UserError: a file cannot be read, or the log cannot be stored.
    """
    report = Report()

    def skip(part: SkippedPart) -> None:
        report.skip(part)
        if on_skipped is not None:
            on_skipped(part)

    with scratch() as directory:
        paths = [_spooled(directory) if str(path) == "-" else path for path in files]
        try:
            sources: list[Source] = []
            way = _Progress(paths, sources)
            events = _events(paths, site, format_name, options, skip, report, sources, last, way)
            log = EventLog.of(
                events, directory, shown, way.share, lambda problem: skip(_invalid(files, problem)), heartbeat_s
            )
        except UserError as error:  # standard input is not known by the place where it is kept
            raise type(error)(str(error).replace(f"{directory}/", "")) from None
        for file in report.files:
            file.file = file.file.removeprefix(f"{directory}/")
        if any(source_named(file.format).of_span for file in report.files):
            log.cut_off()
        if not log.jobs:
            raise InvalidInput(f"{', '.join(map(str, files))}: no job in it{_why_nothing(report)}")
        yield log, report


def _invalid(files: Sequence[Path], problem: str) -> SkippedPart:
    """Describe an event with a value that no record can carry; the place of its record is lost by then."""
    return SkippedPart(", ".join(map(str, files)), None, None, problem, "a value that an event can carry")


def _share_read(paths: Sequence[Path], read: dict[Path, int]) -> float:
    """Return the share of the files that was read, from the offsets of open files in Linux's `/proc`; 0 if unavailable.

    `read` holds the bytes of each file that was open at the previous call.
    """
    sizes = {path.resolve(): path.stat().st_size for path in paths}
    at = dict[Path, int]()
    with suppress(OSError):
        for one in Path("/proc/self/fd").iterdir():
            with suppress(OSError, ValueError):  # it is closed by now
                path = one.readlink()
                if path in sizes:
                    at[path] = max(at.get(path, 0), int(Path(f"/proc/self/fdinfo/{one.name}").read_text().split()[1]))
    for path in read.keys() | at.keys():  # what is not open any more was read
        read[path] = max(read.get(path, 0), at.get(path, sizes[path]))
    return sum(read.values()) / max(sum(sizes.values()), 1)


def _spooled(directory: Path) -> Path:
    """Copy standard input to a file, because the format is detected from its beginning."""
    path = directory / "standard input"
    with path.open("wb") as file:
        copyfileobj(sys.stdin.buffer, file)
    return path


def _events(
    paths: Sequence[Path],
    site: str | None,
    format_name: str | None,
    options: Sequence[str],
    skip: OnSkipped,
    report: Report,
    opened: list[Source],
    last: int | None,
    way: _Progress,
) -> Iterator[AnyEvent]:
    """Yield the events of all files, those of one format merged; all files are of one site."""
    kinds: dict[str, list[Source]] = {}
    read: dict[int, ReadFile] = {}
    own = set(filter(is_own, paths))
    for path in paths:
        beside = path in own and len(own) < len(set(paths))
        named = "events" if beside else format_name
        kind: type[Source] = format_of(path) if named is None else source_named(named)
        source = kind(str(path), site, skip, **options_for(kind, () if beside else options))
        site = source.sites[0] if site is None and len(source.sites) == 1 else site
        kinds.setdefault(kind.name, []).append(source)
        opened.append(source)
        read[id(source)] = ReadFile(str(path), kind.name, 0, 0)
    report.files.extend(read.values())
    for sources in kinds.values():
        if last is not None:
            with way.preliminary_pass():
                report.jobs += type(sources[0]).limit_to_last(sources, last)
        for source, event in type(sources[0]).read_merged(sources):
            read[id(source)].events += 1
            yield event
        report.reached = sources[0].reached
        for source in sources:
            read[id(source)].records = source.records
            report.left_out.update(source.left_out)
            if isinstance(source.left_out, IgnoredRecords):
                report.examples = source.left_out.examples | report.examples


def _why_nothing(report: Report) -> str:
    """Describe what the files contain instead of jobs: the records left out, and the first skipped part."""
    problems = [f"{count:,} {what}" for what, count in sorted(report.left_out.items())]
    for reason, parts in list(report.skipped.items())[:1]:
        problems.append(f"{parts.places[0]}: found {parts.found}, expected {reason}")
    return f"; {'; '.join(problems)}" if problems else ""
