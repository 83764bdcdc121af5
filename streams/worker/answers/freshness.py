"""How old what is known of a site is: when its last event came, how many wait unread, and whether that is too old.

All of it goes by the broker's stamps and the wall clock. So it is said in answers, estimates and metrics, and never in
records that must repeat to the byte. It names moments, not ages: what is said is read later, and an age would be wrong
by then.
"""

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import msgspec

from models.durations import duration
from streams.text.terminal import moment
from streams.worker.checkpoint.stored import Arrivals, SiteHandle

S = TypeVar("S", bound=msgspec.Struct)
TopicPartition = tuple[str, int]  # a topic and a partition of it

MAX_UNREAD_MESSAGES = 10_000
"""A site with more messages of its partition unread is stale; how many events a bundle has is known once it is read."""


class SiteFreshness(NamedTuple):
    """How old what is known of a site is.

    `as_of` is its last event's own time (Unix seconds), `age_s` how long ago this event came to the broker (None:
    unknown). `lag_messages` of its partition are unread, and those were `lag_s` seconds behind. `stale` says why this
    is too old; None where it is not.
    """

    as_of: float | None
    age_s: float | None
    lag_messages: int
    lag_s: float
    stale: str | None


@dataclass(eq=False)
class Freshness:
    """Tells how fresh sites are, and marks what is said of them.

    Parameters:
        place: gives where a site's events come: the topic and the partition.
        end: gives the end of such a place: the offset that its next event will have.
        clock: the current time in Unix seconds.
    """

    place: Callable[[Any], TopicPartition] = lambda _: ("", 0)
    end: Callable[[TopicPartition], int | None] = lambda _: None
    clock: Callable[[], float] = time.time
    # The last offset that was read of each place, and its stamp.
    _read: dict[TopicPartition, tuple[int, float]] = field(default_factory=dict, init=False)

    def read(self, place: TopicPartition, offset: int, stamp: float) -> None:
        """A message of a topic of events was read, which had come to the broker at `stamp`."""
        self._read[place] = max((offset, stamp), self._read.get(place, (offset, stamp)))

    def forget(self, partitions: Collection[int]) -> None:
        """These partitions are read by others: when they come back, what was read here says nothing."""
        self._read = {place: last for place, last in self._read.items() if place[1] not in partitions}

    def of(self, site: SiteHandle) -> SiteFreshness:
        """How fresh a site is now."""
        now, arrivals = self.clock(), site.arrivals
        place = self.place(site)
        unread = self.unread(place) or 0
        lag_s = max(now - self._read[place][1], 0.0) if unread else 0.0
        age_s = max(now - arrivals.last, 0.0) if arrivals.last else None
        return SiteFreshness(site.engine.time or None, age_s, unread, lag_s, _stale(arrivals, age_s, unread, lag_s))

    def marked(self, said: S, site: SiteHandle) -> S:
        """An answer or estimate with how fresh its site is; where that is stale, it is degraded too."""
        fresh = self.of(site)
        marks: dict[str, Any] = {name: getattr(fresh, name) for name in ("as_of", "lag_messages", "lag_s", "stale")}
        if fresh.stale is not None and "degraded" in said.__struct_fields__:
            marks["degraded"] = "; ".join(filter(None, (f"stale: {fresh.stale}", said.degraded)))  # type: ignore[attr-defined]
        return msgspec.structs.replace(said, **marks)

    def unread(self, place: TopicPartition) -> int | None:
        """How many messages of a place are still to be read; None where nothing of it was read here, or is known."""
        end = self.end(place)
        return None if end is None or place not in self._read else max(end - self._read[place][0] - 1, 0)


def _stale(arrivals: Arrivals, age_s: float | None, unread: int, lag_s: float) -> str | None:
    if unread > MAX_UNREAD_MESSAGES or (unread and lag_s > arrivals.bound_s):
        return f"{unread:,} messages are unread, {duration(lag_s)} behind"
    if age_s is not None and age_s > arrivals.bound_s:
        return f"its last event came at {moment(arrivals.last)}; it is stale after {duration(arrivals.bound_s)}"
    return None
