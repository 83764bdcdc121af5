"""Round trip of generated jobs through sacct rows and Slurm JSON, with all legal variants."""

import json
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

from hypothesis import given
from hypothesis import strategies as st

from tests.support.written_jobs import ODD, WrittenJob, facts, jobs, lists_of, read_back

ZONES = ["UTC", "Europe/Paris", "America/New_York", "Asia/Kolkata"]
NEEDED = ["JobID", "State", "Submit", "Start", "End", "AllocCPUS"]
FREE = ["JobName", "Comment", "Constraints", "WorkDir", "SubmitLine", "AdminComment"]
MORE = ["User", "Partition", "Account", "Elapsed", "ElapsedRaw", "ExitCode", "NNodes", "ReqTRES"]
LIMITS = ["Timelimit", "TimelimitRaw"]


def limit_of(job: WrittenJob, column: str, draw: st.DrawFn) -> str:
    if not job.limit_s:
        return draw(st.sampled_from(["Partition_Limit", "", "INVALID"]))
    if job.limit_s == float("inf"):
        return "UNLIMITED"
    minutes = round(job.limit_s / 60)
    if column == "TimelimitRaw":
        return str(minutes)
    days, rest = divmod(minutes, 1440)
    clock = f"{rest // 60:02}:{rest % 60:02}:00"
    return f"{days}-{clock}" if days else clock


def cells_of(job: WrittenJob, columns: list[str], zone: ZoneInfo, draw: st.DrawFn) -> list[str]:
    def at(seconds: float | None) -> str:
        if seconds is None:
            return draw(st.sampled_from(["Unknown", "None"]))
        return datetime.fromtimestamp(seconds, zone).strftime("%Y-%m-%dT%H:%M:%S")

    ran_s = job.end - job.start if job.start is not None else 0
    clock = f"{ran_s // 3600:02}:{ran_s // 60 % 60:02}:{ran_s % 60:02}"
    elapsed = f"{ran_s // 86400}-{ran_s // 3600 % 24:02}{clock[-6:]}" if ran_s >= 86400 else clock
    cells = {
        "JobID": str(job.number),
        "State": "CANCELLED by 1000" if job.start is None else "COMPLETED",
        "Submit": at(job.submit),
        "Start": at(job.start),
        "End": at(job.end),
        "AllocCPUS": str(job.cpus),
        "User": job.user,
        "Partition": "day",
        "Account": "geo",
        "Elapsed": elapsed,
        "ElapsedRaw": str(ran_s),
        "ExitCode": "0:0",
        "NNodes": "1",
        "ReqTRES": f"cpu={job.cpus},node=1",
        "WorkDir": f"/w/{job.text}",
    }
    return [
        cells[name] if name in cells else limit_of(job, name, draw) if name in LIMITS else job.text for name in columns
    ]


@st.composite
def dumps(draw: st.DrawFn, delimiter: str, free: int) -> tuple[list[WrittenJob], str, str]:
    """Generate jobs, their sacct text (any column order, repeated headers, job steps) and its time zone."""
    zone = draw(st.sampled_from(ZONES))
    listed = draw(lists_of(jobs(st.text(st.sampled_from(ODD + "\n"), max_size=12))))
    chosen = draw(st.lists(st.sampled_from(MORE), unique=True))
    inside = draw(st.lists(st.sampled_from(FREE), unique=True, min_size=min(free, 1), max_size=free))
    columns = draw(st.permutations([*NEEDED, draw(st.sampled_from(LIMITS)), *chosen, *inside]))
    if columns[0] in FREE:  # a line break there looks like an invalid row
        columns = ["JobID", *(name for name in columns if name != "JobID")]
    head = delimiter.join(columns) + "\n"
    lines = [head]
    for job in listed:
        cells = cells_of(job, columns, ZoneInfo(zone), draw)
        lines.append(delimiter.join(cells) + "\n")
        if draw(st.booleans()):
            cells[columns.index("JobID")] += draw(st.sampled_from([".batch", ".extern", ".0"]))
            lines.append(delimiter.join(cells) + "\n")
        if draw(st.integers(0, 5)) == 0:
            lines.append(head)
    return listed, "".join(lines), zone


@given(dumps("\x1f", free=3))
def test_sacct_with_documented_delimiter_round_trips(dump: tuple[list[WrittenJob], str, str]) -> None:
    listed, text, zone = dump
    found, report = read_back(text, "slurm", [f"timezone={zone}"])
    assert not report.skipped
    assert found == {str(job.number): facts(job) for job in listed}


@given(dumps("|", free=1).filter(lambda dump: "\n" not in "".join(job.text for job in dump[0])))
def test_sacct_with_bars_in_one_column_round_trips(dump: tuple[list[WrittenJob], str, str]) -> None:
    listed, text, zone = dump
    found, report = read_back(text, "slurm", [f"timezone={zone}"])
    assert not report.skipped
    assert found == {str(job.number): facts(job) for job in listed}


@given(st.data(), lists_of(jobs()))
def test_sacct_json_of_any_release_round_trips(data: st.DataObject, listed: list[WrittenJob]) -> None:
    def number(value: float | None) -> Any:
        if data.draw(st.booleans()):
            return {
                "set": value is not None,
                "infinite": value == float("inf"),
                "number": value if value and value < 1e12 else 0,
            }
        return 0xFFFF_FFFE if value is None else 0xFFFF_FFFF if value == float("inf") else value

    found = []
    for job in listed:
        state = "CANCELLED" if job.start is None else "COMPLETED"
        times = {"submission": job.submit, "eligible": job.submit, "start": job.start or 0, "end": job.end}
        limit = None if not job.limit_s else job.limit_s / 60
        state_ = [state] if data.draw(st.booleans()) else state
        found.append(
            {"job_id": job.number, "name": job.text, "user": job.user, "required": {"CPUs": job.cpus}, "nodes": "n1"}
            | {"state": {"current": state_}, "time": times | {"limit": number(limit)}}
        )
        if job.start is None:
            found[-1]["nodes"] = "None assigned"
    indent = data.draw(st.sampled_from([None, 1, 4]))
    document = json.dumps(
        {"meta": {"Slurm": {}}, "jobs": found, "errors": []}, indent=indent, ensure_ascii=data.draw(st.booleans())
    )
    if indent is None and data.draw(st.booleans()):
        document = document.replace('}, {"job_id"', '},\n{"job_id"').replace('"jobs": [', '"jobs": [\n')
    read, report = read_back(document + "\n", "slurm")
    assert not report.skipped
    assert read == {str(job.number): facts(job) for job in listed}


@given(st.integers(1, 200), st.integers(5, 60), st.integers(0, 9), st.booleans())
def test_truncated_array_task_list_is_job_array(tasks: int, width: int, limit: int, ended: bool) -> None:
    whole = ",".join(map(str, range(1, 2 * tasks, 2)))
    part = whole if len(whole) <= width else whole[:width] + "..."
    at_once = f"%{limit}" if limit else ""
    rest = "None|2026-02-03T08:05:00|CANCELLED" if ended else "Unknown|Unknown|PENDING"
    row = f"7_[{part}{at_once}]|2026-02-03T08:00:00|{rest}\n"
    found, report = read_back("JobID|Submit|Start|End|State\n" + row, "slurm")
    assert list(found) == ["7"] and not report.left_out and not report.skipped
    at = datetime(2026, 2, 3, 8, 5, tzinfo=UTC).timestamp()
    assert found["7"].cancel == (at if ended else None)
