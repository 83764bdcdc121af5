"""The forests of the remaining wait: trained on landmarks of the site, starting from a prior of other sites.

A landmark is the features of a job at an age, and what was left of its wait. Few jobs reach the old ages, so a site
alone has little data for them. The prior was trained on the landmarks of public workload traces; the forests of the
site learn the difference (see `models.waits.boosted.prior`).
"""

from collections.abc import Iterable
from functools import cache, partial
from pathlib import Path
from struct import Struct
from typing import Final

import numpy as np

from models.arrays import Floats, Ints, Records
from models.records import JobKey
from models.site.notes import JobNotes, Pair
from models.trainer import trainer
from models.waits.blend.remaining.queued_features import NAMES
from models.waits.boosted.forest import Boosting
from models.waits.boosted.forests import QUANTILES as FAR_QUANTILES
from models.waits.boosted.forests import Forests, TrainingRows
from models.waits.boosted.prior import Prior, Target
from models.waits.boosted.training import ROWS_PER_JOB, Schedule, Training

FILE: Final = Path(__file__).with_name("prior.bin")
"""The prior of this package."""

WINDOW_JOBS: Final = 5000
"""Jobs with landmarks that the forests are trained on; 2 MB."""

DENSE_JOBS: Final = 2500
"""From so many of them on, every second job is noted with its landmarks of old ages alone."""

OLD_CLASS: Final = 8
"""The first age class of these, from 10.7 h on: few jobs reach it, so all are noted."""

CANCELLED_WEIGHT: Final = 0.5
"""Weight of a job that was cancelled in the queue, relative to one that started then."""

TRAININGS: Final = Schedule(first=60, every=2500, most=100)

BOOSTING: Final = Boosting(trees=40, leaves=15, leaf_rows=40, rate=0.1, features=0.3, rows=0.7, bins=63)

AIMS: Final = (Target("root", 0.5), *FAR_QUANTILES)
"""One forest for the median: a second one, on the scale of logarithms, costs a third of the training without a gain."""

NOTED: Final = np.dtype([("remaining_s", "<f4"), ("row", "<f2", (len(NAMES),))])
"""Record of a landmark of a job that left the queue: what was left of its wait, in seconds, and the features."""

_CANCELLED = Struct("<?")  # whether the job was cancelled in the queue


class LandmarkForests:
    """The forests in force, and the jobs that the next ones are trained on.

    The notes of a job are written when it leaves the queue. The first forests are in force after some 80 jobs. The
    prior alone estimates nothing: until then the simulated schedule follows the state of the site better.
    """

    def __init__(self) -> None:
        self.notes = JobNotes(ROWS_PER_JOB * WINDOW_JOBS, TRAININGS.behind_rows, _check_noted, _check_cancelled)
        """The jobs that left the queue, with their landmarks."""
        self.prior: Prior | None = None
        """The model that the forests start from."""
        fit = partial(_fit, False)
        self.training: Training[Forests] = Training(self.notes, fit, Forests.encode, self._decode, TRAININGS)
        """The forests in force: its model, None before the first training."""

    def start_from_prior(self) -> None:
        """Start from the package's prior instead of from none."""
        self.prior = shipped()
        self.training.restart_with(partial(_fit, True))

    def learn(self, key: JobKey, classes: Ints, rows: Records, remaining_s: Floats, cancelled: bool) -> None:
        """Note the landmarks of a job that left the queue.

        Args:
            key: of the job.
            classes: the age classes of the landmarks, (landmarks,).
            rows: their features as they are stored, (landmarks, features).
            remaining_s: what was left of its wait, (landmarks,) seconds.
            cancelled: whether it was cancelled.
        """
        dense = self.notes.jobs < DENSE_JOBS or self.notes.count // ROWS_PER_JOB % 2
        kept = slice(None) if dense else classes >= OLD_CLASS
        noted = np.empty(len(rows[kept]), NOTED)
        noted["remaining_s"], noted["row"] = remaining_s[kept], rows[kept]
        self.notes.note(key, noted.tobytes())
        self.notes.settle(key, _CANCELLED.pack(cancelled))

    def learnt_rows(self) -> TrainingRows:
        """Return the landmarks that a training would use now."""
        return training_rows(self.notes.settled())

    def load(self, training: bytes) -> None:
        """Restore the state of the training from its `save`, and lay out the rows.

        Raises:
            ValueError: it is not such a state.
        """
        self.notes.load()
        self.training.load(training)

    def _decode(self, encoded: bytes) -> Forests:
        return Forests.decode(encoded, NAMES, self.prior, AIMS)


@cache
def shipped() -> Prior:
    """Return the prior of this package."""
    return Prior.decode(FILE.read_bytes(), NAMES)


def training_rows(jobs: Iterable[Pair]) -> TrainingRows:
    """Return the noted landmarks of jobs as rows, with what was left of their waits."""
    noted, weights = list[bytes](), list[float]()
    for value, settled in jobs:
        noted.append(value)
        weights.append(CANCELLED_WEIGHT if _CANCELLED.unpack(settled)[0] else 1.0)
    found, counts = np.frombuffer(b"".join(noted), NOTED), [len(value) // NOTED.itemsize for value in noted]
    rows, remaining_s = found["row"].astype(np.float32), found["remaining_s"].astype(np.float64)
    return TrainingRows(rows, remaining_s, np.repeat(weights, counts))


def _fit(from_prior: bool, jobs: Iterable[Pair]) -> Forests:
    prior = shipped() if from_prior else None
    return Forests.fit(training_rows(jobs), AIMS, NAMES, BOOSTING, prior, threads=trainer().threads)


def _check_noted(value: bytes, rows: int) -> None:
    """Check the noted landmarks of a job.

    Raises:
        ValueError: they are not valid.
    """
    if len(value) % NOTED.itemsize:
        raise ValueError(f"{len(value)} bytes: not landmarks of {NOTED.itemsize} bytes each")
    remaining_s = np.frombuffer(value, NOTED)["remaining_s"]
    if not ((remaining_s >= 0.0) & (remaining_s < np.inf)).all():
        raise ValueError("a landmark whose remaining wait is negative or not finite")


def _check_cancelled(settled: bytes, rows: int) -> None:
    """Check whether a job was cancelled.

    Raises:
        ValueError: it is not valid.
    """
    if settled not in (b"\0", b"\1"):
        raise ValueError(f"cancelled: {settled!r}")
