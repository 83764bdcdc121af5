"""Record of a queued job: its predictions, until all of them are scored."""

import math
import struct
from typing import NamedTuple

import numpy as np

from models.arrays import Floats
from models.durations import AT_ONCE_S
from models.waits.blend.guard import CHOICES
from models.waits.blend.known import HEAD_BYTES
from models.waits.blend.mixture_snapshot import ALONE_FLAG, MixtureSnapshot, encoded_bytes
from models.waits.blend.quantiles import KINDS

HEAD = struct.Struct("<HddI")


class Note(NamedTuple):
    """Record of a job at its submission, with its predictions; 400 bytes.

    `ready` is the time since which it waits, `watched` the time from which its deadlines are watched. `queue` is the
    number of the queue of the prediction, even if the job is moved later. `put_off` are, as bits, the places of bounds
    that it exceeds and that are scored when it has left the queue. A cancelled job is no evidence about such a bound if
    the bound, at its current value, would not have been reached.
    """

    put_off: int
    ready: float
    watched: float
    queue: int
    choices_s: Floats
    snapshot: MixtureSnapshot

    def encode(self) -> bytes:
        """Return the stored form."""
        head = HEAD.pack(self.put_off, self.ready, self.watched, self.queue)
        return head + self.choices_s.tobytes() + self.snapshot.encode()

    @property
    def marks(self) -> list[float]:
        """Waits, in seconds, at which the job is scored when it exceeds them."""
        return [*self.snapshot.marks, AT_ONCE_S]

    @classmethod
    def decode(cls, value: bytes, experts: int) -> "Note":
        """Decode the stored form; `experts` is the number of experts of the mixture."""
        snapshot = MixtureSnapshot.decode(value[HEAD_BYTES + 8 * len(CHOICES) :], experts)
        choices_s = np.frombuffer(value, np.float64, len(CHOICES), HEAD_BYTES)
        put_off, ready, watched, queue = HEAD.unpack_from(value)
        return cls(put_off, ready, watched, queue, choices_s, snapshot)

    @property
    def deadlines(self) -> list[float]:
        """Times at which its marks are exceeded, Unix seconds; nan for those that are not watched."""
        ready, watched = self.ready, self.watched
        return [at if (at := ready + mark_s) >= watched else np.nan for mark_s in self.marks]


def check_note(value: bytes, experts: int) -> None:
    """Check that kernels can read a note.

    Raises:
        ValueError: it is not a valid note.
    """
    head = HEAD_BYTES + 8 * len(CHOICES)
    if len(value) != head + encoded_bytes(experts):
        raise ValueError(f"a note of {len(value)} bytes; expected {head + encoded_bytes(experts)}")
    _, ready, watched, _ = HEAD.unpack_from(value)
    if not 1 <= value[head] & ~ALONE_FLAG <= KINDS or not (math.isfinite(ready) and math.isfinite(watched)):
        raise ValueError(f"a note of kind {value[head]}, of a job that waits since {ready}, watched from {watched}")
