"""Sizes of tests: a part of the cases in `make test`, all of them in `make test-all`, which has the profile `many`."""

from collections.abc import Iterable
from itertools import islice
from typing import Any, TypeVar

import hypothesis
import pytest

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


def mostly_long(cases: Iterable[Any]) -> list[Any]:
    """Return the cases of a parametrized test; those after the first one are marked `long`.

    Args:
        cases: A value or a tuple of values for each case.
    """
    first, *others = [one if isinstance(one, tuple) else (one,) for one in cases]
    return [pytest.param(*first), *(pytest.param(*one, marks=pytest.mark.long) for one in others)]
