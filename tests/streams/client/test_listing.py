"""Commands `jobs` and `sites`: their queries, and output within 80 columns."""

import json
from typing import Any

import msgspec
import pytest

from streams.cli.app import main
from streams.client import listing
from streams.client.blocking import Client
from streams.client.http import HttpClient
from streams.client.listing import SiteJobs, show_jobs
from tests.streams.client.test_job import LIVE
from tests.support.fake_client import USER, FakeClient, engine

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def grid(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the client: two sites answer and one is silent, with in-process engines."""
    sites = [engine("alder", 1), engine("birch", 2), engine("elm", 3)]
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(listing, "Client", lambda *_, **__: Client(questions=FakeClient(sites, silent=["elm"])))


def test_jobs_command_shows_expected_starts_of_user_jobs(capsys: Capture) -> None:
    assert main(["jobs", "--user", USER]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    assert out.splitlines()[0].split() == ["job", "site", "cpus", "queued", "starts", "(UTC)", "90", "%", "by", "(UTC)"]
    assert "\nrunning:\n" in out and "\nas of:\n" in out and " UTC" in out
    assert main(["jobs", "--user", "nobody", "--site", "alder"]) == 0
    assert capsys.readouterr().out.startswith("no pending jobs\n")


def test_latest_start_counts_from_eligible_time(capsys: Capture) -> None:
    waits = msgspec.structs.replace(LIVE, bounds={"0.9": 3600.0}, eligible=7200.0, expected_start=7300.0)
    show_jobs([SiteJobs("alder", 7250.0, [waits])])
    assert capsys.readouterr().out.splitlines()[2].endswith("1970-01-01 02:01  1970-01-01 03:00")


def test_listing_omits_repeated_reasons_and_passed_bounds(capsys: Capture) -> None:
    one = msgspec.structs.replace(
        LIVE, why="2 jobs ahead of it; it is late", bounds={"0.9": 60.0}, expected_start=900.0
    )
    two = msgspec.structs.replace(one, job="4712", why="it is late", expected_start=None, blocked_by="it is late")
    show_jobs([SiteJobs("alder", 100.0, [one, two])])
    rows = [" ".join(row.split()) for row in capsys.readouterr().out.splitlines()]
    assert rows[2:4] == ["4711 alder 4 1m40s 1970-01-01 00:15 –", "4712 alder 4 1m40s unknown –"]
    assert rows[5:8] == ["why:", "4711 2 jobs ahead of it", "alder 4711, 4712: it is late"]


def test_listing_shows_tasks_of_arrays(capsys: Capture) -> None:
    array = msgspec.structs.replace(LIVE, job="4712", why=None, tasks_remaining=1200, tasks_running=8)
    show_jobs([SiteJobs("alder", 100.0, [msgspec.structs.replace(LIVE, why=None), array])])
    rows = capsys.readouterr().out.splitlines()
    assert rows[5:7] == ["tasks:", "  4712  1,200 pending, 8 running"]


def test_jobs_command_missing_user_lists_jobs_up_to_limit(capsys: Capture) -> None:
    assert main(["jobs", "--limit", "2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {one["site"] for one in found} == {"alder", "birch"}
    assert all(len(one["jobs"]) <= 2 for one in found) and any(one["more"] for one in found)


def test_sites_command_shows_sites_and_problems(capsys: Capture) -> None:
    assert main(["sites"]) == 0
    out = capsys.readouterr().out
    assert [line.split()[0] for line in out.splitlines()[2:5]] == ["alder", "birch", "elm"]
    assert "no worker answers" in out
    assert main(["sites", "--site", "alder", "--json"]) == 0
    assert [one["cpus"] for one in json.loads(capsys.readouterr().out)] == [64]


def test_listing_commands_query_service(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    paths: list[str] = []
    live = {"queued_jobs": 1, "running_jobs": 2, "free_cpus": 3}
    head = {"site": "kth", "made_at": 1e9, "user": "ada"}
    answers: dict[str, Any] = {
        "/v1/sites": {"sites": [{"site": "kth", "cpus": 100, "live": live, "stale": "silent"}]},
        "/v1/users/a%2Fb/jobs": {"sites": [{"type": "jobs", "id": "1", **head, "jobs": [], "more": 0}]},
    }

    def get(_: HttpClient, path: str, kind: type, unknown: Any = None) -> Any:
        paths.append(path)
        return msgspec.convert(answers[path], kind)

    monkeypatch.setattr(HttpClient, "_get", get)
    assert main(["sites", "--url", "http://x"]) == 0
    assert main(["jobs", "--url", "http://x", "--user", "a/b"]) == 0
    assert paths == ["/v1/sites", "/v1/users/a%2Fb/jobs"]
    out = capsys.readouterr().out
    assert "silent" in out and "no pending jobs" in out


def test_empty_name_option_exits_2(capsys: Capture) -> None:
    assert main(["jobs", "--user", ""]) == 2
    assert main(["sites", "--site", ""]) == 2
    assert main(["watch", "--site", "", "--count", "1"]) == 2
    assert main(["watch", "--job", "", "--count", "1"]) == 2
    assert main(["dead-letters", "--reason", ""]) == 2


@pytest.mark.parametrize("command", [("jobs",), ("jobs", "--user", USER), ("sites",), ("job", "1")])
def test_unknown_site_is_reported_with_list_of_sites(
    command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setattr(listing, "Client", lambda *_, **__: Client(questions=FakeClient([engine("alder", 1)])))
    assert main([*command, "--site", "alder", "--site", "ash"]) == 1
    assert capsys.readouterr().err.rstrip().endswith("queuecast: there is no site 'ash'; there are: alder")


@pytest.mark.parametrize("command", [("jobs",), ("jobs", "--user", USER), ("job", "1")])
def test_missing_sites_are_reported(command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setattr(listing, "Client", lambda *_, **__: Client(questions=FakeClient()))
    assert main(command) == 1
    assert "no site is registered yet" in capsys.readouterr().err
