"""Notices fields of events that no type of event has, such as `wallclock` for `walltime`.

They are ignored, so that a later writer does not break this reader. Who misspelt a name would never know, so they are
counted and logged. No state depends on them.
"""

import logging
from collections import Counter
from collections.abc import Callable

import msgspec

from models.records import AnyEvent
from streams.errors import UNDECODABLE

log = logging.getLogger(__name__)

MAX_NAMES = 32
"""Names of fields that are counted one by one at a worker, and at a site; the others count as `other`."""

MAX_SITES = 1000
"""Sites whose unknown fields are counted; the one that had its first of them before all others is forgotten."""

MAX_NAME_CHARACTERS = 64
OTHER = "other"

_KNOWN = {kind: frozenset((*kind.__struct_fields__, "type")) for kind in AnyEvent.__args__}
_decode_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def unknown_fields(event: AnyEvent, value: bytes) -> list[str]:
    """The fields of a message that its event does not have, as far as they can be shown; 3 µs.

    Where a name is not UTF-8, which who reads events passes over, it is one field, `other`.
    """
    try:
        found = [name for name in _decode_fields(value) if name not in _KNOWN[type(event)]]
    except UNDECODABLE:
        return [OTHER]
    return [name[:MAX_NAME_CHARACTERS] if name.isprintable() else OTHER for name in found]


class UnknownFields:
    """Counts unknown fields by name, at each site, since this worker started.

    The first of each name at a site is logged.

    Parameters:
        count: counts one for Prometheus, by its name.
    """

    def __init__(self, count: Callable[[str], None]) -> None:
        self._count = count
        self._all: Counter[str] = Counter()
        self._sites: dict[str, Counter[str]] = {}

    def look(self, event: AnyEvent, value: bytes) -> None:
        """Count the fields of a message that its event does not have."""
        for name in unknown_fields(event, value):
            self._add(event.site, name)

    def of(self, site: str) -> dict[str, int]:
        """How often each unknown field came from a site."""
        return dict(self._sites.get(site, {}))

    def _add(self, site: str, name: str) -> None:
        self._count(_tally(self._all, name))
        if len(self._sites) >= MAX_SITES and site not in self._sites:
            self._sites.pop(next(iter(self._sites)))
        counts = self._sites.setdefault(site, Counter())
        name = _tally(counts, name)
        if counts[name] == 1:
            log.warning("events have a field %r, which is ignored; is it misspelt?", name, extra={"site": site})


def _tally(counts: Counter[str], name: str) -> str:
    """Count a name, or `other` where there are enough names; returns which."""
    counted = name if name in counts or len(counts) < MAX_NAMES else OTHER
    counts[counted] += 1
    return counted
