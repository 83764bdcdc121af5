import sys
import time

import pytest

from streams.cli import output
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
    assert "1,000 of 1,000 jobs" in capsys.readouterr().err


def test_how_far_a_long_command_is_is_told_with_the_time_of_its_log(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "TELL_S", 0.0)
    with progress("events sent", 1000) as advance:
        advance(835_823_160.0)
    said = capsys.readouterr().err
    assert said.startswith("1 of 1,000 events sent, ") and said.endswith("/s, at 1996-06-26 21:06 UTC\n")


def test_silence_is_told_and_what_is_heard_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    with told_if_silent("nothing yet", 60.0) as heard:
        heard()
    assert capsys.readouterr().err == ""
    with told_if_silent("nothing yet", 0.0):
        deadline = time.monotonic() + 30
        while not (said := capsys.readouterr().err) and time.monotonic() < deadline:
            time.sleep(0.01)
    assert said == "nothing yet\n"
