"""Range of the states that a model was trained on, to report states outside of it."""

import math
from collections.abc import Mapping, Sequence
from typing import Final

from models.arrays import Singles

WORDS: Final = {
    "queued_all_jobs": "queued jobs",
    "queued_all_cpus": "queued CPUs",
    "running_jobs": "running jobs",
    "free": "free CPUs",
    "held_jobs": "held jobs",
}
"""Features that measure the size of a state, with their names in messages. They are stored as log2(1 + x)."""

RATIO: Final = 1.5
MARGIN: Final = 10.0
"""Factor and margin above the largest value in training beyond which a state is out of range. Of the first 20,000 jobs
of KTH and CTC about 1 % have such a state."""


class TrainingRange:
    """The largest values of the features of `WORDS` among rows.

    >>> import numpy as np
    >>> row = np.log2(np.array([21.0, 101.0, 5.0, 9.0, 1.0], np.float32))
    >>> extent = TrainingRange.of(row.reshape(1, -1), list(WORDS))
    >>> extent.unlike(row)
    >>> extent.unlike(np.log2(np.array([1001.0, 101.0, 5.0, 9.0, 1.0], np.float32)))
    'a state unlike any it learnt from: some 1,000 queued jobs, 20 at most before'

    Args:
        names: of the features of a row.
        most: the values that are known, by the features' names.
    """

    def __init__(self, names: Sequence[str], most: Mapping[str, float]) -> None:
        self.most = dict(most)
        self._known = [(names.index(name), _nearly(before), WORDS[name], before) for name, before in most.items()]

    @classmethod
    def of(cls, rows: Singles, names: Sequence[str]) -> "TrainingRange":
        """Return the range of rows (n, len(names))."""
        return cls(names, {name: _count(rows[:, names.index(name)].max().item()) for name in WORDS if name in names})

    def unlike(self, row: Singles) -> str | None:
        """Describe a feature of the row that is out of range, in words; None if there is none."""
        for place, nearly, words, before in self._known:
            value = row.item(place)
            if value > nearly and (now := _count(value)) > RATIO * before + MARGIN:
                some, most = (f"{float(f'{count:.2g}'):,.0f}" for count in (now, before))
                return f"a state unlike any it learnt from: some {some} {words}, {most} at most before"
        return None


def _nearly(before: float) -> float:
    """Return the raw value of a feature below which a state is in range."""
    most = RATIO * before + MARGIN
    return 0.999 * math.log2(1.0 + most) if most > 0.0 else -math.inf


def _count(value: float) -> float:
    """Invert log2(1 + x), with the sign of x."""
    return math.copysign(math.exp2(abs(value)) - 1.0, value)
