"""Line below `Submitted batch job`: Slurm's Lua, a fake of Slurm's table, and a fake service."""

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.answering import Answer, HttpRequest, answering

SCRIPT = Path(__file__).parents[2] / "deploy" / "slurm" / "cli_filter.lua"
TEXT = "starts in about 40m, 90 % within 2h; 12 jobs ahead"

Submit = Callable[..., tuple[str, float]]


class Service:
    """Answer every request with this body, or hang; record the paths and headers of requests."""

    def __init__(self) -> None:
        self.body: bytes | None = json.dumps({"type": "job", "text": TEXT, "live": None}).encode()
        self.status = 200
        self.requests: list[tuple[str, str | None]] = []
        self.url = ""

    def answer(self, request: HttpRequest) -> Answer | None:
        self.requests.append((request.path, request.headers.get("Authorization")))
        return None if self.body is None else Answer(self.body, self.status)

    @contextmanager
    def running(self) -> Iterator["Service"]:
        with answering(self.answer) as self.url:
            yield self


class Pipe:
    """The result of `io.popen`, as far as the script uses it."""

    def __init__(self, command: str) -> None:
        answer = subprocess.run(["sh", "-c", command], stdout=subprocess.PIPE, text=True).stdout
        self.read = lambda _, most: answer[:most]
        self.close = lambda _: None


@pytest.fixture
def service() -> Iterator[Service]:
    with Service().running() as found:
        yield found


@pytest.fixture
def submit(
    service: Service, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Submit:
    """Submit a job as Slurm calls the script; return its stderr and its duration (s)."""
    lupa = pytest.importorskip("lupa.lua54")
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    monkeypatch.setenv("USER", "ada")

    def run(options: dict[str, str], job: object = 4711, offset: int = 0, **settings: Any) -> tuple[str, float]:
        lua = lupa.LuaRuntime()
        lua.execute("slurm = { SUCCESS = 0 }")
        lua.globals().io.popen = lambda command, _: Pipe(command)  # lupa's own `io.popen` cannot start programs
        text = SCRIPT.read_text(encoding="utf-8")
        text = text.replace("http://127.0.0.1:6067", settings.get("url", service.url))
        text = text.replace("/etc/slurm/queuecast.header", str(tmp_path / "header"))
        if not settings.get("only_terminal"):
            text = text.replace("only_terminal = true", "only_terminal = false")
        lua.execute(text)
        called = lua.globals()
        began = time.monotonic()
        table = lua.table_from({"type": "sbatch", "parsable": "unset", "quiet": "0"} | options)
        assert called.slurm_cli_setup_defaults(table, False) == 0
        assert called.slurm_cli_pre_submit(table, offset) == 0
        assert called.slurm_cli_post_submit(offset, job, 4294967294) == 0
        return capfd.readouterr().err, time.monotonic() - began

    return run


def test_slurm_line_prints_expected_start_after_submit(submit: Submit, service: Service) -> None:
    output, _ = submit({"ntasks": "4", "cpus-per-task": "2", "time": "1-02:00:00", "partition": "batch,gpu"})
    assert output == f"queuecast: {TEXT}\n"
    query = "cpus=8&walltime=93600s&partition=batch%2Cgpu&user=ada"
    assert service.requests == [(f"/v1/sites/alder/jobs/4711?{query}", None)]


@pytest.mark.parametrize(
    ("walltime", "seconds"),
    [("90", "5400s"), ("10:30", "630s"), ("01:00:00", "3600s"), ("2-0", "172800s"), ("1-00:30", "88200s")],
)
def test_slurm_line_converts_time_limit_to_seconds(
    submit: Submit, service: Service, walltime: str, seconds: str
) -> None:
    submit({"time": walltime})
    assert f"&walltime={seconds}&" in service.requests[0][0]


@pytest.mark.parametrize(
    ("options", "query"),
    [
        ({"gpus": "4"}, "cpus=1&gpus=4"),
        ({"gpus": "a100:2,h100:1"}, "cpus=1&gpus=3"),
        ({"gpus-per-node": "a100:2", "nodes": "3-3"}, "cpus=3&gpus=6"),
        ({"gpus-per-task": "1", "ntasks": "8"}, "cpus=8&gpus=8"),
        ({"gres": "gres:gpu:a100:2,gres:ssd:1", "nodes": "2"}, "cpus=2&gpus=4"),
        ({"gres": "gpu:a100(S:0-1)"}, "cpus=1&gpus=1"),
        ({"gres": "gres/gpu=2", "nodes": "unset"}, "cpus=1&gpus=2"),
        ({"gres": "ssd:1", "gpus": "unset", "nodes": "2", "ntasks-per-node": "4"}, "cpus=8"),
        ({"account": "phys-1", "qos": "unset"}, "cpus=1&account=phys%2D1"),
    ],
)
def test_slurm_line_sends_requested_resources(
    submit: Submit, service: Service, options: dict[str, str], query: str
) -> None:
    submit(options)
    assert service.requests[0][0] == f"/v1/sites/alder/jobs/4711?{query}&user=ada"


def test_slurm_line_sends_configured_token(submit: Submit, service: Service, tmp_path: Path) -> None:
    (tmp_path / "header").write_text("Authorization: Bearer correct horse battery\n")
    assert submit({})[0] == f"queuecast: {TEXT}\n"
    assert service.requests[0][1] == "Bearer correct horse battery"


@pytest.mark.parametrize("time_limit", ["unset", "2982616-04:14:00", "NONE", "", "UNLIMITED", "1:x", "-", "$(touch x)"])
def test_slurm_line_omits_invalid_options(submit: Submit, service: Service, time_limit: str) -> None:
    submit({"time": time_limit, "ntasks": "many", "partition": "'; touch x; '"})
    assert service.requests[0][0] == "/v1/sites/alder/jobs/4711?cpus=1&user=ada"
    assert not Path("x").exists()


@pytest.mark.parametrize(
    "body",
    [b"", b"oops", b'{"text":"no such job is pending or running"}', b'{"text":"starts \\u001b[2J"}', b'{"text":1}'],
)
def test_slurm_line_without_text_prints_no_line(submit: Submit, service: Service, body: bytes) -> None:
    service.body = body
    assert submit({})[0] == ""


def test_slurm_line_hides_service_errors(submit: Submit, service: Service) -> None:
    service.status = 503
    assert submit({})[0] == ""
    assert submit({}, url="http://127.0.0.1:1")[0] == ""


def test_slurm_line_with_hanging_service_ends_after_one_second(submit: Submit, service: Service) -> None:
    service.body = None
    output, seconds = submit({})
    assert output == "" and seconds < 3  # a second, and the start of a program on a busy machine


@pytest.mark.parametrize("options", [{"quiet": "1"}, {"parsable": "set"}, {"type": "srun"}, {"type": "salloc"}])
def test_slurm_line_is_silent_for_scripts(submit: Submit, service: Service, options: dict[str, str]) -> None:
    assert submit(options)[0] == "" and service.requests == []
    assert submit({}, only_terminal=True)[0] == "" and service.requests == []  # stderr is a file in these tests


def test_slurm_line_is_silent_for_later_parts_and_within_job(
    submit: Submit, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert submit({}, offset=1)[0] == ""
    assert submit({}, job="; touch x")[0] == ""
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    assert submit({})[0] == ""
    assert service.requests == []
