"""Text output of sacct."""

from datetime import UTC, timedelta, timezone, tzinfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.sources.contract import SkippedPart
from streams.sources.slurm.attempt_rows import JobRow
from streams.sources.slurm.text import read_sacct

HEADER = (
    "JobID|JobIDRaw|Submit|Eligible|Start|End|State|NNodes|ReqTRES|AllocTRES|TimelimitRaw|Partition|NodeList|JobName"
)
DAY = "2026-01-02T"
NOON = 1767355200.0
"""Unix time of that day's noon, UTC."""


def line(**other: str) -> str:
    """Return a row of a job submitted at noon that waited 1 min and ran 2 min; `other` replaces columns."""
    columns = {
        "JobID": "7",
        "JobIDRaw": "7",
        "Submit": DAY + "12:00:00",
        "Eligible": DAY + "12:00:00",
        "Start": DAY + "12:01:00",
        "End": DAY + "12:03:00",
        "State": "COMPLETED",
        "NNodes": "2",
        "ReqTRES": "cpu=8,mem=4G,node=2",
        "AllocTRES": "cpu=8,mem=4G,node=2,gres/gpu=1",
        "TimelimitRaw": "60",
        "Partition": "batch",
        "NodeList": "n[1-2]",
        "JobName": "namd",
    }
    return "|".join((columns | other).values())


def read(*lines: str, zone: tzinfo = UTC) -> tuple[list[JobRow], list[SkippedPart]]:
    skipped: list[SkippedPart] = []
    return list(read_sacct("\n".join(lines).split("\n"), skipped.append, zone=zone)), skipped


def one(*lines: str) -> JobRow:
    rows, skipped = read(HEADER, *lines)
    assert not skipped
    assert len(rows) == 1
    return rows[0]


def test_sacct_row_has_request_and_allocation() -> None:
    row = one(line())
    assert (row.job, row.phase, row.state, row.partition) == ("7", "ended", "completed", "batch")
    assert (row.submit, row.start, row.end) == (NOON, NOON + 60, NOON + 180)
    request = {"queue": "batch", "cpus": 8, "nodes": 2, "memory": 4 << 30, "walltime": 3600.0, "gpus": 0}
    assert row.request | request == row.request
    assert (row.started_cpus, row.started_nodes, row.started_gpus) == (8, 2, 1)


def test_sacct_times_use_given_timezone() -> None:
    rows, _ = read(HEADER, line(), zone=timezone(timedelta(hours=2)))
    assert rows[0].submit == NOON - 7200
    rows, _ = read(HEADER, line(End=str(int(NOON))), zone=timezone(timedelta(hours=2)))
    assert rows[0].end == NOON


def test_job_cancelled_while_pending_has_no_start() -> None:
    by = {"State": "CANCELLED by 1234", "NodeList": "None assigned", "AllocTRES": ""}
    for start in ("Unknown", "None", DAY + "12:03:00"):
        row = one(line(Start=start, **by))
        assert (row.state, row.start, row.end) == ("cancelled", None, NOON + 180)


def test_cancelled_pending_job_with_allocation_never_ran() -> None:
    end = DAY + "12:03:00"
    row = one(line(State="CANCELLED by 1234", NodeList="None assigned", Start=end, End=end))
    assert (row.state, row.start, row.started_cpus) == ("cancelled", None, None)


def test_job_cancelled_at_start_without_nodes_never_ran() -> None:
    """Older releases print the planned allocation; the replay columns have no NodeList."""
    end = DAY + "12:03:00"
    columns = [name for name in HEADER.split("|") if name != "NodeList"]
    values = dict(zip(HEADER.split("|"), line(State="CANCELLED by 1234", Start=end, End=end).split("|"), strict=True))
    rows, _ = read("|".join(columns), "|".join(values[name] for name in columns))
    assert [(row.state, row.start, row.end) for row in rows] == [("cancelled", None, NOON + 180)]


def test_job_with_zero_runtime_has_start() -> None:
    assert one(line(End=DAY + "12:01:00")).start == NOON + 60


def test_pending_job_has_no_start_or_end() -> None:
    row = one(line(State="PENDING", Start="Unknown", End="Unknown", NodeList="None assigned", AllocTRES=""))
    assert (row.phase, row.start, row.end, row.request.get("nodes")) == ("queued", None, None, 2)


def test_job_steps_are_skipped_and_job_arrays_are_read() -> None:
    rows, skipped = read(
        HEADER,
        line(JobID="7.batch", JobIDRaw="7.batch"),
        line(JobID="9_3", JobIDRaw="11"),
        line(JobID="9_[4-7%2]", JobIDRaw="9", State="PENDING", Start="Unknown", End="Unknown"),
        line(JobID="12+1", JobIDRaw="13"),
    )
    assert not skipped
    assert [
        (row.job, row.array, row.array_size, row.request.get("array_limit"), row.request.get("het_group"))
        for row in rows
    ] == [
        ("9_3", "9", None, None, None),
        ("9", None, 4, 2, None),
        ("13", None, None, None, "12"),
    ]


def test_started_array_tasks_in_one_row_are_one_job() -> None:
    row = one(line(JobID="9_[1-3]"))
    assert (row.job, row.array, row.array_size) == ("9_[1-3]", "9", None)


def test_long_job_numbers_are_rejected_and_task_lists_cut() -> None:
    long = "9" * 300
    rows, skipped = read(HEADER, *(line(JobID=one) for one in (long, f"7_{long}", f"{long}_7", f"7+{long}", "٣")))
    assert not rows and [part.field for part in skipped] == ["JobID"] * 5
    row = one(line(JobID=f"9_[{','.join(map(str, range(200)))}]"))
    assert len(row.job) == 256 and row.array == "9"
    assert one(line(JobID="9+1", JobIDRaw=long)).job == "9+1"
    times = f"{DAY}12:00:00|{DAY}12:01:00|{DAY}12:02:00|COMPLETED"
    rows, _ = read("JobID|Submit|Start|End|State|Priority|Restarts|NCPUS", f"7|{times}|{long}|{long}|{long}")
    assert (rows[0].request.get("priority"), rows[0].restarts, rows[0].request.get("cpus")) == (None, None, None)


def test_job_name_with_line_breaks_and_separators_is_read() -> None:
    rows, skipped = read(HEADER, line(JobName="a|b\nc||d"), line(JobID="8"))
    assert [row.job for row in rows] == ["7", "8"]
    assert rows[0].request.get("executable") == "a|b"
    assert len(skipped) == 1  # rest of the name after a row that is already complete
    rows, _ = read("JobID|JobName|Submit|Start|End|State", f"7|a\nb|{DAY}12:00:00|Unknown|Unknown|PENDING")
    assert [row.request.get("executable") for row in rows] == ["a b"]


def test_missing_header_uses_default_columns() -> None:
    fields = (
        f"7|7|alder|batch|normal|acc|grp|100|ada|1000|{DAY}12:00:00|{DAY}12:00:00|{DAY}12:01:00|{DAY}12:03:00|00:02:00|0:0|"
        "COMPLETED|2|8|8|3000Mc|||01:00:00|n[1-2]|na|md"
    )
    rows, skipped = read(fields)
    assert not skipped
    assert (rows[0].request.get("user"), rows[0].request.get("account"), rows[0].request.get("executable")) == (
        "ada",
        "acc",
        "na|md",
    )
    assert (rows[0].request.get("cpus"), rows[0].request.get("memory"), rows[0].request.get("walltime")) == (
        8,
        24000 << 20,
        3600.0,
    )


def test_sacct_text_with_other_separator_is_read() -> None:
    rows, skipped = read(HEADER.replace("|", "|#"), line().replace("|", "|#"))
    assert not skipped
    assert rows == [one(line())]


def test_invalid_row_is_reported_with_line_and_field() -> None:
    rows, skipped = read(
        HEADER, "broken", line(State="FOO"), line(Submit="soon"), line(JobID="x"), line(End=DAY + "09:00:00"), line()
    )
    assert len(rows) == 1
    assert [(part.line, part.field) for part in skipped] == [
        (2, None),
        (3, "State"),
        (4, "Submit"),
        (5, "JobID"),
        (6, "End"),
    ]
    assert [part.found for part in skipped[1:]] == ["'FOO'", "'soon'", "'x'", f"'{DAY}09:00:00'"]
    assert all(len(str(part)) < 1000 for part in skipped)


def test_missing_column_is_reported() -> None:
    rows, skipped = read("JobID|Submit|State", f"7|{DAY}12:00:00|PENDING")
    assert not rows
    assert [(part.line, part.found) for part in skipped] == [(1, "no column Start, End")]


def test_repeated_header_is_skipped() -> None:
    rows, skipped = read(HEADER, line(), HEADER, line(JobID="8"))
    assert [row.job for row in rows] == ["7", "8"] and not skipped


def test_times_out_of_order_are_clamped() -> None:
    row = one(line(Start=DAY + "11:59:59", End=DAY + "11:59:58"))
    assert (row.submit, row.start, row.end) == (NOON, NOON, NOON)
    row = one(line(Start=DAY + "12:01:00", End=DAY + "12:00:59"))
    assert (row.start, row.end) == (NOON + 60, NOON + 60)


@pytest.mark.parametrize(
    ("state", "ran"), [("COMPLETED", True), ("PREEMPTED", True), ("FAILED", True), ("CANCELLED by 0", False)]
)
def test_missing_allocation_columns_use_the_state(state: str, ran: bool) -> None:
    rows, _ = read("JobID|Submit|Start|End|State", f"7|{DAY}12:00:00|{DAY}12:01:00|{DAY}12:01:00|{state}")
    assert (rows[0].start is not None) == ran


def test_gres_columns_of_older_releases_yield_gpus() -> None:
    head = "JobID|Submit|Start|End|State|NNodes|ReqGRES|AllocGRES"
    times = f"{DAY}12:00:00|{DAY}12:01:00|{DAY}12:02:00|COMPLETED|2"
    rows, skipped = read(head, f"7|{times}|gpu:2|gpu:a100:4", f"8|{times}|gpu:2|", f"9|{times}||")
    assert [(row.request.get("gpus"), row.request.get("gpu_types")) for row in rows] == [
        (4, {"a100": 4}),
        (4, None),
        (0, None),
    ]
    assert not skipped


@given(st.lists(st.text("0123456789-:T|_[],=.+ \nUnknowCAPED", max_size=200) | st.just(line()), max_size=20))
def test_read_sacct_accepts_arbitrary_lines(lines: list[str]) -> None:
    read(HEADER, *lines)
    read(*lines)
