"""Simulate other schedulers on a trace with various run times, to measure the benefit of predictions."""

from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from models import simulation
from models.method_registry import RUN_METHODS, run_method_named
from streams.errors import InvalidInput, UserError
from streams.sources.swf import SwfJob, Trace
from streams.text.terminal import show_table

UNPREDICTED: dict[str, type[simulation.Estimates]] = {"walltime": simulation.Estimates, "actual": simulation.Actual}
"""Run times that are not predicted: the requested and the true ones."""

NO_RUN_TIMES = "none"  # the name of the run times where the scheduler uses none


class SimulationPlan(msgspec.Struct, frozen=True):
    """Plan of a simulation: a machine, its jobs, and the schedulers with their run times."""

    cpus: int
    jobs: list[simulation.SimulatedJob]
    left_out: int
    pairs: list[tuple[str, str]]

    @property
    def steps(self) -> int:
        """Number of calls of `advance` by `simulate`."""
        return len(self.pairs) * len(self.jobs)


class SchedulerResult(msgspec.Struct, frozen=True):
    """Results of one scheduler with one kind of run times."""

    scheduler: str
    runtimes: str
    performance: simulation.Performance


def plan_of(
    trace: Trace, schedulers: str, runtimes: str, cpus: int | None = None, rows: tuple[int, int] | None = None
) -> SimulationPlan:
    """Build a plan from comma-separated names; a scheduler that uses no run times is listed once.

    `cpus` defaults to the trace's header; `rows` are positions in submission order, from 1, inclusive.

    Raises:
        UserError: there is no such name, the machine's size is missing, a job is larger than it, or there is no
            job.
    """
    pairs = _pairs(
        _parse_names(schedulers, simulation.POLICIES, "scheduler"),
        _parse_names(runtimes, [*UNPREDICTED, *RUN_METHODS], "run times"),
    )
    size = cpus or trace.cpus
    if size < 1:
        raise UserError(f"{trace.path}: the header lacks the size of the machine (MaxProcs); give --cpus")
    chosen = trace.jobs if rows is None else trace.jobs[max(rows[0], 1) - 1 : max(rows[1], 0)]
    jobs = [_simulated(job, place) for place, job in enumerate(chosen, 1) if job.started and job.run >= 0]
    if not jobs:
        raise UserError(f"{trace.path}: no job in that range ran; there are {len(trace.jobs)} jobs")
    largest = max(job.cpus for job in jobs)
    if largest > size:
        raise UserError(f"{trace.path}: a job has {largest} CPUs, the machine {size}; give a larger --cpus")
    return SimulationPlan(size, jobs, len(chosen) - len(jobs), pairs)


def simulate(plan: SimulationPlan, advance: Callable[[], None] = lambda: None) -> Iterator[SchedulerResult]:
    """Run the plan, row by row; `advance` is called at each of its `steps`."""
    for scheduler, runtimes in plan.pairs:
        yield SchedulerResult(
            scheduler, runtimes, simulation.perform(plan.jobs, plan.cpus, scheduler, _estimates(runtimes), advance)
        )


def show(rows: Sequence[SchedulerResult]) -> None:
    """Print rows side by side, after Gibbons 1997, table 6.4, and Smith, Taylor and Foster 1999, tables 10 to 15."""
    heads = ["scheduler", "run times", "util. %", "wait min", "response min", "slowdown", "killed", "susp./times"]
    show_table(heads, [_line(row) for row in rows])


def document(trace: Trace, plan: SimulationPlan, rows: Sequence[SchedulerResult]) -> dict[str, object]:
    """Return the content of `show` as fractions and seconds."""
    figures = [
        {"scheduler": row.scheduler, "runtimes": row.runtimes, **msgspec.structs.asdict(row.performance)}
        for row in rows
    ]
    return {"trace": str(trace.path), "cpus": plan.cpus, "left_out": plan.left_out, "rows": figures}


def _line(row: SchedulerResult) -> list[str]:
    found = row.performance
    return [
        row.scheduler,
        row.runtimes,
        f"{100 * found.utilisation:.2f}",
        f"{found.wait_s / 60:.2f}",
        f"{found.response_s / 60:.2f}",
        f"{found.slowdown:.2f}",
        f"{found.killed}",
        f"{found.suspended}/{found.suspensions}",
    ]


def _parse_names(text: str, there_are: Sequence[str] | Mapping[str, object], what: str) -> list[str]:
    names = list(dict.fromkeys(name.strip() for name in text.split(",")))
    for name in names:
        if name not in there_are:
            raise InvalidInput(f"no {what} {name!r}; there are: {', '.join(there_are)}")
    return names


def _pairs(schedulers: Sequence[str], runtimes: Sequence[str]) -> list[tuple[str, str]]:
    return [
        (scheduler, name)
        for scheduler in schedulers
        for name in ([NO_RUN_TIMES] if scheduler in simulation.WITHOUT_RUN_TIMES else runtimes)
    ]


def _estimates(name: str) -> simulation.Estimates:
    plain = simulation.Estimates if name == NO_RUN_TIMES else UNPREDICTED.get(name)
    return plain() if plain else simulation.PredictedRunTimes(run_method_named(name))


def _simulated(job: SwfJob, place: int) -> simulation.SimulatedJob:
    """Convert a job of a trace as it was submitted and as it ran, on its allocated CPUs; its number is its place."""
    return simulation.SimulatedJob(
        job=str(place),
        submit=round(job.submit),
        user=f"u{job.user}" if job.user >= 0 else None,
        group=f"g{job.group}" if job.group >= 0 else None,
        queue=f"q{job.queue}" if job.queue >= 0 else None,
        executable=f"x{job.executable}" if job.executable >= 0 else None,
        cpus=max(job.allocated if job.allocated > 0 else job.requested, 1),
        run=round(job.run),
        walltime=round(job.walltime) if job.walltime > 0 else None,
    )
