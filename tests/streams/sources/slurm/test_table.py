"""Events that a poll adds: holds, job arrays, alterations, requeues, and vanished jobs."""

from typing import Any

import pytest

from models.engine.engine import Engine
from models.engine.settings import EngineSettings
from models.records import JobEvent, Outcome, Submit
from streams.sources.slurm.attempt_rows import JobRow
from streams.sources.slurm.job_table import REMEMBER_S, JobTable
from streams.sources.slurm.json_jobs import read_jobs
from streams.sources.slurm.text import read_sacct
from tests.support.made_slurm import NOON, MadeJob, sacct, squeue


def rows(jobs: list[MadeJob], at: int, **other: Any) -> list[JobRow]:
    found = read_jobs(squeue(jobs, at), lambda _: None, "squeue").rows
    for row in found:
        for name, value in other.items():
            if hasattr(row, name):
                setattr(row, name, value)
            else:
                row.request = {
                    field: content for field, content in {**row.request, name: value}.items() if content is not None
                }
    return found


def summaries(events: list[JobEvent]) -> list[str]:
    return [f"{event.time - NOON:.0f} {event.kind} {event.job}" for event in events]


class Followed:
    """A job table and its events for polls of the queue."""

    def __init__(self, *jobs: MadeJob, accounted: bool = False) -> None:
        self.jobs, self.table = list(jobs), JobTable("alder", accounted=accounted)

    def at(self, time: int, **other: Any) -> list[Any]:
        return self.table.update(rows(self.jobs, time, **other), NOON + time, queue=True)


def test_held_job_emits_hold_and_release() -> None:
    queue = Followed(MadeJob(number=1, submit=0, held=(10, 40)))
    assert summaries(queue.at(5)) == ["0 submit 1"]
    assert summaries(queue.at(20)) == ["20 hold 1", "20 alter 1"]  # held jobs are not eligible
    assert summaries(queue.at(30)) == []
    released, altered = queue.at(60)
    assert summaries([released, altered]) == ["40 release 1", "60 alter 1"]  # Slurm's eligible time
    assert altered.eligible == NOON + 40


def test_removed_constraint_emits_alter() -> None:
    queue = Followed(MadeJob(number=1, submit=0))
    (submit,) = queue.at(5, node_features=[["ib"]])
    (altered,) = queue.at(10, node_features=None)
    assert (submit.node_features, altered.node_features) == ([["ib"]], [])
    assert queue.at(15) == []


def test_alter_omits_fields_missing_in_request() -> None:
    queue = Followed(MadeJob(number=1, submit=0))
    queue.at(5)
    (altered,) = queue.at(10, walltime=60.0)
    assert (altered.walltime, altered.node_features, altered.dependency) == (60.0, None, None)


def test_suspended_job_emits_suspend_and_resume() -> None:
    queue = Followed(MadeJob(number=1, submit=0, start=10, end=100, suspended=(30, 50)))
    assert summaries(queue.at(40)) == ["0 submit 1", "10 start 1", "30 suspend 1"]
    assert summaries(queue.at(60)) == ["50 resume 1"]
    assert summaries(queue.at(120)) == ["100 end 1"]
    assert summaries(queue.at(130)) == []


def test_array_tasks_start_from_pending_array_row() -> None:
    tasks = [MadeJob(number=10 + n, array=10, task=n, submit=0, start=20 + 10 * n, end=25 + 10 * n) for n in range(3)]
    queue = Followed(*tasks)
    (row,) = queue.at(5)
    assert (row.job, row.array_size) == ("10", 3)
    (start,) = queue.at(21)
    assert (start.kind, start.job, start.array) == ("start", "10_0", "10")
    assert summaries(queue.at(100)) == ["25 end 10_0", "30 start 10_1", "35 end 10_1", "40 start 10_2", "45 end 10_2"]
    assert queue.table.vanished() == []


def test_array_first_polled_midway_has_all_tasks() -> None:
    tasks = [MadeJob(number=10 + n, array=10, task=n, submit=0, start=20 + 10 * n, end=90) for n in range(4)]
    row, *starts = Followed(*tasks).at(35)
    assert row.array_size == 4
    assert summaries(starts) == ["20 start 10_0", "30 start 10_1"]


def test_array_tasks_missing_in_truncated_list_are_late() -> None:
    tasks = [MadeJob(number=10 + n, array=10, task=n, submit=0, start=20 + 10 * n, end=90) for n in range(4)]
    queue = Followed(*tasks)
    cut = rows(tasks, 5, array_size=2)  # squeue printed `0,1,...`
    assert summaries(queue.table.update(cut, NOON + 5, queue=True)) == ["0 submit 10"]
    assert [event.array for event in queue.at(35)] == ["10", "10"]
    submit, start = queue.at(45)
    assert (submit.kind, submit.job, submit.late, start.kind) == ("submit", "10_2", True, "start")
    assert [event.kind for event in queue.at(60)] == ["submit", "start"]
    assert queue.table.vanished() == []


def test_array_task_cancelled_alone_leaves_pending_array() -> None:
    tasks = [MadeJob(number=10 + n, array=10, task=n, submit=0, start=50, end=90) for n in range(2)]
    queue = Followed(*tasks, MadeJob(number=12, array=10, task=2, submit=0, end=20, state="CANCELLED"))
    assert queue.at(5)[0].array_size == 3
    (cancel,) = queue.at(25)
    assert (cancel.kind, cancel.job, cancel.array) == ("cancel", "10_2", "10")
    assert [event.array for event in queue.at(60)] == ["10", "10"]
    assert queue.table.entries["10"].pending_tasks == 0


def test_cancelled_job_array_emits_cancel() -> None:
    queue = Followed(*(MadeJob(number=10 + n, array=10, task=n, submit=0) for n in range(3)))
    queue.at(5)
    queue.jobs = []
    assert queue.at(10) == []
    assert queue.table.vanished() == ["10"]
    assert summaries(queue.table.give_up(["10"], NOON + 12)) == ["12 cancel 10"]


def test_vanished_running_job_emits_end_with_unknown_state() -> None:
    queue = Followed(MadeJob(number=1, submit=0, start=10))
    queue.at(20)
    queue.jobs = []
    queue.at(30)
    end: Any = queue.table.give_up(queue.table.vanished(), NOON + 30)[0]
    assert (end.kind, end.state) == ("end", "unknown")


def test_requeue_between_polls_emits_cancel_and_submit() -> None:
    queue = Followed(MadeJob(number=1, submit=0))
    queue.at(5)
    queue.jobs = [MadeJob(number=1, submit=70, restarts=1)]
    assert [(event.kind, event.attempt) for event in queue.at(80)] == [("cancel", 0), ("submit", 1)]


def queued_again(accounted: bool) -> Followed:
    """Return the poll state of a job that ran from 10 to 47 and was requeued at 50."""
    queue = Followed(MadeJob(number=1, submit=0, start=10), accounted=accounted)
    queue.at(20)
    queue.jobs = [MadeJob(number=1, submit=50, restarts=1)]
    return queue


def test_attempts_with_equal_submit_time_are_ordered_by_start() -> None:
    head = "JobID|Submit|Start|End|State"
    day = "2026-01-02T1"
    lines = [
        f"1|{day}2:00:00|{day}2:10:00|{day}2:20:00|PREEMPTED",
        f"1|{day}2:00:00|{day}2:30:00|{day}2:40:00|NODE_FAIL",
        f"1|{day}2:00:00|Unknown|{day}2:50:00|CANCELLED by 3",
        f"2|{day}2:00:00|{day}2:30:00|{day}2:40:00|COMPLETED",  # attempts out of order
        f"2|{day}2:00:00|{day}2:10:00|{day}2:20:00|PREEMPTED",
    ]
    table = JobTable("alder")
    found = list(read_sacct([head, *lines], lambda _: None))
    events = table.update(found, NOON + 3600)
    assert [f"{event.time - NOON:.0f} {event.kind} {event.attempt}" for event in events if event.job == "1"] == [
        "0 submit 0",
        "600 start 0",
        "1200 requeue 0",
        "1800 start 1",
        "2400 requeue 1",
        "3000 cancel 2",
    ]
    assert summaries([event for event in events if event.job == "2"])[-3:] == [
        "1200 requeue 2",
        "1800 start 2",
        "2400 end 2",
    ]
    assert not table.update(found, NOON + 3700)


def test_requeue_has_end_time_of_accounting() -> None:
    assert summaries(queued_again(accounted=False).at(60)) == ["50 requeue 1"]
    queue = queued_again(accounted=True)
    assert queue.at(60) == [] and queue.table.vanished() == ["1"]
    ended = MadeJob(number=1, submit=0, start=10, end=47, state="REQUEUED")
    accounted = list(read_sacct(sacct([ended, *queue.jobs], 61).splitlines(), lambda _: None))
    (requeue,) = queue.table.update(accounted, NOON + 61)
    assert (requeue.kind, requeue.time, requeue.attempt) == ("requeue", NOON + 47, 0)
    assert [event.kind for event in queue.at(70)] == ["alter"]  # only the queue has the priority
    assert queue.table.vanished() == []


def test_requeue_missing_in_accounting_comes_from_queue() -> None:
    queue = queued_again(accounted=True)
    queue.at(60)
    assert queue.table.give_up(["1"], NOON + 61) == []
    assert summaries(queue.at(70)) == ["50 requeue 1"]


@pytest.mark.parametrize("seen_queued", [True, False])
def test_first_attempt_between_polls_comes_from_accounting(seen_queued: bool) -> None:
    first = MadeJob(number=1, submit=1, start=10, end=47, state="NODE_FAIL")
    queue = Followed(*[MadeJob(number=1, submit=1)] * seen_queued, accounted=True)
    before = queue.at(5)
    queue.jobs = [MadeJob(number=1, submit=50, start=70, restarts=1)]
    assert queue.at(60) == [] and queue.table.vanished() == ["1"]
    accounted = list(read_sacct(sacct([first, *queue.jobs], 61).splitlines(), lambda _: None))
    events = before + queue.table.update(accounted, NOON + 61) + queue.at(80)
    assert [text for text in summaries(events) if "alter" not in text] == [
        "1 submit 1",
        "10 start 1",
        "47 requeue 1",
        "70 start 1",
    ]


def test_job_missing_in_accounting_comes_from_queue() -> None:
    queue = Followed(MadeJob(number=1, submit=50, restarts=1), accounted=True)
    assert queue.at(60) == []
    assert queue.table.give_up(queue.table.vanished(), NOON + 61) == []
    assert summaries(queue.at(70)) == ["50 submit 1"]


def test_changed_request_emits_alter() -> None:
    queue = Followed(MadeJob(number=1, submit=0))
    queue.at(5)
    (alter,) = queue.at(10, walltime=None, unlimited=True)
    assert (alter.kind, alter.unlimited, alter.walltime, alter.cpus) == ("alter", True, None, 4)
    assert queue.at(15, walltime=None, unlimited=True) == []


def test_unusual_pending_reason_emits_alter() -> None:
    queue = Followed(MadeJob(number=1, submit=0))
    queue.at(5)
    assert queue.at(10, pending_reason="Resources") == []
    (alter,) = queue.at(15, pending_reason="QOSMaxCpuPerUserLimit")
    assert alter.pending_reason == "QOSMaxCpuPerUserLimit"
    (alter,) = queue.at(20, pending_reason="Priority")
    assert alter.pending_reason == ""


def test_large_priority_change_emits_alter() -> None:
    queue = Followed(MadeJob(number=1, submit=0))
    queue.at(5)
    assert queue.at(10, priority=1100.0) == []
    (alter,) = queue.at(15, priority=1300.0)
    assert alter.priority == 1300.0


def test_changed_priority_order_is_reported_but_rarely() -> None:
    jobs, table = [MadeJob(number=1, submit=0), MadeJob(number=2, submit=0)], JobTable("alder")

    def reported_priorities(at: int, *priorities: float) -> list[float]:
        looked = rows(jobs, at)
        for row, priority in zip(looked, priorities, strict=True):
            row.request = row.request | {"priority": priority}
        return [event.priority for event in table.update(looked, NOON + at, queue=True) if event.kind == "alter"]

    assert reported_priorities(5, 1000.0, 900.0) == []  # the priorities at submission
    assert reported_priorities(60, 1050.0, 950.0) == []
    assert reported_priorities(120, 1055.0, 1060.0) == [1055.0, 1060.0]
    assert reported_priorities(180, 1070.0, 1065.0) == []
    assert reported_priorities(3000, 1080.0, 1070.0) == [1080.0, 1070.0]


def test_satisfied_dependency_emits_alter() -> None:
    queue = Followed(MadeJob(number=1, submit=0))
    (submit,) = queue.at(5, dependency="afterok:7(unfulfilled)")
    assert submit.dependency == "afterok:7(unfulfilled)"
    (alter,) = queue.at(10)
    assert alter.dependency == ""


def test_dependency_met_between_polls_precedes_start() -> None:
    queue = Followed(MadeJob(number=1, submit=0, start=45, end=90))
    queue.at(5, dependency="afterok:7(unfulfilled)")
    alter, start = queue.at(60, eligible=NOON + 45.0)
    assert summaries([alter, start]) == ["45 alter 1", "45 start 1"]
    assert (alter.eligible, alter.dependency) == (NOON + 45, "")
    engine = Engine("alder", EngineSettings(method="zero"))
    events = [Submit(site="alder", time=NOON, job="1", dependency="afterok:7"), alter, start]
    outcome = next(record for event in events for record in engine.apply(event) if isinstance(record, Outcome))
    assert (outcome.actual_wait_s, outcome.wait_from) == (0.0, "eligible")


def test_expected_start_is_emitted_one_time() -> None:
    queue = Followed(MadeJob(number=1, submit=0, expected=400))
    _, expected = queue.at(5)
    assert (expected.kind, expected.by, expected.expected) == ("expected_start", "slurm", NOON + 400)
    queue.jobs[0].expected = 500
    assert queue.at(10) == []


def test_departed_job_is_dropped_unless_still_listed() -> None:
    queue = Followed(MadeJob(number=1, submit=0, start=10, end=20))
    queue.at(30)
    assert queue.at(30 + 2 * int(REMEMBER_S)) == []
    assert set(queue.table.entries) == {"1"}
    queue.jobs = []
    queue.at(30 + 4 * int(REMEMBER_S))
    assert not queue.table.entries


def test_end_precedes_start_within_same_second() -> None:
    queue = Followed(MadeJob(number=1, submit=0, start=30, end=90), MadeJob(number=2, submit=0, start=10, end=30))
    assert summaries(queue.at(95)) == ["0 submit 1", "0 submit 2", "10 start 2", "30 end 2", "30 start 1", "90 end 1"]


def test_first_poll_marks_started_jobs_late() -> None:
    table = JobTable("alder")
    found = table.update(
        rows([MadeJob(number=1, submit=0, start=5), MadeJob(number=2, submit=1)], 10), NOON, True, True
    )
    assert {event.job: event.late for event in found if event.kind == "submit"} == {"1": True, "2": False}
