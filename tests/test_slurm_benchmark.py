"""The pure parts of `make bench-slurm`: reading Slurm's estimates, compressing jobs, and scoring."""

from pathlib import Path

import numpy as np
import pytest

from models.records import Capacity, Partition, Reservation, Start, Submit
from tests.benchmarks.slurm.estimates import Estimate, Run, ScoredJob, predictions, stretched
from tests.benchmarks.slurm.parsing import pending_starts, test_only_start
from tests.benchmarks.slurm.recording import ReceivedEvent
from tests.benchmarks.slurm.report import lines
from tests.benchmarks.slurm.scoring import at_submission, interval, while_waiting
from tests.benchmarks.slurm.workload import FACTOR, NODES, Workload, compress, from_generator, from_trace
from tests.support.traces import swf_line

test_only_start.__test__ = False  # type: ignore[attr-defined]  # its name is that of Slurm's option

WORKLOAD = Workload(origin="made", jobs=[], cpus_per_node=4, arrivals_factor=100.0)


def run_of(waits_s: list[float], **estimates: list[float | None]) -> Run:
    """A run with a job a second; each method has one estimate of each job, at its submission."""
    jobs = [
        ScoredJob(
            job=str(number),
            submit=1000.0 + number,
            wait_s=wait_s,
            estimates={
                name.replace("_", "-"): [Estimate(1000.0 + number, values[number])]
                for name, values in estimates.items()
            },
        )
        for number, wait_s in enumerate(waits_s)
    ]
    return Run(WORKLOAD, jobs, 0)


def test_pending_starts_reads_present_and_missing_times() -> None:
    text = "7|1970-01-01T00:02:00|PENDING|Resources\n8|N/A|PENDING|AssocMaxJobsLimit, with | in it\n"
    assert pending_starts(text) == {"7": (120.0, "Resources"), "8": (None, "AssocMaxJobsLimit, with | in it")}
    assert pending_starts("") == {}


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("sbatch: Job 5 to start at 1970-01-01T00:01:00 using 8 processors on nodes n01 in partition short", 60.0),
        ("allocation failure: Job violates accounting/QOS policy", None),
        ("", None),
    ],
)
def test_test_only_start_reads_the_time(text: str, start: float | None) -> None:
    assert test_only_start(text) == start


def test_compress_scales_runs_and_rounds_limits_up() -> None:
    rows = [("1", 50.0, 3600.0, 5400.0, 4, 1, "x1"), ("2", 12_050.0, 9000.0, 7200.0, 2, 2, "x1")]
    made = compress("made", rows, minutes=2.0)
    first, second = made.jobs
    assert (first.submit_s, first.run_s, first.limit_min) == (0.0, 60.0, 2)
    assert (second.submit_s, second.run_s, second.limit_min) == (120.0, 120.0, 2)  # killed at its limit
    assert made.arrivals_factor == 100.0
    assert made.cpus >= 4 and made.cpus % NODES == 0


def test_workload_from_trace_has_middle_jobs(tmp_path: Path) -> None:
    path = tmp_path / "small.swf"
    path.write_text("".join(swf_line(number, submit=60 * number, run=600) for number in range(1, 12)))
    assert [job.name for job in from_trace(path, 3, 1.0).jobs] == ["5", "6", "7"]


def test_workload_from_generator_has_jobs_within_machine() -> None:
    made = from_generator(50, 2.0)
    assert len(made.jobs) == 50
    assert max(job.cpus for job in made.jobs) <= made.cpus
    assert made.jobs[-1].submit_s == pytest.approx(120.0)
    assert all(job.run_s <= job.limit_min * 60 for job in made.jobs)


def test_stretched_event_scales_times_and_durations() -> None:
    submit = stretched(Submit(site="s", time=110.0, job="1", walltime=60.0, cpus=4), 100.0, 60)
    assert submit == Submit(site="s", time=700.0, job="1", walltime=3600.0, cpus=4)
    partitions = [Partition(name="p", pools=[], max_walltime=60.0)]
    reservations = [Reservation(name="r", start=101.0, end=102.0)]
    machine = stretched(
        Capacity(site="s", time=100.0, cpus=8, partitions=partitions, reservations=reservations), 100.0, 60
    )
    assert isinstance(machine, Capacity)
    assert machine.partitions[0].max_walltime == 3600.0
    assert (machine.reservations[0].start, machine.reservations[0].end) == (160.0, 220.0)
    assert machine.cpus == 8


def test_predictions_are_available_when_received() -> None:
    events = [
        ReceivedEvent(at=103.0, event=Submit(site="s", time=100.0, job="1")),
        ReceivedEvent(at=112.0, event=Start(site="s", time=110.0, job="1")),
        ReceivedEvent(at=121.0, event=Submit(site="s", time=120.0, job="2")),
    ]
    made = [(at, one.job, one.predicted_wait_s) for at, one in predictions(events, 60) if one.method == "median"]
    assert made == [(103.0, "1", None), (121.0, "2", 10.0)]


def test_scored_job_estimate_in_force_is_latest_by_age() -> None:
    job = ScoredJob(job="1", submit=100.0, wait_s=90.0)
    job.estimates["squeue"] = [Estimate(102.0, None), Estimate(107.0, 50.0), Estimate(140.0, 80.0)]
    assert job.first("squeue") == 50.0
    assert job.in_force("squeue", 1.0) is None
    assert job.in_force("squeue", 39.0) == Estimate(107.0, 50.0)
    assert job.in_force("squeue", 40.0) == Estimate(140.0, 80.0)


def test_score_counts_no_estimate_as_the_recent_median() -> None:
    count = 10
    run = run_of(
        [60.0] * count,
        zero=[0.0] * count,
        median=[30.0] * count,
        squeue=[60.0, None] * (count // 2),
        test_only=[120.0] * count,
        blend=[60.0] * count,
    )
    scores = at_submission(run, lambda _: True)
    assert {name: round(score.mae_h, 3) for name, score in scores.items()} == {
        "zero": 1.0,
        "median": 0.5,
        "squeue": 0.25,
        "test-only": 1.0,
        "blend": 0.0,
    }
    assert scores["squeue"].jobs == 6 and scores["squeue"].missing == 0.5
    assert scores["test-only"].x2 == 1.0 and scores["zero"].x2 == 0.0


def test_while_waiting_scores_only_pending_jobs() -> None:
    count = 100
    run = run_of([40.0, 400.0] * (count // 2), squeue=[100.0] * count, blend=[400.0] * count)
    ages = while_waiting(run)
    assert [row.age_s for row in ages] == [600.0, 3600.0, 14_400.0]
    assert [row.jobs for row in ages] == [60, 30, 30]
    hour = ages[1]
    assert hour.errors_h["blend"] == 0.0 and hour.missing == 0.0
    assert hour.errors_h["squeue"] == pytest.approx(300 * FACTOR / 3600)
    assert hour.errors_h["now"] == pytest.approx(340 * FACTOR / 3600)


def test_interval_contains_the_mean() -> None:
    values = np.random.default_rng(3).exponential(1.0, 500)
    low, high = interval(values)
    assert low < values.mean() < high
    assert interval(np.ones(50)) == (1.0, 1.0)


def test_report_has_a_row_for_each_method() -> None:
    count = 10
    same = [60.0] * count
    text = "\n".join(lines(run_of(same, zero=same, median=same, squeue=same, test_only=same, blend=same)))
    assert text.count("| queuecast |") == 3
    assert text.count("| `squeue --start` |") == 2
