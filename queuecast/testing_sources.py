"""Test a source of your own: the rules that every source must follow, as pytest tests. They need no servers.

Derive a class `Test…` from `SourceContract` in a test file, and write a small input:

    from queuecast.testing_sources import BadPart, SourceContract

    class TestMyScheduler(SourceContract):
        name = "my-scheduler"
        source = MyScheduler
        events = 12
        bad = (BadPart(line=3, field="submit time", expected="Unix seconds"),)

        def write(self, directory: Path) -> str:
            path = directory / "events.log"
            path.write_text("…")
            return str(path)
"""

import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import msgspec
import pytest

from models.records import AnyEvent, Submit
from streams.sources.contract import MAX_CURSOR_BYTES, Cursor, CursorError, OnSkipped, SkippedPart, Source, Step, refuse
from streams.sources.source_registry import format_of, head_of, source_named

__all__ = ["BadPart", "SourceContract", "events_there", "in_time", "present_steps"]

MAX_STEPS = 100_000
"""Number of steps after which a source counts as reading in a circle."""


class BadPart(NamedTuple):
    """An invalid part of the input: its line, and words that the reported field and the expectation must contain."""

    line: int | None
    field: str | None
    expected: str


def present_steps(source: Source, cursor: Cursor | None = None) -> Iterator[Step]:
    """Yield a source's steps over the present input: to its end, or until a live source has nothing more to read."""
    idle_at: Cursor | None = None
    steps = source.events(cursor)
    try:
        for event, reached in islice(steps, MAX_STEPS):
            if event is None and reached is not None and reached == idle_at:
                return
            idle_at = reached if event is None else None
            yield event, reached
        assert next(steps, None) is None, f"more than {MAX_STEPS} steps for a small input"
    finally:
        steps.close()  # type: ignore[attr-defined]  # the contract: it can be closed


def events_there(source: Source, cursor: Cursor | None = None) -> list[tuple[AnyEvent, Cursor | None]]:
    """Return the events of `present_steps` with their cursors."""
    return [(event, reached) for event, reached in present_steps(source, cursor) if event is not None]


def in_time(events: list[AnyEvent]) -> list[AnyEvent]:
    """Return the events without `late`, which depends on when a live source reads a submission."""
    return [msgspec.structs.replace(one, late=False) if isinstance(one, Submit) else one for one in events]


class SourceContract:
    """The rules of `queuecast.sources.Source`.

    Attributes:
        name: The source's name.
        source: Its class; None to look it up by its name, for which its package must be installed.
        events: Number of events in the input; use ten or more.
        bad: The invalid parts of the input, in its order; at least one.
        options: More arguments of the class, such as a short pause of a live source.
    """

    name: ClassVar[str]
    source: ClassVar[type[Source] | None] = None
    events: ClassVar[int]
    bad: ClassVar[tuple[BadPart, ...]]
    options: ClassVar[dict[str, Any]] = {}

    def write(self, directory: Path) -> str:
        """Write the input to an empty directory, the same each time; return its location for `open`."""
        raise NotImplementedError

    def open(self, location: str, on_skipped: OnSkipped = lambda _: None) -> Source:
        """Return the source, opened on its input."""
        return self._class()(location, "here", on_skipped, **self.options)

    def _class(self) -> type[Source]:
        return source_named(self.name) if self.source is None else self.source

    @pytest.fixture
    def location(self, tmp_path: Path) -> str:
        """Return the location of the input."""
        directory = tmp_path / "input"
        directory.mkdir()
        return self.write(directory)

    def test_name_and_sites_are_as_registered(self, location: str) -> None:
        source = self.open(location)
        assert source.name == self.name
        assert isinstance(source.live, bool)
        assert source.sites == ("here",)

    def test_its_events_are_valid_and_of_its_sites(self, location: str) -> None:
        source = self.open(location)
        found = [event for event, _ in events_there(source)]
        assert len(found) == self.events
        for event in found:
            assert event.site in source.sites
            assert msgspec.json.decode(msgspec.json.encode(event), type=AnyEvent) == event

    def test_every_reading_gives_the_same_steps(self, location: str) -> None:
        source = self.open(location)
        once = list(present_steps(source))
        assert list(present_steps(source)) == once
        assert list(present_steps(self.open(location))) == once

    def test_cursors_are_small(self, location: str) -> None:
        cursors = [cursor for _, cursor in present_steps(self.open(location)) if cursor is not None]
        assert cursors
        for cursor in cursors:
            assert isinstance(cursor, bytes)
            assert 0 < len(cursor) <= MAX_CURSOR_BYTES

    def test_every_cursor_continues_without_loss(self, location: str) -> None:
        """Another process opens the source, so only the cursor is passed on."""
        steps = list(present_steps(self.open(location)))
        for place, (_, cursor) in enumerate(steps, 1):
            if cursor is not None:
                rest = [step for step in steps[place:] if step[0] is not None]
                assert events_there(self.open(location), cursor) == rest, f"after step {place}"

    def test_last_cursor_continues_at_the_end(self, location: str) -> None:
        """Otherwise every start would send the last events again."""
        cursor = list(present_steps(self.open(location)))[-1][1]
        assert cursor is not None
        assert events_there(self.open(location), cursor) == []

    def test_read_until_is_in_the_past(self, location: str) -> None:
        """Heartbeats state that a live source has yielded all events up to then."""
        source, before = self.open(location), time.time()
        list(present_steps(source))
        if source.read_until is not None:
            assert source.live
            assert before - 1.0 <= source.read_until <= time.time()

    def test_read_all_gives_the_same_events(self, location: str) -> None:
        followed = [event for event, _ in events_there(self.open(location))]
        assert in_time(list(self.open(location).read_all())) == in_time(followed)

    def test_no_other_source_recognises_its_files(self, location: str) -> None:
        if self.source is None and Path(location).is_file() and self._class().recognises(head_of(Path(location))):
            assert format_of(Path(location)).name == self.name

    @pytest.mark.parametrize(
        "head", [b"", b"\x00\xff", b"{", b"[]", b"\n\n", b"a b c\n", b"1|2|3\n", b'"', b";;;", b'{"a":' * 10_000]
    )
    def test_recognises_refuses_junk(self, head: bytes) -> None:
        assert self._class().recognises(head) is False

    def test_close_is_possible_at_any_step(self, location: str) -> None:
        source = self.open(location)
        whole = events_there(source)
        for count in range(min(self.events, 20)):
            steps = source.events()
            list(islice(steps, count))
            steps.close()  # type: ignore[attr-defined]
        one, other = source.events(), source.events()
        next(one)
        next(other)
        one.close()  # type: ignore[attr-defined]
        assert events_there(source) == whole

    def test_bad_parts_are_reported_and_skipped(self, location: str) -> None:
        skipped: list[SkippedPart] = []
        list(present_steps(self.open(location, skipped.append)))
        assert len(skipped) == len(self.bad) > 0
        for part, bad in zip(skipped, self.bad, strict=True):
            assert part.line == bad.line
            assert (bad.field or "") in (part.field or "") and (part.field is None) == (bad.field is None)
            assert bad.expected in part.expected
            assert part.file and part.found
            assert len(str(part)) < 1000 and "\n" not in str(part)

    def test_reader_can_stop_at_the_first_bad_part(self, location: str) -> None:
        with pytest.raises(Exception, match="expected"):
            list(present_steps(self.open(location, refuse)))

    @pytest.mark.parametrize("cursor", [b"", b"what", b"{}", b"[]", b"\xff\x00", b'{"v":99,"place":"elsewhere"}'])
    def test_cursor_of_another_source_is_refused(self, location: str, cursor: bytes) -> None:
        with pytest.raises(CursorError):
            next(self.open(location).events(cursor))
