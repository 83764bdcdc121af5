"""Grid Engine's reporting and accounting."""

import json
import re
from pathlib import Path
from typing import Any, ClassVar

import pytest

from queuecast.testing_sources import BadPart, SourceContract, in_time
from streams.sources.schedulers.gridengine import PLACES, GridEngineSource
from tests.support.logs import plain, read, sample

HEADER = "# Version: 8.1.9\n# \n# DO NOT MODIFY THIS FILE MANUALLY!\n# \n"


def new(job: int, at: int = 1000000000, name: str = "md") -> str:
    return f"{at}:new_job:{at}:{job}:-1:NONE:{name}:ada:phys::defaultdepartment:sge:1024\n"


def log(at: int, event: str, job: int, task: int = 0, submission: int = 1000000000) -> str:
    who = "md:ada:phys::defaultdepartment:sge:why"
    return f"{at}:job_log:{at}:{event}:{job}:{task}:NONE:r:master:n1:0:1024:{submission}:{who}\n"


def accounted(job: int, start: int = 1000000060, end: int = 1000000360, more: str = "", **other: str) -> str:
    found = {
        "failed": "0",
        "exit": "0",
        "wall": f"{end - start}",
        "task": "0",
        "petask": "NONE",
        "category": "-l h_rt=600,h_vmem=2G -pe smp 4",
    }
    found |= other
    usage = "0:" * 17
    return (
        f"all.q:n1:phys:ada:md:{job}:sge:0:1000000000:{start}:{end}:{found['failed']}:{found['exit']}:{found['wall']}:"
        f"{usage}p1:defaultdepartment:smp:4:{found['task']}:1.0:0.0:0.0:{found['category']}:0.0:{found['petask']}:99.0:0:0"
        f"{more}\n"
    )


SUBMIT = {"time": 1000000000.0, "user": "ada", "group": "phys", "executable": "md"}
REQUEST = {"queue": "all.q", "cpus": 4, "memory": 8 << 30, "walltime": 600.0}


class TestGridEngine(SourceContract):
    name = "gridengine"
    options: ClassVar = {"pause_s": 0.0}
    events = 11
    bad = (
        BadPart(line=7, field=None, expected="18 or more"),
        BadPart(line=8, field="field 4 (job)", expected="a job's id"),
        BadPart(line=10, field=None, expected="a line of reporting"),
        BadPart(line=12, field="field 11 (end time)", expected="Unix seconds"),
    )

    def write(self, directory: Path) -> str:
        lines = [
            HEADER,
            new(1),
            log(1000000030, "sent", 1),
            "1000000031:job_log:1000000031:delivered:1\n",
            new(0).replace(":0:-1:", "::-1:"),
            log(1000000060, "delivered", 1),
            "what is this\n",
            "1000000360:acct:" + accounted(1),
            "1000000360:acct:" + accounted(2, end=0),
            log(1000000361, "finished", 1),
            "1000000361:queue:all.q:n1:1000000361:r\n",
            new(3),
            log(1000000370, "deleted", 3),
            "1000000380:acct:" + accounted(4),
            new(5),
            log(1000000400, "delivered", 5),
            log(1000000410, "suspended", 5)[:40],
        ]
        path = directory / "reporting"
        path.write_text("".join(lines))
        return str(path)


def test_accounting_record_yields_submit_start_end(tmp_path: Path) -> None:
    found = read("gridengine", tmp_path, HEADER + accounted(7) + accounted(8, more=":0.1:extra:fields"))
    assert in_time(found.live) == found.whole
    assert plain(found.live)[:3] == [
        {"type": "submit", "job": "7", **SUBMIT, "account": "p1", **REQUEST, "late": True},
        {"type": "start", "time": 1000000060.0, "job": "7", "cpus": 4},
        {"type": "end", "time": 1000000360.0, "job": "7"},
    ]
    assert len(found.live) == 6
    in_ms = accounted(7).replace(":1000000000:", ":1700000000000:").replace(":1000000060:", ":1700000060500:")
    in_ms = in_ms.replace(":1000000360:", ":1700000360000:")
    assert [event.time for event in read("gridengine", tmp_path, in_ms).live] == [1.7e9, 1700000060.5, 1700000360.0]


@pytest.mark.parametrize(("options", "gpus"), [({}, 16), ({"gpus_per": "job"}, 1)])
def test_gpus_option_counts_gpus_per_slot_or_per_job(options: dict[str, str], gpus: int, tmp_path: Path) -> None:
    line = accounted(7, category="-l gpu=1 -pe threads 16").replace(":smp:4:", ":threads:16:")
    (submit, *_) = plain(read("gridengine", tmp_path, line, **options).whole)
    assert (submit["cpus"], submit["gpus"]) == (16, gpus)


def test_reporting_records_yield_events_in_order(tmp_path: Path) -> None:
    lines = [
        new(7),
        log(1000000001, "pending", 7),
        log(1000000058, "sent", 7),
        log(1000000060, "delivered", 7),
        log(1000000100, "suspended", 7),
        log(1000000110, "unsuspended", 7),
        "1000000120:acct:" + accounted(7, 0, 0, failed="25"),
        log(1000000120, "restart", 7),
        log(1000000120, "restart", 7),
        log(1000000130, "delivered", 7),
        "1000000360:acct:" + accounted(7, 1000000129),
        log(1000000360, "finished", 7),
        log(1000000361, "deleted", 7),
    ]
    found = read("gridengine", tmp_path, "".join(lines))
    assert plain(found.live) == [
        {"type": "submit", "job": "7", **SUBMIT},
        {"type": "start", "time": 1000000060.0, "job": "7"},
        {"type": "suspend", "time": 1000000100.0, "job": "7"},
        {"type": "resume", "time": 1000000110.0, "job": "7"},
        {"type": "requeue", "time": 1000000120.0, "job": "7"},
        {"type": "start", "time": 1000000130.0, "job": "7", "attempt": 1},
        {"type": "alter", "time": 1000000129.0, "job": "7", "attempt": 1, **REQUEST},
        {"type": "end", "time": 1000000360.0, "job": "7", "attempt": 1},
    ]
    assert found.source.left_out["rescheduled runs without times"] == 1
    assert found.source.records == len(lines)


def test_finished_record_lacking_accounting_ends_job(tmp_path: Path) -> None:
    lines = [new(7), log(1000000060, "delivered", 7), log(1000000090, "finished", 7), log(1000000090, "finished", 7)]
    found = read("gridengine", tmp_path, "".join([*lines, "1000000095:acct:" + accounted(7)]))
    assert [event.kind for event in found.live] == ["submit", "start", "end"]
    assert plain(found.live)[-1]["state"] == "unknown"


def test_array_tasks_become_separate_jobs(tmp_path: Path) -> None:
    """A job array of unrecorded size is submitted as one job; its first started task is that job."""
    lines = [new(7)]
    lines += [log(1000000060 + task, "delivered", 7, task) for task in (2, 1)]
    lines += [f"1000000360:acct:{accounted(7, task=str(task))}" for task in (1, 2)]
    found = read("gridengine", tmp_path, "".join(lines))
    events = [(event.kind, event.job, getattr(event, "array", None)) for event in found.live if event.kind != "alter"]
    assert [event.late for event in found.live if event.kind == "submit"] == [False, True]
    assert events == [
        ("submit", "7", None),
        ("start", "7", None),
        ("submit", "7.1", "7"),
        ("start", "7.1", None),
        ("end", "7.1", None),
        ("end", "7", None),
    ]
    alone = read("gridengine", tmp_path, accounted(7, task="1") + accounted(7, task="2", petask="1.n2"))
    assert [(event.kind, event.job) for event in alone.live] == [("submit", "7.1"), ("start", "7.1"), ("end", "7.1")]
    assert alone.source.left_out == {"tasks of parallel jobs": 1}


@pytest.mark.parametrize(
    ("end", "kinds", "state"),
    [
        (accounted(7, exit="1"), ["submit", "start", "end"], "failed"),
        (accounted(7, end=1000000660, exit="137", failed="100"), ["submit", "start", "end"], "timeout"),
        (accounted(7, exit="137", failed="100"), ["submit", "start", "end"], "cancelled"),
        (accounted(7, failed="25"), ["submit", "start", "requeue"], None),
        (accounted(7, start=0), ["submit", "cancel"], None),
        (accounted(7, end=1000000060, failed="26"), ["submit", "cancel"], None),
    ],
)
def test_accounting_record_exit_codes_yield_end_state(
    tmp_path: Path, end: str, kinds: list[str], state: str | None
) -> None:
    found = read("gridengine", tmp_path, end).live
    assert [event.kind for event in found] == kinds
    assert state is None or found[-1].state == state


def as_json(line: str) -> str:
    """Convert a text line to the JSON of Open Cluster Scheduler: microseconds, and no fields that are NONE."""
    parts = line.rstrip("\n").split(":")
    kind = parts[1] if parts[1] in PLACES else "acct"
    fields = parts[2:] if parts[1] == "acct" else parts
    head = {} if kind == "acct" and fields is parts else {"time": int(parts[0]) * 1_000_000, "type": kind}
    named: dict[str, Any] = {}
    for name, place in PLACES[kind].items():
        text = fields[place]
        if text not in ("NONE", ""):
            named[name] = int(text) if re.fullmatch(r"-?\d+", text) else text
        if name.endswith("_time"):
            named[name] *= 1_000_000
    first = {name: named.pop(name) for name in ("job_number", "task_number") if name in named and not head}
    return json.dumps(head | first | named | {"rusage": {"ru_utime": 0.5}}, separators=(",", ":")) + "\n"


def test_json_records_equal_text_records(tmp_path: Path) -> None:
    lines = [
        new(7),
        log(1000000058, "sent", 7),
        log(1000000060, "delivered", 7),
        log(1000000100, "suspended", 7),
        log(1000000110, "unsuspended", 7),
        "1000000120:acct:" + accounted(7, 0, 0, failed="25"),
        log(1000000120, "restart", 7),
        log(1000000130, "delivered", 7),
        "1000000200:acct:" + accounted(7, 1000000129, 1000000200, exit="4294967295"),
        "1000000360:acct:" + accounted(7, 1000000129),
        new(8),
        *(log(1000000400 + task, "delivered", 8, task) for task in (1, 2)),
        "1000000460:acct:" + accounted(8, 1000000401, 1000000460, task="1", petask="1.n1"),
        "1000000460:acct:" + accounted(8, 1000000401, 1000000460, task="1"),
        "1000000470:queue:all.q:n1:1000000361:r\n",
    ]
    text = read("gridengine", tmp_path, "".join(lines))
    queue = '{"time":1000000470000000,"type":"queue","qname":"all.q"}\n'
    in_json = read("gridengine", tmp_path, "".join([*map(as_json, lines[:-1]), queue]))
    assert in_json.live == text.live and in_json.whole == text.whole
    assert in_json.source.left_out == text.source.left_out and not in_json.skipped
    runs = [accounted(7), accounted(9, task="3", category="-l h_rt=60 -pe smp 2"), accounted(10, start=0)]
    assert (
        read("gridengine", tmp_path, "".join(map(as_json, runs))).whole
        == read("gridengine", tmp_path, "".join(runs)).whole
    )
    for line in (as_json(new(7)), as_json(accounted(7)), as_json("1000000360:acct:" + accounted(7)), queue):
        assert GridEngineSource.recognises(line.encode())
    assert GridEngineSource.first_time(as_json(accounted(7)).encode()) == 1000000000.0


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"time":1,"type":"job_log"}', "line 1: event time is ''; expected a whole number"),
        (
            as_json(accounted(7)).replace('"end_time":1000000360000000', '"end_time":[]'),
            "line 1: end time is '[]'; expected a whole number",
        ),
        ('{"a":1}', "line 1: '{\"a\":1}'; expected an object with a type, or a job_number"),
        ('{"type":"acct",', 'line 1: \'{"type":"acct",\'; expected an object in JSON'),
    ],
)
def test_invalid_json_field_is_reported_by_name(line: str, message: str, tmp_path: Path) -> None:
    (found,) = read("gridengine", tmp_path, line + "\n").messages
    assert found.startswith(message)


def test_gridengine_format_is_recognised() -> None:
    assert GridEngineSource.recognises((HEADER + new(1)).encode())
    assert GridEngineSource.recognises((HEADER + accounted(1)).encode())
    assert not GridEngineSource.recognises(HEADER.encode() + b"root:x:0:0:root:/root:/bin/bash\n")


@pytest.mark.parametrize(
    ("file", "runs", "skipped"),
    [
        ("sge-lines.accounting", 4, []),
        ("uge-8.x-ms-timestamps.accounting", 1, []),
        ("unit-accounting.log", 2, []),
    ],
)
def test_sample_logs_are_read(file: str, runs: int, skipped: list[str]) -> None:
    found = sample("gridengine", f"gridengine/{file}")
    assert [event.kind for event in found.whole] == ["submit", "start", "end"] * runs
    assert found.messages == skipped


def test_category_with_clock_time_limit_sets_walltime(tmp_path: Path) -> None:
    category = "-U staff -l h_rt=0:10:0,h_vmem=2G -pe smp 4"
    found = read("gridengine", tmp_path, accounted(7, category=category) + accounted(8, more=":0:0", category=category))
    assert [(event.walltime, event.cpus) for event in found.whole if event.kind == "submit"] == [(600.0, 4)] * 2
    assert not found.skipped and not found.source.left_out


NIGHTS = [1000036800, 1000123200]
"""Times at which `reporting` writes a line for a running job, with its usage since the night before."""


@pytest.mark.parametrize("running_on", ["4294967295", "-1"])
def test_intermediate_accounting_record_does_not_end_job(running_on: str, tmp_path: Path) -> None:
    begun = [new(7), log(1000000060, "delivered", 7)]
    nights = [
        f"{night}:acct:" + accounted(7, start, night, exit=running_on, wall="0")
        for start, night in zip([1000000060, *NIGHTS], NIGHTS, strict=False)
    ]
    last = f"1000150000:acct:{accounted(7, NIGHTS[-1], 1000150000, exit='137', failed='100', wall='149940')}"
    limit = last.replace("h_rt=600", "h_rt=149940")
    for lines in ([*begun, *nights, limit], [*nights, limit], [nights[1], limit], [limit]):
        found = read("gridengine", tmp_path, "".join(lines))
        times = [(event.kind, event.time) for event in found.whole if event.kind != "alter"]
        assert times == [("submit", 1000000000), ("start", 1000000060), ("end", 1000150000)]
        assert found.whole[-1].state == "timeout"
        assert in_time(found.live) == found.whole and not found.skipped
        count = sum(line in nights for line in lines)
        assert found.source.left_out == ({"records of runs that continue": count} if count else {})


def test_accounting_record_of_unstarted_run_is_ignored(tmp_path: Path) -> None:
    found = read("gridengine", tmp_path, accounted(7, start=0, end=0, failed="1"))
    assert not found.whole and not found.skipped
    assert found.source.left_out == {"runs that never started": 1}
