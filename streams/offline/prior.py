"""What logs teach about queues, for new sites: the features that their jobs found, and how long they waited."""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from models.engine.engine import Engine
from models.engine.settings import EngineSettings
from models.records import AnyEvent, Submit
from models.waits.boosted.forest import Boosting
from models.waits.boosted.forests import lesson
from models.waits.boosted.method import Boosted
from models.waits.boosted.prior import Lesson, Prior
from streams.bulk.reading import read_log
from streams.errors import UserError

LEAST_JOBS = 100
"""Jobs of a log that left its queue, at least."""

JOBS = 12_000
"""The first jobs of a log, before those that methods are judged on. More of each made it worse for the others."""

BOOSTING = Boosting(trees=150, leaves=31, leaf_rows=200, rate=0.05, features=0.3, rows=0.7, bins=63)

_COLLECT = EngineSettings(
    method="boosted",
    shadows=(),
    parameters={"boosted": {"window": 200_000, "trees": 1, "leaves": 2, "quantiles": False}},
    prior="none",
)
"""Forests that cost nothing: what is wanted is what they would learn from."""


def first_events(log: Path, jobs: int) -> Iterator[AnyEvent]:
    """The events of a log before the submission of the job that comes after so many."""
    submitted = 0
    with read_log([log], None, None, None, ()) as (events, _):
        for event in events.events():
            submitted += isinstance(event, Submit)
            if submitted > jobs:
                return
            yield event


def lesson_of(log: Path, jobs: int = JOBS) -> Lesson:
    """What the first jobs of a log teach; 6 s for 12,000.

    Raises:
        UserError: it cannot be read, or too few jobs left the queue.
    """
    engine = None
    for event in first_events(log, jobs):
        engine = engine or Engine(event.site, _COLLECT)
        engine.apply(event)
        engine.take_changes()
    assert engine is not None  # a log without jobs is not read
    method = engine.methods.waits["boosted"]
    assert isinstance(method, Boosted)
    rows = method.learnt_rows()
    if len(rows.waits) < LEAST_JOBS:
        raise UserError(f"{log}: {len(rows.waits)} jobs left its queue; at least {LEAST_JOBS} can teach something")
    return lesson(rows)


def prior_of(lessons: Iterable[Lesson]) -> Prior:
    """The prior that these logs together make, each of equal weight."""
    return Prior.fit(list(lessons), BOOSTING)


def learnt_from(logs: Sequence[Path]) -> Prior:
    """The prior of logs, whatever their order; they are read on all cores.

    Raises:
        UserError: as `lesson_of`.
    """
    with ProcessPoolExecutor() as cores:
        return prior_of(cores.map(lesson_of, sorted(logs)))


def read_prior(path: Path) -> bytes:
    """A prior as it was written.

    Raises:
        UserError: there is no such file, or it is no prior of this version's features.
    """
    try:
        encoded = path.read_bytes()
        Prior.decode(encoded)
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise UserError(f"{path}: {error}; expected what `queuecast prior` has written") from None
    return encoded
