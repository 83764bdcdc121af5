"""An engine's state as it is stored: what it holds, how it is encoded, and how it is read back."""

from collections.abc import Iterable, Iterator
from math import isfinite
from typing import Any, NamedTuple

import msgspec
import numpy as np

from models.engine.histories import Changes, Gaps, SavedHistories
from models.engine.live import SavedLive, StoredJob
from models.engine.methods import SavedMethods
from models.engine.queues import QueueSeen
from models.engine.reestimates import EstimateBudget
from models.engine.scores import Scores
from models.engine.trends import SavedTrends
from models.records import Capacity
from models.site.history import COUNT
from models.site.job import Shared
from models.site.size import SizeSeen
from models.waiting_accuracy import SavedRemaining

STATE_VERSION = 30
"""Version of what `encode` writes, and the only one that is read: raise it with whatever the engine or a method saves
otherwise than before."""


class Cut(NamedTuple):
    """What is to be stored of an engine between two events, where what was stored before is still there.

    `state` is what is bounded, encoded: a `SavedState` without live jobs. `jobs` are the live jobs that may have
    changed, each an encoded `StoredJob` by its number, and `left` the numbers of those that have left.
    """

    state: bytes
    jobs: dict[int, bytes]
    left: list[int]
    changes: Changes


class SavedState(msgspec.Struct):
    """An engine's state, each part as it saves itself; of the histories, and of rows, it says which are included."""

    v: int
    site: str
    events: int
    anomalies: dict[str, int]
    live: SavedLive
    histories: SavedHistories
    methods: SavedMethods
    scores: Scores
    gaps: Gaps
    capacity: Capacity | None
    size: SizeSeen
    queues: dict[str, QueueSeen]
    trends: SavedTrends
    early_tasks: dict[str, int]
    estimate_budget: EstimateBudget
    recent_remaining: SavedRemaining


class _SavedVersion(msgspec.Struct):
    """The one field of a saved state that every version has."""

    v: int


def encode(state: SavedState) -> bytes:
    """The state as MessagePack."""
    return msgspec.msgpack.encode(state, enc_hook=encode_array)


def read_saved(saved: bytes) -> SavedState:
    """The inverse of `encode`.

    Raises:
        ValueError: it is of another version, or not such a state at all.
    """
    try:
        version = msgspec.msgpack.decode(saved, type=_SavedVersion).v
        if version != STATE_VERSION:
            raise ValueError(f"state of version {version}, of another queuecast; this one reads {STATE_VERSION}")
        state = msgspec.msgpack.decode(saved, type=SavedState, dec_hook=decode_array)
    except msgspec.MsgspecError as error:
        raise ValueError(f"not a saved state: {error}") from error
    shared = Shared()
    for job in state.live.jobs:
        shared.settle(job)
    return state


def read_jobs(encoded: Iterable[bytes]) -> Iterator[StoredJob]:
    """The inverse of `encode_job`, of many; 8 µs each.

    Raises:
        ValueError: one is no such job.
    """
    shared = Shared()
    try:
        for one in encoded:
            stored = _decode_stored_job(one)
            shared.settle(stored.job)
            yield stored
    except msgspec.MsgspecError as error:
        raise ValueError(f"not a stored job: {error}") from error


def encode_array(value: Any) -> Any:
    """Arrays of features as bytes, for msgspec."""
    if isinstance(value, np.ndarray):
        return value.tobytes()
    raise TypeError(f"cannot store {type(value).__name__}")


def decode_array(kind: type, value: Any) -> Any:
    """The inverse of `encode_array`."""
    if kind is np.ndarray:
        features = np.frombuffer(value, dtype=np.float64).copy()
        if len(features) != COUNT:
            raise ValueError(f"{len(features)} features; expected {COUNT}")
        if not all(map(isfinite, features.tolist())):
            raise ValueError("features must be finite")
        return features
    raise TypeError(f"cannot read {kind.__name__}")


_decode_stored_job = msgspec.msgpack.Decoder(StoredJob, dec_hook=decode_array).decode
encode_job = msgspec.msgpack.Encoder(enc_hook=encode_array).encode
