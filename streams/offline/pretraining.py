"""Pre-training on logs for new sites: features of their jobs at submission, and the waits that followed."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from models.engine.engine import Engine
from models.engine.settings import EngineSettings
from models.records import AnyEvent, Submit
from models.waits.boosted.boosted import Boosted
from models.waits.boosted.forest import Boosting
from models.waits.boosted.forests import training_set
from models.waits.boosted.prior import Prior, TrainingSet
from streams.bulk.reading import read_log
from streams.errors import UserError, file_error

LEAST_JOBS = 100  # jobs of a log that left its queue, at least

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
    """Yield the events of a log up to the last of the first `jobs` submissions and before the next one."""
    submitted = 0
    with read_log([log], None, None, None, ()) as (events, _):
        for event in events.events():
            submitted += isinstance(event, Submit)
            if submitted > jobs:
                return
            yield event


def training_set_of(log: Path, jobs: int = JOBS) -> TrainingSet:
    """Build the training set from the first jobs of a log.

    Raises:
        UserError: the log cannot be read, or too few jobs left the queue.
    """
    teachers = SourceSites()
    for event in first_events(log, jobs):
        teachers.take(event)
    (found,) = teachers.training_sets().values()  # a log without jobs is not read
    if len(found.weights) < LEAST_JOBS:
        raise UserError(f"{log}: {len(found.weights)} jobs left its queue; expected at least {LEAST_JOBS}")
    return found


class SourceSites:
    """Engines that collect training data of sites and predict nothing.

    Args:
        jobs: number of jobs per site; events after their submissions are ignored.
    """

    def __init__(self, jobs: int | None = None) -> None:
        self._jobs = jobs
        self._engines: dict[str, Engine] = {}
        self._submitted: Counter[str] = Counter()

    def take(self, event: AnyEvent) -> None:
        """Apply an event to its site's engine."""
        site = event.site
        self._submitted[site] += isinstance(event, Submit)
        if self._jobs is not None and self._submitted[site] > self._jobs:
            return
        if site not in self._engines:
            self._engines[site] = Engine(site, _COLLECT)
        self._engines[site].apply(event)
        self._engines[site].take_changes()

    def training_sets(self) -> dict[str, TrainingSet]:
        """Return the training set of each site, from the jobs that left its queue."""
        return {site: _lesson(engine) for site, engine in self._engines.items()}


def _lesson(engine: Engine) -> TrainingSet:
    method = engine.methods.waits["boosted"]
    assert isinstance(method, Boosted)
    return training_set(method.learnt_rows())


def prior_of(lessons: Iterable[TrainingSet]) -> Prior:
    """Train a model on these training sets, each of equal weight."""
    return Prior.fit(list(lessons), BOOSTING)


def learnt_from(logs: Sequence[Path]) -> Prior:
    """Train a model on logs, in any order; they are read on all CPUs.

    Raises:
        UserError: as `training_set_of`.
    """
    with ProcessPoolExecutor() as cores:
        return prior_of(cores.map(training_set_of, sorted(logs)))


def read_prior(path: Path) -> bytes:
    """Read a pre-trained model as it was written.

    Raises:
        UserError: the file is missing, or its features are of another version.
    """
    try:
        encoded = path.read_bytes()
        Prior.decode(encoded)
    except OSError as error:
        raise file_error(path, error) from None
    except ValueError as error:
        raise UserError(f"{path}: {error}; expected what `queuecast prior` has written") from None
    return encoded
