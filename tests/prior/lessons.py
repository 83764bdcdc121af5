"""What a log teaches about queues: the features that its jobs found, and how long they waited."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from models.engine.engine import Engine
from models.engine.settings import EngineSettings
from models.records import AnyEvent, Submit
from models.waits.boosted.forest import Boosting
from models.waits.boosted.forests import lesson
from models.waits.boosted.method import Boosted
from models.waits.boosted.prior import Lesson, Prior
from streams.bulk.reading import read_log

JOBS = 12_000
"""The first jobs of a log, before those that methods are judged on. More of each made it worse for the others."""

BOOSTING = Boosting(trees=150, leaves=31, leaf_rows=200, rate=0.05, features=0.3, rows=0.7, bins=63)

_COLLECT = EngineSettings(
    method="boosted",
    shadows=(),
    parameters={"boosted": {"window": 200_000, "trees": 1, "leaves": 2, "quantiles": False, "prior": False}},
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
    """What the first jobs of a log teach; 6 s for 12,000."""
    engine = None
    for event in first_events(log, jobs):
        engine = engine or Engine(event.site, _COLLECT)
        engine.apply(event)
        engine.take_changes()
    if engine is None:
        raise ValueError(f"{log}: no jobs in it")
    method = engine.methods.waits["boosted"]
    assert isinstance(method, Boosted)
    return lesson(method.learnt_rows())


def prior_of(lessons: Iterable[Lesson]) -> Prior:
    """The prior that these logs together make."""
    return Prior.fit(list(lessons), BOOSTING)
