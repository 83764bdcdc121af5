"""What a table of sites holds."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from models.engine.saved_state import SavedState, encode_array
from streams.worker.checkpoint.job_log import site_of
from streams.worker.checkpoint.stored_site import StoredState, decode_stored, read_state


def heads(table: Mapping[bytes, bytes]) -> Iterator[tuple[str, StoredState]]:
    """The sites, and the state of each."""
    for key, value in list(table.items()):
        if site_of(key) == key:
            yield key.decode(), decode_stored(value)


def saved_state(table: Mapping[bytes, bytes], site: str = "alder", stored: StoredState | None = None) -> SavedState:
    """The state of a site as a reader decodes it, or another one of the same site, without the recently forgotten
    jobs, which depend on the time of the checkpoint."""
    saved, jobs = read_state(site, stored or decode_stored(table[site.encode()]), table.get)
    assert jobs.fault is None
    saved.histories.forgotten = []
    return saved


def whole(saved: SavedState) -> Any:
    """All of a state, as what can be compared."""
    return msgspec.msgpack.encode(saved, enc_hook=encode_array)
