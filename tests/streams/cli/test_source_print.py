"""`queuecast source --print` prints the events of a source without a broker."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from streams.cli.app import main
from streams.sources.swf import SwfSource
from tests.support.corpus import CORPUS

PBS = CORPUS / "pbs" / "accounting"


def test_source_print_of_a_trace_writes_each_event(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["source", "swf", str(trace), "--site", "kth", "--print"]) == 0
    printed = capsys.readouterr()
    expected = [(event.kind, event.time) for event in SwfSource(str(trace), "kth").read_all()]
    found = [json.loads(line) for line in printed.out.splitlines()]
    assert [(event["type"], event["time"]) for event in found] == expected
    assert {event["site"] for event in found} == {"kth"}
    assert f"{len(expected)} events printed" in printed.err


def test_source_print_once_of_a_live_log_ends(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["source", "pbs", str(PBS / "20250615"), "--site", "alder", "--once", "--print"]) == 0
    printed = capsys.readouterr()
    kinds = {json.loads(line)["type"] for line in printed.out.splitlines()}
    assert {"submit", "start", "end"} <= kinds
    assert "0 skipped" in printed.err


def test_source_once_without_print_is_rejected(trace: Path, fails: Callable[..., str]) -> None:
    assert "--once: needs --print" in fails(2, "source", "swf", str(trace), "--site", "kth", "--once")
