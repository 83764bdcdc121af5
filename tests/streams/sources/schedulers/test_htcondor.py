"""HTCondor's event log, history and epoch history."""

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

import pytest

from models.records import End
from queuecast.testing_sources import BadPart, SourceContract
from streams.sources.schedulers.htcondor import HTCondorSource
from streams.sources.source_registry import format_of
from tests.support.logs import Read, plain, read, sample

T = 1_726_395_800
"""2024-09-15 10:23:20 UTC."""

ATTRIBUTES = ['Owner = "ada"', 'Cmd = "/home/ada/md"', "RequestCpus = 4", "RequestMemory = 2048", "RequestGpus = 1"]
REQUEST = {"cpus": 4, "gpus": 1, "memory": 2 << 30}


def event(kind: int, after_s: int, *lines: str, job: str = "7.0", text: str = "Something happened") -> str:
    cluster, proc = map(int, job.split("."))
    body = "".join(f"\t{line}\n" for line in lines)
    minute, second = divmod(20 + after_s, 60)
    return f"{kind:03} ({cluster}.{proc:03}.000) 2024-09-15 10:{23 + minute}:{second:02} {text}\n{body}...\n"


def information(after_s: int, trigger: int, job: str = "7.0") -> str:
    return event(28, after_s, *ATTRIBUTES, f"TriggerEventTypeNumber = {trigger}", job=job)


TERMINATED = "(1) Normal termination (return value 0)"


def as_json(kind: int, at: str, indent: int | None, **more: Any) -> str:
    ad = {"EventTypeNumber": kind, "EventTime": at, "Cluster": 7, "Proc": 0, "Subproc": 0, **more}
    return json.dumps(ad, indent=indent) + "\n"


class TestHTCondor(SourceContract):
    name = "htcondor"
    options: ClassVar = {"pause_s": 0.0}
    events = 11
    bad = (
        BadPart(line=4, field="time", expected="a time such as"),
        BadPart(line=7, field=None, expected="an event that ends with"),
        BadPart(line=11, field=None, expected="an event, an object, or an ad"),
        BadPart(line=12, field=None, expected="an event in JSON"),
    )

    def write(self, directory: Path) -> str:
        lines = [
            event(0, 0, "a line"),
            "000 (8.000.000) 09/31 10:23:45 Job submitted\n\tx\n...\n",
            event(0, 0, job="9.0")[:-4],
            event(1, 10, "SlotName: slot1"),
            "what is this\n",
            "{what}\n",
            information(10, 1),
            event(5, 20, TERMINATED),
            event(0, 21, job="9.0"),
            information(21, 0, job="9.0"),
            *(event(0, 22, job=f"10.{proc}") + information(22, 0, job=f"10.{proc}") for proc in range(4)),
            event(0, 23, job="10.4"),
            event(9, 24, job="10.0"),
            event(12, 25, job="10.1"),
            event(1, 26, job="9.0")[:-2],
        ]
        path = directory / "EventLog"
        path.write_text("".join(lines))
        return str(path)


def test_event_times_missing_year_follow_previous_event(tmp_path: Path) -> None:
    """The first event is in the year before the file's modification time; a log can span several years."""
    days = ["12/30", "01/02", "05/01", "09/30", "02/28", "02/29", "08/01", "01/01"]
    path = tmp_path / "EventLog"
    path.write_text("".join(f"000 ({job}.000.000) {day} 23:59:36 Submitted\n...\n" for job, day in enumerate(days, 1)))
    written = datetime(2022, 12, 29, 23, tzinfo=UTC).timestamp() + 7200
    os.utime(path, (written, written))
    found = Read("htcondor", path)
    assert found.live == found.whole
    assert [datetime.fromtimestamp(event.time, UTC).strftime("%Y-%m-%d") for event in found.live] == [
        "2022-12-30",
        "2023-01-02",
        "2023-05-01",
        "2023-09-30",
        "2024-02-28",
        "2024-02-29",
        "2024-08-01",
        "2025-01-01",
    ]


def test_xml_event_log_yields_submit_start_end(tmp_path: Path) -> None:
    text = '<?xml version="1.0"?>\n'
    for kind, line_end, more in (
        (0, "\n", "<a n='odd'>"),
        (1, "", ""),
        (5, "\n", '<a n="TerminatedNormally"><b v="t"/></a><a n="ReturnValue"><i>0</i></a>'),
    ):
        text += f'<c>{line_end}<a n="EventTypeNumber"><i>{kind}</i></a>{line_end}<a n="Cluster"><i>7</i></a>{line_end}'
        text += f'<a n="Proc"><i>0</i></a><a n="EventTime"><s>2024-09-15T10:2{kind}:20</s></a>{more}{line_end}</c>\n'
    found = read("htcondor", tmp_path, text)
    assert format_of(tmp_path / "log").name == "htcondor"
    assert found.live == found.whole and not found.skipped
    assert [(event.kind, event.time - T, event.job) for event in found.live] == [
        ("submit", -180, "7.0"),
        ("start", -120, "7.0"),
        ("end", 120, "7.0"),
    ]
    assert found.live[-1] == End(site="s", time=T + 120.0, job="7.0", state="completed")


def test_event_log_yields_events_of_all_kinds(tmp_path: Path) -> None:
    lines = [
        event(0, 0),
        event(12, 1, "Spooling input data files"),
        event(13, 2),
        event(6, 3, "1024  -  MemoryUsage of job (MB)"),
        event(1, 10, "SlotName: slot1_1", "Cpus = 2", "GPUs = 1"),
        event(10, 20),
        event(11, 30),
        event(4, 40, "(0) CPU times"),
        event(1, 50),
        event(12, 60),
        event(13, 70),
        event(1, 80),
        event(5, 90, "(0) Abnormal termination (signal 9)"),
        event(0, 91, job="8.1"),
        event(9, 92, job="8.1"),
    ]
    found = read("htcondor", tmp_path, "".join(lines))
    assert found.live == found.whole
    assert [(event.kind, event.time - T, event.job, event.attempt) for event in found.live] == [
        ("submit", 0, "7.0", 0),
        ("hold", 1, "7.0", 0),
        ("release", 2, "7.0", 0),
        ("start", 10, "7.0", 0),
        ("suspend", 20, "7.0", 0),
        ("resume", 30, "7.0", 0),
        ("requeue", 40, "7.0", 0),
        ("start", 50, "7.0", 1),
        ("requeue", 60, "7.0", 1),
        ("hold", 60, "7.0", 2),
        ("release", 70, "7.0", 2),
        ("start", 80, "7.0", 2),
        ("end", 90, "7.0", 2),
        ("submit", 91, "8.1", 0),
        ("cancel", 92, "8.1", 0),
    ]
    assert (found.live[3].cpus, found.live[3].gpus, found.live[12].state) == (2, 1, "failed")
    assert found.source.left_out == {"events 006": 1}


def test_job_ad_information_event_adds_request(tmp_path: Path) -> None:
    first = event(0, 0) + information(0, 0)
    second = event(0, 5, job="8.0") + information(5, 0, job="8.0") + event(0, 6, job="8.1") + event(9, 7, job="8.1")
    found = plain(read("htcondor", tmp_path, first + second).live)
    assert found == [
        {"type": "submit", "time": float(T), "job": "7.0"},
        {"type": "alter", "time": float(T), "job": "7.0", **REQUEST},
        {"type": "submit", "time": T + 5.0, "job": "8.0", "user": "ada", "executable": "md", **REQUEST},
        {"type": "submit", "time": T + 6.0, "job": "8.1", "late": True},
        {"type": "cancel", "time": T + 7.0, "job": "8.1"},
    ]


TABLE = [
    "Partitionable Resources :    Usage  Request Allocated Assigned",
    "   Cpus                 :     0.97        4         8",
    "   Disk (KB)            :       26       26   1234567",
    '   Gpus                 :                 1         1 "CUDA0"',
    "   Memory (MB)          :        1     2048      4096",
]


@pytest.mark.parametrize("kind", [4, 5])
def test_termination_resource_table_emits_alter(kind: int, tmp_path: Path) -> None:
    table = TABLE if kind == 4 else [line.replace("Gpus          ", "GPUs (Average)") for line in TABLE]
    found = read("htcondor", tmp_path, event(0, 0) + event(1, 5) + event(kind, 9, TERMINATED, *table))
    altered = [event for event in plain(found.live) if event["type"] == "alter"]
    assert altered == [{"type": "alter", "time": T + 9, "job": "7.0", **REQUEST}]
    ended = as_json(kind, "2024-09-15T10:23:29", None, RequestCpus=4, RequestGpus=1, RequestMemory=2048)
    as_object = read("htcondor", tmp_path, event(0, 0) + event(1, 5) + ended)
    assert [event for event in plain(as_object.live) if event["type"] == "alter"] == altered


@pytest.mark.parametrize("indent", [None, 1])
def test_json_event_log_is_read(tmp_path: Path, indent: int | None) -> None:
    lines = [
        as_json(0, "2024-09-15T10:23:20Z", indent),
        as_json(28, "2024-09-15T10:23:20Z", indent, TriggerEventTypeNumber=0, RequestCpus=4, Nested={"a": {}}),
        as_json(1, "2024-09-15T12:23:30.500+02:00", indent),
        as_json(5, "2024-09-15T10:23:40", indent, TerminatedNormally=True, ReturnValue=0),
    ]
    for between in ("", "...\n"):
        found = read("htcondor", tmp_path, between.join(lines))
        assert [(event.kind, event.time - T) for event in found.live] == [
            ("submit", 0),
            ("alter", 0),
            ("start", 10.5),
            ("end", 20),
        ]
        assert found.messages == []


def test_local_times_use_timezone_option(tmp_path: Path) -> None:
    found = read("htcondor", tmp_path, event(0, 0), timezone="America/Chicago")
    assert found.live[0].time == T + 5 * 3600


def ad(status: int, *more: str) -> str:
    times = f"QDate = {T}\nJobStartDate = {T + 60}\nJobCurrentStartDate = {T + 60}\nEnteredCurrentStatus = {T + 360}"
    return "\n".join(["ClusterId = 7", "ProcId = 2", f"JobStatus = {status}", times, *ATTRIBUTES, *more, ""])


def test_history_ads_yield_events_per_job(tmp_path: Path) -> None:
    banner = '*** Offset = 0 ClusterId = 7 ProcId = 2 Owner = "ada" CompletionDate = 1\n'
    never = ad(3).replace(f"JobStartDate = {T + 60}\nJobCurrentStartDate = {T + 60}\n", "").replace("= 2\n", "= 3\n", 1)
    found = read("htcondor", tmp_path, ad(4, f"CompletionDate = {T + 300}", "ExitCode = 0") + banner + never + banner)
    assert plain(found.whole) == [
        {"type": "submit", "time": float(T), "job": "7.2", "user": "ada", "executable": "md", **REQUEST},
        {"type": "start", "time": T + 60.0, "job": "7.2"},
        {"type": "end", "time": T + 300.0, "job": "7.2"},
        {"type": "submit", "time": float(T), "job": "7.3", "user": "ada", "executable": "md", **REQUEST},
        {"type": "cancel", "time": T + 360.0, "job": "7.3"},
    ]
    assert [event.kind for event in read("htcondor", tmp_path, ad(4)).whole] == ["submit", "start", "end"]


def test_epoch_history_ads_yield_attempts(tmp_path: Path) -> None:
    banner = '*** EPOCH ClusterId=7 ProcId=2 RunInstanceId=0 Owner="ada" CurrentTime=1\n'
    second = ad(4, f"CompletionDate = {T + 900}", "NumShadowStarts = 2", f"EpochWriteDate = {T + 900}")
    second = second.replace(f"JobCurrentStartDate = {T + 60}", f"JobCurrentStartDate = {T + 600}")
    found = read("htcondor", tmp_path, ad(2, f"EpochWriteDate = {T + 300}") + banner + second + banner)
    assert [(event.kind, event.time - T, event.attempt) for event in found.live] == [
        ("submit", 0, 0),
        ("start", 60, 0),
        ("requeue", 300, 0),
        ("start", 600, 1),
        ("end", 900, 1),
    ]


def test_htcondor_formats_are_recognised() -> None:
    for text in (event(0, 0), as_json(0, "", 1), as_json(0, "", None), ad(4), "\n" + ad(4)):
        assert HTCondorSource.recognises(text.encode()), text
    assert not HTCondorSource.recognises(b'{"id": 7, "events": []}\n')


def test_sample_logs_are_read() -> None:
    log = sample("htcondor", "htcondor/userlog-sample-25.x.log")
    assert [event.kind for event in log.whole] == ["submit", "hold", "release", "start", "alter", "end"]
    history = sample("htcondor", "htcondor/history.377260.0")
    assert [event.kind for event in history.whole] == ["submit", "start", "end"]
    assert log.messages == history.messages == []
