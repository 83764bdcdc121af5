"""Durations as text."""

import pytest

from models.durations import duration
from streams.text.quantities import seconds_of


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0s"), (0.4, "0s"), (-0.4, "0s"), (59.4, "59s"), (59.5, "1m"), (90.0, "1m30s"), (599.0, "9m59s"),
        (1809.0, "30m"), (3569.0, "59m"), (3599.5, "1h"), (5400.0, "1h30m"), (86_399.0, "1d"), (90_000.0, "1d1h"),
        (8_639_000.0, "100d"), (8.7e6, "101d"), (-90.0, "-1m30s"),
    ],
)  # fmt: skip
def test_duration_is_rounded_to_at_most_two_units(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize("seconds", [1.0, 42.0, 5430.0, 7200.0, 200_000.0, 9e7])
def test_duration_text_is_parsed_back(seconds: float) -> None:
    assert seconds_of(duration(seconds)) == pytest.approx(seconds, rel=0.02)
