"""Suggestions for mistyped names."""

from collections.abc import Iterable
from difflib import get_close_matches


def nearest_name(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that a mistyped one may mean, ignoring case; None if no name is similar.

    >>> nearest_name("Kht", ["ctc", "kth"])
    'kth'
    """
    by_lower = {one.lower(): one for one in known}
    near = get_close_matches(name.lower(), by_lower, n=1)
    return by_lower[near[0]] if near else None
