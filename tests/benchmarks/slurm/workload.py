"""Jobs of the benchmark: a stretch of a trace, or generated ones, compressed to minutes."""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from models.simulation import generate
from streams.sources.swf import SwfJob, read_swf

FACTOR = 60
"""Compression of run times and time limits: an hour of the trace is a minute."""

LOAD = 1.0
"""Default of the offered load: the jobs' CPU-seconds over those of the machine until the last submission."""

NODES = 16
LARGE_SHARE = 0.4
"""Jobs of more than this share of the machine's CPUs use the QOS `large`."""

SHORT_LIMIT_MIN = 4
LONG_LIMIT_MIN = 12
MINUTE_S = 60
ACCOUNTS = 4


class BenchJob(msgspec.Struct, frozen=True, kw_only=True):
    """A compressed job: seconds from the first submission, run time in seconds, time limit in minutes."""

    name: str
    submit_s: float
    run_s: float
    limit_min: int
    cpus: int
    user: int
    executable: str

    @property
    def partition(self) -> str:
        """The partition for the time limit."""
        if self.limit_min <= SHORT_LIMIT_MIN:
            return "short"
        return "batch" if self.limit_min <= LONG_LIMIT_MIN else "long"

    @property
    def account(self) -> str:
        """The account of the user."""
        return account_of(self.user)


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs in the order of submission, the CPUs of each of the nodes, and the compression of the arrivals."""

    origin: str
    jobs: list[BenchJob]
    cpus_per_node: int
    arrivals_factor: float
    factor: int = FACTOR

    @property
    def cpus(self) -> int:
        """CPUs of the machine."""
        return NODES * self.cpus_per_node


def account_of(user: int) -> str:
    """Return the account of a user; users are spread evenly."""
    return f"a{user % ACCOUNTS}"


def user_name(user: int) -> str:
    """Return the login name of a user of the benchmark."""
    return f"qcb{user}"


def from_trace(path: Path, jobs: int, minutes: float, load: float = LOAD) -> Workload:
    """Take the jobs in the middle of a trace.

    Args:
        path: a trace in the Standard Workload Format.
        jobs: number of jobs.
        minutes: time until the last submission.
        load: the offered load.
    """
    trace = read_swf(path)
    fit = [job for job in trace.jobs if job.started and job.run > 0 and _cpus(job) > 0 and job.walltime > 0]
    begin = max((len(fit) - jobs) // 2, 0)
    chosen = fit[begin : begin + jobs]
    rows = [(str(j.number), j.submit, j.run, j.walltime, _cpus(j), j.user, f"x{max(j.executable, 0)}") for j in chosen]
    return compress(path.name.partition(".swf")[0], rows, minutes, load)


def from_generator(jobs: int, minutes: float, load: float = LOAD, seed: int = 1) -> Workload:
    """Generate jobs after Lublin and Feitelson's model, for a machine without a trace."""
    made = [job for job in generate(seed, jobs, 128, 0.9, impatient=0.0) if job.walltime is not None]
    users = {user: number for number, user in enumerate(sorted({job.user or "" for job in made}), 1)}
    rows: list[Row] = []
    for job in made:
        times = float(job.submit), float(job.run), float(job.walltime or 0)
        rows.append((job.job, *times, job.cpus, users[job.user or ""], job.executable or "x0"))
    return compress(f"generated (Lublin and Feitelson 2003, seed {seed})", rows, minutes, load)


Row = tuple[str, float, float, float, int, int, str]
"""Name, submission, run time and time limit in seconds, CPUs, user, and executable."""


def compress(origin: str, rows: Sequence[Row], minutes: float, load: float = LOAD) -> Workload:
    """Compress run times by `FACTOR`, arrivals to `minutes`, and size the machine for the offered load.

    A time limit is rounded up to whole minutes, because Slurm has no smaller unit.
    """
    span_s = max(rows[-1][1] - rows[0][1], 1.0)
    arrivals = span_s / (minutes * MINUTE_S)
    jobs = [
        BenchJob(
            name=name,
            submit_s=(submit - rows[0][1]) / arrivals,
            run_s=max(min(run, limit) / FACTOR, 0.1),
            limit_min=max(math.ceil(limit / FACTOR / MINUTE_S), 1),
            cpus=cpus,
            user=user,
            executable=executable,
        )
        for name, submit, run, limit, cpus, user, executable in rows
    ]
    work = sum(job.run_s * job.cpus for job in jobs)
    wanted = max(work / (minutes * MINUTE_S * load), _largest(jobs))
    return Workload(origin=origin, jobs=jobs, cpus_per_node=math.ceil(wanted / NODES), arrivals_factor=arrivals)


def _largest(jobs: Iterable[BenchJob]) -> float:
    """Return the CPUs at which the largest job fits into the nodes of its partition, the reserved node aside."""
    return max(job.cpus for job in jobs) * NODES / (NODES - 6)


def _cpus(job: SwfJob) -> int:
    return job.requested if job.requested > 0 else job.allocated
