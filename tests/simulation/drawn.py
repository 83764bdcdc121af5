"""Schedulers with random rules, so that no method is designed for them.

Random are the order of the queue, the limits of users, groups and queues, the kind of backfill and its run times, the
share for short jobs, and the other rules at night or at the weekend. No job is suspended.
"""

from collections import Counter
from math import exp2, inf
from random import Random
from typing import Literal
from zlib import crc32

import msgspec

from models.method_registry import run_method_named
from models.simulation.assumed_run_times import Estimates, PredictedRunTimes
from models.simulation.backfill import Conservative
from models.simulation.multifactor import Holding
from models.simulation.scheduler import RunningJob
from models.simulation.workload import DAY, QUEUES, SimulatedJob
from tests.simulation.multifactor import LEARNT_BY

HOUR = 3600


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """Rules of a random scheduler. The priority of a pending job is a sum, in points:

    `age` for each day in the queue, up to `age_days`; minus `turns` times the user's present share of the machine;
    `fair` times 2^(−used/`share`) with the recent use of the user, as in `Priorities`, and `group_fair` with that of
    the group; `size` times the requested share of the machine, and `length` times the requested days; a random number
    per job up to `lottery`; and the points of its queue in `tiers`. At night (20:00 to 8:00) or at the weekend
    (`when`), `other` replaces `size`, and no limits apply.

    A user may run `user_jobs` jobs. `user_cpus` and `group_cpus` limit the share of the machine of a user and a group;
    `queue_cpus` has limits by queue. The share `short_part` of the machine is for jobs of at most `short_s`. A user,
    group or queue without running jobs may always start one job.

    Behind the first job that does not fit, `backfill` starts no job ("none"), jobs that do not delay it ("easy"), or
    jobs that delay no earlier job ("conservative"). The scheduler considers the first `depth` eligible jobs when a job
    arrives or ends, or every `every_s` seconds (0: immediately). It plans with the run times `plans`.
    """

    age: float = 1.0
    age_days: float = 7.0
    turns: float = 0.0
    fair: float = 0.0
    group_fair: float = 0.0
    half_life_s: float = 7 * DAY
    share: float = 0.05
    size: float = 0.0
    length: float = 0.0
    lottery: float = 0.0
    tiers: tuple[tuple[str, float], ...] = ()
    when: Literal["never", "nights", "weekends"] = "never"
    other: float = 0.0
    user_jobs: float = inf
    user_cpus: float = inf
    group_cpus: float = inf
    queue_cpus: tuple[tuple[str, float], ...] = ()
    short_part: float = 0.0
    short_s: int = HOUR
    backfill: Literal["none", "easy", "conservative"] = "easy"
    depth: int = 10_000
    every_s: int = 0
    plans: Literal["walltime", "predicted"] = "walltime"


TURNS = Rules(age=0.5, turns=10.0, user_jobs=6, short_part=0.2)
"""Order by the user's present share and age; six running jobs per user; a fifth of the machine for short jobs."""


def draw(seed: int) -> Rules:
    """Return random rules, determined by the seed: one or two terms of the order, up to two limits, and the rest."""
    by = Random(seed)
    rules: dict[str, object] = {"age": by.choice((0.3, 1.0, 3.0)), "age_days": by.choice((1.0, 7.0, 30.0))}
    orders = {
        "turns": lambda: {"turns": by.choice((2.0, 10.0))},
        "fair": lambda: {"fair": by.uniform(1.0, 3.0)},
        "group": lambda: {"group_fair": by.uniform(1.0, 3.0)},
        "size": lambda: {"size": by.choice((-4.0, -1.0, 1.0, 4.0))},
        "length": lambda: {"length": by.choice((-6.0, -1.5, 1.0))},
        "lottery": lambda: {"lottery": by.choice((0.5, 2.0))},
        "tiers": lambda: {"tiers": tuple((name, by.uniform(0.0, 3.0)) for name, _ in QUEUES)},
        "age": lambda: {},
    }
    limits = {
        "jobs": lambda: {"user_jobs": by.randint(3, 12)},
        "user": lambda: {"user_cpus": by.choice((0.3, 0.4, 0.5, 0.6))},
        "group": lambda: {"group_cpus": by.choice((0.4, 0.6))},
        "queue": lambda: {"queue_cpus": (("long", by.uniform(0.4, 0.7)),)},
    }
    for parts, many in ((orders, by.choice((1, 1, 2))), (limits, by.choice((0, 1, 1, 2)))):
        for name in by.sample(list(parts), many):
            rules |= parts[name]()
    rules["half_life_s"], rules["share"] = by.choice((1, 3, 7, 14)) * DAY, by.choice((0.02, 0.05, 0.2))
    rules["backfill"] = by.choices(("none", "easy", "conservative"), (1, 5, 3))[0]
    rules["depth"], rules["every_s"] = by.choice((10, 50, 10_000, 10_000)), by.choice((0, 0, 0, 60, 600, 1800))
    rules["plans"] = by.choice(("walltime", "walltime", "predicted"))
    if by.random() < 0.25:
        rules["short_part"], rules["short_s"] = by.choice((0.1, 0.2)), by.choice((HOUR, 4 * HOUR))
    if by.random() < 0.25:
        rules["when"], rules["other"] = by.choice(("nights", "weekends")), by.choice((-4.0, 4.0))
    return msgspec.convert(rules, Rules)


class Drawn(Conservative):
    """A scheduler with random rules.

    A visit of the queue takes O(queue · log queue), or O(queue²) with conservative backfill.

    Parameters:
        rules: its rules; other parameters are those of `Scheduler`.
    """

    def __init__(self, site: str, cpus: int, start_time: int, rules: Rules, estimates: Estimates | None = None) -> None:
        if estimates is None and rules.plans == "predicted":
            estimates = PredictedRunTimes(run_method_named(LEARNT_BY))
        super().__init__(site, cpus, start_time, estimates)
        self.rules = rules
        self._used: dict[str, Holding] = {}  # by user or group
        self._held: Counter[str] = Counter()  # CPUs of running jobs by kind of limit
        self._has: Counter[str] = Counter()
        self._news = False  # True if a job arrived or ended since the last visit of the queue
        self._tiers, self._queue_cpus = dict(rules.tiers), dict(rules.queue_cpus)

    @property
    def otherwise(self) -> bool:
        """True at night or at the weekend if other rules apply then."""
        if self.rules.when == "weekends":
            return (self.now // DAY + 3) % 7 >= 5
        return self.rules.when == "nights" and not 8 <= self.now % DAY // HOUR < 20

    def priority(self, job: SimulatedJob) -> float:
        """Return the present points of a pending job."""
        rules = self.rules
        points = rules.age * min((self.now - job.submit) / DAY, rules.age_days)
        points -= rules.turns * self._held[f"user {job.user}"] / self.cpus
        points += rules.fair * self._fair(f"user {job.user}") + rules.group_fair * self._fair(f"group {job.group}")
        points += (rules.other if self.otherwise else rules.size) * job.cpus / self.cpus
        points += rules.length * (job.walltime or 0) / DAY + self._tiers.get(job.queue or "", 0.0)
        return points + rules.lottery * crc32(job.job.encode()) / 2**32

    def _fair(self, name: str) -> float:
        return exp2(-self._used_by(name) / self.rules.share)

    def _used_by(self, name: str) -> float:
        holding = self._used.get(name, Holding())
        kept = exp2((holding.at - self.now) / self.rules.half_life_s)
        return holding.used * kept + holding.cpus / self.cpus * (1.0 - kept)

    def _forbidden(self, job: SimulatedJob) -> bool:
        """Return True if a limit blocks this job now."""
        rules = self.rules
        if self.otherwise:
            return False
        shares = {f"user {job.user}": rules.user_cpus, f"group {job.group}": rules.group_cpus}
        shares[f"queue {job.queue}"] = self._queue_cpus.get(job.queue or "", inf)
        if rules.short_part and not self._short(job):
            shares["long"] = 1.0 - rules.short_part
        over = any(self._held[name] and self._held[name] + job.cpus > most * self.cpus for name, most in shares.items())
        return over or self._has[f"user {job.user}"] >= rules.user_jobs

    def _short(self, job: SimulatedJob) -> bool:
        return job.walltime is not None and job.walltime <= self.rules.short_s

    def _dispatch(self) -> None:
        if not self.free or (self.rules.every_s and self.now % self.rules.every_s):
            return
        self._news = False
        allowed = [job for job in self.queue.values() if not self._forbidden(job)]
        points = {job.job: self.priority(job) for job in allowed}
        jobs = sorted(allowed, key=lambda job: -points[job.job])[: self.rules.depth]
        if self.rules.backfill == "conservative":
            begun = self._schedule(jobs, whole=False) == self.now
            jobs = [job for job, begins in zip(jobs, begun, strict=True) if begins]
        self._fill(jobs)

    def _fill(self, jobs: list[SimulatedJob]) -> None:
        """Start jobs in this order; after the first that does not fit, only those that do not delay it."""
        until, spare = inf, 0
        for job in jobs:
            if self._forbidden(job):
                continue
            late = self.now + self.planned[job.job] > until
            if job.cpus <= self.free and (not late or job.cpus <= spare):
                spare -= job.cpus if late else 0
                self._start(job)
            elif until == inf:
                if self.rules.backfill == "none":
                    return
                reservation = self._reserve(job)
                until, spare = reservation.time, reservation.spare

    def _withdraw(self, job: SimulatedJob) -> None:
        super()._withdraw(job)
        self._news = True

    def _arrived(self, job: SimulatedJob) -> None:
        self._news = True
        self._dispatch()

    def _next_time(self) -> int | None:
        times = [] if (time := super()._next_time()) is None else [time]
        if self.queue and self.rules.every_s and self._news:
            times.append((self.now // self.rules.every_s + 1) * self.rules.every_s)
        if self.queue and self.rules.when != "never":
            times.append((self.now // (4 * HOUR) + 1) * 4 * HOUR)
        return min(times, default=None)

    def _place(self, running: RunningJob) -> None:
        super()._place(running)
        self._hold(running.job, 1)

    def _lift(self, running: RunningJob) -> None:
        super()._lift(running)
        self._news = True
        self._hold(running.job, -1)

    def _hold(self, job: SimulatedJob, sign: int) -> None:
        """Add (1) or subtract (-1) the job's CPUs for its user, its group and its queue."""
        for name in (f"user {job.user}", f"group {job.group}"):
            held = self._used.get(name, Holding())
            self._used[name] = Holding(held.cpus + sign * job.cpus, self._used_by(name), self.now)
            self._held[name] += sign * job.cpus
        self._held[f"queue {job.queue}"] += sign * job.cpus
        self._held["long"] += 0 if self._short(job) else sign * job.cpus
        self._has[f"user {job.user}"] += sign
