"""Command `job`: expected start of a live job, from a service or from the workers."""

import json
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from models.records import JobAnswer, LiveJob, LiveState, PublishedStart
from streams.cli.app import main
from streams.client import listing
from streams.client.blocking import Client
from streams.client.http import HttpClient, SiteSummary
from streams.client.listing import check_job, show_job
from streams.errors import UserError
from tests.support.fake_client import FakeClient, engine

LIVE = LiveJob(
    job="4711",
    attempt=0,
    phase="queued",
    queue="batch",
    cpus=4,
    walltime=None,
    submit=0.0,
    start=None,
    predicted_wait_s=60.0,
    predicted_run_s=None,
    predicted_start=60.0,
    method="blend",
    reason="",
    why="12 jobs ahead of it \x1b[2J",
)
KNOWN = JobAnswer(
    id="1",
    site="kth",
    made_at=0.0,
    job="4711",
    text="starts in about 40m",
    live=LIVE,
    expected_start=835_823_160.0,
    starts_by={"0.1": 835_822_800.0, "0.9": 835_824_960.0},
    as_of=300.0,
    stale="no events for 2 days",
)
UNKNOWN = JobAnswer(id="2", site="ctc", made_at=0.0, job="4711", text="no such job is pending or running here")


def test_job_lines_wrap_at_terminal_width(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "50")
    text = "held back by a limit or a priority although 1,068 CPUs are free; since when is not known"
    show_job([msgspec.structs.replace(KNOWN, text=text)])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "kth 4711: held back by a limit or a priority"
    assert max(map(len, lines)) <= 50


def test_upper_bound_before_expected_start_is_hidden(capsys: pytest.CaptureFixture[str]) -> None:
    show_job([msgspec.structs.replace(KNOWN, starts_by={"0.9": 835_823_000.0})])
    assert "at the latest" not in capsys.readouterr().out


def test_job_history_option_shows_published_estimates(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    estimates = [
        PublishedStart(at=0.0, start=600.0, starts_by={"0.9": 3600.0}),
        PublishedStart(at=600.0, start=None, starts_by={}),
    ]
    known = msgspec.structs.replace(KNOWN, estimates=estimates)
    monkeypatch.setattr(listing, "client_for", lambda *_: nullcontext(SimpleNamespace(job=lambda *_: {"kth": known})))
    assert main(["job", "4711"]) == 0
    assert "published (UTC)" not in capsys.readouterr().out
    assert main(["job", "4711", "--history"]) == 0
    rows = [line.split("  ") for line in capsys.readouterr().out.splitlines()[-2:]]
    assert rows[0] == ["1970-01-01 00:00", "1970-01-01 00:10", "1970-01-01 01:00"]
    assert [cell.strip() for cell in rows[1] if cell] == ["1970-01-01 00:10", "–", "–"]
    assert main(["job", "4711", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [msgspec.to_builtins(known)]


def test_job_is_shown_for_sites_that_have_it(capsys: pytest.CaptureFixture[str]) -> None:
    show_job([UNKNOWN, KNOWN])
    assert capsys.readouterr().out.splitlines() == [
        "kth 4711: starts in about 40m (1996-06-26 21:06 UTC)",
        "  at the latest  1996-06-26 21:36 UTC with 90 %",
        "  since          1970-01-01 00:00 UTC, 5m in the queue",
        "  requested      4 cpus",
        "  why            12 jobs ahead of it \\u001b[2J",
        "  as of          1970-01-01 00:05:00 UTC",
        "  stale          no events for 2 days",
    ]
    with pytest.raises(UserError, match="ctc: no such job is pending or running here"):
        check_job([UNKNOWN])


def test_eligible_time_is_shown_separately(capsys: pytest.CaptureFixture[str]) -> None:
    show_job([msgspec.structs.replace(KNOWN, live=msgspec.structs.replace(LIVE, eligible=240.0))])
    assert "  eligible       1970-01-01 00:04 UTC, 4m after its submission\n" in capsys.readouterr().out


def test_array_is_shown_with_its_tasks(capsys: pytest.CaptureFixture[str]) -> None:
    live = msgspec.structs.replace(LIVE, tasks_remaining=1200, tasks_running=8)
    show_job([msgspec.structs.replace(KNOWN, live=live)])
    assert "  tasks          1,200 pending, 8 running\n" in capsys.readouterr().out


def test_start_probability_within_time_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    live = msgspec.structs.replace(KNOWN, as_of=835_822_800.0)
    for within_s, text in ((360.0, "50 %: within 6m"), (9e9, "over 90 %: within"), (0.0, "10 %")):
        show_job([live], within_s)
        assert f"  in time        {text}" in capsys.readouterr().out


def test_job_command_queries_sites_of_service(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    requests: list[Any] = []

    def get(service: HttpClient, path: str, kind: type, unknown: Any = None) -> Any:
        requests.append((path, service._token))
        if path == "/v1/sites":
            live = LiveState(queued_jobs=0, running_jobs=0, free_cpus=0)
            return kind([SiteSummary(site, 1, live) for site in ("kth", "c/tc")])
        return UNKNOWN if "c%2Ftc" in path else KNOWN

    monkeypatch.setattr(HttpClient, "_get", get)
    assert HttpClient("http://x").job("47/11", ["kth"]) == {"kth": KNOWN}
    assert requests == [("/v1/sites/kth/jobs/47%2F11", None)]
    assert main(["job", "4711", "--url", "http://x", "--token", "abc"]) == 0
    assert capsys.readouterr().out.startswith("kth 4711: starts")
    assert requests[1:] == [
        ("/v1/sites", "abc"),
        ("/v1/sites/c%2Ftc/jobs/4711", "abc"),
        ("/v1/sites/kth/jobs/4711", "abc"),
    ]
    assert main(["job", "4711", "--url", "http://x", "--json"]) == 0
    assert [one["site"] for one in json.loads(capsys.readouterr().out)] == ["ctc", "kth"]
    assert main(["job", "", "--url", "http://x"]) == 2
    monkeypatch.setattr(HttpClient, "_get", lambda *_: UNKNOWN)
    assert [main(["job", "4711", "--url", "http://x", "--site", "ctc", *more]) for more in ([], ["--json"])] == [1, 1]


def test_job_command_queries_workers(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    alder = engine("alder", 1)
    job = next(job.id for job in alder.context.state.jobs.values() if job.phase == "queued")
    monkeypatch.setattr(listing, "Client", lambda *_, **__: Client(questions=FakeClient([alder])))
    assert main(["job", job]) == 0
    assert f"{job}: starts " in capsys.readouterr().out
    assert main(["job", job, "--site", "nowhere"]) == 1
    assert "there is no site 'nowhere'; there are: alder" in capsys.readouterr().err
