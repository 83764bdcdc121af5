"""Calls of Slurm's programs and of slurmrestd, both replaced by fakes."""

import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from streams.sources.contract import Calls, SkippedPart
from streams.sources.slurm.calls import CallFailed, Commands, SourceClosed
from streams.sources.slurm.rest import SlurmRest
from streams.sources.slurm.source import SlurmSource
from tests.support.deployment import until
from tests.support.made_slurm import MadeJob, sacct, squeue

JOBS = [MadeJob(number=1, submit=0, start=10, end=20), MadeJob(number=2, submit=5)]


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a directory for fake Slurm programs first in PATH."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path


def program(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


def no_skips(skipped: SkippedPart) -> None:
    pytest.fail(str(skipped))


def test_commands_call_slurm_programs_and_count_calls(programs: Path) -> None:
    (programs / "jobs.json").write_bytes(squeue(JOBS, 30))
    lines = sacct(JOBS, 30).replace("|", "\x1f")
    (programs / "jobs.txt").write_text(lines)
    program(programs, "squeue", f'cat {programs}/jobs.json; test "$1 $TZ $SLURM_BITSTR_LEN" = "--local UTC 0"')
    known = 'test "$1" = --helpformat && echo "JobID Submit  State" && exit; test "$1" = --local'
    program(programs, "sacct", f"{known} && cat {programs}/jobs.txt")
    measured: dict[str, Calls] = {}
    calls = Commands(measured)
    assert [row.job for row in calls.queue(no_skips).rows] == ["1", "2"]
    assert [row.job for row in calls.accounting(0.0, no_skips).rows] == ["1", "2"]
    assert (measured["squeue"].count, measured["sacct"].count) == (1, 2)
    assert measured["squeue"].seconds >= measured["squeue"].last_s > 0


@pytest.mark.parametrize(("hours", "fine"), [(0, True), (-5, False)])
def test_program_in_other_timezone_is_rejected(programs: Path, hours: int, fine: bool) -> None:
    (programs / "jobs.txt").write_text(sacct(JOBS, 30).replace("|", "\x1f"))
    program(programs, "sacct", f'test "$1" = --helpformat && echo "JobID Submit State" || cat {programs}/jobs.txt')
    zone = f"date -u -d '{hours} hours' +%Y-%m-%dT%H:%M:%S"
    program(programs, "scontrol", f'echo "Configuration data as of $({zone})"')
    if fine:
        assert len(Commands({}).accounting(0.0, no_skips).rows) == 2
    else:
        with pytest.raises(CallFailed, match="UTC by -5h"):
            Commands({}).accounting(0.0, no_skips)


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo 'Unable to contact slurm controller' >&2; exit 1", "Unable to contact"),
        ("exit 3", "exit code 3"),
        ("echo what", "malformed"),
        ("""echo '{"jobs":[],"errors":[{"error":"Unspecified error"}]}'""", "Unspecified error"),
    ],
)
def test_failed_program_raises_call_failed_with_reason(programs: Path, script: str, why: str) -> None:
    program(programs, "squeue", script)
    with pytest.raises(CallFailed, match=why):
        Commands({}).queue(no_skips)


def test_source_continues_on_failed_calls(programs: Path) -> None:
    """A failed query emits no event; it does not mean an empty queue."""
    skipped: list[SkippedPart] = []
    source = SlurmSource("squeue", "alder", skipped.append, poll="1s", machine="1s")
    steps: Any = source.events()
    began = time.monotonic()
    while len([part for part in skipped if part.file == "squeue"]) < 2:
        assert next(steps)[0] is None
        assert time.monotonic() < began + 60
    steps.close()
    assert {part.file for part in skipped} == {"squeue", "scontrol", "sacctmgr"}
    assert all(calls.failed == calls.count > 0 for calls in source.calls.values())


@pytest.mark.parametrize("slow", ["sacctmgr", "scontrol", "squeue"])
def test_call_killed_by_source_close_is_not_counted_as_failed(programs: Path, slow: str) -> None:
    """Later calls of the same poll do not count as failed either."""
    (programs / "jobs.json").write_bytes(squeue(JOBS, 30))
    program(programs, "sacctmgr", "true")
    program(programs, "scontrol", "true")
    program(programs, "squeue", f"cat {programs}/jobs.json")
    program(programs, slow, f"touch {programs}/underway; exec sleep 60")
    before, skipped = threading.enumerate(), list[SkippedPart]()
    source = SlurmSource("squeue", "alder", skipped.append, poll="1s", machine="1s")
    steps: Any = source.events()
    until(lambda: next(steps) is not None and (programs / "underway").exists())
    steps.close()
    for thread in set(threading.enumerate()).difference(before):
        thread.join(30)
        assert not thread.is_alive()
    assert skipped == []
    assert {name: calls.failed for name, calls in source.calls.items()} == dict.fromkeys(source.calls, 0)
    assert slow in source.calls


class Served:
    """Fake slurmrestd that serves one API version."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str | None]] = []
        self.answers = threading.Event()
        self.answers.set()
        served = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                served.requests.append((self.path, self.headers.get("X-SLURM-USER-TOKEN")))
                served.answers.wait(30)
                path = self.path.partition("?")[0]
                found = PAGES.get(path)
                if "dying" in path:
                    self.wfile.write(DYING[path.split("/")[2]])
                    return
                self.send_response(200 if found is not None else 500 if "broken" in path else 404)
                self.end_headers()
                self.wfile.write(found or b"")

            def log_message(self, *_: Any) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


DYING = {
    "dying-in-the-head": b"HT",
    "dying-in-the-body": b'HTTP/1.0 200 OK\r\nContent-Length: 1000\r\n\r\n{"jobs":[',
}
"""What comes of an answer, by the version in the address, before the server is gone."""

PAGES = {
    "/slurm/v0.0.40/jobs": squeue(JOBS, 30),
    "/slurmdb/v0.0.40/jobs": squeue(JOBS, 30),
    "/slurm/v0.0.40/nodes": json.dumps({"nodes": [{"name": "n1", "cpus": 4, "partitions": ["batch"]}]}).encode(),
    "/slurm/v0.0.40/partitions": json.dumps({"partitions": [{"name": "batch"}, {"name": ""}]}).encode(),
    "/slurm/v0.0.40/reservations": b'{"reservations":null}',
}


@pytest.fixture
def served() -> Iterator[Served]:
    found = Served()
    yield found
    found.server.shutdown()
    found.server.server_close()


def test_rest_client_detects_api_version_and_sends_token(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JWT", "secret")
    measured: dict[str, Calls] = {}
    calls = SlurmRest(served.address, measured)
    assert [row.job for row in calls.queue(no_skips).rows] == ["1", "2"]
    tried = len(served.requests)
    assert tried > 1 and (measured["jobs"].count, measured["jobs"].failed) == (1, 0)  # version probes do not count
    assert len(calls.accounting(100.0, no_skips).rows) == 2
    assert served.requests[tried:] == [
        ("/slurmdb/v0.0.40/jobs?start_time=100&skip_steps=true&show_duplicates=true", "secret")
    ]
    assert [node.name for node in calls.machine("nodes")] == ["n1"]
    assert [part.name for part, _ in calls.machine("partitions")] == ["batch"]
    with pytest.raises(CallFailed, match="no list of reservations"):
        calls.machine("reservations")


def test_rest_client_uses_pinned_api_version(served: Served) -> None:
    assert len(SlurmRest(f"{served.address}/slurm/v0.0.40", {}).queue(no_skips).rows) == 2
    with pytest.raises(CallFailed, match="not found"):
        SlurmRest(f"{served.address}/slurm/v0.0.44/", {}).queue(no_skips)
    with pytest.raises(CallFailed, match="500"):
        SlurmRest(f"{served.address}/slurm/broken", {}).queue(no_skips)
    with pytest.raises(CallFailed, match="refused"):
        SlurmRest("http://127.0.0.1:1/slurm/v0.0.40", {}).queue(no_skips)


@pytest.mark.parametrize("version", DYING)
def test_server_crash_during_response_counts_as_failed_call(served: Served, version: str) -> None:
    measured: dict[str, Calls] = {}
    with pytest.raises(CallFailed, match=f"{version}/jobs: "):
        SlurmRest(f"{served.address}/slurm/{version}", measured).queue(no_skips)
    assert measured["jobs"].failed == 1


def test_request_failing_after_close_is_not_counted(served: Served) -> None:
    measured: dict[str, Calls] = {}
    calls = SlurmRest(f"{served.address}/slurm/broken", measured)
    served.answers.clear()
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(calls.queue, no_skips)
        until(lambda: bool(served.requests))
        calls.close()
        served.answers.set()
        with pytest.raises(SourceClosed):
            future.result(30)
    with pytest.raises(SourceClosed):
        calls.machine("nodes")
    assert (measured["jobs"].count, measured["jobs"].failed) == (1, 0)
    assert len(served.requests) == 1


def test_rest_client_adapts_queries_to_api_v0_0_38(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PAGES, "/slurmdb/v0.0.38/jobs", squeue(JOBS, 30))
    calls = SlurmRest(f"{served.address}/slurm/v0.0.38", {})
    assert len(calls.accounting(100.0, no_skips).rows) == 2
    assert served.requests[-1][0] == "/slurmdb/v0.0.38/jobs?start_time=uts100&skip_steps=true"
    monkeypatch.setitem(
        PAGES, "/slurmdb/v0.0.38/qos", b'{"QOS":[{"name":"normal","limits":{"max":{"active_jobs":{"count":7}}}}]}'
    )
    assert [(one.qos, one.jobs) for one in calls.machine("qos")] == [("normal", 7)]
