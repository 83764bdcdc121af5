"""A synthetic workload after Lublin and Feitelson's model of rigid jobs.

U. Lublin, D. G. Feitelson, "The workload on parallel supercomputers: modeling the characteristics of rigid jobs", J.
Parallel and Distributed Computing 63(11), 2003. Sizes, run times and arrivals follow their model, with the constants
that they published for batch jobs. Features outside their model are added here without a change of those distributions:

- **Users** are Zipf-like in popularity and have a handful of applications each. Jobs are drawn from the model first
  and then assigned to applications, like to like (by size, then run time, both with noise). An application's jobs
  therefore resemble each other, while all jobs together still have exactly the model's distributions.
- **Sessions**: an application's jobs come in bursts of a few, close together and interleaved with other users'.
- **Walltimes** are round values, chosen once a session and longer than needed. The share of its walltime that a job
  uses is spread as in the traces (means of 0.3 to 0.5 there). After D. Tsafrir, Y. Etsion, D. G. Feitelson, "Modeling
  user runtime estimates", JSSPP 2005, few round values make up nearly all requests. A small share of the jobs requests
  too little and is killed.
- **Patience**: some users withdraw a job that has not started after a while.
- **Load**: the gaps between arrivals are scaled so that the offered load has the requested value.
"""

from collections.abc import Callable

import msgspec
import numpy as np

from models.arrays import Floats, Ints
from models.records import Submit

Rng = np.random.Generator

DAY = 86_400
SLOT = 1_800

# The published constants for batch jobs. Gammas are (shape, scale): of the natural log of seconds, DAILY of half hours.
SERIAL = 0.2927
POWER_OF_TWO = 0.6686
SMALLEST_LOG2 = 1.2
UPPER_STAGE_LOG2 = 2.0
"""Distance below log2 of the machine at which the upper stage of sizes begins: 5 of 7 for the 128 nodes they
published."""
LOWER_STAGE = 0.875
SHORT_RUN = (6.57, 0.823)
LONG_RUN = (639.1, 0.0156)
SHORT_PER_CPU = -0.003
SHORT_AT_ZERO = 0.6986
LONGEST_LOG_RUN = 12.0
RUSH_GAP = (6.0415, 0.8531)
ALL_TO_RUSH = 1.0519  # factor from the shape of the rush hours' gaps to that of all hours (their `arar`)
LONGEST_LOG_GAP = 13.0
DAILY = (6.1271, 5.2740)
FIRST_SLOT = 10  # the cycle runs from 5:00, the quietest time, to 5:00; its gamma counts half hours from 11 there

# Features outside the model.
APPLICATIONS = 6  # maximum number of applications of a user
RUN_NOISE = 0.5
SIZE_NOISE = 0.3
"""Variation of the jobs of an application: standard deviations of the log of run time, and of log2 of size."""
SESSION_JOBS = 4
SESSION_SPREAD = 40
"""Mean number of jobs of a session (fewer if its application has no more), and the number of the site's submissions
over which they spread. More similar jobs at the same time make longer waits: with these values, EASY at a load of 0.7
has mean waits of about 10 hours; the traces have 4 to 15."""
UNDER_REQUESTED = 0.06
LEAST_USE = 0.3  # minimum share of the requested walltime that a session's longest job uses, before rounding up
PATIENCE = 4 * 3600  # mean patience, in seconds, of the users who withdraw jobs
WALLTIMES: Ints = np.array([5, 10, 15, 30, 60, 120, 240, 360, 480, 720, 1080, 1440, 2160, 2880]) * 60
QUEUES = (("short", 3600), ("batch", 12 * 3600), ("long", 48 * 3600))
EXECUTABLES = (
    "namd",
    "gromacs",
    "vasp",
    "wrf",
    "lammps",
    "gaussian",
    "openfoam",
    "amber",
    "cp2k",
    "nwchem",
    "matlab",
    "python",
)


class SimulatedJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job with the data that only the simulation has: its full run time and the patience of its user.

    Times and durations are whole seconds. `run` is the time that the job needs, so it is killed where that exceeds
    `walltime` (None for no limit). `patience` is the time after its submission at which it is withdrawn if it has not
    started, or None for never.
    """

    job: str
    submit: int
    user: str | None
    group: str | None
    queue: str | None
    executable: str | None
    cpus: int
    run: int
    walltime: int | None
    patience: int | None = None

    @property
    def seconds(self) -> int:
        """Time that the job holds its CPUs, in seconds."""
        return self.run if self.walltime is None else min(self.run, self.walltime)

    def submission(self, site: str) -> Submit:
        """The event of this job's submission to a site."""
        return Submit(
            site=site,
            time=float(self.submit),
            job=self.job,
            user=self.user,
            group=self.group,
            queue=self.queue,
            executable=self.executable,
            cpus=self.cpus,
            walltime=None if self.walltime is None else float(self.walltime),
        )


def generate(
    seed: int,
    jobs: int,
    cpus: int,
    load: float,
    *,
    start_time: int = 0,
    users: int = 40,
    impatient: float = 0.1,
    session_jobs: int = SESSION_JOBS,
    session_spread: float = SESSION_SPREAD,
) -> list[SimulatedJob]:
    """Return jobs for a machine of `cpus` CPUs, in the order of submission; the same for the same arguments.

    Args:
        seed: of the random numbers.
        jobs: number of jobs.
        cpus: the machine's CPUs.
        load: the offered load: the jobs' CPU-seconds (up to their walltimes, as if none were withdrawn) over those of
            the machine from `start_time` to the last submission.
        start_time: Unix seconds, UTC; the daily cycle follows it.
        users: number of users.
        impatient: the share of jobs that are withdrawn if they queue too long.
        session_jobs: mean number of jobs that are submitted together.
        session_spread: mean distance of a session's jobs from its first, in submissions of the site.

    Raises:
        ValueError: a load or a number of jobs, CPUs, users or jobs of a session is not positive, or a share is outside
            0 to 1.
    """
    if min(jobs, cpus, users, session_jobs) < 1 or load <= 0 or not 0 <= impatient <= 1:
        raise ValueError("jobs, cpus, users, session_jobs and load must be positive and impatient within 0 to 1")
    rng = np.random.default_rng(seed)
    sizes = job_sizes(rng, jobs, cpus)
    runs = run_times(rng, sizes)
    application, owner, session = _homes(rng, sizes, runs, users, session_jobs)
    walltimes = _walltimes(rng, runs, session)
    order = _submission_order(rng, session, session_spread)
    work = float(np.sum(sizes * np.minimum(runs, walltimes)))
    submits = arrivals(rng, jobs, start_time, period=work / (cpus * load))
    executables = _zipf(rng, len(EXECUTABLES), owner.size)
    groups = _zipf(rng, max(1, users // 4), users)
    patience = np.where(rng.random(jobs) < impatient, 1 + rng.exponential(PATIENCE, jobs), np.inf)
    return [
        SimulatedJob(
            job=str(number),
            submit=int(submits[number - 1]),
            user=f"u{owner[application[i]] + 1}",
            group=f"g{groups[owner[application[i]]] + 1}",
            queue=next(name for name, limit in QUEUES if walltimes[i] <= limit),
            executable=EXECUTABLES[executables[application[i]]],
            cpus=int(sizes[i]),
            run=int(runs[i]),
            walltime=int(walltimes[i]),
            patience=int(patience[i]) if np.isfinite(patience[i]) else None,
        )
        for number, i in enumerate(order, 1)
    ]


def job_sizes(rng: Rng, jobs: int, cpus: int) -> Ints:
    """CPUs a job, (jobs,): serial, a power of two, or any, over a two-stage uniform of log2 (their job sizes)."""
    high = np.log2(cpus)
    low = min(SMALLEST_LOG2, high)
    middle = max(low, high - UPPER_STAGE_LOG2)
    kind = rng.random(jobs)
    lower = rng.random(jobs) < LOWER_STAGE
    log2 = rng.uniform(np.where(lower, low, middle), np.where(lower, middle, high))
    log2 = np.where(kind < SERIAL + POWER_OF_TWO, np.rint(log2), log2)
    sizes = np.where(kind < SERIAL, 1, np.rint(np.exp2(log2)))
    return np.minimum(sizes, cpus).astype(np.int64)


def run_times(rng: Rng, sizes: Ints) -> Ints:
    """Run times in seconds, one for each of `sizes`: a hyper-gamma of the log; larger jobs are long more often."""
    short_share = np.clip(SHORT_PER_CPU * sizes + SHORT_AT_ZERO, 0.0, 1.0)

    def draw(which: Ints) -> Floats:
        short = rng.random(which.size) < short_share[which]
        return np.where(short, rng.gamma(*SHORT_RUN, which.size), rng.gamma(*LONG_RUN, which.size))

    seconds = np.exp(_at_most(LONGEST_LOG_RUN, draw, sizes.size))
    return np.maximum(seconds, 1.0).astype(np.int64)


def arrivals(rng: Rng, jobs: int, start_time: int, period: float) -> Ints:
    """Return the submission times, (jobs,), ascending; the last one is `period` seconds after `start_time`.

    The logarithms of the gaps have a gamma distribution. They are in a time that passes faster in busier hours, so that
    arrivals follow the daily cycle (Lublin's arrivals; slots of half an hour weighted by a gamma).
    """
    shape, scale = RUSH_GAP
    gaps = np.exp(_at_most(LONGEST_LOG_GAP, lambda which: rng.gamma(shape * ALL_TO_RUSH, scale, which.size), jobs))
    busy_until = np.concatenate([[0.0], np.cumsum(day_cycle())]) * SLOT
    clock_until = np.arange(busy_until.size) * float(SLOT)
    midnight = start_time - start_time % DAY

    def busy(clock: float) -> float:
        days, within = divmod(clock, DAY)
        return float(days * DAY + np.interp(within, clock_until, busy_until))

    begin = busy(start_time - midnight)
    span = busy(start_time - midnight + period) - begin
    passed = np.cumsum(gaps)
    days, within = np.divmod(begin + passed * (span / passed[-1]), DAY)
    clock = days * DAY + np.interp(within, busy_until, clock_until)
    return np.asarray(midnight + np.rint(clock), dtype=np.int64)


def day_cycle() -> Floats:
    """Return the activity of each half hour of the day, (48,) from midnight, with a mean of 1."""
    shape, scale = DAILY
    slots = DAY // SLOT
    half_hours = FIRST_SLOT + 0.5 + (np.arange(slots * 60) + 0.5) / 60
    density = half_hours ** (shape - 1) * np.exp(-half_hours / scale)
    weights = np.roll(density.reshape(slots, 60).mean(axis=1), FIRST_SLOT)
    return np.asarray(weights / weights.mean())


def _at_most(limit: float, draw: Callable[[Ints], Floats], count: int) -> Floats:
    """Draw values, (count,); draw those above the limit again."""
    values = np.full(count, np.inf)
    while (above := np.flatnonzero(values > limit)).size:
        values[above] = draw(above)
    return values


def _homes(rng: Rng, sizes: Ints, runs: Ints, users: int, session_jobs: int) -> tuple[Ints, Ints, Ints]:
    """Each job's application, each application's user, and each job's session."""
    owner, popularity = _applications(rng, users)
    likeness = np.lexsort(
        (
            np.log(runs) + rng.normal(0.0, RUN_NOISE, runs.size),
            np.rint(np.log2(sizes) + rng.normal(0.0, SIZE_NOISE, sizes.size)),
        )
    )
    along = np.sort(rng.choice(owner.size, sizes.size, p=popularity))
    begins = rng.random(sizes.size) < 1 / session_jobs
    begins[1:] |= np.diff(along) > 0
    begins[0] = False
    application = np.empty_like(sizes)
    session = np.empty_like(sizes)
    application[likeness] = along
    session[likeness] = np.cumsum(begins)
    return application, owner, session


def _applications(rng: Rng, users: int) -> tuple[Ints, Floats]:
    """The applications' users and their shares of all jobs, in random order; users and favourites are Zipf-like."""
    counts = rng.integers(1, APPLICATIONS + 1, users)
    owner = np.repeat(np.arange(users), counts)
    rank = np.concatenate([np.arange(1, count + 1) for count in counts])
    favour = 1 / rank
    favour /= np.bincount(owner, favour)[owner]
    share = favour / (owner + 1)
    shuffled = rng.permutation(owner.size)
    return owner[shuffled], share[shuffled] / share.sum()


def _walltimes(rng: Rng, runs: Ints, session: Ints) -> Ints:
    """Return requested walltimes in seconds: a round value for the whole session; a few jobs request too little."""
    longest = np.zeros(session.max() + 1)
    np.maximum.at(longest, session, runs)
    requested_s = np.minimum(longest / rng.uniform(LEAST_USE, 1.0, longest.size), WALLTIMES[-1])
    enough = WALLTIMES[np.searchsorted(WALLTIMES, requested_s)][session]
    below = np.searchsorted(WALLTIMES, runs) - 1
    too_little = (rng.random(runs.size) < UNDER_REQUESTED) & (below >= 0)
    return np.where(too_little, WALLTIMES[np.maximum(below, 0)], enough)


def _submission_order(rng: Rng, session: Ints, spread: float) -> Ints:
    """Return the jobs in the order of submission: random sessions, whose jobs are close and interleaved."""
    begins = rng.uniform(0.0, session.size, session.max() + 1)
    return np.argsort(begins[session] + rng.exponential(spread, session.size), kind="stable")


def _zipf(rng: Rng, kinds: int, count: int) -> Ints:
    """Draw numbers below `kinds`, (count,), with Zipf's distribution."""
    weights = 1 / np.arange(1, kinds + 1)
    return rng.choice(kinds, count, p=weights / weights.sum())
