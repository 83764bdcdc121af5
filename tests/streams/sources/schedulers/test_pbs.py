"""Accounting logs of PBS and Torque."""

from datetime import datetime
from pathlib import Path
from typing import ClassVar
from zoneinfo import ZoneInfo

import pytest

from queuecast.testing_sources import BadPart, SourceContract
from streams.sources.schedulers.pbs import PbsSource
from tests.support.logs import plain, read, sample

WHO = "user=ada group=phys account=p1 project=_pbs_project_default jobname=md queue=workq"
TIMES = "ctime=1700000000 qtime=1700000000 etime=1700000000"
WHAT = (
    "Resource_List.mem=8gb Resource_List.ncpus=16 Resource_List.ngpus=2 Resource_List.nodect=2 "
    "Resource_List.place=scatter:excl Resource_List.select=2:ncpus=8:ngpus=1:mem=4gb Resource_List.walltime=02:00:00"
)
WHERE = "exec_host=n1/0*8+n2/0*8 exec_vnode=(n1:ncpus=8:ngpus=1)+(n2:ncpus=8:ngpus=1)"
"""1700000000 is 2023-11-14 22:13:20 UTC."""

QUEUED = f"11/14/2023 22:13:20;Q;7.srv;{WHO} {TIMES} {WHAT}\n"
STARTED = f"11/14/2023 22:15:00;S;7.srv;{WHO} {TIMES} start=1700000100 {WHERE} {WHAT}\n"
ENDED = (
    f"11/14/2023 22:31:40;E;7.srv;{WHO} {TIMES} start=1700000100 {WHERE} {WHAT} session=9 end=1700001100 "
    "Exit_status=0 resources_used.walltime=00:16:40 run_count=1\n"
)


class TestPbs(SourceContract):
    name = "pbs"
    options: ClassVar = {"pause_s": 0.0}
    events = 11
    bad = (
        BadPart(line=3, field=None, expected="4: time;type;job;attributes"),
        BadPart(line=4, field="field 1 (time)", expected="MM/DD/YYYY HH:MM:SS"),
        BadPart(line=5, field="start", expected="Unix seconds"),
        BadPart(line=1, field="field 3 (job)", expected="a job's id"),
    )

    def write(self, directory: Path) -> str:
        lines = [
            QUEUED,
            STARTED,
            "what is this\n",
            "2023-11-14 22:15:00;Q;8.srv;queue=workq\n",
            STARTED.replace("start=1700000100", "start=soon"),
            ENDED,
            "11/14/2023 22:32:00;D;;requestor=ada\n",
            "11/14/2023 22:32:00;L;license;floating license hour:3 day:3 month:3 max:10\n",
            "11/14/2023 22:32:00;Q;8.srv;queue=workq\n",
            "11/14/2023 22:33:00;D;8.srv;requestor=ada@host\n",
            ENDED.replace("7.srv", "9.srv"),
            QUEUED.replace("7.srv", "10.srv"),
            STARTED.replace("7.srv", "10.srv"),
            "11/14/2023 22:40:00;R;10.srv;\n",
            "11/14/2023 22:40:",
        ]
        (directory / "20231114").write_text("".join(lines[:6]))
        (directory / "20231115").write_text("".join(lines[6:]).replace("11/14", "11/15"))
        return str(directory)


def test_job_with_zero_etime_is_submitted_and_altered_at_start(tmp_path: Path) -> None:
    """The job is held or has a dependency; its start record has the eligible time."""
    found = read(
        "pbs",
        tmp_path,
        QUEUED.replace("etime=1700000000", "etime=0") + STARTED.replace("etime=170000000", "etime=170000005"),
    )
    assert not found.skipped
    assert [(event.kind, event.time) for event in found.live] == [
        ("submit", 1700000000.0),
        ("alter", 1700000100.0),
        ("start", 1700000100.0),
    ]
    assert plain(found.live)[1]["eligible"] == 1700000050.0


def test_start_record_of_whole_job_array_is_ignored(tmp_path: Path) -> None:
    array = QUEUED.replace("7.srv", "7[].srv").replace("Resource_List.mem", "array_indices=0-9 Resource_List.mem")
    started = STARTED.replace("7.srv", "7[].srv").replace("start=1700000100 ", "")
    found = read("pbs", tmp_path, array + started)
    assert not found.skipped and [event.kind for event in found.live] == ["submit"]
    assert found.source.left_out == {"starts of arrays as a whole": 1}


def test_pbs_records_of_job_yield_submit_start_end(tmp_path: Path) -> None:
    found = read("pbs", tmp_path, QUEUED + STARTED + ENDED)
    assert found.live == found.whole
    assert plain(found.live) == [
        {
            "type": "submit",
            "time": 1700000000.0,
            "job": "7.srv",
            "user": "ada",
            "group": "phys",
            "account": "p1",
            "queue": "workq",
            "executable": "md",
            "cpus": 16,
            "nodes": 2,
            "gpus": 2,
            "memory": 8 << 30,
            "walltime": 7200.0,
            "exclusive": True,
        },
        {"type": "start", "time": 1700000100.0, "job": "7.srv", "cpus": 16, "nodes": 2, "gpus": 2},
        {"type": "end", "time": 1700001100.0, "job": "7.srv"},
    ]


def test_end_record_alone_yields_all_events(tmp_path: Path) -> None:
    assert read("pbs", tmp_path, ENDED).whole == read("pbs", tmp_path, QUEUED + STARTED + ENDED).whole


def test_torque_start_record_adds_request(tmp_path: Path) -> None:
    what = "Resource_List.nodes=2:ppn=8:gpus=1+3 Resource_List.nodect=5 Resource_List.walltime=600"
    bare = "11/14/2023 22:13:20;Q;7.srv;queue=workq\n"
    started = f"11/14/2023 22:15:00;S;7.srv;{WHO} {TIMES} start=1700000100 exec_host=n1/0-7+n2/0+n2/1 {what}\n"
    found = read("pbs", tmp_path, bare + started)
    request = {"account": "p1", "queue": "workq", "cpus": 19, "nodes": 5, "gpus": 2, "walltime": 600.0}
    start = {"type": "start", "time": 1700000100.0, "job": "7.srv", "cpus": 10, "nodes": 2}
    assert plain(found.live) == [
        {"type": "submit", "time": 1700000000.0, "job": "7.srv", "queue": "workq"},
        {"type": "alter", "time": 1700000100.0, "job": "7.srv", **request},
        start,
    ]
    submit = {"user": "ada", "group": "phys", "executable": "md", **request}
    assert plain(found.whole) == [{"type": "submit", "time": 1700000000.0, "job": "7.srv", **submit}, start]
    left = read("pbs", tmp_path, bare + bare.replace("7.srv", "8.srv") + "11/14/2023 22:14:00;D;7.srv;requestor=a@h\n")
    assert [(event.kind, event.job) for event in left.whole] == [
        ("submit", "7.srv"),
        ("cancel", "7.srv"),
        ("submit", "8.srv"),
    ]


def test_quoted_account_and_cray_mppwidth_are_read(tmp_path: Path) -> None:
    """Some sites quote accounts; Cray systems record CPUs in mppwidth."""
    found = read("pbs", tmp_path, ENDED.replace("account=p1", 'account="SCSG0001"'))
    assert plain(found.whole)[0]["account"] == "SCSG0001"
    started = f"11/14/2023 22:15:00;S;7.srv;{WHO} {TIMES} start=1700000100 Resource_List.mppwidth=64\n"
    assert plain(read("pbs", tmp_path, started).whole)[0]["cpus"] == 64


def test_pbs_record_types_yield_events(tmp_path: Path) -> None:
    lines = [
        QUEUED,
        "11/14/2023 22:13:30;Q;7.srv;queue=long\n",
        "11/14/2023 22:13:40;a;7.srv;Resource_List.walltime=04:00:00\n",
        STARTED,
        "11/14/2023 22:16:00;z;7.srv;resources_used.ncpus=8\n",
        "11/14/2023 22:17:00;r;7.srv;\n",
        "11/14/2023 22:18:00;D;7.srv;requestor=ada@host\n",
        "11/14/2023 22:19:00;R;7.srv;\n",
        STARTED.replace("start=1700000100", "start=1700000600"),
        f"11/14/2023 22:24:00;c;7.srv;{WHO} exec_host=n1/0*8\n",
        ENDED.replace("start=1700000100", "start=1700000600").replace("Exit_status=0", "Exit_status=271"),
        ENDED.replace("7.srv", "8.srv").replace(";E;", ";M;"),
    ]
    found = read("pbs", tmp_path, "".join(lines))
    assert [{key: value for key, value in event.items() if key != "job"} for event in plain(found.live)[1:]] == [
        {"type": "alter", "time": 1700000010.0, "queue": "long"},
        {"type": "alter", "time": 1700000020.0, "walltime": 14400.0},
        {"type": "start", "time": 1700000100.0, "cpus": 16, "nodes": 2, "gpus": 2},
        {"type": "suspend", "time": 1700000160.0},
        {"type": "resume", "time": 1700000220.0},
        {"type": "requeue", "time": 1700000340.0},
        {"type": "start", "time": 1700000600.0, "attempt": 1, "cpus": 16, "nodes": 2, "gpus": 2},
        {"type": "alter", "time": 1700000640.0, "attempt": 1, "cpus": 8, "nodes": 1},
        {"type": "end", "time": 1700001100.0, "attempt": 1, "state": "cancelled"},
    ]
    assert found.source.left_out == {"deletions of running jobs or of jobs without a submission": 2}


def test_etime_in_start_record_sets_eligible_time(tmp_path: Path) -> None:
    held = QUEUED.replace("etime=1700000000 ", "depend=afterok:6.srv ")
    later = STARTED.replace("etime=1700000000", "etime=1700000060")
    found = plain(read("pbs", tmp_path, held + later).live)
    assert found[0]["dependency"] == "afterok:6.srv"
    assert found[1] == {"type": "alter", "time": 1700000100.0, "job": "7.srv", "eligible": 1700000060.0}
    assert plain(read("pbs", tmp_path, later).live)[0]["eligible"] == 1700000060.0


def test_job_array_is_submitted_as_single_job(tmp_path: Path) -> None:
    array = QUEUED.replace("7.srv", "7[].srv").replace("Resource_List.mem", "array_indices=1-6:2 Resource_List.mem")
    tasks = [
        STARTED.replace("7.srv", f"7[{task}].srv") + ENDED.replace("7.srv", f"7[{task}].srv") for task in (1, 3, 5)
    ]
    whole = STARTED.replace("7.srv", "7[].srv"), ENDED.replace("7.srv", "7[].srv")
    found = read("pbs", tmp_path, array + whole[0] + "".join(tasks) + whole[1])
    assert plain(found.live)[0]["array_size"] == 3
    assert [(event.kind, event.job) for event in found.live[1:]] == [
        (kind, f"7[{task}].srv") for task in (1, 3, 5) for kind in ("start", "end")
    ]
    assert {event["array"] for event in plain(found.live) if event["type"] == "start"} == {"7[].srv"}
    some = read("pbs", tmp_path, array + tasks[0] + whole[1])
    assert [event.kind for event in some.live] == ["submit", "start", "end", "cancel"]
    alone = plain(read("pbs", tmp_path, tasks[0]).live)  # Torque, or the log lacks the record of the job array
    assert [(event["type"], event.get("array")) for event in alone] == [
        ("submit", "7[].srv"),
        ("start", None),
        ("end", None),
    ]


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ("0", "completed"),
        ("1", "failed"),
        ("-11", "timeout"),
        ("-29", "timeout"),
        ("271", "cancelled"),
        ("", "unknown"),
    ],
)
def test_exit_status_yields_end_state(tmp_path: Path, status: str, state: str) -> None:
    end = ENDED.replace("Exit_status=0", f"Exit_status={status}" if status else "")
    assert read("pbs", tmp_path, end).live[-1].state == state


def test_local_times_use_given_or_inferred_timezone(tmp_path: Path) -> None:
    """Use the given time zone, in summer and winter, or infer it from the log."""

    def line(kind: str, job: str, at: int, more: str = "") -> str:
        local = datetime.fromtimestamp(at, ZoneInfo("America/New_York")).strftime("%m/%d/%Y %H:%M:%S")
        return f"{local};{kind};{job};{more}\n"

    def story(at: int) -> str:
        start = line("S", f"{at}", at + 10, f"{WHO} ctime={at} start={at + 10} Resource_List.ncpus=1")
        return start + line("Q", f"{at}b", at + 20, "queue=q") + line("D", f"{at}b", at + 30, "requestor=a")

    winter, summer, twice = (
        1_700_000_000,
        1_689_000_000,
        1_699_163_400,
    )  # in the repeated hour in autumn
    text = (
        line("Q", "first", summer - 60, "queue=q") + story(summer) + story(twice) + story(twice + 3600) + story(winter)
    )
    expected = {f"{at}b": at + 20.0 for at in (summer, twice, twice + 3600, winter)} | {"first": summer - 60.0}
    own = {event.job: event.time for event in read("pbs", tmp_path, text).live if event.kind == "submit"}
    assert {job: own[job] for job in expected} == expected
    given = read("pbs", tmp_path, text, timezone="America/New_York").live
    submit_times = {event.job: event.time for event in given if event.kind == "submit"}
    assert {job: submit_times[job] for job in expected if job != f"{twice + 3600}b"} == {
        job: time for job, time in expected.items() if job != f"{twice + 3600}b"
    }


def test_pbs_format_is_recognised() -> None:
    assert PbsSource.recognises(b"cut short\n" + QUEUED.encode())
    assert not PbsSource.recognises(b"14/11/2023;Q;1;2\n") and not PbsSource.recognises(b"99/99/2023 22:13:20;Q;7;x\n")


@pytest.mark.parametrize(
    ("file", "jobs", "ends", "skipped"),
    [
        ("torque-QSDE-2006-2018.log", 8, 4, []),
        ("torque-QSEDAR.log", 13, 7, ["line 4: end is ''; expected Unix seconds"]),
        ("torque-pbspro-E-records.log", 9, 9, []),
    ],
)
def test_sample_logs_are_read(file: str, jobs: int, ends: int, skipped: list[str]) -> None:
    found = sample("pbs", f"pbs/{file}")
    assert sum(event.kind == "submit" for event in found.whole) == jobs
    assert sum(event.kind == "end" for event in found.whole) == ends
    assert found.messages == skipped


def test_alter_without_node_kinds_removes_them(tmp_path: Path) -> None:
    lines = [
        QUEUED.replace("ngpus=1:mem=4gb", "ngpus=1:mem=4gb:big=true"),
        "11/14/2023 22:13:40;a;7.srv;Resource_List.walltime=04:00:00\n",
        "11/14/2023 22:13:50;a;7.srv;Resource_List.select=3:ncpus=4\n",
    ]
    submit, longer, other = plain(read("pbs", tmp_path, "".join(lines)).live)
    assert submit["node_features"] == [["big=true"]]
    assert "node_features" not in longer
    assert (other["node_features"], other["cpus"]) == ([], 12)
