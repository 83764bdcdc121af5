"""The contract of sources as a test, for the sources of this repository and of any other package.

Derive a class `Test…` from `SourceContract` in a test file, give it the source's `name`, and write its input:

    class TestMyScheduler(SourceContract):
        name = "my-scheduler"
        events = 12
        bad = (BadPart(line=3, field="submit time", expected="Unix seconds"),)

        def write(self, directory: Path) -> str:
            path = directory / "events.log"
            path.write_text("…")
            return str(path)

pytest then runs the tests below with it.
"""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import msgspec
import pytest

from models.records import AnyEvent, Submit
from streams.sources.contract import MAX_CURSOR_BYTES, Cursor, CursorError, OnSkipped, Skipped, Source, Step, refuse
from streams.sources.registry import format_of, head_of, source_named

MAX_STEPS = 100_000
"""Steps after which a source is taken to go round in a circle."""


class BadPart(NamedTuple):
    """A part of the input that must be reported: its line, and words that must be in its field and its expectation."""

    line: int | None
    field: str | None
    expected: str


def steps_there(source: Source, cursor: Cursor | None = None) -> Iterator[Step]:
    """What a source gives of the input that is there: to its end, or until it is live and has nothing more to read."""
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
    """As `steps_there`, the events alone with their cursors."""
    return [(event, reached) for event, reached in steps_there(source, cursor) if event is not None]


def in_time(events: list[AnyEvent]) -> list[AnyEvent]:
    """Events without what a live reader says of itself: that it learnt of a submission late."""
    return [msgspec.structs.replace(one, late=False) if isinstance(one, Submit) else one for one in events]


class SourceContract:
    """What every source owes (`streams.sources.contract.Source`).

    Attributes:
        name: the source's name in the registry.
        events: how many events the input holds; ten or more tell something.
        bad: the bad parts of the input, in its order; at least one.
        options: further arguments of `open`; give a live source a short pause here.
    """

    name: ClassVar[str]
    events: ClassVar[int]
    bad: ClassVar[tuple[BadPart, ...]]
    options: ClassVar[dict[str, Any]] = {}

    def write(self, directory: Path) -> str:
        """Write the input into an empty directory, the same each time; gives its location for `open`."""
        raise NotImplementedError

    def open(self, location: str, on_skipped: OnSkipped = lambda _: None) -> Source:
        """The source, opened on its input."""
        return source_named(self.name)(location, "here", on_skipped, **self.options)

    @pytest.fixture
    def location(self, tmp_path: Path) -> str:
        """Where the input is."""
        directory = tmp_path / "input"
        directory.mkdir()
        return self.write(directory)

    def test_it_says_what_it_is(self, location: str) -> None:
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

    def test_what_it_gives_is_the_same_each_time(self, location: str) -> None:
        source = self.open(location)
        once = list(steps_there(source))
        assert list(steps_there(source)) == once
        assert list(steps_there(self.open(location))) == once

    def test_its_cursors_are_small_bytes(self, location: str) -> None:
        cursors = [cursor for _, cursor in steps_there(self.open(location)) if cursor is not None]
        assert cursors
        for cursor in cursors:
            assert isinstance(cursor, bytes)
            assert 0 < len(cursor) <= MAX_CURSOR_BYTES

    def test_from_every_cursor_it_goes_on_as_if_it_had_not_stopped(self, location: str) -> None:
        """Another process opens the source: nothing but the cursor is handed on."""
        steps = list(steps_there(self.open(location)))
        for place, (_, cursor) in enumerate(steps, 1):
            if cursor is not None:
                rest = [step for step in steps[place:] if step[0] is not None]
                assert events_there(self.open(location), cursor) == rest, f"after step {place}"

    def test_one_can_begin_again_at_its_end(self, location: str) -> None:
        """Otherwise the last events would be sent again with every start."""
        cursor = list(steps_there(self.open(location)))[-1][1]
        assert cursor is not None
        assert events_there(self.open(location), cursor) == []

    def test_what_it_gives_whole_is_what_it_gives(self, location: str) -> None:
        followed = [event for event, _ in events_there(self.open(location))]
        assert in_time(list(self.open(location).read_all())) == in_time(followed)

    def test_no_other_source_recognises_its_files(self, location: str) -> None:
        if Path(location).is_file() and source_named(self.name).recognises(head_of(Path(location))):
            assert format_of(Path(location)).name == self.name

    @pytest.mark.parametrize(
        "head", [b"", b"\x00\xff", b"{", b"[]", b"\n\n", b"a b c\n", b"1|2|3\n", b'"', b";;;", b'{"a":' * 10_000]
    )
    def test_what_it_reads_is_told_without_a_failure(self, head: bytes) -> None:
        assert source_named(self.name).recognises(head) is False

    def test_it_can_be_closed_at_any_step(self, location: str) -> None:
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

    def test_bad_parts_are_reported_and_passed_over(self, location: str) -> None:
        skipped: list[Skipped] = []
        list(steps_there(self.open(location, skipped.append)))
        assert len(skipped) == len(self.bad) > 0
        for part, bad in zip(skipped, self.bad, strict=True):
            assert part.line == bad.line
            assert (bad.field or "") in (part.field or "") and (part.field is None) == (bad.field is None)
            assert bad.expected in part.expected
            assert part.file and part.found
            assert len(str(part)) < 1000 and "\n" not in str(part)

    def test_who_reads_can_stop_at_the_first_bad_part(self, location: str) -> None:
        with pytest.raises(Exception, match="expected"):
            list(steps_there(self.open(location, refuse)))

    @pytest.mark.parametrize("cursor", [b"", b"what", b"{}", b"[]", b"\xff\x00", b'{"v":99,"place":"elsewhere"}'])
    def test_a_cursor_that_is_not_its_own_is_refused(self, location: str, cursor: bytes) -> None:
        with pytest.raises(CursorError):
            next(self.open(location).events(cursor))
