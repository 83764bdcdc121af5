"""What a message of the events topic is: an event or an operator's change, whether it may come there, unknown fields.

Operators' changes to a site come among its events, so they are part of its fold and survive a crash.
"""

import logging
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from fnmatch import translate
from typing import Any

import msgspec

from models.engine.operations import begun_anew, operate
from models.records import AnyEvent, AnyOperation, DoneOperation, Rebuild, ResetSite
from streams.broker.topics import event_topics, partition_of
from streams.errors import UNDECODABLE
from streams.settings import Settings
from streams.worker.checkpoint.stored import SiteHandle
from streams.worker.intake.messages import SiteMessage, Unreadable, read_told

log = logging.getLogger(__name__)
MAX_NAMES = 32  # names of fields that are counted one by one at a worker, and at a site; the others count as `other`

MAX_SITES = 1000
"""Sites whose unknown fields are counted; the one that had its first of them before all others is forgotten."""

MAX_NAME_CHARACTERS = 64
OTHER = "other"

_KNOWN = {kind: frozenset((*kind.__struct_fields__, "type")) for kind in AnyEvent.__args__}
_decode_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class EventPlaces:
    """Where each site's events may come: the topic and the partition. 1 µs an event.

    A site has one partition, the one that its name as a key hashes to with murmur2, so one worker and one order. What
    comes elsewhere must change nothing: its offsets are of another log than those that the site's state counts.

    Parameters:
        partitions: how many the topics of events have.
    """

    def __init__(self, settings: Settings, partitions: int) -> None:
        self.partitions = partitions
        self._sites = event_topics(settings)
        self._own = frozenset(settings.sites.dedicated_topics)
        patterns = "|".join(map(translate, settings.sites.allowed))
        self._allowed = re.compile(patterns) if patterns else None

    def check(self, topic: str, partition: int, site: str) -> bool:
        """Make sure that a site's event may come here; returns whether this topic is the site's own. Raises Unreadable:
        for the reasons wrong_site, wrong_topic, site_not_allowed or wrong_partition.
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
        """The site whose own topic this is; None for the shared one."""
        return self._sites.get(topic)

    def is_home(self, site: str, partition: int) -> bool:
        """Whether this is the partition of the site's events."""
        return self.home(site) == partition

    def home(self, site: str) -> int:
        """The partition of a site's events."""
        return partition_of(site, self.partitions)


def unknown_fields(event: AnyEvent, value: bytes | msgspec.Raw) -> list[str]:
    """The fields of an event's JSON that the event does not have, as far as they can be shown; 3 µs.

    Where a name is not UTF-8, which who reads events passes over, it is one field, `other`.
    """
    try:
        found = [name for name in _decode_fields(value) if name not in _KNOWN[type(event)]]
    except UNDECODABLE:
        return [OTHER]
    return [name[:MAX_NAME_CHARACTERS] if name.isprintable() else OTHER for name in found]


class UnknownFields:
    """Counts fields of events that no event has, such as `wallclock` for `walltime`, by name and at each site.

    They are ignored, so that a later writer does not break this reader. Who misspelt a name would never know, so the
    first of each name at a site is logged. No state depends on them.

    Parameters:
        count: counts one for Prometheus, by its name.
    """

    def __init__(self, count: Callable[[str], None]) -> None:
        self._count = count
        self._all: Counter[str] = Counter()
        self._sites: dict[str, Counter[str]] = {}

    def look(self, event: AnyEvent, value: bytes | msgspec.Raw) -> None:
        """Count the fields of an event's JSON that the event does not have."""
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


class Intake:
    """Reads messages, and counts fields that no event has.

    Parameters:
        count: counts one such field, by its name.
    """

    def __init__(self, places: EventPlaces, count: Callable[[str], None]) -> None:
        self.places = places
        self.unknown_fields = UnknownFields(count)

    def read(self, raw: Any) -> tuple[SiteMessage | AnyOperation, bool]:
        """What a message tells, or the operation that it is, and whether it came on its site's own topic; 5 µs. Raises
        Unreadable: it is nothing that can be read, or does not belong there.
        """
        what = read_operation(raw.key, raw.value) or read_told(raw.key, raw.value)
        return what, self.places.check(raw.topic, raw.partition, what.site)

    def replay(self, handle: SiteHandle, raw: Any, most: int | None = None) -> Iterator[None]:
        """Apply a message once more, as it was applied before; nothing is sent, for all that followed was sent then.

        It stops before each event, and goes on after those of a bundle that are in the state already.

        Parameters:
            most: of so many events of a bundle; None: of all.

        Raises:
            Exception: whatever the engine raises, whose state may then be half of what it should be.
        """
        with suppress(Unreadable):
            what, _ = self.read(raw)
            if isinstance(what, ResetSite):
                before = handle.engine
                for handle.engine in begun_anew(before):
                    yield
            elif isinstance(what, AnyOperation):
                if not isinstance(what, Rebuild):
                    with suppress(Exception):  # it was rejected then too
                        operate(handle.engine, what)
            else:
                for part in what.parts[handle.next_part(raw.offset) : most]:
                    yield
                    with suppress(Unreadable):
                        handle.engine.apply(part.event, arrived(raw))
                if most is None:
                    handle.arrivals.add(raw.timestamp)


def arrived(raw: Any) -> float | None:
    """When a message arrived at the broker, Unix seconds; None where that is unknown."""
    return raw.timestamp if raw.timestamp > 0.0 else None


MAX_KEPT = 20  # operations that a site's stored state remembers: the latest ones

MIN_BETWEEN_REBUILDS_S = 600.0
"""Seconds, by the broker's stamps, before a site is rebuilt again: a flood of such messages must not stop others."""

MARK = b'"operator_'
"""What is in every operation, and hardly in any event: to look for it takes far less time than to decode."""

_decode = msgspec.json.Decoder(AnyOperation).decode


def read_operation(key: bytes | None, value: bytes | None) -> AnyOperation | None:
    """The operation that a message carries; None where it is none, or its key is not its site."""
    if value is None or MARK not in value:
        return None
    try:
        operation = _decode(value)
    except UNDECODABLE:
        return None
    return operation if key == operation.site.encode() else None


def rebuilt_lately(handle: SiteHandle, operation: AnyOperation, arrived: float) -> bool:
    """Return whether the site was made again by the same operation too short a time ago to be so again."""
    kind = operation.__struct_config__.tag
    rebuilds = [done.at for done in handle.operations if done.rebuilt and done.type == kind]
    return bool(rebuilds) and arrived - rebuilds[-1] < MIN_BETWEEN_REBUILDS_S


def note(handle: SiteHandle, operation: AnyOperation, arrived: float, done: str, rebuilt: bool = False) -> None:
    """Remember who changed what, when and why, and log it."""
    kind: Any = operation.__struct_config__.tag
    entry = DoneOperation(type=kind, at=arrived, by=operation.by, why=operation.why, done=done, rebuilt=rebuilt)
    handle.operations = [*handle.operations, entry][-MAX_KEPT:]
    log.warning("%s by %r (%r): %s", kind, operation.by, operation.why, done, extra={"site": operation.site})
