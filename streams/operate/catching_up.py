"""Progress of the workers: the last event of each site and the consumer lag."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence

from kafka import TopicPartition
from kafka.admin import OffsetSpec

from streams.broker.admin import admin, group_of
from streams.broker.topics import Topics, events_topic_of, partition_of
from streams.client.blocking import Client
from streams.errors import UserError
from streams.settings import Settings

LOOK_S = 1.0  # pause between two polls of the committed offsets


def known_until(settings: Settings, sites: Iterable[str]) -> dict[str, float]:
    """Return the time of the last event (Unix seconds) of each of these sites that has grid estimates.

    The result is empty if this user may not send questions or no worker responds, as callers can do without it.
    """
    try:
        with Client(settings, patience_s=0) as grid:
            known = set(grid.sites)
            chosen = [site for site in sites if site in known]
            answers = grid.every_site(chosen) if chosen else {}
    except UserError:
        return {}
    return {site: one.as_of for site, one in answers.items() if one is not None and one.as_of is not None}


class NoWorker(UserError):
    """No worker is running, so the consumer lag does not shrink."""


def unread(settings: Settings, sites: Sequence[str], sleep: Callable[[float], None] = time.sleep) -> Iterator[int]:
    """Yield the consumer lag of these sites' partitions, up to their current end, until it reaches zero.

    Raises:
        NoWorker: The workers' group has no members.
        UserError: The broker is unreachable, or this user has no permission.
    """
    topics = Topics(settings.kafka.prefix)
    with admin(settings.kafka) as client:
        names = {site: events_topic_of(settings, site) for site in sites}
        parts = {one["name"]: len(one["partitions"]) for one in client.describe_topics(sorted(set(names.values())))}
        places = {TopicPartition(names[site], partition_of(site, parts[names[site]])) for site in sites}
        first = client.list_partition_offsets(dict.fromkeys(places, OffsetSpec.EARLIEST))
        last = client.list_partition_offsets(dict.fromkeys(places, OffsetSpec.LATEST))
        while True:
            members, committed = group_of(client, topics.group)
            if not members:
                raise NoWorker("no worker runs")
            done = {place: (committed[place] if place in committed else first[place]).offset for place in places}
            lag = sum(max(last[place].offset - at, 0) for place, at in done.items())
            yield lag
            if not lag:
                return
            sleep(LOOK_S)
