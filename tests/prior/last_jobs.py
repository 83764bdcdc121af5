"""Compare training on the last jobs of a history and on all: `python -m tests.prior.last_jobs LOG --cut N --sent 9600`.

The default method predicts the 2000 jobs after a submission: first with the full history, then with only the last jobs,
or with fewer predicted ones. Errors are compared job by job.
"""

from argparse import ArgumentParser
from collections.abc import Iterable
from pathlib import Path
from unittest.mock import patch

import numpy as np

from models.arrays import Floats
from models.engine.engine import Engine
from models.engine.settings import EngineSettings
from models.records import AnyEvent, Outcome, Submit
from streams.bulk.site_history import last, marked, needed
from streams.sources.publisher import OutgoingEvent
from tests.prior.week_one import parted

FOLLOWED = 2000
STRETCH = 50
"""Size of a bootstrap block (jobs)."""


def errors_of(steps: Iterable[OutgoingEvent], rest: list[AnyEvent]) -> Floats:
    """Return the absolute errors of the first jobs after a history (h); nan if there is none."""
    engine = Engine(rest[0].site, EngineSettings())
    for number, step in enumerate(steps):
        if step.event is not None:
            engine.apply(step.event)
        if number % 1000 == 0:
            engine.take_changes()
    errors = dict.fromkeys([one.job for one in rest if isinstance(one, Submit)][:FOLLOWED], np.nan)
    for event in rest:
        for record in engine.apply(event):
            if isinstance(record, Outcome) and record.job in errors and record.method == "blend":
                errors[record.job] = np.nan if record.censored else abs(record.error_s) / 3600.0
        engine.take_changes()
    return np.array([*errors.values()])


def interval(differences: Floats) -> Floats:
    """Return the 95 % interval of the mean, by a bootstrap over blocks."""
    stretches = differences[: len(differences) // STRETCH * STRETCH].reshape(-1, STRETCH).mean(1)
    drawn = np.random.default_rng(0).integers(0, len(stretches), (2000, len(stretches)))
    found: Floats = np.percentile(stretches[drawn].mean(1), [2.5, 97.5])
    return found


def main() -> None:
    """Print a line for each selection of the history."""
    parser = ArgumentParser(prog="python -m tests.prior.last_jobs", description=__doc__)
    parser.add_argument("log", type=Path)
    parser.add_argument("--cut", type=int, default=10_000, help="jobs before")
    parser.add_argument("--sent", type=int, nargs="*", default=[], help="the last jobs that are sent")
    parser.add_argument("--predicted", type=int, nargs="*", default=[], help="those of all that are predicted")
    parser.add_argument("--window", type=int, default=30_000, help="jobs that forests learn from")
    options = parser.parse_args()
    before, rest = parted(options.log, options.cut)
    usual = needed(EngineSettings(), "s").predicted
    ways = [(None, usual), *((sent, usual) for sent in options.sent), *((None, few) for few in options.predicted)]
    with patch("models.waits.boosted.boosted.BoostedParameters.__new__.__defaults__", _defaults(options.window)):
        base = None
        for sent, predicted in ways:
            steps = map(OutgoingEvent, before)
            errors = errors_of(marked(steps if sent is None else last(steps, sent), predicted), rest)
            base = errors if base is None else base
            both = ~np.isnan(base + errors)
            mean = base[both].mean()
            low, high = 100 * interval((errors - base)[both]) / mean
            more = 100 * (errors[both].mean() / mean - 1)
            print(
                f"{sent or 'all'} sent, {predicted} predicted: {errors[both].mean():.3f} h, "
                f"{more:+.1f} % ({low:+.1f} to {high:+.1f})",
                flush=True,
            )


def _defaults(window: int) -> tuple[object, ...]:
    from models.waits.boosted.boosted import BoostedParameters

    return tuple((BoostedParameters._field_defaults | {"window": window}).values())


if __name__ == "__main__":
    main()
