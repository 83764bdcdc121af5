"""What a message of the events topic is, and whether it may come there."""

import re
from collections.abc import Callable
from contextlib import suppress
from fnmatch import translate
from typing import Any

from models.engine.operations import begun_anew
from models.records import AnyEvent, AnyOperation, BeginAnew
from streams.broker.topics import event_topics, partition_of
from streams.settings import Settings
from streams.worker.checkpoint.stored import SiteHandle
from streams.worker.intake.messages import Unreadable, read_event
from streams.worker.intake.operations import change, read_operation
from streams.worker.intake.unknown_fields import UnknownFields


class Places:
    """Where each site's events may come: the topic and the partition. 1 µs an event.

    A site has one partition, the one that its name as a key hashes to with murmur2, so one worker and one order. What
    comes elsewhere must change nothing: its offsets are of another log than those that the site's state counts.

    Parameters:
        partitions: how many the topics of events have.
    """

    def __init__(self, settings: Settings, partitions: int) -> None:
        self.partitions = partitions
        self._sites = event_topics(settings)
        self._own = frozenset(settings.sites.own_topic)
        patterns = "|".join(map(translate, settings.sites.allowed))
        self._allowed = re.compile(patterns) if patterns else None

    def check(self, topic: str, partition: int, site: str) -> bool:
        """Make sure that a site's event may come here; returns whether this topic is the site's own.

        Raises:
            Unreadable: for the reasons wrong_site, wrong_topic, site_not_allowed or wrong_partition.
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


class Intake:
    """Reads messages, and counts fields that no event has.

    Parameters:
        count: counts one such field, by its name.
    """

    def __init__(self, places: Places, count: Callable[[str], None]) -> None:
        self.places = places
        self.unknown_fields = UnknownFields(count)

    def read(self, raw: Any) -> tuple[AnyEvent | AnyOperation, bool]:
        """The event or operation that a message carries, and whether it came on its site's own topic; 5 µs.

        Raises:
            Unreadable: it is nothing that can be read, or does not belong there.
        """
        what = read_operation(raw.key, raw.value) or read_event(raw.key, raw.value)
        return what, self.places.check(raw.topic, raw.partition, what.site)

    def replay(self, handle: SiteHandle, raw: Any) -> None:
        """Apply a message once more, as it was applied before; nothing is sent, for all that followed was sent then.

        Raises:
            Exception: whatever the engine raises, whose state may then be half of what it should be.
        """
        with suppress(Unreadable):
            what, _ = self.read(raw)
            if isinstance(what, BeginAnew):
                handle.engine = begun_anew(handle.engine)
            elif isinstance(what, AnyOperation):
                change(handle.engine, what)
            else:
                handle.engine.apply(what, arrived(raw))
                handle.arrivals.add(raw.timestamp)


def arrived(raw: Any) -> float | None:
    """When a message arrived at the broker, Unix seconds; None where that is unknown."""
    return raw.timestamp if raw.timestamp > 0.0 else None
