"""Durations as people and schedulers write them."""

import pytest

from streams.durations import seconds_of
from streams.errors import UserError


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("14400", 14400),
        ("0.5", 0.5),
        ("90m", 5400),
        ("4h", 14400),
        (" 4h\n", 14400),
        ("1d12h", 129_600),
        ("1h30m10s", 5410),
        ("2d5s", 172_805),
        ("04:00:00", 14_400),
        ("100:00:01", 360_001),
        ("1-12:30:00", 131_400),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize(
    "text",
    [
        "",
        "h",
        "4 h",
        "-1",
        "1e3",
        "4h30",
        "30m4h",
        "12:60:00",
        "1-4h",
        "12:00",
        "1٣",
        "inf",
        "0",
        "0.0",
        "0h",
        "00:00:00",
    ],
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="is no duration; expected more than 0: seconds, or as 90m"):
        seconds_of(text)
