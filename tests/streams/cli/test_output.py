import sys
import time

import pytest

from streams.cli.output import progress, told_if_silent


def test_a_bar_is_shown_at_a_terminal_only(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with progress("jobs", 1000) as advance:
        for _ in range(1000):
            advance()
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    with progress("jobs", 1000) as advance:
        for _ in range(1000):
            advance()
    assert "1000/1000" in capsys.readouterr().err


def test_silence_is_told_and_what_is_heard_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    with told_if_silent("nothing yet", 60.0) as heard:
        heard()
    assert capsys.readouterr().err == ""
    with told_if_silent("nothing yet", 0.0):
        deadline = time.monotonic() + 30
        while not (said := capsys.readouterr().err) and time.monotonic() < deadline:
            time.sleep(0.01)
    assert said == "nothing yet\n"
