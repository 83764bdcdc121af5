"""The prior: forests that were pre-trained on other sites. They predict from a site's first job on.

A site's own forests start from them. The features name no user and no queue, so trees that were trained on other sites
are valid, once CPUs and work are shares of the site. The prior in the package was trained on public workload traces
(`queuecast prior`); an operator may send a site another one (`LoadPrior`). A prior contains trees only. The site's own
forests learn the residual: the difference of its waits from those in similar states at other sites (J. H. Friedman,
"Greedy function approximation: a gradient boosting machine", 2001, started from the prior's estimate instead of from a
constant).
"""

import zlib
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Annotated, Final, NamedTuple

import msgspec
import numpy as np
from msgspec import Meta

from models.arrays import Floats
from models.kernels import njit
from models.stored_values import encode, reader
from models.waits.boosted.forest import BinnedFeatures, Boosting, Forest, ForestBatch, Rows
from models.waits.boosted.submit_features import NAMES

FILE: Final = Path(__file__).with_name("prior.bin")
"""The prior of this package."""


MAX_FORESTS, MAX_FOREST_BYTES = 8, 4 * 2**20
"""Maximum number of forests of a prior, and of bytes of each when decompressed: operators send priors in messages."""

MAX_JOBS: Final = 10**12

Scale = Annotated[str, Meta(pattern="^(log|root)$")]
Probability = Annotated[float, Meta(gt=0.0, lt=1.0)]

SITE: Final = NAMES.index("site")

WHOLE: Final = 1000.0
"""Value of a feature for the whole site, before its logarithm."""


def is_share(name: str) -> bool:
    """Return True if a feature counts CPUs or their work."""
    if name in ("cpus", "free", "room", "head_cpus", "left_expected", "left_planned", "queue_left_expected"):
        return True
    return (name.endswith(("_cpus", "_work")) and not name.startswith("drain")) or name.startswith(("freed_", "spare_"))


SHARES: Final = np.array([place for place, name in enumerate(NAMES) if is_share(name)])
"""The places of the features that are shares of the site."""


class Target(NamedTuple):
    """Target of a forest: a quantile of the waits on a scale, "log" or "root"."""

    scale: str
    quantile: float


class TrainingSet(NamedTuple):
    """Jobs of one site: their features, float32 (n, features), the targets (n) by aim, and their weights (n)."""

    features: Rows
    targets: Mapping[Target, Floats]
    weights: Floats


class _EncodedPrior(msgspec.Struct, array_like=True, frozen=True):
    jobs: Annotated[int, Meta(ge=0, le=MAX_JOBS)]
    names: list[str]
    forests: list[tuple[Scale, Probability, bytes]]


_read = reader(_EncodedPrior, "a prior")


class Prior:
    """Forests that were trained on jobs of other sites, by their aims.

    The features of a submission (`NAMES`) are converted by `shares`. In other features CPUs and work must be shares of
    the site already.

    Args:
        forests: over the same features, converted.
        jobs: number of jobs that they were trained on.
        version: of the stored data. Forests that were trained on one prior are not valid with another.
    """

    def __init__(self, forests: Mapping[Target, Forest], jobs: int, version: int) -> None:
        self._forests, self._grove = dict(forests), ForestBatch(list(forests.values()))
        self.names = next(iter(forests.values())).names
        self.jobs = jobs
        self.version = version

    @classmethod
    def fit(cls, lessons: Sequence[TrainingSet], parameters: Boosting, names: Sequence[str] = NAMES) -> "Prior":
        """Train on several sites, each of which has the same weight, with these features."""
        rows = np.concatenate([_converted(lesson.features, tuple(names)) for lesson in lessons])
        weights = np.concatenate([lesson.weights * (len(rows) / len(lesson.weights)) for lesson in lessons])
        binned, forests = BinnedFeatures(rows, parameters, weights / len(lessons)), {}
        for aim in lessons[0].targets:
            target = np.concatenate([lesson.targets[aim] for lesson in lessons])
            forests[aim] = Forest.fit(binned, target, aim.quantile, parameters, names)
        return cls.decode(_encode(forests, len(rows), names), names)

    @property
    def aims(self) -> tuple[Target, ...]:
        """Targets of its forests."""
        return tuple(self._forests)

    def values(self, rows: Rows) -> Floats:
        """Return the estimates for each row, (n, `names` and more), on the aims' scales: (n, `aims`)."""
        return self._grove.predict(_converted(rows, self.names))

    def encode(self) -> bytes:
        """Serialize the prior; 350 kB for the features of a submission."""
        return _encode(self._forests, self.jobs, self.names)

    @classmethod
    def decode(cls, encoded: bytes, names: Sequence[str] | None = None) -> "Prior":
        """Deserialize a prior with these features, `NAMES` by default; recent results are cached.

        Raises:
            ValueError: it is not a prior, or it has other features.
        """
        return _decoded(encoded, NAMES if names is None else tuple(names))


@lru_cache(8)
def _decoded(encoded: bytes, names: tuple[str, ...]) -> Prior:
    read = _read(encoded)
    if not 0 < len(read.forests) <= MAX_FORESTS:
        raise ValueError(f"a prior of {len(read.forests)} forests; expected 1 to {MAX_FORESTS}")
    forests = {Target(scale, q): Forest.decode(part, names, MAX_FOREST_BYTES) for scale, q, part in read.forests}
    if len(forests) < len(read.forests):
        raise ValueError("a prior with two forests of the same aim")
    return Prior(forests, read.jobs, zlib.crc32(encoded))


@cache
def shipped() -> Prior:
    """Return the prior of this package."""
    return Prior.decode(FILE.read_bytes())


def _encode(forests: Mapping[Target, Forest], jobs: int, names: Sequence[str]) -> bytes:
    parts = [(aim.scale, aim.quantile, forest.encode()) for aim, forest in forests.items()]
    return encode(_EncodedPrior(jobs, list(names), parts))


def _converted(rows: Rows, names: tuple[str, ...]) -> Rows:
    """Return rows of these features in the units of a prior."""
    return shares(rows) if names == NAMES else rows


def shares(rows: Rows) -> Rows:
    """Convert rows of features so that CPUs and work are shares of the site, `WHOLE` being all of it. O(n).

    Args:
        rows: (n, `NAMES` and more) as they are stored, on a logarithmic scale.
    """
    found = rows[:, : len(NAMES)].copy()
    _share(found)
    return found


@njit(cache=True, nogil=True)
def _share(rows: Rows) -> None:
    for row in range(len(rows)):
        site = max(2.0 ** np.float64(rows[row, SITE]) - 1.0, 1.0)
        for place in SHARES:
            stored = np.float64(rows[row, place])
            amount = (2.0 ** abs(stored) - 1.0) * (WHOLE / site)
            rows[row, place] = np.copysign(np.log2(1.0 + amount), stored)
