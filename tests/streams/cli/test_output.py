import sys

import pytest

from streams.cli.output import progress


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
