"""The prediction for a job: the quantiles of its wait, by each expert and mixed, and the bounds."""

from struct import Struct
from typing import NamedTuple

import numpy as np

from models.arrays import Bytes, Floats
from models.kernels import njit
from models.waits.blend.mixture import MixedEstimate, seconds

PROBABILITIES = (0.1, 0.5, 0.9, 0.95)
"""The published bounds; the median is the point estimate."""

BOUNDS = tuple(f"{probability:g}" for probability in PROBABILITIES)
"""Their names in an estimate."""

QUANTILES = len(PROBABILITIES)
MEDIAN = PROBABILITIES.index(0.5)

ALONE_FLAG = 0x80
"""Flag beside the encoded kind: the schedule was the median alone."""

MIXED, BOTH = len(MixedEstimate._fields), MixedEstimate._fields.index("both")

BOUND, SHIFT = -2, -1
"""The last columns of a `MixtureSnapshot`; before them come those of the mixtures."""

BEHIND = MIXED + 2  # columns behind those of the experts
_SITE = -BEHIND
_WEIGHT = Struct("<d")


class MixtureSnapshot(NamedTuple):
    """The prediction for a job, by quantile; nan: missing.

    `table`, (quantiles, experts + 5), has first the experts' estimates, on the scale and in single precision. Then come
    the mixtures, on the scale: by the weights of the site, by those of the kind, and by both. Last are the bound in
    seconds and the shift at that time. The bounds are the mixture by both, shifted, except the median where it is the
    schedule's estimate `alone`. The job counts as `weight` jobs as evidence. `wait_s` is the final estimate, which can
    differ from the mixed median.
    """

    table: Floats
    kind: int
    alone: bool = False
    weight: float = 1.0
    wait_s: float = np.nan

    @property
    def bounds(self) -> Floats:
        """The bounds, (quantiles,) in seconds."""
        return self.table[:, BOUND]

    @property
    def marks(self) -> list[float]:
        """Waits in seconds at which the job is scored when it exceeds them: the bounds, then the mixtures."""
        found: list[float] = _marks(self.table).tolist()
        return found

    @property
    def inputs(self) -> Floats:
        """The experts' medians and the bounds, seconds: the input of `ImmediateStartModel`."""
        return np.asarray(inputs_of(self.table))

    def with_estimate(self, wait_s: float, most_s: float) -> "MixtureSnapshot":
        """Return a copy with this estimate: the other bounds are on the right side of it, and none is over `most_s`."""
        if self.alone:
            wait_s = self.table.item(MEDIAN, BOUND)
        else:
            _around(self.table, wait_s, most_s)
        return MixtureSnapshot(self.table, self.kind, self.alone, self.weight, wait_s)

    @property
    def bounds_s(self) -> list[float]:
        """The published bounds, seconds: that of the median is the estimate."""
        bounds_s: list[float] = self.table[:, BOUND].tolist()
        bounds_s[MEDIAN] = self.wait_s
        return bounds_s

    @staticmethod
    def weight_of(value: bytes) -> float:
        """Return the weight from data that ends with an encoded `MixtureSnapshot`."""
        return float(_WEIGHT.unpack_from(value, len(value) - _WEIGHT.size)[0])

    def encode(self) -> bytes:
        """Encode as bytes, 300 for eight experts: the kind, then the table by quantile, the experts in single
        precision.
        """
        value = np.empty(encoded_bytes(self.table.shape[1] - BEHIND), np.uint8)
        _write(value, self.table, self.kind | (ALONE_FLAG if self.alone else 0), self.weight)
        return value.tobytes()

    @classmethod
    def decode(cls, value: bytes, experts: int) -> "MixtureSnapshot":
        """Decode the bytes from `encode`."""
        table = np.empty((QUANTILES, experts + BEHIND))
        weight = read_snapshot(np.frombuffer(value, np.uint8), table)
        return cls(table, value[0] & ~ALONE_FLAG, bool(value[0] & ALONE_FLAG), weight)


def encoded_bytes(experts: int) -> int:
    """Return the size of an encoded `MixtureSnapshot` for this number of experts, in bytes."""
    return 1 + QUANTILES * (4 * experts + 8 * BEHIND) + 8


@njit(cache=True)
def _write(value: Bytes, table: Floats, head: int, weight: float) -> None:
    experts = table.shape[1] - BEHIND
    singles, whole = np.empty(QUANTILES * experts, np.float32), np.empty(QUANTILES * BEHIND + 1)
    for q in range(QUANTILES):
        for k in range(experts):
            singles[q * experts + k] = table[q, k]
        for k in range(MIXED):
            whole[q * MIXED + k] = table[q, experts + k]
        whole[QUANTILES * MIXED + q] = table[q, BOUND]
        whole[QUANTILES * (MIXED + 1) + q] = table[q, SHIFT]
    whole[-1] = weight
    value[0] = head
    value[1 : 1 + 4 * len(singles)] = singles.view(np.uint8)
    value[1 + 4 * len(singles) :] = whole.view(np.uint8)


@njit(cache=True)
def read_snapshot(value: Bytes, table: Floats) -> float:
    """Fill in the table; return the weight."""
    experts = table.shape[1] - BEHIND
    singles, whole = np.empty(QUANTILES * experts, np.float32), np.empty(QUANTILES * BEHIND + 1)
    singles.view(np.uint8)[:] = value[1 : 1 + 4 * len(singles)]
    whole.view(np.uint8)[:] = value[1 + 4 * len(singles) :]
    for q in range(QUANTILES):
        for k in range(experts):
            table[q, k] = singles[q * experts + k]
        for k in range(MIXED):
            table[q, experts + k] = whole[q * MIXED + k]
        table[q, BOUND] = whole[QUANTILES * MIXED + q]
        table[q, SHIFT] = whole[QUANTILES * (MIXED + 1) + q]
    return float(whole[-1])


@njit(cache=True)
def _marks(table: Floats) -> Floats:
    found = np.empty(2 * QUANTILES)
    for place in range(2 * QUANTILES):
        found[place] = mark(table, place)
    return found


@njit(cache=True)
def mark(table: Floats, place: int) -> float:
    """The mark of a `MixtureSnapshot` at this place, seconds."""
    if place < QUANTILES:
        return float(table[place, BOUND])
    return float(seconds(table[place - QUANTILES, _SITE + BOTH]))


@njit(cache=True)
def inputs_of(table: Floats) -> Floats:
    """The `inputs` of a `MixtureSnapshot`."""
    medians = table.shape[1] - BEHIND - 1
    found = np.empty(medians + QUANTILES)
    for expert in range(medians):
        found[expert] = seconds(table[MEDIAN, expert])
    for q in range(QUANTILES):
        found[medians + q] = table[q, BOUND]
    return found


@njit(cache=True)
def _around(table: Floats, wait_s: float, most_s: float) -> None:
    for q in range(QUANTILES):
        bound_s = table[q, BOUND]
        if q < MEDIAN and bound_s > wait_s:
            table[q, BOUND] = wait_s
        elif q > MEDIAN and not np.isnan(bound_s):
            table[q, BOUND] = min(max(bound_s, wait_s), max(most_s, wait_s))
