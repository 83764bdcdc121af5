"""Files of queuecast's own events."""

from pathlib import Path

import msgspec

from models.records import Capacity, End, Event, Start, Submit
from queuecast.testing_sources import BadPart, SourceContract
from streams.sources.logs.event_files import EventsSource
from streams.sources.source_registry import format_of


def line(event: Event) -> str:
    return msgspec.json.encode(event).decode() + "\n"


class TestEvents(SourceContract):
    name = "events"
    events = 10
    bad = (
        BadPart(line=2, field=None, expected="an event as JSON"),
        BadPart(line=5, field="time", expected="queuecast schema event"),
        BadPart(line=6, field="type", expected="queuecast schema event"),
    )
    options = {"pause_s": 0.0}  # noqa: RUF012

    def write(self, directory: Path) -> str:
        lines = [line(Capacity(site="alder", time=5.0, cpus=8)), "oops\n"]
        jobs = [(Submit(site="alder", time=5.0, job=str(n)), Start(site="birch", time=6.0, job=str(n))) for n in (1, 2)]
        lines += [line(jobs[0][0]), line(jobs[0][1]), '{"type":"end","site":"alder","time":"soon","job":"1"}\n']
        lines += ['{"type":"song"}\n', "\n", line(jobs[1][0]), line(jobs[1][1])]
        lines += [line(End(site="alder", time=9.0, job=str(n))) for n in range(1, 6)]
        path = directory / "made.ndjson"
        path.write_text("".join(lines))
        return str(path)


def test_events_file_with_invalid_utf8_name_is_recognised(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(line(Submit(site="alder", time=5.0, job="1", user="ada")).encode().replace(b"ada", b"\xffda"))
    assert format_of(path).name == "events"
    [event] = EventsSource(str(path)).read_all()
    assert isinstance(event, Submit) and event.user == "\ufffdda"


def test_events_source_defaults_to_site_of_first_event(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("not yet\n" + line(Submit(site="alder", time=5.0, job="1")) + line(End(site="x", time=6, job="1")))
    assert format_of(path).name == "events"
    skipped: list[object] = []
    source = EventsSource(str(path), on_skipped=skipped.append)
    assert source.sites == ("alder",)
    assert [event.site for event in source.read_all()] == ["alder", "alder"]
    assert [event.site for event in EventsSource(str(path), "y", skipped.append).read_all()] == ["y", "y"]
