"""Measure the value of a history in the first week of a site: `python -m tests.prior.week_one LOG... [--cut 10000]`.

A log is cut at the submission of a job. The default method predicts the jobs of the following week: first with the
earlier events as history, then with only the live jobs, as a new source reports them.
"""

from argparse import ArgumentParser
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from time import process_time

import numpy as np

from models.durations import WEEK_S
from models.engine.engine import Engine
from models.engine.settings import EngineSettings
from models.records import AnyEvent, Cancel, Capacity, End, Outcome, Start, Submit
from streams.bulk.reading import read_log
from tests.prior.measure import RULES
from tests.support.events import as_history

FOLLOWED_S = 4 * WEEK_S
"""Time span of the events after the cut (s), so that most jobs of the week start."""


def parted(log: Path, cut: int) -> tuple[list[AnyEvent], list[AnyEvent]]:
    """Split the events at the submission of the job after the first `cut` jobs."""
    before: list[AnyEvent] = []
    after: list[AnyEvent] = []
    submitted = 0
    with read_log([log], None, None, None, ()) as (events, _):
        for event in events.events():
            submitted += isinstance(event, Submit)
            if after and event.time > after[0].time + FOLLOWED_S:
                break
            (after if submitted > cut else before).append(event)
    return before, after


def live_at_the_end(events: Iterable[AnyEvent]) -> list[AnyEvent]:
    """Return the events of a source's first poll: the machine and the live jobs; running jobs are late."""
    kept: dict[tuple[str, int], list[AnyEvent]] = {}
    machine: list[AnyEvent] = []
    for event in events:
        if isinstance(event, Capacity):
            machine = [event]
        elif isinstance(event, Submit):
            kept[event.key] = [event]
        elif isinstance(event, Start) and event.key in kept:
            kept[event.key] = [as_late(kept[event.key][0]), event]
        elif isinstance(event, End | Cancel):
            kept.pop(event.key, None)
    return machine + [event for events in kept.values() for event in events]


def as_late(event: AnyEvent) -> AnyEvent:
    """Return a submit event that is reported after the job has started."""
    assert isinstance(event, Submit)
    return Submit(**{name: getattr(event, name) for name in event.__struct_fields__} | {"late": True})


def errors_of(first: Iterable[AnyEvent], week: list[AnyEvent]) -> tuple[dict[str, float], float]:
    """Return the MAE of the default method and the baselines in the first week, and the CPU time of the history.

    The errors are in hours; the CPU time is in seconds, trainings included.
    """
    end = week[0].time + WEEK_S
    jobs = {event.key for event in week if isinstance(event, Submit) and event.time < end}
    found: dict[str, dict[tuple[str, int], float]] = {name: {} for name in RULES}
    engine = Engine(week[0].site, EngineSettings(publish_shadows=True))
    begin = process_time()
    for event in first:
        engine.apply(event)
        engine.take_changes()
    taken_s = process_time() - begin
    for event in week:
        for record in engine.apply(event):
            key = (record.job, record.attempt) if isinstance(record, Outcome) else None
            if isinstance(record, Outcome) and key in jobs and not record.censored:
                found[record.method][(record.job, record.attempt)] = abs(record.error_s) / 3600.0
        engine.take_changes()
    return {name: float(np.mean(list(errors.values()))) for name, errors in found.items()}, taken_s


def lines_of(log: Path, cut: int) -> Iterator[str]:
    """Yield the table row of a log."""
    before, week = parted(log, cut)
    new, _ = errors_of(live_at_the_end(before), week)
    fed, taken_s = errors_of(as_history(before), week)
    row = [f"{error:.2f}" for error in (new["zero"], new["blend"], fed["blend"])]
    yield f"| {log.name.split('-')[0]} | {cut} | {' | '.join(row)} | {cut / taken_s:,.0f} |"


def _lines(log: Path, cut: int) -> list[str]:
    return list(lines_of(log, cut))


def main() -> None:
    """Print the table."""
    parser = ArgumentParser(prog="python -m tests.prior.week_one", description=__doc__)
    parser.add_argument("logs", nargs="+", type=Path)
    parser.add_argument("--cut", type=int, nargs="+", default=[10_000], help="jobs before the first week")
    options = parser.parse_args()
    print("| log | jobs before | zero | without history | with history | its jobs a second |\n|" + "---|" * 6)
    tasks = [(log, cut) for log in options.logs for cut in options.cut]
    with ProcessPoolExecutor() as cores:
        for lines in cores.map(_lines, *zip(*tasks, strict=True)):
            print("\n".join(lines), flush=True)


if __name__ == "__main__":
    main()
