"""What the tests of sources that read logs share: a log written by a test, and the sample logs where they are."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from models.records import AnyEvent
from queuecast.testing_sources import events_there
from streams.sources.contract import SkippedPart, Source
from streams.sources.source_registry import source_named

SAMPLES = Path(__file__).parents[3] / "shared" / "schedlogs"


class Read:
    """What a source made of a log: its events, followed live and read whole, and what it skipped and left out."""

    def __init__(self, name: str, path: Path, **options: Any) -> None:
        self.skipped: list[SkippedPart] = []
        self.source: Source = source_named(name)(str(path), "s", self.skipped.append, **options)
        self.whole = list(self.source.read_all())
        for event in self.whole:
            assert msgspec.json.decode(msgspec.json.encode(event), type=AnyEvent) == event
        skipped = len(self.skipped)
        self.live = [event for event, _ in events_there(source_named(name)(str(path), "s", **_quiet(options)))]
        assert len(self.skipped) == skipped

    @property
    def messages(self) -> list[str]:
        """What was skipped, in words, without the path."""
        return [str(part).partition(", ")[2] for part in self.skipped]


def _quiet(options: dict[str, Any]) -> dict[str, Any]:
    return {"on_skipped": lambda _: None, "pause_s": 0.0, **options}


def read(name: str, directory: Path, text: str, **options: Any) -> Read:
    """What a source makes of this text."""
    path = directory / "log"
    path.write_text(text)
    return Read(name, path, **options)


def plain(events: list[AnyEvent]) -> list[dict[str, Any]]:
    """Events as they are written, without what all have."""
    return [
        {key: value for key, value in msgspec.to_builtins(event).items() if key not in ("v", "site")}
        for event in events
    ]


def sample(name: str, file: str) -> Read:
    """What a source makes of a sample log; skips the test where the samples are not at hand."""
    path = SAMPLES / file
    if not path.exists():
        pytest.skip(f"no sample logs at {SAMPLES}")
    return Read(name, path)
