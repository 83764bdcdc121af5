"""What a site's history is worth in its first week: `python -m tests.prior.week_one LOG... [--cut 10000]`.

A log is cut at the submission of a job. The default predicts the jobs of the week after that: once having been fed what
was before as history, once beginning there with the jobs that are live, as a source tells them.
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
"""So long after the cut events are followed, so that most jobs of the week start."""


def parted(log: Path, cut: int) -> tuple[list[AnyEvent], list[AnyEvent]]:
    """The events before the submission of the job that comes after `cut` others, and those from then on."""
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
    """What a source tells at its first look: the machine, and the jobs that are there, those that started as late."""
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
    """A submit that is told when its job has started."""
    assert isinstance(event, Submit)
    return Submit(**{name: getattr(event, name) for name in event.__struct_fields__} | {"late": True})


def errors_of(first: Iterable[AnyEvent], week: list[AnyEvent]) -> tuple[dict[str, float], float]:
    """The mean absolute errors of the default and the trivial rules at the jobs of the first week, hours; and how many
    seconds of CPU time, trainings included, were spent on what came first.
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
    """The table's row of one log."""
    before, week = parted(log, cut)
    new, _ = errors_of(live_at_the_end(before), week)
    fed, taken_s = errors_of(as_history(before), week)
    row = [f"{error:.2f}" for error in (new["zero"], new["blend"], fed["blend"])]
    yield f"| {log.name.split('-')[0]} | {cut} | {' | '.join(row)} | {cut / taken_s:,.0f} |"


def _lines(log: Path, cut: int) -> list[str]:
    return list(lines_of(log, cut))


def main() -> None:
    """Print the table, log by log."""
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
