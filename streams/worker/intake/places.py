"""Where each site's events may come."""

import re
from fnmatch import translate

from streams.broker.topics import event_topics, partition_of
from streams.settings import Settings
from streams.worker.intake.messages import Unreadable


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
