"""What the first version of the state had stored: a site in the middle of its events."""

import zlib
from pathlib import Path

import msgspec

from models.engine.checkpoint import decode_array
from models.records import AnyEvent
from models.site.history import Started
from models.site.runs import Run


class Golden(msgspec.Struct):
    """The state of the site alder after `applied` of its events, the entries in Redis that belong to it, the events."""

    state: bytes
    started: list[bytes]
    runs: list[bytes]
    events: list[bytes]
    applied: int

    @property
    def entries(self) -> tuple[list[Started], list[Run]]:
        """The entries, decoded."""
        started = [msgspec.msgpack.decode(row, type=Started, dec_hook=decode_array) for row in self.started]
        return started, [msgspec.msgpack.decode(row, type=Run) for row in self.runs]

    @property
    def decoded(self) -> list[AnyEvent]:
        """The events, decoded."""
        return [msgspec.json.decode(event, type=AnyEvent) for event in self.events]


def first_version() -> Golden:
    """As it was written down when that version was the latest."""
    file = Path(__file__).parents[1] / "models" / "engine" / "state-v1.bin"
    return msgspec.msgpack.decode(zlib.decompress(file.read_bytes()), type=Golden)
