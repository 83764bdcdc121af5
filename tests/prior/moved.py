"""Compare keeping and resetting a history on a new machine: `python -m tests.prior.moved OLD NEW [--jobs 4000]`.

The jobs of a log are followed by those of another log under the same site name. The default method predicts the latter
with its full history, and after a reset (`queuecast site NAME reset`).
"""

from argparse import ArgumentParser
from pathlib import Path

import msgspec
import numpy as np

from models.engine.engine import Engine
from models.engine.operator_commands import restarted
from models.engine.settings import EngineSettings
from models.records import AnyEvent, Outcome, Submit
from streams.bulk.site_history import as_historical
from streams.offline.pretraining import first_events
from tests.prior.measure import FOLLOWED, RULES, STRETCHES

GAP_S = 86_400.0
"""Seconds between the last event of the old machine and the first of the new one."""


def moved(old: list[AnyEvent], new: list[AnyEvent]) -> list[AnyEvent]:
    """Return the events of the new machine, with the old site, later times and other job names."""
    later = max(event.time for event in old) + GAP_S - new[0].time
    found = []
    for event in new:
        changes = {"site": old[0].site, "time": event.time + later}
        if job := getattr(event, "job", None):
            changes["job"] = f"new-{job}"
        found.append(msgspec.structs.replace(event, **changes))
    return found


def errors_of(old: list[AnyEvent], new: list[AnyEvent], is_reset: bool) -> dict[str, np.ndarray]:
    """Return the absolute errors by method at the new machine's jobs (h), in order; nan if a job did not start."""
    engine = Engine(old[0].site, EngineSettings(publish_shadows=True))
    for event in old:
        engine.apply(as_historical(event))
        engine.take_changes()
    engine = [*restarted(engine)][-1] if is_reset else engine
    places = {event.key: place for place, event in enumerate(e for e in new if isinstance(e, Submit))}
    found = {name: np.full(len(places), np.nan) for name in RULES}
    for event in new:
        for record in engine.apply(event):
            key = (record.job, record.attempt) if isinstance(record, Outcome) else None
            if isinstance(record, Outcome) and key in places and not record.censored:
                found[record.method][places[record.job, record.attempt]] = abs(record.error_s) / 3600.0
        engine.take_changes()
    return found


def main() -> None:
    """Print the table."""
    parser = ArgumentParser(prog="python -m tests.prior.moved", description=__doc__)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--jobs", type=int, default=4000)
    options = parser.parse_args()
    old = list(first_events(options.old, options.jobs))
    new = moved(old, list(first_events(options.new, int(FOLLOWED * options.jobs))))
    kept, reset = (errors_of(old, new, is_reset) for is_reset in (False, True))
    print("| jobs | zero | all kept | reset |\n|" + "---|" * 4)
    for first, last in STRETCHES:
        place = slice(first - 1, min(last, options.jobs))
        if first <= options.jobs:
            row = [kept["zero"], kept["blend"], reset["blend"]]
            print(f"| {first}-{place.stop} | " + " | ".join(f"{np.nanmean(one[place]):.2f}" for one in row) + " |")


if __name__ == "__main__":
    main()
