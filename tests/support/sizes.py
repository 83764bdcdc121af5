"""Sizes of tests: a part of the cases in `make test`, all of them in `make test-all`, which has the profile `many`."""

from collections.abc import Iterable
from itertools import islice
from typing import TypeVar

import hypothesis

T = TypeVar("T")

MANY = 100
"""Number of examples of the profile `many`."""


def is_thorough() -> bool:
    """Return True under the profile `many`, or one with more examples."""
    return hypothesis.settings.default.max_examples >= MANY


def some(items: Iterable[T], step: int) -> Iterable[T]:
    """Return all items if the run is thorough, else each `step`-th one."""
    return islice(items, 0, None, 1 if is_thorough() else step)


def examples(full: int, few: int) -> hypothesis.settings:
    """Return settings with the full number of examples if the run is thorough, else with few."""
    return hypothesis.settings(max_examples=full if is_thorough() else few)
