"""CPU time of a submit event with the default settings: 6000 jobs in the history, 500 running, 500 queued."""

import random
import time

import numpy as np

from models.engine.engine import Engine
from models.engine.settings import EngineSettings
from models.records import AnyEvent, Submit
from tests.support.events import capacity, end, start, submit

HISTORY, LIVE, MEASURED = 6000, 500, 300
CPUS = 8 * LIVE


def job(dice: random.Random, name: str, at: float) -> Submit:
    """Return a job of one of 80 users and three queues."""
    cpus, walltime = 2 ** dice.randrange(7), dice.choice((600.0, 3600.0, 14_400.0, 86_400.0))
    return submit(name, at, cpus=cpus, walltime=walltime, user=f"u{dice.randrange(80)}", queue=dice.choice("abc"))


def history(dice: random.Random) -> list[AnyEvent]:
    """Return the events of ended jobs, by time."""
    events: list[AnyEvent] = [capacity(CPUS)]
    for number in range(HISTORY):
        at, name = 60.0 * number, f"h{number}"
        began = at + dice.expovariate(1 / 3000)
        events += [job(dice, name, at), start(name, began), end(name, began + dice.expovariate(1 / 2000))]
    return sorted(events, key=lambda event: event.time)


def test_default_submit_event_cpu_time_is_printed() -> None:
    """Print percentiles of its CPU time (ms); trainings run in another process."""
    dice, engine = random.Random(1), Engine("s", EngineSettings())
    for event in history(dice):
        engine.apply(event)
        engine.take_changes()
    now, spent = engine.time + 60.0, []
    for number in range(2 * LIVE + MEASURED):
        event = job(dice, f"n{number}", now + number)
        begin = time.thread_time()
        engine.apply(event)
        spent.append(time.thread_time() - begin)
        if number < LIVE:
            engine.apply(start(event.job, now + number))
    median, worst = np.percentile(spent[-MEASURED:], [50, 99]) * 1000
    print(f"\n{LIVE} running and {LIVE} to {LIVE + MEASURED} queued: {median:.1f} ms, 99 %: {worst:.1f} ms")
    assert 0.0 < median <= worst
