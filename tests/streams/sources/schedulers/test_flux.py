"""Flux's journal, from the live API and from files."""

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import pytest

from queuecast.testing_sources import BadPart, SourceContract
from streams.errors import UserError
from streams.sources.schedulers.flux import FluxLogSource, FluxSource, job_name
from tests.support.logs import plain, read

T = 1_700_000_000.25
RESOURCES = [
    {
        "type": "node",
        "count": 2,
        "with": [
            {"type": "slot", "count": 4, "with": [{"type": "core", "count": 2}, {"type": "gpu", "count": 1}]},
        ],
    }
]
JOBSPEC = {
    "version": 1,
    "resources": RESOURCES,
    "attributes": {"system": {"duration": 3600, "queue": "batch", "bank": "p1", "job": {"name": "md"}}},
}
R = {"version": 1, "execution": {"R_lite": [{"rank": "0-1", "children": {"core": "0-7", "gpu": "0-3"}}]}}

Entry = tuple[int, float, str, dict[str, Any]]


def entries(number: int, after_s: float = 0.0, status: int = 0) -> list[Entry]:
    """Return all journal entries of a job."""
    return [
        (number, T + after_s, "submit", {"userid": 1001, "urgency": 16, "flags": 0, "version": 1}),
        (number, T + after_s + 0.1, "validate", {}),
        (number, T + after_s + 0.2, "depend", {}),
        (number, T + after_s + 0.3, "priority", {"priority": 16}),
        (number, T + after_s + 60, "alloc", {}),
        (number, T + after_s + 60.5, "start", {}),
        (number, T + after_s + 360, "finish", {"status": status}),
        (number, T + after_s + 361, "release", {"ranks": "all", "final": True}),
        (number, T + after_s + 361.1, "free", {}),
        (number, T + after_s + 361.2, "clean", {}),
    ]


def line(entry: Entry, **more: Any) -> str:
    number, at, name, context = entry
    found = {"id": number, "events": [{"timestamp": at, "name": name, "context": context}], **more}
    if name == "submit":
        found.setdefault("jobspec", JOBSPEC)
    if name == "alloc":
        found.setdefault("R", R)
    return json.dumps(found) + "\n"


def text(*stories: list[Entry], **more: Any) -> str:
    ordered = sorted((entry for story in stories for entry in story), key=lambda entry: entry[1])
    return "".join(line(entry, **more) for entry in ordered)


class TestFluxLog(SourceContract):
    name = "flux-log"
    options: ClassVar = {"pause_s": 0.0}
    events = 10
    bad = (
        BadPart(line=4, field=None, expected="an object in JSON"),
        BadPart(line=5, field="timestamp", expected="Unix seconds"),
        BadPart(line=6, field="id", expected="a job's number"),
        BadPart(line=7, field="events", expected="a list of events"),
    )

    def write(self, directory: Path) -> str:
        first = text(entries(1)[:3])
        wrong = ['{"what', line((1, 0.0, "submit", {})), line(("x", T, "submit", {})), '{"id": 1, "events": [7]}\n']
        wrong[0] += "\n"
        rest = text(entries(1)[3:], entries(2), entries(3)[:4], [(3, T + 500, "exception", {"severity": 0})])
        sentinel = '{"id": -1, "events": []}\n'
        path = directory / "journal.json"
        path.write_text(first + "".join(wrong) + rest + sentinel + text(entries(4)[:5]) + text(entries(5))[:30])
        return str(path)


class FakeEvent:
    def __init__(self, entry: Entry) -> None:
        self.jobid, self.timestamp, self.name, self.context = entry
        self.jobspec = JOBSPEC if self.name == "submit" else None
        self.R = R if self.name == "alloc" else None

    def is_empty(self) -> bool:
        return self.jobid == -1


JOURNAL: list[Entry] = []


class FakeConsumer:
    def __init__(self, handle: object, full: bool, since: float, include_sentinel: bool) -> None:
        assert full and include_sentinel
        self._left = [FakeEvent(entry) for entry in JOURNAL if entry[1] > since] + [FakeEvent((-1, 0.0, "", {}))]

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def poll(self, timeout: float) -> FakeEvent:
        if not self._left:
            raise TimeoutError
        return self._left.pop(0)


@pytest.fixture
def flux(monkeypatch: pytest.MonkeyPatch) -> list[Entry]:
    """Install a minimal fake of the package flux, with a journal."""
    package, job = ModuleType("flux"), ModuleType("flux.job")
    package.Flux = lambda *_: "handle"  # type: ignore[attr-defined]
    package.job = job  # type: ignore[attr-defined]
    job.JournalConsumer = FakeConsumer  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "flux", package)
    monkeypatch.setitem(sys.modules, "flux.job", job)
    JOURNAL.clear()
    return JOURNAL


@pytest.mark.usefixtures("flux")
class TestFlux(SourceContract):
    name = "flux"
    options: ClassVar = {"pause_s": 0.0}
    events = 15
    bad = (BadPart(line=None, field="timestamp", expected="Unix seconds"),)

    @pytest.fixture
    def location(self, tmp_path: Path, flux: list[Entry]) -> str:  # type: ignore[override]
        found = [entry for number in range(5) for entry in entries(number, 100 * number)]
        found.append((9, 1e12, "submit", {}))
        flux.extend(sorted(found, key=lambda entry: entry[1]))
        return "local"

    def write(self, directory: Path) -> str:
        return "local"


def test_flux_journal_of_job_yields_submit_start_end(tmp_path: Path) -> None:
    found = read("flux-log", tmp_path, text(entries(6731191091200)))
    job = job_name(6731191091200)
    assert found.live == found.whole
    assert plain(found.live) == [
        {
            "type": "submit",
            "time": T,
            "job": job,
            "user": "1001",
            "account": "p1",
            "queue": "batch",
            "executable": "md",
            "cpus": 16,
            "nodes": 2,
            "gpus": 8,
            "walltime": 3600.0,
        },
        {"type": "start", "time": T + 60, "job": job, "cpus": 16, "nodes": 2, "gpus": 8},
        {"type": "end", "time": T + 360, "job": job},
    ]


def test_jobspec_update_emits_alter(tmp_path: Path) -> None:
    system = "attributes.system"
    updates: list[Entry] = [
        (1, T + 1, "jobspec-update", {f"{system}.bank": "p2", f"{system}.queue": "debug", f"{system}.job.name": "x"}),
        (1, T + 2, "jobspec-update", {f"{system}.duration": 60.0, f"{system}.duration.x": 1}),
        (1, T + 70, "jobspec-update", {f"{system}.duration": 0}),
        (1, T + 71, "jobspec-update", {f"{system}.environment": {}}),
    ]
    altered = [
        event for event in plain(read("flux-log", tmp_path, text(entries(1), updates)).live) if "alter" in event["type"]
    ]
    assert altered == [
        {"type": "alter", "time": T + 1, "job": job_name(1), "account": "p2", "queue": "debug"},
        {"type": "alter", "time": T + 2, "job": job_name(1), "walltime": 60.0},
        {"type": "alter", "time": T + 70, "job": job_name(1), "unlimited": True},
    ]


def test_flux_dependency_priority_and_exception_emit_events(tmp_path: Path) -> None:
    after = {"dependencies": [{"scheme": "afterok", "value": "ƒ1"}]}
    spec = {**JOBSPEC, "attributes": {"system": after}}
    story = [
        (7, T, "submit", {"userid": 1}),
        (7, T + 1, "dependency-add", {"description": "after-success=ƒ1"}),
        (7, T + 50, "depend", {}),
        (7, T + 51, "priority", {"priority": 0}),
        (7, T + 60, "priority", {"priority": 16}),
        (7, T + 70, "alloc", {}),
        (7, T + 80, "exception", {"type": "timeout", "severity": 0}),
        (7, T + 85, "finish", {"status": 15}),
    ]
    found = plain(read("flux-log", tmp_path, text(story, jobspec=spec)).live)
    assert found[0]["dependency"] == "afterok:ƒ1"
    assert [(event["type"], event["time"] - T) for event in found[1:]] == [
        ("alter", 50),
        ("hold", 51),
        ("release", 60),
        ("start", 70),
        ("end", 85),
    ]
    assert found[1]["dependency"] == "" and found[1]["eligible"] == T + 50
    assert found[-1]["state"] == "timeout"


def test_flux_eventlog_of_single_job_uses_file_name_as_job(tmp_path: Path) -> None:
    lines = [json.dumps({"timestamp": at, "name": name, "context": more}) for _, at, name, more in entries(1)]
    found = read("flux-log", tmp_path, "\n".join(lines) + "\n")
    assert [(event.kind, event.job) for event in found.live] == [("submit", "log"), ("start", "log"), ("end", "log")]


def test_flux_journal_format_is_recognised() -> None:
    assert FluxLogSource.recognises(text(entries(1)).encode())
    assert not FluxLogSource.recognises(b'{"type":"submit","time":1700000000}\n')


def test_flux_source_missing_package_raises_user_error() -> None:
    with pytest.raises(UserError, match="the package flux, which comes with Flux, cannot be imported here"):
        FluxSource("local")
