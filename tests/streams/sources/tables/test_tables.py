"""Job tables in CSV and Parquet, with columns of public data sets or a custom mapping."""

import bz2
import csv
import io
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

import pyarrow
import pytest
from pyarrow import parquet

from models.records import JobEvent
from queuecast.testing_sources import BadPart, SourceContract
from streams.bulk.reading import read_log
from streams.errors import UserError
from streams.sources.source_registry import format_of
from streams.sources.tables.cells import seconds_of, text_of, time_of
from streams.sources.tables.mapping import mapping_for, read_mapping, ready
from streams.sources.tables.table_source import TableSource
from tests.support.logs import plain

T = 1_672_529_301
NOON = datetime(2023, 3, 1, 12, tzinfo=UTC)

LUMOS = """\
,job,user,project,state,gpu_num,cpu_num,node_num,submit_time,wait_time,run_time,wall_time,node_hour,new_status
0,1,70296325381051.0,5.0,0,0,512.0,8.0,1672529301,71,3632.92,3600.0,8.07,Killed
1,2,0.0,0.0,0,8,0,0,1672529302.0,0,0,0,0,Pass
2,3,0.0,0.0,0,0,512.0,8.0,1672529303,50,0,3600.0,0,Killed
"""

SETS = {
    "lumos": (LUMOS, 3),
    "helios": (
        "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n"
        "7,uX,vcJ,1,4,1,FAILED,2023-03-01 12:00:00,2023-03-01 12:00:30,2023-03-01 13:00:00,3570,30\n",
        1,
    ),
    "philly": (
        "job_id,user,vc,gpu_num,state,submit_time,start_time,end_time,duration,queue\n"
        "application_1,ab,ee9e8c,8,Pass,2023-03-01 12:00:00,2023-03-01 12:00:30,2023-03-01 13:00:00,3570,30\n",
        1,
    ),
    "acme": (
        "job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,duration,queue,gpu_time\n"
        "dlc7,u5,1,8,128,Other,COMPLETED,2023-03-01 20:00:00+08:00,2023-03-01 20:00:30+08:00,2023-03-01 21:00:00+08:00,"
        "3570,30,1\n",
        1,
    ),
    "eagle": (
        "job_id,user,account,partition,qos,wallclock_req,nodes_req,processors_req,gpus_req,mem_req,submit_time,"
        "start_time,end_time,run_time,state,name\n"
        "7,u1,a1,short,normal,14400,1,36,0,1000,2023-03-01 12:00:00,2023-03-01 12:00:30,2023-03-01 13:00:00,3570,"
        "COMPLETED,x\n",
        1,
    ),
    "kestrel": (
        "id,job_id,array_range,account_hash,partition,submit_time,nodes_req,processors_req,memory_req,wallclock_req,qos,"
        "gpus_requested,start_time,end_time\n"
        "7,5,,ab,short,2023-03-01 05:00:00,1,104,1G,0 days 04:00:00,normal,0,2023-03-01 05:00:30,2023-03-01 06:00:00\n",
        1,
    ),
}


def read_events(path: Path, **options: Any) -> list[dict[str, Any]]:
    return plain(list(TableSource(str(path), "s", pytest.fail, **options).read_all()))


def written(directory: Path, text: str, name: str = "jobs.csv") -> Path:
    (directory / name).write_text(text)
    return directory / name


@pytest.mark.parametrize("name", SETS)
def test_public_data_set_is_recognised_and_read(name: str, tmp_path: Path) -> None:
    text, jobs = SETS[name]
    path = written(tmp_path, text)
    assert format_of(path) is TableSource
    assert mapping_for(next(csv.reader(io.StringIO(text)))) == name
    events = read_events(path)
    assert [event["type"] for event in events].count("submit") == jobs
    if name != "lumos":
        submit, start, end = events
        noon = NOON.timestamp()
        assert (submit["time"], start["time"], end["time"]) == (noon, noon + 30, noon + 3600)
        assert submit.get("cpus") == {"helios": 4, "acme": 128, "eagle": 36, "kestrel": 104}.get(name)
        assert submit.get("gpus") == {"helios": 1, "acme": 8, "philly": 8}.get(name)
        assert submit.get("walltime") == {"eagle": 14400.0, "kestrel": 14400.0}.get(name)


def test_lumos_table_yields_events(tmp_path: Path) -> None:
    first, second, third = (read_events(written(tmp_path, LUMOS))[place : place + 3] for place in (0, 3, 6))
    assert first == [
        {"type": "submit", "time": T, "job": "1", "user": "70296325381051", "account": "5", "cpus": 512, "nodes": 8}
        | {"walltime": 3600.0},
        {"type": "start", "time": T + 71, "job": "1"},
        {"type": "end", "time": T + 71 + 3632.92, "job": "1", "state": "cancelled"},
    ]
    assert second[0] == {"type": "submit", "time": T + 1, "job": "2", "user": "0", "account": "0", "gpus": 8}
    assert [event["type"] for event in third] == ["submit", "cancel"]  # killed before it ran


def test_parquet_and_compressed_csv_yield_equal_events(tmp_path: Path) -> None:
    rows = {
        "job_id": [7, 8],
        "user_id": [3, 3],
        "partition": ["1", "2"],
        "submit_time": [NOON, NOON],
        "start_time": [NOON.replace(minute=5), None],
        "end_time": [NOON.replace(hour=13), NOON.replace(minute=1)],
        "num_cores_req": [32, 4],
        "time_limit": [60, 30],
        "job_state": ["COMPLETED", "CANCELLED"],
        "power_consumption": [[1.0, 2.0], []],
    }
    parquet.write_table(pyarrow.table(rows), tmp_path / "job_table.parquet")
    found = read_events(tmp_path / "job_table.parquet")
    assert format_of(tmp_path / "job_table.parquet") is TableSource
    assert [event["type"] for event in found] == ["submit", "start", "end", "submit", "cancel"]
    assert (found[0]["cpus"], found[0]["walltime"], found[0]["queue"]) == (32, 3600.0, "1")
    names = [name for name in rows if name != "power_consumption"]
    text = io.StringIO()
    csv.writer(text).writerows([names, *zip(*(rows[name] for name in names), strict=True)])
    (tmp_path / "jobs.csv.bz2").write_bytes(bz2.compress(text.getvalue().encode()))
    assert read_events(tmp_path / "jobs.csv.bz2", map="pm100") == found


def test_kestrel_parquet_timezones_and_durations_are_read(tmp_path: Path) -> None:
    times = {"submit_time": 0, "start_time": 1, "end_time": 11}
    zoned = {
        name: pyarrow.array([NOON + timedelta(minutes=at)] * 2, pyarrow.timestamp("ns", "-07:00"))
        for name, at in times.items()
    }
    rows = {
        "id": ["a", "b"],
        "job_id": [7, 7],
        "user_hash": ["u", "u"],
        "account_hash": ["c", "c"],
        "partition": ["gpu-h100"] * 2,
    }
    rows |= {
        "nodes_req": [1, 1],
        "processors_req": [64, 64],
        "gpus_requested": [None, None],
        "state_simple": ["FAILED", "TIMEOUT"],
    }
    limit = {"wallclock_req": pyarrow.array([timedelta(hours=2)] * 2, pyarrow.duration("ns"))}
    parquet.write_table(pyarrow.table(rows | zoned | limit), tmp_path / "kestrel_jobs_202412_0.parquet")
    submit, start, end, *_, other = read_events(tmp_path / "kestrel_jobs_202412_0.parquet")
    assert (submit["time"], submit["walltime"], submit["user"], submit["cpus"]) == (NOON.timestamp(), 7200.0, "u", 64)
    assert (start["time"] - submit["time"], end["state"], other["job"], other["state"]) == (
        60.0,
        "failed",
        "b",
        "timeout",
    )


def test_lumos_table_missing_job_column_numbers_jobs(tmp_path: Path) -> None:
    path = written(tmp_path, ",run_time,wait_time,submit_time,gpu_num\n0,1389243,5,1502114581,1\n")
    assert format_of(path) is TableSource
    submit, start, end = read_events(path)
    assert (submit["job"], submit["gpus"], start["time"], end["time"]) == ("0", 1, 1502114586, 1503503829)


def test_fdata_parquet_yields_events(tmp_path: Path) -> None:
    rows = {
        "jid": ["a"],
        "usr": ["u"],
        "jnam": ["n"],
        "cnumr": [48],
        "nnumr": [1],
        "elpl": [600],
        "exit state": ["failed"],
    }
    times = {"adt": [NOON], "sdt": [NOON.replace(minute=1)], "edt": [NOON.replace(minute=2)]}
    parquet.write_table(pyarrow.table(rows | times), tmp_path / "21_04.parquet")
    submit, start, end = read_events(tmp_path / "21_04.parquet")
    assert (submit["walltime"], start["time"] - submit["time"], end["state"]) == (600.0, 60.0, "failed")


def test_capacity_event_file_adds_machine_size_to_table(tmp_path: Path) -> None:
    size = written(tmp_path, f'{{"type":"capacity","v":1,"site":"x","time":{T},"cpus":512}}\n', "size.jsonl")
    with read_log([written(tmp_path, LUMOS), size], "alder") as (log, _):
        capacity = log.surveys["alder"].capacity
        assert capacity is not None
        assert (capacity.cpus, log.jobs) == (512, 3)


MAP = """
separator = ";"
timezone = "Europe/Paris"
[columns]
job = "id"
submit = "in"
wait = { column = "queued", unit = "minutes" }
run = { column = "ran", unit = "hours" }
cpus = { column = "nodes", times = 64 }
memory = { column = "mem", unit = "GiB" }
state = "how"
[states]
fine = "completed"
"""


def test_custom_column_mapping_is_used(tmp_path: Path) -> None:
    path = written(tmp_path, "id;in;queued;ran;nodes;mem;how\na;2023-03-01 13:00;2;1.5;2;4;fine\n")
    submit, start, end = read_events(path, map=str(written(tmp_path, MAP, "map.toml")))
    assert end["state"] == "completed"
    assert submit == {"type": "submit", "time": NOON.timestamp(), "job": "a", "cpus": 128, "memory": 4 << 30}
    assert (start["time"] - submit["time"], end["time"] - start["time"]) == (120.0, 5400.0)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ('submit = "in"', r"columns.*missing required field `submit`"),
        ("wait = ", r"columns: expected `start` or `wait`"),
        ('"minutes"', r"columns.wait: unit 'eons'; expected one of seconds, minutes"),
        ("[states]", r"is not TOML"),
        ('state = "how"', r"no column 'why', the state; there are: id, in, queued"),
    ],
)
def test_invalid_mapping_raises_user_error(change: str, problem: str, tmp_path: Path) -> None:
    new = {'"minutes"': '"eons"', "[states]": "[states", 'state = "how"': 'state = "why"', "wait = ": "walltime = "}
    path = written(tmp_path, "id;in;queued;ran;nodes;mem;how\n")
    with pytest.raises(UserError, match=problem):
        read_events(path, map=str(written(tmp_path, MAP.replace(change, new.get(change, "")), "map.toml")))


NUMBERED = """
separator = "|"
[columns]
job = 1
submit = 3
wait = { column = 4, unit = "minutes" }
run = 5
"""


def test_headerless_table_is_mapped_by_column_number(tmp_path: Path) -> None:
    path = written(tmp_path, "7|ann|1000|1|60\n8|bob|2000|2|30\n")
    found = read_events(path, map=str(written(tmp_path, NUMBERED, "map.toml")))
    assert [(event["type"], event["job"], event["time"]) for event in found] == [
        ("submit", "7", 1000.0),
        ("start", "7", 1060.0),
        ("end", "7", 1120.0),
        ("submit", "8", 2000.0),
        ("start", "8", 2120.0),
        ("end", "8", 2150.0),
    ]
    with pytest.raises(UserError, match=r"no column 3, the submit; there are: 1, 2"):
        read_events(written(tmp_path, "7|ann\n"), map=str(tmp_path / "map.toml"))
    mixed = written(tmp_path, NUMBERED.replace("run = 5", 'run = "run"'), "mixed.toml")
    with pytest.raises(UserError, match=r"mixed\.toml: columns: some by name and some by number"):
        read_events(path, map=str(mixed))
    with pytest.raises(UserError, match=r"zero\.toml: columns.*: expected `int` >= 1"):
        read_events(path, map=str(written(tmp_path, NUMBERED.replace("job = 1", "job = 0"), "zero.toml")))


def test_unmappable_table_raises_user_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"use --map FILE to define the columns, or acme, .*; there are: a, b"):
        read_events(written(tmp_path, "a,b\n1,2\n"))
    with pytest.raises(UserError, match="there is no such column mapping or file; there are: acme"):
        read_events(written(tmp_path, LUMOS), map="lumo")
    with pytest.raises(UserError, match="no column 'job_id', the job"):
        read_events(written(tmp_path, LUMOS), map="helios")
    (tmp_path / "x.parquet").write_bytes(b"PAR1 and nothing more")
    with pytest.raises(UserError, match="not a readable Parquet file"):
        read_events(tmp_path / "x.parquet")


def test_packaged_mappings_are_valid() -> None:
    assert {"job" in read_mapping(name).columns for name in ready()} == {True}


def test_cell_parsers_return_values() -> None:
    noon = NOON.timestamp()
    times = ["2023-03-01T12:00:00Z", "2023-03-01 12:00:00 UTC", "2023/03/01 12:00", noon, str(int(noon)), noon * 1e9]
    assert {time_of(cell, UTC) for cell in times} == {noon}
    assert [time_of(cell, UTC) for cell in (None, "", "unknown", 0, float("nan"))] == [None] * 5
    assert [seconds_of(cell, 60.0) for cell in (2, "2", "1-00:00:00", "1 days 00:00:00", "-")] == [
        *(120.0, 120.0, 86400.0, 86400.0),
        None,
    ]
    assert [text_of(cell) for cell in (7.0, "7.0", None, float("nan"), "N/A", "a")] == ["7", "7", "", "", "", "a"]


def test_table_is_recognised_by_replay(tmp_path: Path) -> None:
    with read_log([written(tmp_path, LUMOS)]) as (log, report):
        assert log.jobs == 3 and report.files[0].format == "table"


class TestTable(SourceContract):
    name = "table"
    events = 8
    bad = (
        BadPart(line=3, field="job", expected="a job's id"),
        BadPart(line=4, field="submit_time", expected="a time"),
        BadPart(line=5, field=None, expected="14, as the first row has"),
    )
    options: ClassVar[dict[str, Any]] = {}

    def write(self, directory: Path) -> str:
        head, first, *rest = LUMOS.splitlines()
        lines = [head, first, ",,1", first.replace("1672529301", "then"), "1,2,3", *rest]
        lines[2] = first.replace("0,1,", "0,,", 1)
        return str(written(directory, "\n".join(lines) + "\n"))


def test_grown_table_resumes_and_changed_table_does_not(tmp_path: Path) -> None:
    path = written(tmp_path, LUMOS)
    *_, (_, cursor) = TableSource(str(path), "s").events()
    more = LUMOS + LUMOS.splitlines()[1].replace("0,1,", "3,4,", 1) + "\n"
    written(tmp_path, more)
    events = [event for event, _ in TableSource(str(path), "s").events(cursor)]
    assert [(event.kind, event.job) for event in events if isinstance(event, JobEvent)] == [
        ("submit", "4"),
        ("start", "4"),
        ("end", "4"),
    ]
    for other in (more.replace("1672529302.0", "1672529303.0"), more.partition("\n1,2")[0], more.replace("job", "id")):
        with pytest.raises(UserError, match=r"of another table, or its rows have changed|columns"):
            list(TableSource(str(written(tmp_path, other)), "s").events(cursor))
