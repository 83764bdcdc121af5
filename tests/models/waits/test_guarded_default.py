"""The default in an engine over generated workloads: it is never much worse than saying nothing, or as of late.

A site has the workload of `generate` and, now and then, what fools who learns: bursts of 10 to 10,000 jobs of one
user, storms of jobs that are withdrawn, a user who fills the machine for a week, an outage of a day, a machine that
doubles; and where the load is low, waits of nothing.
"""

from collections.abc import Iterator
from math import log10
from random import Random

import msgspec
import numpy as np
import pytest

from models.engine.engine import Engine
from models.engine.settings import EngineSettings
from models.records import AnyEvent, Outcome
from models.simulation.policies import POLICIES
from models.simulation.workload import DAY, SimulatedJob, generate

CPUS = 128
STRETCH = 2000
FACTOR, SLACK_S = 1.15, 300.0
"""What no stretch of jobs exceeds: this factor of the better trivial rule's mean error, and so much more."""

KINDS = ("burst", "burst", "storm", "week", "outage")
LOADS = (0.2, 0.6, 0.8)


def episode(kind: str, number: int, begin: int, most: int, dice: Random) -> list[SimulatedJob]:
    """Jobs of one user, from `begin` on; a burst has up to `most`."""
    span_s, cpus, run_s, patience = 600, 1, int(10 ** dice.uniform(1.5, 4.0)), None
    count = int(10 ** dice.uniform(1.0, log10(most)))
    if kind == "storm":
        cpus, patience = CPUS // 4, dice.randrange(60, 1200)
    elif kind == "week":
        count, span_s, cpus, run_s = 60, 7 * DAY, CPUS // 2, 4 * 3600
    elif kind == "outage":  # nothing else runs for a day
        count, cpus, run_s = 1, CPUS, DAY
    submits = sorted(begin + dice.randrange(span_s) for _ in range(count))
    one = SimulatedJob(
        job="", submit=0, user=f"{kind} {number}", group=None, queue=None, executable=None, cpus=cpus, run=run_s,
        walltime=2 * run_s, patience=patience,
    )  # fmt: skip
    return [
        msgspec.structs.replace(one, job=f"{kind} {number} {place}", submit=submit)
        for place, submit in enumerate(submits)
    ]


def events(seed: int, jobs: int) -> Iterator[AnyEvent]:
    """A site of about so many jobs, half of them of episodes."""
    dice = Random(seed)
    usual = generate(seed, jobs // 2, CPUS, dice.choice(LOADS))
    begin, end, special = usual[jobs // 10].submit, usual[-1].submit, list[SimulatedJob]()
    while len(special) < jobs // 2:
        most = min(10_000, jobs // 2)
        special += episode(dice.choice(KINDS), len(special), dice.randrange(begin, end), most, dice)
    policy, doubles = dice.choice(("easy", "fcfs", "multifactor")), dice.random() < 0.5
    scheduler = POLICIES[policy]("made", CPUS, usual[0].submit)
    yield scheduler.capacity()
    for job in sorted(usual + special, key=lambda one: one.submit):
        if doubles and job.submit > (begin + end) // 2:
            doubles, scheduler.cpus, scheduler.free = False, 2 * CPUS, scheduler.free + CPUS
            yield scheduler.capacity()
        yield from scheduler.submit(job)
    yield from scheduler.finish()


def errors(seed: int, jobs: int) -> dict[str, np.ndarray]:
    """By method the errors in seconds of each job that started, in the order of submission.

    How long one would have waited that was withdrawn is not known: an estimate of more than its patience may be right.
    """
    methods = ("blend", "zero", "median")
    engine = Engine("made", EngineSettings(method=methods[0], shadows=methods[1:], publish_shadows=True))
    found: dict[str, dict[str, float]] = {name: {} for name in methods}
    order: dict[str, None] = {}
    for event in events(seed, jobs):
        for record in engine.apply(event):
            if isinstance(record, Outcome) and record.actual_run_s is None and not record.censored:
                found[record.method][record.job] = abs((record.predicted_wait_s or 0.0) - record.actual_wait_s)
        if event.kind == "submit":
            order[event.job] = None
        engine.take_changes()
    known = [job for job in order if job in found["blend"]]
    return {name: np.array([of[job] for job in known]) for name, of in found.items()}


def check(seed: int, jobs: int, first: int = STRETCH) -> None:
    means = {
        name: of[first : len(of) // STRETCH * STRETCH].reshape(-1, STRETCH).mean(axis=1)
        for name, of in errors(seed, jobs).items()
    }
    allowed_s = FACTOR * np.minimum(means["zero"], means["median"]) + SLACK_S
    assert len(allowed_s)
    assert (means["blend"] <= allowed_s).all(), (means, allowed_s)


def test_no_stretch_is_much_worse_than_the_better_trivial_rule() -> None:
    check(seed=11, jobs=4200, first=0)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1, 11))
def test_no_stretch_of_longer_workloads_is(seed: int) -> None:
    check(seed, jobs=8500)
