"""Freshness of sites: the time of the last event, the number of unread messages, and whether the state is stale.

It uses broker timestamps and the wall clock. So it is part of answers, estimates and metrics, but not of records that a
replay must reproduce byte for byte. Records contain times, not ages, because an age would be wrong when it is read.
"""

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import msgspec

from models.durations import duration
from streams.text.terminal import moment
from streams.worker.checkpoint.stored_site import Arrivals, SiteHandle

S = TypeVar("S", bound=msgspec.Struct)
TopicPartition = tuple[str, int]  # a topic and a partition of it

MAX_UNREAD_MESSAGES = 10_000
"""A site is stale if its partition has more unread messages (a bundle counts as one message)."""


class SiteFreshness(NamedTuple):
    """Freshness of one site.

    Attributes:
        as_of: Time of the last event (Unix seconds).
        age_s: Time since the broker received this event (None: unknown).
        lag_messages: Unread messages of the site's partition.
        lag_s: Age of the last message read if others are unread, seconds; else 0.
        stale: Reason why the state is too old; None if it is not.
    """

    as_of: float | None
    age_s: float | None
    lag_messages: int
    lag_s: float
    stale: str | None


@dataclass(eq=False)
class Freshness:
    """Track the freshness of sites, and add it to answers and estimates.

    Args:
        place: Returns the topic and partition of a site's events.
        end: Returns the end offset of a topic and partition.
        clock: Current time, Unix seconds.
    """

    place: Callable[[Any], TopicPartition] = lambda _: ("", 0)
    end: Callable[[TopicPartition], int | None] = lambda _: None
    clock: Callable[[], float] = time.time
    # The last offset read of each partition, and its timestamp.
    _read: dict[TopicPartition, tuple[int, float]] = field(default_factory=dict, init=False)

    def read(self, place: TopicPartition, offset: int, stamp: float) -> None:
        """Record that a message of an events topic, with the broker timestamp `stamp`, was read."""
        self._read[place] = max((offset, stamp), self._read.get(place, (offset, stamp)))

    def forget(self, partitions: Collection[int]) -> None:
        """Drop the positions in partitions that another worker reads now."""
        self._read = {place: last for place, last in self._read.items() if place[1] not in partitions}

    def of(self, site: SiteHandle) -> SiteFreshness:
        """Return the current freshness of a site."""
        now, arrivals = self.clock(), site.arrivals
        place = self.place(site)
        unread = self.unread(place) or 0
        lag_s = max(now - self._read[place][1], 0.0) if unread else 0.0
        age_s = max(now - arrivals.last, 0.0) if arrivals.last else None
        return SiteFreshness(site.engine.time or None, age_s, unread, lag_s, _stale(arrivals, age_s, unread, lag_s))

    def marked(self, answer: S, site: SiteHandle) -> S:
        """Add the site's freshness to an answer or estimate; mark it as degraded if the site is stale."""
        fresh = self.of(site)
        marks: dict[str, Any] = {name: getattr(fresh, name) for name in ("as_of", "lag_messages", "lag_s", "stale")}
        if fresh.stale is not None and "degraded" in answer.__struct_fields__:
            marks["degraded"] = "; ".join(filter(None, (f"stale: {fresh.stale}", answer.degraded)))  # type: ignore[attr-defined]
        return msgspec.structs.replace(answer, **marks)

    def unread(self, place: TopicPartition) -> int | None:
        """Return the number of unread messages of a topic and partition; None if its end or our position is unknown."""
        end = self.end(place)
        return None if end is None or place not in self._read else max(end - self._read[place][0] - 1, 0)


def _stale(arrivals: Arrivals, age_s: float | None, unread: int, lag_s: float) -> str | None:
    if unread > MAX_UNREAD_MESSAGES or (unread and lag_s > arrivals.bound_s):
        return f"{unread:,} messages are unread, {duration(lag_s)} behind"
    if age_s is not None and age_s > arrivals.bound_s:
        return f"its last event came at {moment(arrivals.last)}; it is stale after {duration(arrivals.bound_s)}"
    return None
