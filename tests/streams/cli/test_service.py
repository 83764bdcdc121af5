import json
import sys
import types
from pathlib import Path

import pytest

from streams.cli.app import main
from streams.settings import Settings

Capture = pytest.CaptureFixture[str]


def test_a_schema_is_printed(capsys: Capture) -> None:
    assert main(["schema", "outcome"]) == 0
    assert json.loads(capsys.readouterr().out)["$id"] == "urn:queuecast:outcome:v1"
    assert main(["schema"]) == 0
    assert json.loads(capsys.readouterr().out)["$id"] == "urn:queuecast:records:v1"


def test_a_worker_gets_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Settings] = []
    monkeypatch.setitem(sys.modules, "streams.worker.run", types.SimpleNamespace(run_worker=given.append))
    Path("queuecast.toml").write_text('[worker]\nweb_port = 7000\ninstance = "blue"\n')
    assert main(["worker", "--web-port", "7001", "--log-level", "debug"]) == 0
    assert main(["worker"]) == 0
    assert [(each.worker.web_port, each.worker.log_level) for each in given] == [(7001, "debug"), (7000, "info")]
    assert {each.worker.instance for each in given} == {"blue"}


def test_a_command_that_is_named_can_be_copied(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setattr("streams.operate.site.send", lambda *_: None)
    assert main(["site", "ro ss/ä", "forget-job", "1"]) == 0
    assert capsys.readouterr().out == "sent; `queuecast site 'ro ss/ä' show` says what became of it\n"
