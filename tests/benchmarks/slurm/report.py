"""The tables of the benchmark, as Markdown."""

from collections.abc import Iterable, Iterator, Mapping

from models.durations import duration
from tests.benchmarks.slurm.estimates import Run, ScoredJob
from tests.benchmarks.slurm.scoring import AgeScore, Score, at_submission, coverage, scored_jobs, while_waiting

NAMES = {
    "zero": "zero wait",
    "median": "recent median",
    "test-only": "`sbatch --test-only`",
    "squeue": "`squeue --start`",
    "blend": "queuecast",
}

HEADS = "| | MAE, h | 90 % interval | minus queuecast, h | within a factor of 2 | 90 % interval | no estimate |"
AGE_HEADS = (
    "| age | jobs | starts now, h | recent median, h | `squeue --start`, h | queuecast, h | Slurm minus queuecast, h "
    "| N/A | Slurm has an estimate: `squeue --start`, h | queuecast, h |"
)


def lines(run: Run) -> Iterator[str]:
    """Yield the lines of the report."""
    jobs, workload = scored_jobs(run), run.workload
    mean_h = sum(job.wait_s for job in jobs) * workload.factor / 3600.0 / max(len(jobs), 1)
    yield (
        f"{len(run.jobs)} jobs of {workload.origin} on {workload.cpus} CPUs; {len(jobs)} scored, with a mean wait of "
        f"{mean_h:.2f} h of the trace; {run.waiting} jobs did not start."
    )
    yield (
        f"Run times are compressed by {workload.factor}, arrivals by {workload.arrivals_factor:.0f}. Times are hours "
        "of the trace. No estimate counts as the recent median."
    )
    sets = {
        "All jobs, at submission": (_all, ("zero", "median", "test-only", "blend")),
        "Jobs that were pending at the first `squeue --start`": (_is_pending, tuple(NAMES)),
        "Jobs for which `squeue --start` had an estimate within 10 s": (_has_estimate, tuple(NAMES)),
    }
    for title, (choose, methods) in sets.items():
        count = sum(map(choose, jobs))
        yield ""
        yield f"{title} ({count}):"
        if count:
            yield from score_lines(at_submission(run, choose), methods)
    yield ""
    yield from (direction(jobs, method) for method in ("test-only", "squeue", "blend"))
    yield ""
    yield "While jobs wait, error of the remaining wait:"
    yield from age_lines(while_waiting(run))
    yield ""
    yield "Pending jobs in the polls of `squeue --start`, by Slurm's reason:"
    yield from reason_lines(run.reasons)
    yield ""
    yield f"queuecast's bound of 0.9 covered {_percent(coverage(run, '0.9'))} of the waits."


def direction(jobs: Iterable[ScoredJob], method: str) -> str:
    """Describe in which direction the estimates of pending jobs at submission were wrong by more than a second."""
    pairs = [(wait_s, job.wait_s) for job in jobs if _is_pending(job) and (wait_s := job.first(method)) is not None]
    late, early = (sum(sign * (estimate_s - wait_s) > 1.0 for estimate_s, wait_s in pairs) for sign in (1, -1))
    count = max(len(pairs), 1)
    shares = f"{_percent(late / count)} too late, {_percent(early / count)} too early"
    return f"- {NAMES[method]}: {shares} ({len(pairs)} estimates)."


def score_lines(scores: Mapping[str, Score], methods: Iterable[str]) -> Iterator[str]:
    """Yield a table of the scores at submission."""
    yield ""
    yield HEADS
    yield "|" + "---|" * 7
    for method in methods:
        row = scores[method]
        less = "" if method == "blend" else _interval(row.difference_h, "+.2f")
        yield (
            f"| {NAMES[method]} | {row.mae_h:.2f} | {_interval(row.mae_interval)} | {less} | {_percent(row.x2)} | "
            f"{_percent(row.x2_interval[0])} to {_percent(row.x2_interval[1])} | {_percent(row.missing)} |"
        )


def age_lines(scores: Iterable[AgeScore]) -> Iterator[str]:
    """Yield a table of the scores by age."""
    yield ""
    yield AGE_HEADS
    yield "|" + "---|" * 10
    for row in scores:
        errors, some = row.errors_h, row.with_estimate_h
        yield (
            f"| {duration(row.age_s)} | {row.jobs} | {errors['now']:.2f} | {errors['recent']:.2f} | "
            f"{errors['squeue']:.2f} | {errors['blend']:.2f} | {_interval(row.difference_h, '+.2f')} | "
            f"{_percent(row.missing)} | {some['squeue']:.2f} | {some['blend']:.2f} |"
        )


def reason_lines(reasons: Mapping[str, tuple[int, int]]) -> Iterator[str]:
    """Yield a table of the reasons, the most frequent first."""
    total = max(sum(map(sum, reasons.values())), 1)
    yield ""
    yield "| reason | share of the polled jobs | N/A |"
    yield "|---|---|---|"
    for reason, (present, missing) in sorted(reasons.items(), key=lambda item: -sum(item[1])):
        yield f"| {reason} | {_percent((present + missing) / total)} | {_percent(missing / (present + missing))} |"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _interval(pair: tuple[float, float], form: str = ".2f") -> str:
    return f"{pair[0]:{form}} to {pair[1]:{form}}"


def _all(_: ScoredJob) -> bool:
    return True


def _is_pending(job: ScoredJob) -> bool:
    return "squeue" in job.estimates


def _has_estimate(job: ScoredJob) -> bool:
    return job.first("squeue") is not None
