"""Durations and memory sizes as written by users and schedulers."""

import re

import pytest

from streams.errors import UserError
from streams.text.quantities import SAFE_SIZE_PATTERN, bytes_of, seconds_of


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("14400s", 14400),
        ("90m", 5400),
        ("4h", 14400),
        (" 4h\n", 14400),
        ("1d12h", 129_600),
        ("1h30m10s", 5410),
        ("2d5s", 172_805),
        ("04:00:00", 14_400),
        ("100:00:01", 360_001),
        ("1-12:30:00", 131_400),
        ("30:00", 1800),
        ("1-00", 86_400),
        ("1-12:30", 131_400),
        ("1.5h", 5400),
    ],
)
def test_seconds_of_parses_durations(text: str, seconds: float) -> None:
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
        "12:0",
        "1.5h30m",
        "1٣",
        "inf",
        "0s",
        "0h",
        "00:00:00",
    ],
)
def test_invalid_duration_raises_user_error(text: str) -> None:
    with pytest.raises(UserError, match="is not a valid duration; expected a time with its unit, not 0: 90m"):
        seconds_of(text)


@pytest.mark.parametrize("text", ["4", "0", "14400", "0.5", " 240 "])
def test_duration_without_unit_is_rejected(text: str) -> None:
    number = text.strip()
    with pytest.raises(UserError, match=f"'{number}' is not a valid duration without a unit; expected {number}m, "):
        seconds_of(text)


@pytest.mark.parametrize("text", ["64G", "64g", "64GB", "64GiB", "64Gi", "65536Mi", "68719476736", "68719476736B"])
def test_bytes_of_parses_memory_sizes(text: str) -> None:
    assert bytes_of(text) == 64 << 30
    assert re.fullmatch(SAFE_SIZE_PATTERN, text)
