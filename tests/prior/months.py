"""Generate months of random sites, as further training data for the package's prior.

Random properties are the machine, its load and users, the number of jobs submitted together, the scheduling rules
(`tests.simulation.drawn`) and the fields missing from the events. So the prior covers many kinds of queues, and sites
whose jobs have few fields.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from random import Random

import msgspec
import numpy as np

from models.records import AnyEvent, Submit
from models.simulation.workload import generate
from models.waits.boosted.prior import TrainingSet
from streams.offline.pretraining import SourceSites
from tests.simulation.drawn import Drawn, draw

MONTHS = 200
JOBS = 1500
"""Jobs per month; their submissions take three to eight weeks."""

TAUGHT = 300
"""Number of random jobs of a month used for training; more would be too similar."""


def events_of(seed: int) -> Iterator[AnyEvent]:
    """Yield the events of a month."""
    by = Random(70_000 + seed)
    cpus = by.choice((32, 64, 100, 128, 256, 430, 512, 1024, 2048))
    load, users, impatient = by.uniform(0.5, 0.95), by.choice((10, 20, 40, 80, 160)), by.choice((0.0, 0.05, 0.1, 0.2))
    sessions = {"session_jobs": by.choice((2, 4, 4, 10, 40)), "session_spread": by.choice((1, 10, 40, 40))}
    untold = {"walltime": None} if by.random() < 0.4 else {}
    untold |= {name: None for name in ("group", "queue", "executable") if by.random() < 0.5}
    scheduler = Drawn("made", cpus, 0, draw(20_000 + seed))
    events: list[AnyEvent] = [scheduler.capacity()]
    for job in generate(20_000 + seed, JOBS, cpus, load, users=users, impatient=impatient, **sessions):
        events += scheduler.submit(job)
    for event in events + scheduler.finish():
        yield msgspec.structs.replace(event, **untold) if isinstance(event, Submit) else event


def lesson_of_month(seed: int) -> TrainingSet:
    """Return the training set of a month."""
    teachers = SourceSites()
    for event in events_of(seed):
        teachers.take(event)
    (whole,) = teachers.training_sets().values()
    count = len(whole.weights)
    few = np.sort(np.random.default_rng(seed).choice(count, min(TAUGHT, count), replace=False))
    targets = {aim: values[few] for aim, values in whole.targets.items()}
    return TrainingSet(whole.features[few], targets, whole.weights[few])


def lesson_of_months(cores: Executor, months: int = MONTHS) -> TrainingSet:
    """Return the joined training set of all months, as of one site."""
    return joined(list(cores.map(lesson_of_month, range(months), chunksize=5)))


def joined(parts: Sequence[TrainingSet]) -> TrainingSet:
    """Return the joined training set of parts, as of one site."""
    targets = {aim: np.concatenate([part.targets[aim] for part in parts]) for aim in parts[0].targets}
    weights = np.concatenate([part.weights for part in parts])
    return TrainingSet(np.concatenate([part.features for part in parts]), targets, weights)
