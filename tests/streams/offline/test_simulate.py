from pathlib import Path
from typing import Any

import msgspec
import pytest

from models.simulation import POLICIES
from streams.errors import UserError
from streams.offline import simulate
from streams.sources.swf import Trace, read_swf
from tests.support.traces import HEADER, made_trace, swf_line, trace_path

Capture = pytest.CaptureFixture[str]


def trace_of(path: Path, *lines: str, header: str = HEADER) -> Trace:
    file = path / "made.swf"
    file.write_text(header + "".join(lines))
    return read_swf(file)


def test_plan_has_submits_and_run_times_of_trace(tmp_path: Path) -> None:
    lines = (
        swf_line(7, 10, 500, 60, cpus=8, walltime=50),
        swf_line(8, 20, 900, 0, status=5),
        swf_line(9, 30, 9, -1),
        swf_line(10, 40, 0, 0, walltime=-1),
    )
    plan = simulate.plan_of(trace_of(tmp_path, *lines), "fcfs", "actual")
    assert (plan.cpus, plan.left_out) == (64, 2)
    first, second = plan.jobs
    assert (first.job, first.submit, first.cpus, first.run, first.walltime) == ("1", 10, 8, 60, 50)
    assert (first.user, first.group, first.executable, first.queue) == ("u1", "g2", "x3", "q0")
    assert (second.job, second.submit, second.run, second.walltime) == ("4", 40, 0, None)
    (row,) = simulate.simulate(plan)
    assert row.performance.wait_s == 0 and row.performance.killed == 0
    assert row.performance.total_s == 60 and row.performance.utilisation == 8 / 64


def test_simulated_job_has_allocated_cpus(tmp_path: Path) -> None:
    line = "1 0 0 60 {} -1 -1 {} 60 -1 1 1 1 1 0 -1 -1 -1\n"
    trace = trace_of(tmp_path, line.format(12, 16), line.format(-1, 16), line.format(-1, -1))
    assert [job.cpus for job in simulate.plan_of(trace, "fcfs", "actual").jobs] == [12, 16, 1]


def test_plan_has_scheduler_without_run_times_once(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, swf_line(1, 0, 0, 60))
    plan = simulate.plan_of(trace, "fcfs, easy,fcfs", "walltime,closest")
    assert plan.pairs == [("fcfs", "none"), ("easy", "walltime"), ("easy", "closest")]
    assert plan.steps == 3


def test_simulation_runs_all_work_or_reports_killed_jobs(tmp_path: Path) -> None:
    trace = read_swf(made_trace(tmp_path / "made.swf", jobs=150))
    plan = simulate.plan_of(trace, ",".join(POLICIES), "walltime,actual,closest")
    steps: list[int] = []
    rows = list(simulate.simulate(plan, lambda: steps.append(1)))
    assert len(steps) == plan.steps == len(rows) * len(plan.jobs)
    work = sum(job.cpus * job.run for job in plan.jobs)
    for row in rows:
        found = row.performance
        done = found.utilisation * found.total_s * plan.cpus
        assert done < work if found.killed else done == pytest.approx(work)
        assert (found.killed > 0) == (row.scheduler == "easy-kill" and row.runtimes != "actual")
        assert found.response_s >= found.wait_s >= 0 and found.slowdown >= 1
    by_name = {(row.scheduler, row.runtimes): row.performance for row in rows}
    assert by_name["easy-kill", "actual"] == by_name["conservative", "actual"]
    assert by_name["lewf-fill", "actual"].wait_s < by_name["fcfs", "none"].wait_s


def test_plan_keeps_row_range_and_given_cpus(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, *(swf_line(n, n, 0, 60, cpus=n) for n in range(1, 11)))
    plan = simulate.plan_of(trace, "fcfs", "actual", cpus=7, rows=(3, 7))
    assert [job.submit for job in plan.jobs] == [3, 4, 5, 6, 7] and plan.cpus == 7


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schedulers": "fcfs,lottery"}, "no scheduler 'lottery'; there are: fcfs, fcfs-fill, lewf"),
        ({"schedulers": ""}, "no scheduler ''"),
        ({"runtimes": "oracle"}, "no run times 'oracle'; there are: walltime, actual, closest"),
        ({"cpus": 3}, "made.swf: a job has 4 CPUs, the machine 3; give a larger --cpus"),
        ({"rows": (9, 12)}, "made.swf: no job in that range ran; there are 2 jobs"),
        ({"rows": (0, 0)}, "no job in that range ran"),
    ],
)
def test_plan_with_invalid_option_raises_user_error(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    trace = trace_of(tmp_path, swf_line(1, 0, 0, 60), swf_line(2, 0, 0, 60))
    options: dict[str, Any] = {"schedulers": "easy", "runtimes": "actual"} | change
    with pytest.raises(UserError) as error_info:
        simulate.plan_of(trace, **options)
    assert message in str(error_info.value)


def test_plan_without_machine_size_raises_user_error(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, swf_line(1, 0, 0, 60), header="")
    with pytest.raises(UserError, match=r"lacks the size of the machine \(MaxProcs\); give --cpus"):
        simulate.plan_of(trace, "easy", "actual")
    assert simulate.plan_of(trace, "easy", "actual", cpus=4).cpus == 4


def test_simulate_table_and_document_equal_values_by_hand(tmp_path: Path, capsys: Capture) -> None:
    # Both jobs use all 64 CPUs; the second waits a minute for the first, which exceeds its walltime.
    lines = (swf_line(1, 0, 0, 90, cpus=64, walltime=60), swf_line(2, 30, 0, 60, cpus=64, walltime=60))
    trace = trace_of(tmp_path, *lines)
    plan = simulate.plan_of(trace, "fcfs,easy-kill,easy-preemptive", "walltime")
    rows = list(simulate.simulate(plan))
    simulate.show(rows)
    shown = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert shown[0][:4] == ["scheduler", "run", "times", "util."]
    assert shown[2] == ["fcfs", "none", "100.00", "0.50", "1.75", "1.50", "0"]
    assert shown[3] == ["easy-kill", "walltime", "100.00", "0.25", "1.25", "1.25", "1"]
    assert shown[4] == ["easy-preemptive", "walltime", "100.00", "0.25", "2.00", "1.58", "0"]
    assert shown[7:] == [["fcfs", "0/0"], ["easy-kill", "0/0"], ["easy-preemptive", "1/1"]]  # beyond 80 columns
    document = msgspec.json.decode(msgspec.json.encode(simulate.document(trace, plan, rows)))
    assert (document["cpus"], document["left_out"], len(document["rows"])) == (64, 0, 3)
    assert document["rows"][1]["scheduler"] == "easy-kill" and document["rows"][1]["killed"] == 1
    assert document["rows"][0]["wait_s"] == 30 and document["rows"][0]["runtimes"] == "none"


@pytest.mark.trace
def test_ctc_simulation_equals_results_of_smith_1999() -> None:
    """Smith, Taylor and Foster 1999, tables 1, 10 and 11: 13,217 jobs of a mean of 171.14 min; waits of 11.15 min for
    LWF and 23.75 for backfilling on true run times, 10.48 and 26.86 on the walltimes; 51.28 % utilisation."""
    trace = read_swf(trace_path("CTC"))
    plan = simulate.plan_of(trace, "lwf,conservative", "actual,walltime", cpus=512, rows=(1, 13217))
    assert sum(job.run for job in plan.jobs) / len(plan.jobs) / 60 == pytest.approx(171.14, rel=0.01)
    rows = {(row.scheduler, row.runtimes): row.performance for row in simulate.simulate(plan)}
    assert rows["lwf", "actual"].wait_s / 60 == pytest.approx(11.15, rel=0.1)
    assert rows["conservative", "actual"].wait_s / 60 == pytest.approx(23.75, rel=0.1)
    assert rows["lwf", "walltime"].wait_s / 60 == pytest.approx(10.48, rel=0.1)
    assert rows["conservative", "walltime"].wait_s / 60 == pytest.approx(26.86, rel=0.1)
    assert all(row.utilisation == pytest.approx(0.5128, abs=0.01) for row in rows.values())
