"""The preference for a site, as programs, requests and commands give it."""

from typing import Any

from models.preference import Preference
from streams.errors import InvalidInput, read_as
from streams.text.quantities import seconds_of


def taken_preference(given: dict[str, Any]) -> Preference | None:
    """Remove the preference from the arguments of `rank` and return it.

    Raises:
        InvalidInput: it is invalid.

    >>> taken_preference({"prefer": "kth", "unless_sooner": "30m"})
    Preference(site='kth', unless_sooner_s=1800.0)
    """
    site, sooner = given.pop("prefer", None), given.pop("unless_sooner", None)
    seconds = read_as("unless_sooner", seconds_of, sooner) if isinstance(sooner, str) else sooner
    if site is None:
        if seconds is not None:
            raise InvalidInput("unless_sooner: requires prefer, the site that another must beat by this time")
        return None
    return Preference(site, seconds or 0.0)
