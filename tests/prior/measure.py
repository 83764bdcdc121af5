"""Measure the prior at new sites: `python -m tests.prior.measure LOG... [--jobs 20000]`.

For each log, a prior is trained on the other logs and on generated months. Then the default method predicts the first
jobs of the log with and without the prior.
"""

from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import numpy as np

from models.engine import methods
from models.engine.engine import Engine
from models.engine.settings import EngineSettings
from models.records import Outcome, Submit
from models.waits.boosted.prior import Prior, TrainingSet
from streams.offline.pretraining import first_events, prior_of, training_set_of
from tests.prior.months import lesson_of_months

STRETCHES = ((1, 300), (301, 1000), (1001, 5000), (5001, 20_000))
"""First and last job of each row of the table."""

FOLLOWED = 1.2
"""Ratio of submitted to scored jobs, so that most of the latter start."""

RULES = ("zero", "median", "blend")


class Errors(NamedTuple):
    """Arrays over the started jobs: number in the log, errors by method, and coverage of the 0.9 bound."""

    numbers: np.ndarray
    errors_s: dict[str, np.ndarray]
    held: np.ndarray


def errors_of(log: Path, jobs: int, prior: Prior | None) -> Errors:
    """Return the errors of the default method and the baselines at the first jobs of a log (s)."""
    numbers: dict[tuple[str, int], int] = {}
    found: dict[tuple[int, str], tuple[float, bool]] = {}
    engine = None
    with patch.object(methods, "shipped", lambda: prior):
        for event in first_events(log, int(FOLLOWED * jobs)):
            if isinstance(event, Submit) and event.key not in numbers:
                numbers[event.key] = len(numbers) + 1
            engine = engine or Engine(event.site, EngineSettings(publish_shadows=True))
            for record in engine.apply(event):
                number = numbers.get((record.job, record.attempt), 0) if isinstance(record, Outcome) else 0
                if isinstance(record, Outcome) and 0 < number <= jobs and not record.censored:
                    within = record.bounds is not None and record.actual_wait_s <= record.bounds["0.9"]
                    found[number, record.method] = abs(record.error_s), within
            engine.take_changes()
    rows = sorted(number for number, name in found if name == "blend")
    errors_s = {name: np.array([found.get((row, name), (np.nan, False))[0] for row in rows]) for name in RULES}
    return Errors(np.array(rows), errors_s, np.array([found[row, "blend"][1] for row in rows]))


def lines_of(log: str, without: Errors, by: Errors) -> Iterator[str]:
    """Yield the table rows of a log."""
    for first, last in STRETCHES:
        place = (by.numbers >= first) & (by.numbers <= last)
        if place.any():
            zero, median, plain = (np.nanmean(without.errors_s[name][place]) / 3600.0 for name in RULES)
            new = np.nanmean(by.errors_s["blend"][place]) / 3600.0
            held = by.held[place].mean()
            yield f"| {log} | {first}-{last} | {zero:.2f} | {median:.2f} | {plain:.2f} | {new:.2f} | {held:.0%} |"


def _measure(log: Path, jobs: int, lessons: Sequence[TrainingSet]) -> list[str]:
    with_it, without = errors_of(log, jobs, prior_of(lessons)), errors_of(log, jobs, None)
    return list(lines_of(log.name.split("-")[0], without, with_it))


def main() -> None:
    """Print the table."""
    parser = ArgumentParser(prog="python -m tests.prior.measure", description=__doc__)
    parser.add_argument("logs", nargs="+", type=Path)
    parser.add_argument("--jobs", type=int, default=STRETCHES[-1][-1])
    options = parser.parse_args()
    print("| log | jobs | zero | median | default without a prior | with it | bound of 0.9 held |\n|" + "---|" * 7)
    with ProcessPoolExecutor() as cores:
        lessons = dict(zip(options.logs, cores.map(training_set_of, options.logs), strict=True))
        made = lesson_of_months(cores)
        others = [[*(lesson for other, lesson in lessons.items() if other != log), made] for log in options.logs]
        for lines in cores.map(_measure, options.logs, [options.jobs] * len(others), others):
            print("\n".join(lines), flush=True)


if __name__ == "__main__":
    main()
