"""LSF's event, stream and accounting files."""

from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import pytest

from queuecast.testing_sources import BadPart, SourceContract
from streams.sources.schedulers.lsf import LsfSource
from tests.support.logs import plain, read, sample

T = 1_700_000_000
LIMITS = "-1 -1 -1 -1 -1 -1 -1 -1 -1 7200 -1"
RESOURCES = '"span[ptile=8] rusage[ngpus_physical=2]"'


def new(
    job: int = 7, name: str = "md", begin: int = 0, hold: int = 0, depend: str = "", hosts: str = "0", options: int = 0
) -> str:
    files = '"/home/ada" "" "in" "out" "err" "/home/ada" "1700000000.7"'
    return (
        f'"JOB_NEW" "10.1" {T} {job} 1000 {options} 16 {T} {begin} 0 -65535 0 0 "ada" {LIMITS} "" 60.00 18 "long" '
        f'{RESOURCES} "login1" {files} {hosts} "{depend}" "" "{name}" "echo ""hi there""; md" 1 "a" "b" 4 "" "p1" '
        f'{"5000 " if options & 0x4000000 else ""}16 "X86_64" "" "" "" "" {hold} 0 "" "" "" -1 "later fields"\n'
    )


def started(at: int = T + 60, job: int = 7, index: int = 0, group: str = '"" ') -> str:
    return f'"JOB_START" "10.1" {at} {job} 4 0 0 60.0 2 "8*n1" "8*n2" "" "" 0 {group}{index} "" 0\n'


def executed(at: int = T + 61, job: int = 7, index: int = 0) -> str:
    return f'"JOB_EXECUTE" "10.1" {at} {job} 1000 99 "/home/ada" "/home/ada" "ada" 99 {index} "" -1\n'


def status(code: int, at: int, job: int = 7, index: int = 0, ended: int = 0, usage: str = "0") -> str:
    return f'"JOB_STATUS" "10.1" {at} {job} {code} 0 0 0.0 {ended} {usage} 0 {index} 0 "" -1\n'


def finished(
    job: int = 7, start: int = T + 60, code: int = 64, reason: int = 0, hosts: str = "", index: int = 0
) -> str:
    files = '"login1" "/home/ada" "in" "out" "err" "1700000000.7"'
    usage = " ".join(["0.1"] * 19)
    return (
        f'"JOB_FINISH" "10.1" {T + 360} {job} 1000 0 16 {T} 0 0 {start} "ada" "long" {RESOURCES} "" "" {files} '
        f'1 "pac" {hosts or "2 " + chr(34) + "8*n1" + chr(34) + " " + chr(34) + "8*n2" + chr(34)} {code} 60.0 "md" '
        f'"md" {usage} "" "p1" 0 16 "" "" {index} 2048 0 "" "" "" "" 0 "" {reason} "" -1 "/ada" "" "" "" -1 "" "" 5136 '
        f'"" 0 "" "" 0 0 7200 0 2048 "select[type == any] order[r15s:pg] " "" -1 "" -1 0 "" 0 0 "" 300 "" 0 ""\n'
    )


FINISH2 = (
    f'"JOB_FINISH2" "10.1" {T + 360} 9 12 "userName" "ada" "numProcessors" "1" "options" "64" "jStatus" "32" '
    f'"submitTime" "{T}" "startTime" "{T + 60}" "endTime" "{T + 300}" "queue" "long" "execHosts" "n1" '
    '"command" "sleep 20" "exitInfo" "5" "runLimit" "240"\n'
)

SUBMIT = {
    "type": "submit",
    "time": float(T),
    "job": "7",
    "user": "ada",
    "account": "p1",
    "queue": "long",
    "executable": "md",
    "cpus": 16,
    "nodes": 2,
    "gpus": 4,
    "walltime": 7200.0,
}
START = {"type": "start", "time": T + 60.0, "job": "7", "cpus": 16, "nodes": 2}


class TestLsf(SourceContract):
    name = "lsf"
    options: ClassVar = {"pause_s": 0.0}
    events = 11
    bad = (
        BadPart(line=3, field="field 8 (submitTime)", expected="a whole number"),
        BadPart(line=4, field=None, expected='"TYPE"'),
        BadPart(line=6, field="field 9 (numExHosts)", expected="a number of 0 to"),
        BadPart(line=7, field="field 39 (numAskedHosts)", expected="the line is cut short"),
    )

    def write(self, directory: Path) -> str:
        lines = [
            "# 123\n",
            new(),
            new(8).replace(f" 16 {T} ", " 16 soon "),
            "what\n",
            started(),
            started().replace(" 2 ", " -2 "),
            " ".join(new(11).split(" ")[:24]) + "\n",
            '"MBD_START" "10.1" 1700000000 "master" "cluster" 3 4\n',
            status(64, T + 360, ended=T + 360),
            finished(),
            FINISH2,
            finished(10, start=0),
            new(12),
            status(32, T + 400, 12),
            new(13),
            started()[:40],
        ]
        lines[6] = '"JOB_NEW" "10.1" 1700000000 11 1000 0 16 1700000000 0 0 -65535 0 0 "ada" ' + "-1 " * 21 + "\n"
        path = directory / "lsb.events"
        path.write_text("".join(lines))
        return str(path)


def test_lsf_records_of_job_yield_submit_start_end(tmp_path: Path) -> None:
    text = new() + started() + executed() + status(64, T + 361, ended=T + 360) + finished()
    found = read("lsf", tmp_path, text)
    assert found.live == found.whole
    assert plain(found.live) == [SUBMIT, START, {"type": "end", "time": T + 360.0, "job": "7"}]
    assert read("lsf", tmp_path, finished()).whole == found.whole
    assert [event.kind for event in read("lsf", tmp_path, new() + executed()).live] == ["submit", "start"]


def test_new_event_file_repeating_live_jobs_emits_no_duplicates(tmp_path: Path) -> None:
    again = "#80\n" + new() + started()
    found = read("lsf", tmp_path, new() + started() + again + status(64, T + 361, ended=T + 360) + "".join(again))
    assert [event.kind for event in found.live] == ["submit", "start", "end"]


def test_lsf_status_records_yield_events(tmp_path: Path) -> None:
    lines = [
        new(begin=T + 30, hold=1, depend="done(6)", hosts='2 "n1" "n2"', options=0x4000040),
        status(1, T + 40),
        f'"JOB_SWITCH" "10.1" {T + 41} 1000 7 "short" 0 "ada"\n',
        started(),
        status(16, T + 70),
        status(4, T + 80, usage="1 " + " ".join(["0.5"] * 19)),
        status(1, T + 90),
        f'"JOB_REQUEUE" "10.1" {T + 90} 7 0\n',
        started(T + 100, group=""),
        status(32, T + 200, ended=T + 200),
        f'"JOB_CLEAN" "10.1" {T + 300} 7 0\n',
    ]
    found = plain(read("lsf", tmp_path, "".join(lines)).live)
    assert found[0] == SUBMIT | {"eligible": T + 30.0, "dependency": "done(6)", "exclusive": True}
    assert [
        {key: value for key, value in event.items() if key not in ("job", "cpus", "nodes")} for event in found[1:]
    ] == [
        {"type": "hold", "time": float(T)},
        {"type": "release", "time": T + 40.0},
        {"type": "alter", "time": T + 41.0, "queue": "short"},
        {"type": "start", "time": T + 60.0},
        {"type": "suspend", "time": T + 70.0},
        {"type": "resume", "time": T + 80.0},
        {"type": "requeue", "time": T + 90.0},
        {"type": "start", "time": T + 100.0, "attempt": 1},
        {"type": "end", "time": T + 200.0, "attempt": 1, "state": "failed"},
    ]


def test_job_array_is_submitted_as_single_job(tmp_path: Path) -> None:
    text = new(name="md[1-3]%2") + "".join(started(index=index) + finished(index=index) for index in (1, 2, 3))
    found = plain(read("lsf", tmp_path, text).live)
    assert found[0] == SUBMIT | {"array_size": 3, "array_limit": 2}
    assert [(event["type"], event["job"], event.get("array")) for event in found[1:]] == [
        (kind, f"7[{index}]", "7" if kind == "start" else None) for index in (1, 2, 3) for kind in ("start", "end")
    ]


@pytest.mark.parametrize(
    ("code", "reason", "state"),
    [(64, 0, "completed"), (32, 5, "timeout"), (32, 14, "cancelled"), (32, 1, "preempted"), (32, 0, "failed")],
)
def test_exit_reason_yields_end_state(tmp_path: Path, code: int, reason: int, state: str) -> None:
    assert read("lsf", tmp_path, finished(code=code, reason=reason)).live[-1].state == state


def test_finished_job_lacking_start_is_cancelled(tmp_path: Path) -> None:
    found = read("lsf", tmp_path, finished(start=0, code=32, hosts="0"))
    assert [(event.kind, event.time) for event in found.live] == [("submit", float(T)), ("cancel", T + 360.0)]


def test_lsf_stream_record_with_named_fields_is_read(tmp_path: Path) -> None:
    submit, start, end = plain(read("lsf", tmp_path, FINISH2).live)
    assert (submit["walltime"], submit["exclusive"], submit["executable"]) == (240.0, True, "sleep")
    assert (start["time"], end["time"], end["state"]) == (T + 60.0, T + 300.0, "timeout")


def test_lsf_format_is_recognised() -> None:
    assert LsfSource.recognises(b"#80\n" + new().encode())
    assert not LsfSource.recognises(b'"a" "b" 7\n{"JOB_NEW": 1}\n')


@pytest.mark.parametrize(
    ("file", "kinds"),
    [
        ("lsb.acct.10.x.lines", ["submit", "start", "end"] * 2),
        ("lsb.events-lavalite.lines", ["start"]),
        ("lsb.stream-9.13-and-10.1.lines", ["submit", "start", "end"] * 2),
        ("unit-lsb.acct.log", ["submit", "start", "end"] * 2),
        ("unit-utf8.log", ["submit", "start", "end"]),
    ],
)
def test_sample_logs_are_read(file: str, kinds: list[str]) -> None:
    found = sample("lsf", f"lsf/{file}")
    assert [event.kind for event in found.whole] == kinds
    assert found.messages == []


@pytest.mark.parametrize(
    "late", ['"num=2:mode=shared:j_exclusive=yes"', '"select[ngpus>0] rusage[ngpus_physical=2.00]"']
)
@pytest.mark.parametrize("record", [new, finished])
def test_gpus_in_trailing_option_or_requirement_are_read(late: str, record: Callable[[], str], tmp_path: Path) -> None:
    """The GPUs are missing in the job's resource requirement, but are in a later field of the record."""
    line = record().replace(RESOURCES, '"span[hosts=1]"').rstrip("\n") + f" {late}\n"
    submit = plain(read("lsf", tmp_path, line).whole)[0]
    assert (submit["gpus"], submit["nodes"]) == (2, 1)
