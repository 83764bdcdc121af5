"""Train the prior of remaining waits on logs: `python -m tests.prior.waiting LOG...`, or `make prior`.

The default method, without any prior, predicts the first jobs of each log. Its landmarks of these jobs are the training
data.
"""

from argparse import ArgumentParser
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from models.engine.engine import Engine
from models.engine.settings import EngineSettings
from models.records import Submit
from models.waits.blend.blend import Blend
from models.waits.blend.remaining import RemainingWait
from models.waits.blend.remaining.landmark_forests import AIMS, FILE
from models.waits.blend.remaining.queued_features import NAMES
from models.waits.boosted.forest import Boosting
from models.waits.boosted.forests import training_set
from models.waits.boosted.prior import Prior, TrainingSet
from streams.offline.pretraining import first_events
from tests.prior.months import joined

JOBS = 12_000
"""The first jobs of a log. The landmarks are those that a training would use in the middle and at the end of them."""

BOOSTING = Boosting(trees=60, leaves=31, leaf_rows=200, rate=0.1, features=0.3, rows=0.7, bins=63)


def training_set_of(log: Path, jobs: int = JOBS) -> TrainingSet:
    """Build the training set from the first jobs of a log."""
    parts, submitted, engine = list[TrainingSet](), 0, None
    for event in first_events(log, jobs):
        engine = engine or Engine(event.site, EngineSettings(prior="none"))
        if isinstance(event, Submit):
            if submitted == jobs // 2:
                parts.append(landmarks_of(engine))
            submitted += 1
        engine.apply(event)
        engine.take_changes()
    assert engine is not None
    return joined([*parts, landmarks_of(engine)])


def landmarks_of(engine: Engine) -> TrainingSet:
    """Return the training set from the landmarks that an engine has now."""
    method = engine.methods.waits["blend"]
    assert isinstance(method, Blend)
    remaining = method.parts[RemainingWait.name]
    assert isinstance(remaining, RemainingWait)
    return training_set(remaining.forests.learnt_rows(), AIMS)


def main() -> None:
    """Write the prior to the package; its bytes are independent of the order of the logs."""
    parser = ArgumentParser(prog="python -m tests.prior.waiting", description=__doc__)
    parser.add_argument("logs", nargs="+", type=Path)
    logs = sorted(parser.parse_args().logs)
    with ProcessPoolExecutor() as cores:
        prior = Prior.fit([*cores.map(training_set_of, logs)], BOOSTING, NAMES)
    FILE.write_bytes(prior.encode())
    print(f"learnt from {prior.jobs} landmarks of {', '.join(log.name for log in logs)}; {prior.version}")


if __name__ == "__main__":
    main()
