"""Generated workloads that mislead a learning method, and the errors of the default method at their sites.

A site has the workload of `generate` and, at times, episodes: bursts of 10 to 10,000 jobs of one user, storms of jobs
that are withdrawn, a user who fills the machine for a week, an outage of a day, and a machine that doubles. At low load
all waits are zero.
"""

from collections import Counter
from collections.abc import Iterator
from math import log10
from random import Random
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pytest

from models.engine.engine import Engine
from models.engine.settings import EngineSettings
from models.records import AnyEvent, Cancel, Outcome, Start, Submit
from models.simulation.policies import POLICIES
from models.simulation.workload import DAY, SimulatedJob, generate
from models.waits.blend.guard import TWO_BEST, Choice, Guard

CPUS = 128
STRETCH = 2000
TRIVIAL_FACTOR, EXPERTS_FACTOR, SLACK_S = 1.15, 1.10, 300.0
"""Limits for each stretch of jobs: factors of the mean error of the better baseline and of the mean of the two best
experts, plus this slack."""

KINDS = ("burst", "burst", "storm", "week", "outage")
LOADS = (0.2, 0.6, 0.8)


def episode(kind: str, number: int, begin: int, most: int, dice: Random) -> list[SimulatedJob]:
    """Return jobs of one user from `begin` on; a burst has up to `most`."""
    span_s, cpus, run_s, patience = 600, 1, int(10 ** dice.uniform(1.5, 4.0)), None
    count = int(10 ** dice.uniform(1.0, log10(most)))
    if kind == "storm":
        cpus, patience = CPUS // 4, dice.randrange(60, 1200)
    elif kind == "week":
        count, span_s, cpus, run_s = 60, 7 * DAY, CPUS // 2, 4 * 3600
    elif kind == "outage":  # no other job runs for a day
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
    """Yield the events of a site with about `jobs` jobs, half of them in episodes."""
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


class Scored(NamedTuple):
    """Arrays of shape (jobs,) in the order of submission.

    The errors in seconds of the default, of the baselines and of the mean of its two best experts; a flag for jobs that
    started; and a flag for jobs of informed bursts: the job was the only one of its user in the queue, or another one
    had left since the user had no job there.
    """

    errors_s: dict[str, np.ndarray]
    started: np.ndarray
    shown: np.ndarray

    def check(self, which: np.ndarray, factors: dict[str, float], first: int = 0) -> None:
        """Check that no stretch of these jobs, from the `first` on, exceeds these factors of the other mean errors."""
        places = np.flatnonzero(which)[first:]
        assert len(places) > STRETCH // 2
        for begin in range(0, max(len(places) - STRETCH, 0) + 1, STRETCH):
            stretch = places[begin : begin + STRETCH]
            means_s = {name: float(of[stretch].mean()) for name, of in self.errors_s.items()}
            most_s = min(factor * means_s[name] for name, factor in factors.items()) + SLACK_S
            assert means_s["blend"] <= most_s, (stretch[0], stretch[-1], means_s)


TRIVIAL = dict.fromkeys(("zero", "median"), TRIVIAL_FACTOR)
EXPERTS = TRIVIAL | {"experts": EXPERTS_FACTOR}


def scored(seed: int, jobs: int, monkeypatch: pytest.MonkeyPatch) -> Scored:
    """Score the jobs of a workload with an observed wait. A withdrawn job counts as started at that time."""
    choose, latest = Guard.choose, list[float]()

    def noted(*args: Any) -> Choice:
        choice = choose(*args)
        latest[:] = [float(choice.waits_s[TWO_BEST])]
        return choice

    monkeypatch.setattr(Guard, "choose", noted)
    methods = ("blend", "zero", "median")
    engine = Engine("made", EngineSettings(method=methods[0], shadows=methods[1:], publish_shadows=True))
    waits: dict[str, Outcome] = {}
    predictions: dict[str, dict[str, float]] = {}
    shown: dict[str, bool] = {}
    queued, seen, owners = Counter[str](), set[str](), dict[str, str]()
    for event in events(seed, jobs):
        latest.clear()
        for record in engine.apply(event):
            if isinstance(record, Outcome) and record.actual_run_s is None:
                predictions[record.job][record.method] = record.predicted_wait_s or 0.0
                waits[record.job] = record
        engine.take_changes()
        if isinstance(event, Submit):
            user = owners[event.job] = str(event.user)
            if not queued[user]:
                seen.discard(user)
            shown[event.job] = not queued[user] or user in seen
            queued[user] += 1
            predictions[event.job] = {"experts": latest[0] if latest else np.nan}
        elif isinstance(event, Start | Cancel):
            queued[owners[event.job]] -= 1
            seen.add(owners[event.job])
    known = [job for job in predictions if job in waits]
    wait_s = np.array([waits[job].actual_wait_s for job in known])
    errors_s = {
        name: abs(np.array([predictions[job][name] for job in known]) - wait_s) for name in (*methods, "experts")
    }
    started = np.array([not waits[job].censored for job in known])
    return Scored(errors_s, started, np.array([shown[job] for job in known]) & ~np.isnan(errors_s["experts"]))
