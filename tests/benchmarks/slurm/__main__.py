"""Run the benchmark: `python -m tests.benchmarks.slurm [--minutes 45] [--jobs 1200] [--trace FILE] [--out DIR]`."""

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from tests.benchmarks.slurm.cluster import BenchSlurm, enter_namespace
from tests.benchmarks.slurm.estimates import read_run
from tests.benchmarks.slurm.recording import Recorder
from tests.benchmarks.slurm.report import lines
from tests.benchmarks.slurm.workload import LOAD, Workload, from_generator, from_trace

TRACES = Path(__file__).parents[4] / "shared" / "traces"
JOBS_PER_MINUTE = 26


def main() -> None:
    """Record a run, then score it."""
    given = _arguments()
    if given.score:
        _report(given.score, not given.compressed)
        return
    if reason := BenchSlurm.obstacle():
        sys.exit(f"bench-slurm: {reason}")
    workload = _workload(given)
    out: Path = given.out
    out.mkdir(parents=True, exist_ok=True)
    enter_namespace(sorted({job.user for job in workload.jobs}), out)
    print(
        f"{len(workload.jobs)} jobs of {workload.origin}: run times / {workload.factor}, arrivals / "
        f"{workload.arrivals_factor:.0f}, {workload.cpus} CPUs",
        flush=True,
    )
    with BenchSlurm(workload) as slurm:
        recorder = Recorder(slurm, workload, out)
        recorder.run(given.drain * 60.0)
    for failure in recorder.failures[:20]:
        print(failure, file=sys.stderr)
    _report(out)


def _report(directory: Path, uncompressed: bool = True) -> None:
    """Score the recordings, print the tables, and write them beside the recordings."""
    text = "\n".join(lines(read_run(directory, uncompressed)))
    (directory / ("table.md" if uncompressed else "table-compressed.md")).write_text(text + "\n")
    print(text)


def _workload(given: Namespace) -> Workload:
    jobs = given.jobs or round(given.minutes * JOBS_PER_MINUTE)
    trace = given.trace or next(iter(sorted(TRACES.glob("CTC-SP2*"))), None)
    if trace is None:
        return from_generator(jobs, given.minutes, given.load)
    return from_trace(trace, jobs, given.minutes, given.load)


def _arguments() -> Namespace:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=45.0, help="time until the last submission")
    parser.add_argument("--drain", type=float, default=12.0, help="maximum minutes until the last jobs start")
    parser.add_argument("--jobs", type=int, help="number of jobs; by default 26 a minute")
    parser.add_argument("--load", type=float, default=LOAD, help="offered load, which sizes the machine")
    parser.add_argument("--trace", type=Path, help="a trace in the Standard Workload Format")
    parser.add_argument("--out", type=Path, default=Path("bench-slurm"), help="folder of the recordings and the table")
    parser.add_argument("--score", type=Path, metavar="DIR", help="score the recordings of an earlier run only")
    parser.add_argument("--compressed", action="store_true", help="with --score: let queuecast see compressed times")
    return parser.parse_args()


if __name__ == "__main__":
    main()
