"""Stored state of an engine: its content, encoding, and decoding."""

from collections.abc import Iterable, Iterator
from math import isfinite
from typing import Any, NamedTuple

import msgspec
import numpy as np

from models.engine.histories import Changes, Gaps, SavedHistories
from models.engine.live_jobs import SavedLive, StoredJob
from models.engine.methods import SavedMethods
from models.engine.queues import QueueSeen
from models.engine.reestimates import EstimateBudget
from models.engine.scores import Scores
from models.engine.trends import SavedTrends
from models.records import Capacity
from models.site.history import COUNT
from models.site.shared import ValueInterner
from models.site.size import SizeSeen
from models.waiting_accuracy import SavedRemaining

STATE_VERSION = 39
"""Version that `encode` writes, and the only one that can be read. Increase it whenever the saved state of the engine
or of a method changes."""


class EngineSnapshot(NamedTuple):
    """Incremental snapshot of an engine between two events; it extends the stored snapshots before it.

    Attributes:
        state: the bounded part, encoded: a `SavedState` without live jobs.
        jobs: the live jobs that may have changed, by number, each an encoded `StoredJob`.
        departed: the numbers of the jobs that have left.
        changes: the new entries of the histories.
    """

    state: bytes
    jobs: dict[int, bytes]
    departed: list[int]
    changes: Changes


class SavedState(msgspec.Struct):
    """State of an engine, part by part. Of the histories and rows it only states which entries are included."""

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
    """The only field that all versions of a saved state have."""

    v: int


def encode(state: SavedState) -> bytes:
    """Encode the state as MessagePack."""
    return msgspec.msgpack.encode(state, enc_hook=encode_array)


def read_saved(saved: bytes) -> SavedState:
    """Decode a state written by `encode`.

    Raises:
        ValueError: the state has another version, or is invalid.
    """
    try:
        version = msgspec.msgpack.decode(saved, type=_SavedVersion).v
        if version != STATE_VERSION:
            raise ValueError(f"state has version {version}, of another queuecast release; expected {STATE_VERSION}")
        state = msgspec.msgpack.decode(saved, type=SavedState, dec_hook=decode_array)
    except msgspec.MsgspecError as error:
        raise ValueError(f"invalid saved state: {error}") from error
    shared = ValueInterner()
    for job in state.live.jobs:
        shared.settle(job)
    return state


def read_jobs(encoded: Iterable[bytes]) -> Iterator[StoredJob]:
    """Decode jobs written by `encode_job`.

    Raises:
        ValueError: a job is invalid.
    """
    shared = ValueInterner()
    try:
        for one in encoded:
            stored = _decode_stored_job(one)
            shared.settle(stored.job)
            yield stored
    except msgspec.MsgspecError as error:
        raise ValueError(f"invalid stored job: {error}") from error


def encode_array(value: Any) -> Any:
    """Encode arrays of features as bytes, for msgspec."""
    if isinstance(value, np.ndarray):
        return value.tobytes()
    raise TypeError(f"cannot store {type(value).__name__}")


def decode_array(kind: type, value: Any) -> Any:
    """Decode an array written by `encode_array`."""
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
