"""A job resized while it runs has one attempt, though the accounting has a row per size."""

import json
from pathlib import Path
from typing import Any

import pytest

from streams.bulk.reading import read_log
from streams.sources.slurm.attempt_rows import JobRow
from streams.sources.slurm.job_table import JobTable
from streams.sources.slurm.jobcomp import read_record
from streams.sources.slurm.json_jobs import read_jobs
from streams.sources.slurm.text import read_sacct
from tests.support.made_slurm import NOON, MadeJob, squeue, stamp

SLUIDS = ("sBR1JB8J1YM400", "sBR1JB8J1YM401")
"""SLUIDs in the format of Slurm 26.05."""


def accounted(sluids: bool = False, began: int = 10, ended: int | None = 90, whole: bool = True) -> str:
    """Return sacct 22.05 output for a job shrunk by `scontrol update JobId=1 NumNodes=1`, with other times.

    Args:
        sluids: Add the columns of 26.05.
        began: Start of the second row.
        ended: End of the job; None if it is running.
        whole: Include the first row.
    """
    head = "JobID|JobIDRaw|Submit|Eligible|Start|End|State|NNodes|NodeList|AllocTRES|User"
    size = "billing={0},cpu={0},mem=100M,node={0}"
    last = f"{stamp(ended)}|CANCELLED by 0" if ended else "Unknown|RUNNING"
    rows = [
        f"1|1|{stamp(0)}|{stamp(0)}|{stamp(10)}|{stamp(50)}|RESIZING|2|n[1-2]|{size.format(2)}|ada",
        f"1|1|{stamp(50)}|{stamp(50)}|{stamp(began)}|{last}|1|n1|{size.format(1)}|ada",
    ]
    if sluids:
        head += "|SLUID|OriginalSLUID"
        rows = [f"{row}|{one}|{SLUIDS[0]}" for row, one in zip(rows, SLUIDS, strict=True)]
    return "\n".join([head, *(rows if whole else rows[1:])]) + "\n"


def job_rows(text: str) -> list[JobRow]:
    return list(read_sacct(text.splitlines(), lambda skipped: pytest.fail(str(skipped))))


def summaries(events: list[Any]) -> list[str]:
    return [f"{event.time - NOON:.0f} {event.kind} {event.attempt}" for event in events]


WHOLE = ["0 submit 0", "10 start 0", "50 alter 0", "90 end 0"]


@pytest.mark.parametrize("sluids", [False, True])
def test_resized_job_in_file_has_single_attempt(sluids: bool, tmp_path: Path) -> None:
    (tmp_path / "sacct.txt").write_text(accounted(sluids))
    with read_log([tmp_path / "sacct.txt"], "alder") as (log, _):
        events = [event for event in log.events(0) if event.kind != "capacity"]
    assert summaries(events) == WHOLE
    assert (events[1].cpus, events[2].cpus, events[2].nodes) == (2, 1, 1)


def test_sluids_identify_resize_despite_other_start_time() -> None:
    table = JobTable("alder")
    assert summaries(table.update(job_rows(accounted(sluids=True, began=50)), NOON + 100)) == WHOLE


def test_resized_job_without_first_row_is_late() -> None:
    (submit, *_) = JobTable("alder").update(job_rows(accounted(sluids=True, whole=False)), NOON + 100)
    assert submit.late


def test_requeue_with_new_original_sluid_is_reported() -> None:
    text = accounted(sluids=True, began=60).replace(f"{SLUIDS[1]}|{SLUIDS[0]}", f"{SLUIDS[1]}|{SLUIDS[1]}")
    assert "50 requeue 0" in summaries(JobTable("alder").update(job_rows(text), NOON + 100))


def test_repeated_polls_report_resize_one_time() -> None:
    table = JobTable("alder", accounted=True)
    running = job_rows(accounted(ended=None))
    assert summaries(table.update(running, NOON + 60)) == WHOLE[:3]
    assert table.update(running, NOON + 70) == []
    assert summaries(table.update(job_rows(accounted()), NOON + 100)) == WHOLE[3:]
    assert table.update(job_rows(accounted()), NOON + 110) == []


def test_resize_in_start_second_emits_no_event() -> None:
    table = JobTable("alder", accounted=True)
    job = MadeJob(number=1, submit=0, start=50, end=90, cpus=1)
    table.update(read_jobs(squeue([job], 55), lambda _: None, "squeue").rows, NOON + 55, queue=True)
    assert table.update(job_rows(accounted(began=50, ended=None)), NOON + 60) == []


def test_resize_reported_by_queue_is_not_repeated_by_accounting() -> None:
    table = JobTable("alder", accounted=True)
    job = MadeJob(number=1, submit=0, start=10, end=90, cpus=2, state="CANCELLED")
    for at, cpus in ((5, 2), (20, 2), (55, 1), (95, 1)):
        job.cpus = cpus
        found = read_jobs(squeue([job], at), lambda _: None, "squeue").rows
        events = table.update(found, NOON + at, queue=True)
        if at == 55:
            assert summaries(events) == ["55 alter 0"]
            assert events[0].cpus == 1
    assert table.update(job_rows(accounted()), NOON + 100) == []


def test_json_sluids_identify_resize() -> None:
    def one(sluid: str, submit: int, state: str, end: int) -> dict[str, Any]:
        times = {"submission": NOON + submit, "eligible": NOON + submit, "start": NOON + 10, "end": NOON + end}
        tres = {"allocated": [{"type": "cpu", "name": "", "count": 2 if submit == 0 else 1}], "requested": []}
        sluids = {"sluid": sluid, "original_sluid": SLUIDS[0]}
        return {"job_id": 1, "time": times, "state": {"current": [state]}, "nodes": "n1", "tres": tres, **sluids}

    jobs = [one(SLUIDS[0], 0, "RESIZING", 50), one(SLUIDS[1], 50, "COMPLETED", 90)]
    found = read_jobs(json.dumps({"jobs": jobs}).encode(), lambda _: None, "sacct").rows
    assert [row.resized for row in found] == [False, True]
    assert summaries(JobTable("alder").update(found, NOON + 100)) == WHOLE


def test_jobcomp_resizing_record_is_not_a_requeue() -> None:
    def record(state: str, end: int, sluid: str) -> bytes:
        times = {"@submit": stamp(0), "@start": stamp(10), "@end": stamp(end)}
        fields = {"jobid": 1, "state": state, "total_cpus": 1, "nodes": "n1", "elapsed": end - 10}
        return json.dumps(fields | times | {"sluid": sluid, "original_sluid": SLUIDS[0]}).encode()

    table, events = JobTable("alder"), list[Any]()
    for state, end, sluid in (("RESIZING", 50, SLUIDS[0]), ("COMPLETED", 90, SLUIDS[1])):
        look = read_record(record(state, end, sluid), "records", None, lambda skipped: pytest.fail(str(skipped)))
        events += table.update(look.rows, look.at, late=True)
    assert summaries(events) == ["0 submit 0", "10 start 0", "90 end 0"]
