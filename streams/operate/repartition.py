"""Move sites to other partitions after partitions were added.

A site's partition is the hash of its name, so with more partitions most sites move. Their states are copied unchanged;
their histories in Redis stay in place. Unread events are sent again, to the new partition, in the order of their
arrival. The originals become dead letters.
"""

import asyncio
import heapq
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any, NamedTuple

from kafka import KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient
from kafka.consumer.fetcher import ConsumerRecord

from models.records import without_first
from streams.broker.admin import admin, group_of, kafka_errors
from streams.broker.topic_messages import ends_of, held, messages
from streams.broker.topics import (
    STATE_MESSAGE_BYTES,
    Topics,
    configurations,
    event_topics,
    events_topic_of,
    partition_of,
)
from streams.errors import InvalidInput, UserError
from streams.settings import Settings
from streams.worker.checkpoint.job_log import SegmentRange, keys_of, new_writer, site_of
from streams.worker.checkpoint.redis_client import check_redis, remember_partitions
from streams.worker.checkpoint.stored_site import StoredState, decode_segment, decode_stored, encode_stored

MOVED = "moved"
"""Header of an event that was sent again: the new number of partitions, in ASCII."""

MAX_IN_FLIGHT = 10_000  # maximum number of events that are sent but not acknowledged
PATIENCE_S = 60.0  # timeout for added partitions to appear, seconds

Writer = Callable[[bytes, bytes | None, int], None]
"""Write a value under a key to a partition of the state topic; None deletes it."""

Moves = dict[str, tuple[int, int]]  # the old and the new partition of each site


class StoredSite(NamedTuple):
    """Stored data of a site in one partition: its state, and its job segments by key."""

    state: StoredState | None
    segments: dict[bytes, bytes]


States = Mapping[str, Mapping[int, StoredSite]]
"""Stored data by site and partition. Two partitions have a state after an interrupted run."""


def repartition(settings: Settings, partitions: int | None = None) -> Moves:
    """Give all topics the same number of partitions, and move the sites to theirs. No worker or source may run.

    It is idempotent and can be repeated after any failure: Redis stores the new number last, and workers refuse to
    start before. The state of a site is written to its new partition after its unread events, and it skips earlier
    messages there, so no event counts twice.

    Args:
        partitions: The new number; by default that of the topic with the most partitions.

    Returns:
        The sites that were moved.

    Raises:
        UserError: A worker or a source is running, a topic has more partitions, or a server failed or refused.
    """
    topics = Topics(settings.kafka.prefix)
    asyncio.run(check_redis(settings.redis))
    with admin(settings.kafka) as client:
        members, committed = group_of(client, topics.group)
        if members:
            raise UserError(f"{members} workers are running or stopped recently; stop all workers and sources first")
        wanted = _add_partitions(client, settings, partitions)
    options = settings.kafka.client_options() | {"acks": "all", "max_request_size": STATE_MESSAGE_BYTES}
    with kafka_errors(settings.kafka), closing(KafkaProducer(**options)) as producer:
        states = _states(settings)
        ends = {topic: ends_of(settings, topic) for topic in event_topics(settings)}
        if any(len(found) != wanted for found in ends.values()):
            raise UserError("not all brokers have the new partitions yet; repeat the command")
        for topic in ends:
            _send_again(settings, producer, topic, ends[topic], committed, states)
        moves = _move(settings, producer, ends, states)
    asyncio.run(remember_partitions(settings.redis, topics.events, wanted))
    return moves


def _add_partitions(client: KafkaAdminClient, settings: Settings, partitions: int | None) -> int:
    names = list(configurations(settings))
    found = {topic["name"]: len(topic["partitions"]) for topic in client.describe_topics(names)}
    if missing := [name for name, count in found.items() if not count]:
        raise UserError(f"topics are missing: {', '.join(missing)}; create them with `queuecast topics create`")
    most = max(found.values())
    wanted = most if partitions is None else partitions
    if wanted < most:
        raise InvalidInput(f"cannot reduce partitions from {most} to {wanted}")
    if fewer := {name: wanted for name, count in found.items() if count < wanted}:
        client.create_partitions(fewer)
        _await(client, fewer)
    return wanted


def _await(client: KafkaAdminClient, wanted: Mapping[str, int]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while any(len(topic["partitions"]) < wanted[topic["name"]] for topic in client.describe_topics(list(wanted))):
        if time.monotonic() > deadline:
            raise UserError(f"the new partitions did not appear within {PATIENCE_S:.0f} s; repeat the command")
        time.sleep(0.1)


def _states(settings: Settings) -> States:
    topic = Topics(settings.kafka.prefix).state
    states: dict[str, dict[int, StoredSite]] = {}
    for message in held(settings, topic):
        site = site_of(message.key)
        found = states.setdefault(site.decode(), {})
        before = found.pop(message.partition, StoredSite(None, {}))
        if message.key == site:
            before = before._replace(state=decode_stored(message.value) if message.value else None)
        elif message.value:
            before.segments[message.key] = message.value
        else:
            before.segments.pop(message.key, None)
        if before.state is not None or before.segments:
            found[message.partition] = before
    return {site: found for site, found in states.items() if any(one.state for one in found.values())}


def _latest(found: Mapping[int, StoredSite]) -> StoredState:
    states = [one.state for one in found.values() if one.state is not None]
    return max(states, key=lambda state: state.position)


def _send_again(
    settings: Settings,
    producer: KafkaProducer,
    topic: str,
    ends: Mapping[int, int],
    committed: Mapping[TopicPartition, Any],
    states: States,
) -> None:
    """Send unread events again to their new partition, in the order of their broker timestamps.

    Raises:
        UserError: New events arrived meanwhile.
    """
    count, sent, pending = len(ends), Counter[int](), list[Any]()
    places = {TopicPartition(topic, partition): end for partition, end in ends.items()}
    unread = (
        messages(settings, place, committed[place].offset if place in committed else 0, end)
        for place, end in places.items()
    )
    for message in heapq.merge(*unread, key=lambda message: message.timestamp):
        site = _site_of(message)
        if site is None or events_topic_of(settings, site) != topic:
            continue  # the worker rejects such a message in any partition
        home = partition_of(site, count)
        known = _latest(states[site]) if site in states else None
        if _is_to_move(message, known, home, count):
            headers = [(MOVED, b"%d" % count)]
            pending.append(producer.send(topic, _unapplied(message, known), message.key, headers, home))
            sent[home] += 1
        if len(pending) >= MAX_IN_FLIGHT:
            _await_sent(pending)
    _await_sent(pending)
    if any(end - ends[partition] != sent[partition] for partition, end in ends_of(settings, topic).items()):
        raise UserError(f"events came to {topic} meanwhile; stop the sources, then repeat the command")


def _await_sent(pending: list[Any]) -> None:
    for one in pending:
        one.get(timeout=PATIENCE_S)
    pending.clear()


def _site_of(message: ConsumerRecord) -> str | None:
    try:
        return None if message.key is None else str(message.key, "utf-8")
    except UnicodeDecodeError:
        return None


def _is_to_move(message: ConsumerRecord, state: StoredState | None, home: int, count: int) -> bool:
    """Return whether a possibly unread message must be sent again."""
    if state is None:
        return bool(message.partition != home)
    if state.partition == home:
        return False  # the message will be read there
    if message.partition == state.partition:
        return bool(message.offset >= state.offset + (not state.applied_parts))
    # Skip copies from an interrupted run: the original message is sent again instead.
    return (MOVED, b"%d" % count) not in message.headers


def _unapplied(message: ConsumerRecord, state: StoredState | None) -> Any:
    """Return the part of a message that the state lacks. The state may have the first events of a bundle."""
    if state is None or (message.partition, message.offset) != (state.partition, state.offset):
        return message.value
    return without_first(message.value, state.applied_parts)


def _move(settings: Settings, producer: KafkaProducer, ends: Mapping[str, Mapping[int, int]], states: States) -> Moves:
    """Write each state to its new partition, its segments first, and delete it from the others.

    The state counts earlier messages of the new partition as read: they were rejected there or have been sent again.
    """
    moves, write = Moves(), _writer(producer, Topics(settings.kafka.prefix).state)
    for site, found in states.items():
        before, topic = _latest(found), events_topic_of(settings, site)
        home = partition_of(site, len(ends[topic]))
        if before.partition != home:
            moves[site] = before.partition, home
            _copy_segments(site, before, found[before.partition].segments, home, write)
            before.partition, before.offset, before.applied_parts = home, ends[topic][home] - 1, 0
            before.epoch += 1
            before.own = site in settings.sites.dedicated_topics
            write(site.encode(), encode_stored(before), home)
        for partition, old in found.items():
            if partition != home:
                for key in (site.encode(), *old.segments):
                    write(key, None, partition)
    return moves


def _copy_segments(site: str, state: StoredState, segments: Mapping[bytes, bytes], home: int, write: Writer) -> None:
    """Write a state's segments to its new partition under new keys, as the old keys are deleted next.

    Raises:
        UserError: Some segments are missing.
    """
    keys = list(keys_of(site, state.runs))
    if any(key not in segments for key in keys):
        raise UserError(f"parts of the state of {site!r} are missing; start the workers once to repair it")
    writer = new_writer()
    state.runs = [SegmentRange(writer, 0, len(keys) - 1)] if keys else []
    for new, old in zip(keys_of(site, state.runs), keys, strict=True):
        segment = decode_segment(segments[old])
        segment.partition = home
        write(new, encode_stored(segment), home)


def _writer(producer: KafkaProducer, topic: str) -> Writer:
    def write(key: bytes, value: bytes | None, partition: int) -> None:
        producer.send(topic, value, key, partition=partition).get(timeout=PATIENCE_S)

    return write
