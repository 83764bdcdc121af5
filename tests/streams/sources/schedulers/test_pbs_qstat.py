"""JSON responses of PBS's qstat."""

import json
from pathlib import Path
from typing import Any, ClassVar

import pytest

from queuecast.testing_sources import BadPart, SourceContract
from streams.sources.schedulers.pbs_qstat import QstatSource
from streams.sources.source_registry import format_of
from tests.support.logs import plain, read

T = 1_700_000_000
"""2023-11-14 22:13:20 UTC; the site is in Paris, an hour ahead."""

JOB = {
    "Job_Name": "md",
    "Job_Owner": "ada@login1",
    "queue": "workq",
    "project": "_pbs_project_default",
    "ctime": "Tue Nov 14 23:13:20 2023",
    "qtime": "Tue Nov 14 23:13:20 2023",
    "etime": "Tue Nov 14 23:13:20 2023",
    "mtime": "Tue Nov 14 23:13:20 2023",
    "Resource_List": {"mem": "8gb", "ncpus": 16, "nodect": 2, "select": "2:ncpus=8:mem=4gb", "walltime": "02:00:00"},
}
STARTED = {"job_state": "R", "stime": "Tue Nov 14 23:15:00 2023", "exec_host": "n1/0*8+n2/0*8"}
ENDED = STARTED | {
    "job_state": "F",
    "mtime": "Tue Nov 14 23:31:40 2023",
    "Exit_status": 0,
    "history_timestamp": T + 1101,
}
SUBMIT = {"type": "submit", "time": float(T), "job": "7.srv", "user": "ada", "queue": "workq", "executable": "md"}
REQUEST = {"cpus": 16, "nodes": 2, "memory": 8 << 30, "walltime": 7200.0}


def answer(after_s: int, indent: int | None = 4, **jobs: dict[str, Any]) -> str:
    document = {"timestamp": T + after_s, "pbs_version": "23.06", "pbs_server": "srv"}
    document["Jobs"] = {f"{name.removeprefix('j')}.srv": JOB | job for name, job in jobs.items()}
    return json.dumps(document, indent=indent) + "\n"


LEFT = ENDED | {"job_state": "F"}


def test_finished_job_yields_submit_start_end(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(answer(5000, j7=LEFT))
    assert format_of(tmp_path / "log") is QstatSource
    for indent in (4, None):
        found = plain(read("qstat", tmp_path, answer(5000, indent, j7=LEFT)).whole)
        assert found == [
            SUBMIT | REQUEST,
            {"type": "start", "time": T + 100.0, "job": "7.srv", "cpus": 16, "nodes": 2},
            {"type": "end", "time": T + 1100.0, "job": "7.srv"},
        ]


@pytest.mark.parametrize("bare", ["005", "0x1F", "1e999", "nan", "-inf", ".5", "5.", "+7"])
def test_unquoted_c_numbers_are_read(tmp_path: Path, bare: str) -> None:
    """OpenPBS omits quotes of values that strtod accepts, such as `-v foo=005` or a numeric job name."""
    log = answer(5000, j7=LEFT | {"Job_Name": "BARE", "Variable_List": {"foo": "BARE", "PBS_O_SYSTEM": "Linux"}})
    found = plain(read("qstat", tmp_path, log.replace('"BARE"', bare)).whole)
    assert found[0] == SUBMIT | REQUEST | {"executable": bare}
    assert len(found) == 3


def test_timezone_is_inferred_from_response_timestamp(tmp_path: Path) -> None:
    (found,) = plain(read("qstat", tmp_path, answer(10, j7={"job_state": "Q"})).whole)
    assert found == SUBMIT | REQUEST


def test_successive_polls_emit_events(tmp_path: Path) -> None:
    held, queued = {"job_state": "H"}, {"job_state": "Q"}
    gone = {"job_state": "F", "mtime": "Tue Nov 14 23:20:00 2023"}
    looks = (
        (10, {"j7": queued, "j8": held}),
        (60, {"j7": queued, "j8": queued}),
        (200, {"j7": STARTED, "j8": queued}),
        (300, {"j7": STARTED | {"job_state": "S"}, "j8": queued}),
        (350, {"j7": STARTED, "j8": queued}),
        (1200, {"j7": ENDED, "j8": gone}),
    )
    text = "".join(answer(after, **jobs) for after, jobs in looks)
    found = [
        f"{event.time - T:.0f} {event.kind} {event.job}"
        for event in read("qstat", tmp_path, text, timezone="Europe/Paris").live
    ]
    assert found == [
        "0 submit 7.srv",
        "0 submit 8.srv",
        "10 hold 8.srv",
        "60 release 8.srv",
        "100 start 7.srv",
        "300 suspend 7.srv",
        "350 resume 7.srv",
        "1100 end 7.srv",
        "400 cancel 8.srv",
    ]


def test_job_waiting_for_execution_time_is_held(tmp_path: Path) -> None:
    waiting = {"job_state": "W", "Execution_Time": "Wed Nov 15 08:00:00 2023"}
    text = answer(10, j7=waiting) + answer(60, j7={"job_state": "Q"})
    found = read("qstat", tmp_path, text, timezone="Europe/Paris").live
    assert [(event.kind, event.time - T) for event in found] == [("submit", 0), ("hold", 10), ("release", 60)]


class TestQstat(SourceContract):
    name = "qstat"
    options: ClassVar = {"pause_s": 0.0}
    events = 9
    bad = (
        BadPart(line=1, field=None, expected="a whole answer of"),
        BadPart(line=2, field=None, expected="a whole answer of"),
    )

    def write(self, directory: Path) -> str:
        lines = ["what is this\n", '{"timestamp": "soon", "Jobs": {}}\n', answer(5000, j7=LEFT, j8=LEFT, j9=LEFT)]
        (directory / "looks.json").write_text("".join(lines))
        return str(directory / "looks.json")


def test_request_change_between_polls_emits_alter(tmp_path: Path) -> None:
    def pending_job(select: str, **more: Any) -> dict[str, Any]:
        return {"job_state": "Q", "Resource_List": JOB["Resource_List"] | {"select": select, **more}}

    kinds = pending_job("2:ncpus=8:mem=4gb:big=true")
    plainly = pending_job("2:ncpus=8:mem=4gb", walltime="01:00:00")
    looks = (kinds, kinds, plainly, plainly, {**plainly, "queue": "long"})
    text = "".join(answer(10 * place, j7=look) for place, look in enumerate(looks, 1))
    submit, altered, moved = plain(read("qstat", tmp_path, text, timezone="Europe/Paris").live)
    assert submit["node_features"] == [["big=true"]]
    assert (altered["time"], altered["walltime"], altered["node_features"]) == (T + 30, 3600.0, [])
    assert (moved["time"], moved["queue"]) == (T + 50, "long") and "node_features" not in moved
