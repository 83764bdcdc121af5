"""JSON of squeue, slurmrestd and sacct, in the formats of releases 21.08 to 26.05."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.sources.contract import SkippedPart
from streams.sources.slurm.attempt_rows import JobRow
from streams.sources.slurm.json_jobs import read_jobs

NOON = 1767355200


def number(value: int | None, infinite: bool = False) -> dict[str, Any]:
    """Return a number in the format used since 23.02."""
    return {"set": value is not None, "infinite": infinite, "number": value or 0}


OLD: dict[str, Any] = {
    "job_id": 7,
    "job_state": "PENDING",
    "submit_time": NOON,
    "eligible_time": NOON,
    "start_time": NOON + 600,
    "end_time": 0,
    "time_limit": 60,
    "restart_cnt": 0,
    "array_job_id": 0,
    "array_task_id": None,
    "array_task_string": "",
    "array_max_tasks": 0,
    "het_job_id": 0,
    "user_name": "ada",
    "partition": "batch,gpu",
    "name": "namd",
    "cpus": 8,
    "node_count": 2,
    "tasks": 8,
    "memory_per_node": 2048,
    "tres_req_str": "cpu=8,mem=4G,node=2,billing=8",
    "tres_per_node": "gres:gpu:a100:2",
    "shared": None,
    "licenses": "matlab@here:2,abaqus",
    "dependency": "",
    "priority": 900,
    "state_reason": "Resources",
    "nodes": "",
}
NEW = OLD | {
    "job_state": ["PENDING"],
    "submit_time": number(NOON),
    "eligible_time": number(NOON),
    "start_time": number(NOON + 600),
    "end_time": number(0),
    "time_limit": number(60),
    "array_job_id": number(0),
    "array_task_id": number(None),
    "array_max_tasks": number(0),
    "het_job_id": number(0),
    "cpus": number(8),
    "node_count": number(2),
    "tasks": number(8),
    "memory_per_node": number(2048),
    "tres_per_node": "gres/gpu:a100:2",
    "shared": [],
    "exclusive": ["false"],
    "priority": number(900),
    "hold": False,
    "a field of a later release": [{}],
}
DONE: dict[str, Any] = {
    "job_id": 7,
    "array": {"job_id": 0, "task_id": number(None), "task": ""},
    "time": {"submission": NOON, "eligible": NOON, "start": NOON + 60, "end": NOON + 180, "limit": number(60)},
    "state": {"current": ["COMPLETED"], "reason": "None"},
    "nodes": "n1",
    "partition": "batch",
    "tres": {
        "requested": [
            {"type": "cpu", "name": "", "count": 8},
            {"type": "mem", "name": "", "count": 4096},
            {"type": "gres", "name": "gpu:a100", "count": 2},
        ],
        "allocated": [{"type": "cpu", "name": "", "count": 16}, {"type": "node", "name": "", "count": 2}],
    },
}
"""A job of sacct's, submitted at noon; it waited for a minute and ran for two."""


def read(*jobs: dict[str, Any]) -> tuple[list[JobRow], list[SkippedPart]]:
    skipped: list[SkippedPart] = []
    document = json.dumps({"jobs": jobs, "last_update": number(NOON + 5), "meta": {}, "errors": []}).encode()
    found = read_jobs(document, skipped.append, "squeue")
    assert found.last_update == NOON + 5
    return found.rows, skipped


def one(job: dict[str, Any], **other: Any) -> JobRow:
    rows, skipped = read(job | other)
    assert not skipped
    return rows[0]


def test_old_and_new_release_json_yield_equal_rows() -> None:
    assert one(OLD) == one(NEW)


def test_pending_job_has_request_and_expected_start() -> None:
    row = one(NEW)
    assert (row.job, row.phase, row.submit, row.start, row.expected) == ("7", "queued", NOON, None, NOON + 600)
    where = {"queue": "batch", "partitions": ["batch", "gpu"], "walltime": 3600.0}
    size = {"cpus": 8, "nodes": 2, "memory": 4 << 30, "gpus": 4, "gpu_types": {"a100": 4}}
    request = where | size | {"licences": {"matlab@here": 2, "abaqus": 1}}
    assert row.request | request == row.request


def test_begin_time_is_not_an_expected_start() -> None:
    assert one(NEW, state_reason="BeginTime").expected is None


@pytest.mark.parametrize("other", [{"state_reason": "JobHeldUser"}, {"state_reason": "JobHeldAdmin"}, {"hold": True}])
def test_held_job_is_recognised(other: dict[str, Any]) -> None:
    assert one(NEW, **other).held


def test_job_array_and_array_tasks_are_read() -> None:
    row = one(NEW, array_job_id=number(7), array_task_string="1-10%2", array_max_tasks=number(2))
    assert (row.job, row.array, row.array_size, row.request.get("array_limit")) == ("7", None, 10, 2)
    task = one(NEW, job_id=9, array_job_id=number(7), array_task_id=number(0), job_state=["RUNNING"])
    assert (task.job, task.array, task.array_size) == ("7_0", "7", None)
    last = one(NEW, array_job_id=number(7), array_task_id=number(10))
    assert (last.job, last.array, last.array_size) == ("7", None, 1)
    old = one(OLD, array_job_id=7, array_task_id=4294967294)
    assert (old.job, old.array) == ("7", None)


def test_job_cancelled_while_pending_has_no_start() -> None:
    ended = {"job_state": ["CANCELLED"], "start_time": number(NOON + 60), "end_time": number(NOON + 60)}
    assert one(NEW, **ended).start is None
    assert one(NEW, **ended, nodes="n1").start == NOON + 60


def test_cancelled_job_with_planned_cpus_has_no_start() -> None:
    """The accounting records the planned allocation of a job cancelled while pending."""
    times = DONE["time"] | {"end": NOON + 60}
    row = one(DONE, time=times, state={"current": ["CANCELLED"]}, nodes="None assigned")
    assert (row.phase, row.start, row.end) == ("ended", None, NOON + 60)
    assert one(DONE, time=times, state={"current": ["TIMEOUT"]}, nodes="None assigned").start == NOON + 60
    done = {"job_state": ["CANCELLED"], "end_time": number(NOON + 600), "tres_alloc_str": "cpu=8,node=1"}
    assert one(NEW, **done, nodes="None assigned").start is None
    assert one(NEW, **done, nodes="n1").start == NOON + 600


def test_started_gpus_untracked_by_site_use_gres_detail() -> None:
    runs: dict[str, Any] = {"job_state": ["RUNNING"], "tres_alloc_str": "cpu=8,mem=4G,node=2"}
    assert one(NEW, **runs).started_gpus is None
    assert one(NEW, **runs, gres_detail=["gpu:a100:2(IDX:0-1)", "gpu:a100:2(IDX:0,2)"]).started_gpus == 4
    assert one(NEW, **runs, tres_per_node="").started_gpus == 0
    assert one(DONE).started_gpus is None
    by_socket = one(NEW, tres_per_node="", tres_per_socket="gres/gpu:2", sockets_per_node=number(2))
    assert by_socket.request.get("gpus") == 2 * 2 * 2


def test_infinite_time_limit_is_unlimited() -> None:
    assert one(NEW, time_limit=number(None, infinite=True)).unlimited
    assert one(OLD, time_limit=4294967295).unlimited
    assert one(OLD, time_limit=4294967295).request.get("walltime") is None


def test_sacct_job_has_request_and_allocation() -> None:
    row = one(DONE)
    assert (row.job, row.phase, row.state) == ("7", "ended", "completed")
    assert (row.start, row.end, row.request.get("cpus"), row.request.get("memory"), row.request.get("gpu_types")) == (
        NOON + 60,
        NOON + 180,
        8,
        4 << 30,
        {"a100": 2},
    )
    assert (row.started_cpus, row.started_nodes, row.restarts) == (16, 2, None)
    time = DONE["time"] | {"start": 0, "planned": number(-5)}
    assert one(DONE, nodes="None assigned", time=time, tres=None).start is None
    assert one(DONE, array={"job_id": 5, "task_id": {"set": True, "number": 2}, "task": ""}).job == "5_2"


def test_unreadable_job_is_reported_and_others_read() -> None:
    rows, skipped = read(NEW | {"job_state": ["FOO"]}, NEW | {"partition": 5.5}, NEW | {"submit_time": 0}, NEW)
    assert len(rows) == 1
    assert [(part.line, part.field) for part in skipped] == [(1, "state"), (2, None), (3, "submit_time")]


@pytest.mark.parametrize("document", [b"", b"{}", b"[]", b'{"jobs":null}', b"slurm_load_jobs error"])
def test_read_jobs_on_other_document_raises_value_error(document: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_jobs(document, lambda _: None, "squeue")


def test_job_name_with_invalid_utf8_is_replaced() -> None:
    document = json.dumps({"jobs": [NEW]}).encode().replace(b"namd", b"na\xffmd")
    assert read_jobs(document, lambda _: None, "squeue").rows[0].request.get("executable") == "na\ufffdmd"


@pytest.mark.parametrize("field", ["job_id", "submit_time"])
def test_job_with_invalid_utf8_name_and_bad_field_is_reported(field: str) -> None:
    document = json.dumps({"jobs": [{"name": "namd"} | NEW | {field: []}, NEW]}).encode().replace(b"namd", b"na\xffmd")
    skipped: list[SkippedPart] = []
    assert len(read_jobs(document, skipped.append, "squeue").rows) == 1
    assert [(part.line, part.field) for part in skipped] == [(1, None)]


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["set", "number", "infinite"]), inner),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from(sorted(NEW)), values, max_size=6))
def test_read_jobs_accepts_arbitrary_field_values(other: dict[str, Any]) -> None:
    read(NEW | other)
