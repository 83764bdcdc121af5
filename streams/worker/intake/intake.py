"""Decode messages of an events topic: events or operator changes. Check their topic and partition, and unknown fields.

Operator changes to a site are sent among its events, so they are part of its state and survive a crash.
"""

import logging
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from fnmatch import translate
from typing import Any

import msgspec

from models.engine.operator_commands import operate, restarted
from models.records import AnyEvent, AnyOperation, DoneOperation, Rebuild, ResetSite
from streams.broker.topics import event_topics, partition_of
from streams.errors import UNDECODABLE
from streams.settings import Settings
from streams.worker.checkpoint.stored_site import SiteHandle
from streams.worker.intake.messages import SiteMessage, Unreadable, read_site_message

log = logging.getLogger(__name__)
MAX_NAMES = 32  # maximum number of field names counted per worker and per site; others count as `other`

MAX_SITES = 1000
"""Maximum number of sites with counts of unknown fields; the oldest is dropped."""

MAX_NAME_CHARACTERS = 64
OTHER = "other"

_KNOWN = {kind: frozenset((*kind.__struct_fields__, "type")) for kind in AnyEvent.__args__}
_decode_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class EventPlaces:
    """The topic and partition on which each site's events are accepted.

    A site has one partition, the murmur2 hash of its name as the key, so it has one worker and one order. Events on
    other partitions must have no effect: their offsets belong to another log than those in the site's state.

    Args:
        partitions: Number of partitions of the events topics.
    """

    def __init__(self, settings: Settings, partitions: int) -> None:
        self.partitions = partitions
        self._sites = event_topics(settings)
        self._own = frozenset(settings.sites.dedicated_topics)
        patterns = "|".join(map(translate, settings.sites.allowed))
        self._allowed = re.compile(patterns) if patterns else None

    def check(self, topic: str, partition: int, site: str) -> bool:
        """Check that a site's event may come here; return whether this is the site's dedicated topic.

        Raises:
            Unreadable: With the reason wrong_site, wrong_topic, site_not_allowed or wrong_partition.
        """
        owner = self.owner(topic)
        if owner is not None and owner != site:
            raise Unreadable("wrong_site", f"{topic} is for events of {owner!r} alone")
        if owner is None and site in self._own:
            raise Unreadable("wrong_topic", f"{site!r} has a topic of its own, {topic}.{site}")
        if owner is None and self._allowed is not None and not self._allowed.match(site):
            raise Unreadable("site_not_allowed", f"{site!r} is none of `sites.allowed`")
        if not self.is_home(site, partition):
            home = self.home(site)
            raise Unreadable("wrong_partition", f"its key belongs to partition {home} of {self.partitions} (murmur2)")
        return owner is not None

    def owner(self, topic: str) -> str | None:
        """Return the site of a dedicated topic; None for the shared one."""
        return self._sites.get(topic)

    def is_home(self, site: str, partition: int) -> bool:
        """Return whether this is the partition of the site's events."""
        return self.home(site) == partition

    def home(self, site: str) -> int:
        """Return the partition of a site's events."""
        return partition_of(site, self.partitions)


def unknown_fields(event: AnyEvent, value: bytes | msgspec.Raw) -> list[str]:
    """Return the unknown fields of an event's JSON.

    A name that is not UTF-8, which the decoder ignores, gives the single field `other`.
    """
    try:
        found = [name for name in _decode_fields(value) if name not in _KNOWN[type(event)]]
    except UNDECODABLE:
        return [OTHER]
    return [name[:MAX_NAME_CHARACTERS] if name.isprintable() else OTHER for name in found]


class UnknownFields:
    """Count unknown fields of events, such as `wallclock` for `walltime`, by name and by site.

    They are ignored, so that events of a later version remain readable. The first of each name at a site is logged, so
    that a misspelled name is noticed. No state depends on them.

    Args:
        count: Counts one field for Prometheus, by name.
    """

    def __init__(self, count: Callable[[str], None]) -> None:
        self._count = count
        self._all: Counter[str] = Counter()
        self._sites: dict[str, Counter[str]] = {}

    def look(self, event: AnyEvent, value: bytes | msgspec.Raw) -> None:
        """Count the unknown fields of an event's JSON."""
        for name in unknown_fields(event, value):
            self._add(event.site, name)

    def of(self, site: str) -> dict[str, int]:
        """Return the number of times that each unknown field came from a site."""
        return dict(self._sites.get(site, {}))

    def _add(self, site: str, name: str) -> None:
        self._count(_tally(self._all, name))
        if len(self._sites) >= MAX_SITES and site not in self._sites:
            self._sites.pop(next(iter(self._sites)))
        counts = self._sites.setdefault(site, Counter())
        name = _tally(counts, name)
        if counts[name] == 1:
            log.warning("Ignored unknown event field %r: check its spelling", name, extra={"site": site})


def _tally(counts: Counter[str], name: str) -> str:
    """Count a name, or `other` if there are too many names; return the counted name."""
    counted = name if name in counts or len(counts) < MAX_NAMES else OTHER
    counts[counted] += 1
    return counted


class Intake:
    """Decode messages, and count unknown fields.

    Args:
        count: Counts one unknown field, by name.
    """

    def __init__(self, places: EventPlaces, count: Callable[[str], None]) -> None:
        self.places = places
        self.unknown_fields = UnknownFields(count)

    def read(self, raw: Any) -> tuple[SiteMessage | AnyOperation, bool]:
        """Decode a message or an operation, and return whether it came on its site's dedicated topic.

        Raises:
            Unreadable: It cannot be decoded, or does not belong there.
        """
        what = read_operation(raw.key, raw.value) or read_site_message(raw.key, raw.value)
        return what, self.places.check(raw.topic, raw.partition, what.site)

    def replay(self, handle: SiteHandle, raw: Any, most: int | None = None) -> Iterator[None]:
        """Apply a message again, as it was applied before, without sending the results again.

        It pauses before each event, and skips the events of a bundle that are already in the state.

        Args:
            most: Number of events of a bundle to apply; None for all.

        Raises:
            Exception: Any error of the engine, whose state may then be incomplete.
        """
        with suppress(Unreadable):
            what, _ = self.read(raw)
            if isinstance(what, ResetSite):
                before = handle.engine
                for handle.engine in restarted(before):
                    yield
            elif isinstance(what, AnyOperation):
                if not isinstance(what, Rebuild):
                    with suppress(Exception):  # it was rejected then too
                        operate(handle.engine, what)
            else:
                for part in what.parts[handle.next_part(raw.offset) : most]:
                    yield
                    yield from handle.engine.prepare(part.event) or ()
                    with suppress(Unreadable):
                        handle.engine.apply(part.event, arrived(raw))
                if most is None:
                    handle.arrivals.add(raw.timestamp)


def arrived(raw: Any) -> float | None:
    """Return the broker timestamp of a message, Unix seconds; None if unknown."""
    return raw.timestamp if raw.timestamp > 0.0 else None


MAX_KEPT = 20  # maximum number of recent operations in a site's state

MIN_BETWEEN_REBUILDS_S = 600.0
"""Minimum time between rebuilds of a site by broker timestamps, seconds, so that a flood of them cannot stop others."""

MARK = b'"operator_'
"""A text in every operation and in almost no event: a search is much faster than decoding."""

_decode = msgspec.json.Decoder(AnyOperation).decode


def read_operation(key: bytes | None, value: bytes | None) -> AnyOperation | None:
    """Return the operation in a message; None if there is none, or its key is not its site."""
    if value is None or MARK not in value:
        return None
    try:
        operation = _decode(value)
    except UNDECODABLE:
        return None
    return operation if key == operation.site.encode() else None


def rebuilt_lately(handle: SiteHandle, operation: AnyOperation, arrived: float) -> bool:
    """Return whether the same operation rebuilt the site too recently to repeat it."""
    kind = operation.__struct_config__.tag
    rebuilds = [done.at for done in handle.operations if done.rebuilt and done.type == kind]
    return bool(rebuilds) and arrived - rebuilds[-1] < MIN_BETWEEN_REBUILDS_S


def note(handle: SiteHandle, operation: AnyOperation, arrived: float, done: str, rebuilt: bool = False) -> None:
    """Record and log an operator change: user, change, time and reason."""
    kind: Any = operation.__struct_config__.tag
    entry = DoneOperation(type=kind, at=arrived, by=operation.by, why=operation.why, done=done, rebuilt=rebuilt)
    handle.operations = [*handle.operations, entry][-MAX_KEPT:]
    log.warning("%s by %r (%r): %s", kind, operation.by, operation.why, done, extra={"site": operation.site})
