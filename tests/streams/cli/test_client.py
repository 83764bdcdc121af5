import json
import sys
import types
from collections.abc import AsyncIterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from models.records import Start, Submit
from streams.cli.app import main
from streams.cli.look import waiting_notice
from streams.settings import Settings
from streams.sources import live_source
from tests.support.events import prediction
from tests.support.traces import swf_line

Capture = pytest.CaptureFixture[str]


def test_watch_stops_after_count_records(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    from streams.broker import admin
    from streams.client import watch

    record = prediction("\x1b[2J", 60.0, 835823160.0, site="ctc", predicted_start=None)
    calls: list[Any] = []

    async def records(_: Any, *arguments: Any) -> AsyncIterator[tuple[Any, Any]]:
        calls.append(arguments)
        while True:
            yield record, SimpleNamespace(value=msgspec.json.encode(record), headers=[("late", b"75")])

    monkeypatch.setattr(watch, "records", records)
    monkeypatch.setattr(admin, "check_topics", lambda *_: None)
    assert main(["watch", "--count", "2", "--site", "ctc", "--outcomes"]) == 0
    assert capsys.readouterr().out == "1996-06-26 21:06 UTC  ctc  job \\u001b[2J  waits 1m  [left 1m15s late]\n" * 2
    assert calls[0][:5] == ("ctc", None, True, None, False)
    assert main(["watch", "--count", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["job"] == "\x1b[2J"


def test_watch_notice_lists_sites_if_the_chosen_one_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    from streams.client import listing

    monkeypatch.setattr(listing, "client_for", lambda *_: nullcontext(SimpleNamespace(sites=["ctc", "kth"])))
    missing = " There is no site 'kht'; did you mean 'kth'? There are: ctc, kth."
    missing += " A new site appears with its first estimates."
    for site, hint in (("kht", missing), ("kth", ""), (None, "")):
        expected = f"Waiting for predictions; none received yet.{hint} Press Ctrl-C to stop."
        assert waiting_notice(Settings(), site) == expected


@pytest.mark.parametrize(
    ("known", "kinds"), [({}, {"capacity", "submit", "start"}), ({"alder": 50.0}, {"submit", "start"})]
)
def test_ingest_into_registered_site_omits_inferred_capacity(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, known: dict[str, float], kinds: set[str]
) -> None:
    from streams.operate import catching_up
    from streams.sources import publisher

    log, sent = tmp_path / "later.json", set[str]()
    events = [Submit(site="alder", job="1", time=100.0, cpus=4), Start(site="alder", job="1", time=160.0)]
    log.write_bytes(b"".join(msgspec.json.encode(event) + b"\n" for event in events))
    monkeypatch.setattr(catching_up, "known_until", lambda *_: known)
    monkeypatch.setattr(publisher, "publish", lambda _, steps, *rest: sent.update(step.event.kind for step in steps))
    assert main(["ingest", str(log), "--no-wait"]) == 0
    assert sent == kinds


def test_ingest_cluster_option_selects_cluster_of_dump(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from streams.operate import catching_up
    from streams.sources import publisher

    sent: list[str] = []
    times = "2026-01-02T12:00:00|2026-01-02T12:00:10|2026-01-02T12:00:20"
    rows = "".join(f"{job}|{cluster}|{times}|COMPLETED\n" for job, cluster in ((7, "fir"), (7, "elm"), (8, "elm")))
    (tmp_path / "all.txt").write_text(f"JobID|Cluster|Submit|Start|End|State\n{rows}")
    monkeypatch.setattr(catching_up, "known_until", lambda *_: {})
    monkeypatch.setattr(publisher, "publish", lambda _, steps, *rest: sent.extend(step.event.site for step in steps))
    feed = ["ingest", str(tmp_path / "all.txt"), "--no-wait", "--site"]
    assert main([*feed, "x"]) != 0 and "--set cluster=" in capsys.readouterr().err
    assert main([*feed, "fir", "--set", "cluster=fir"]) == main([*feed, "elm", "--set", "cluster=elm"]) == 0
    assert sent == ["fir"] * 4 + ["elm"] * 7


def test_source_command_sends_events_and_reports_skipped(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:

    (tmp_path / "made.swf").write_text("; MaxProcs: 4\n" + swf_line(1, 0, 10, 100) + "broken\n")
    sent: list[str] = []

    def publish(_: Any, steps: Any, on_sent: Any, *rest: Any) -> None:
        for step in steps:
            on_sent(step.event)
            sent.append(f"{step.event.site} {step.event.kind}")

    monkeypatch.setattr(live_source, "publish", publish)
    assert main(["source", "swf", str(tmp_path / "made.swf"), "--site", "alder"]) == 0
    assert sent == ["alder capacity", "alder submit", "alder start", "alder end"]
    output = capsys.readouterr().err
    assert "made.swf, line 3: 1 fields; expected 18" in output
    assert "1 records, 4 events sent, 1 skipped" in output
    assert main(["source", "swf", str(tmp_path / "made.swf"), "--site", "alder", "--set", "pause=2"]) == 2
    assert "the options of swf are: none" in capsys.readouterr().err


Capture = pytest.CaptureFixture[str]


def test_schema_command_prints_json_schema(capsys: Capture) -> None:
    assert main(["schema", "outcome"]) == 0
    assert json.loads(capsys.readouterr().out)["$id"] == "urn:queuecast:outcome:v1"
    assert main(["schema"]) == 0
    assert json.loads(capsys.readouterr().out)["$id"] == "urn:queuecast:records:v1"


def test_worker_command_passes_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Settings] = []
    monkeypatch.setitem(sys.modules, "streams.worker.startup", types.SimpleNamespace(run_worker=given.append))
    Path("queuecast.toml").write_text('[worker]\nweb_port = 7000\ninstance = "blue"\n')
    assert main(["worker", "--web-port", "7001", "--log-level", "debug"]) == 0
    assert main(["worker"]) == 0
    assert [(each.worker.web_port, each.worker.log_level) for each in given] == [(7001, "debug"), (7000, "info")]
    assert {each.worker.instance for each in given} == {"blue"}


def test_printed_command_quotes_site_name(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setattr("streams.operate.site.send", lambda *_: None)
    assert main(["site", "ro ss/ä", "forget-job", "1"]) == 0
    assert capsys.readouterr().out == "sent; `queuecast site 'ro ss/ä' show` prints the result\n"
