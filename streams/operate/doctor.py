"""What is well and what is not with Kafka, the topics, the workers and Redis, and what to do about it."""

import asyncio
import platform
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Literal

import msgspec
from kafka import TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient, OffsetSpec, OffsetTimestamp
from kafka.errors import AuthorizationError, CoordinatorNotAvailableError, KafkaError
from redis.asyncio import Redis
from redis.exceptions import RedisError, ResponseError

from streams.errors import UserError
from streams.faults import PERMISSIONS, explain
from streams.settings import RedisSettings, Settings
from streams.topics import Topics, admin, configurations
from streams.worker.store import check_redis, connect

PACKAGES = ("queuecast", "faust-streaming", "aiokafka", "kafka-python", "redis", "msgspec", "numpy", "numba")

DAY_MS = 86_400_000
BEHIND = 10_000
"""Events of a partition that are not done yet, above which its worker is said to be behind."""

APART_S = 2.0
"""Seconds that clocks may be apart."""

TESTED_REDIS = (6, 2)


class Result(msgspec.Struct, frozen=True):
    """What a check has found and, unless it is well, what to do."""

    check: str
    state: Literal["ok", "warn", "fail"]
    found: str
    advice: str | None = None

    def __str__(self) -> str:
        return f"{self.state:<4}  {self.check}: {self.found}" + (f"; {self.advice}" if self.advice else "")


def examine(settings: Settings) -> Iterator[Result]:
    """Every check's result, as they come; a server that is away hides nothing of the others."""
    yield packages()
    yield from _of_kafka(settings)
    yield from asyncio.run(_of_redis(settings.redis))


def packages() -> Result:
    """The versions of Python and of what matters most in it."""
    found = [f"Python {platform.python_version()}"]
    try:
        found += [f"{name} {version(name)}" for name in PACKAGES]
    except PackageNotFoundError as error:
        return Result("packages", "fail", f"{error.name} is not installed", "pip install queuecast")
    return Result("packages", "ok", ", ".join(found))


def _of_kafka(settings: Settings) -> Iterator[Result]:
    try:
        with admin(settings.kafka) as client:
            for check in (brokers, topics, topic_settings, stamps, workers, dead_letters):
                yield _kafka_result(check, client, settings)
    except UserError as error:
        yield Result("brokers", "fail", str(error))


def _kafka_result(check: Callable[[Any, Settings], Result], client: KafkaAdminClient, settings: Settings) -> Result:
    name = check.__name__.replace("_", " ")
    try:
        return check(client, settings)
    except AuthorizationError as error:
        return Result(name, "warn", f"cannot be looked at: {error}", PERMISSIONS)
    except KafkaError as error:
        return Result(name, "fail", explain(error, (), settings.kafka))


def brokers(client: KafkaAdminClient, settings: Settings) -> Result:
    """How many brokers there are, of which version, and whether they are enough for the copies that are wanted."""
    found = client.describe_cluster()["brokers"]
    number = ".".join(map(str, client.get_broker_version_data(found[0]["broker_id"]).broker_version))
    text = f"{len(found)} of Kafka {number} at {settings.kafka.bootstrap}"
    if len(found) < (copies := settings.topics.replication):
        return Result("brokers", "warn", text, f"topics with {copies} copies need as many brokers")
    return Result("brokers", "ok", text)


def topics(client: KafkaAdminClient, settings: Settings) -> Result:
    """Whether all topics are there, with the same number of partitions."""
    found = client.describe_topics(list(Topics(settings.kafka.prefix)))
    counts = {topic["name"]: len(topic["partitions"]) for topic in found}
    if missing := sorted(name for name, count in counts.items() if not count):
        return Result("topics", "fail", f"missing or not ours to see: {', '.join(missing)}", "run `queuecast topics`")
    if len(set(counts.values())) > 1:
        return Result("topics", "fail", f"partitions differ: {_listed(counts)}", "give all the same number")
    return Result("topics", "ok", f"{len(counts)} with {next(iter(counts.values()))} partitions each")


def topic_settings(client: KafkaAdminClient, settings: Settings) -> Result:
    """Whether the topics keep what they should for as long as they should, and take messages as large."""
    wanted = configurations(settings)
    resources = [ConfigResource(ConfigResourceType.TOPIC, name) for name in wanted]
    found = client.describe_configs(resources, config_filter="all")["topic"]
    if hidden := [name for name in wanted if not found.get(name)]:
        return Result("topic settings", "warn", f"not told of {', '.join(hidden)}", PERMISSIONS)
    wrong = [
        (name, key, found[name][key]["value"], value)
        for name, values in wanted.items()
        for key, value in values.items()
        if found[name][key]["value"] != value
    ]
    if not wrong:
        return Result("topic settings", "ok", "as they are made")
    harmful = any(
        key == "cleanup.policy" or (key == "max.message.bytes" and int(is_) < int(value))
        for _, key, is_, value in wrong
    )
    text = ", ".join(f"{name} has {key}={is_} instead of {value}" for name, key, is_, value in wrong)
    return Result("topic settings", "fail" if harmful else "warn", text, "change them with kafka-configs.sh")


def stamps(client: KafkaAdminClient, settings: Settings) -> Result:
    """When the latest event came: stamped by its sender's clock, by which the broker counts how long to keep it."""
    places = _places(client, Topics(settings.kafka.prefix).events)
    found = client.list_partition_offsets(dict.fromkeys(places, OffsetSpec.MAX_TIMESTAMP))
    latest_ms = max((place.timestamp for place in found.values()), default=-1)
    if latest_ms < 0:
        return Result("stamps", "ok", "no events yet")
    ahead_s = latest_ms / 1000 - time.time()
    if ahead_s > APART_S:
        return Result("stamps", "warn", f"an event is stamped {ahead_s:.0f} s ahead of this clock", "set clocks by NTP")
    return Result("stamps", "ok", f"the latest event came {max(-ahead_s, 0):.0f} s ago")


def workers(client: KafkaAdminClient, settings: Settings) -> Result:
    """Whether workers run, and how many events of which partitions are not done yet."""
    names = Topics(settings.kafka.prefix)
    try:
        members = len(client.describe_groups([names.group])[names.group]["members"])
        committed = client.list_group_offsets({names.group: None})[names.group]
    except CoordinatorNotAvailableError:
        members, committed = 0, {}
    places = _places(client, names.events)
    first = client.list_partition_offsets(dict.fromkeys(places, OffsetSpec.EARLIEST))
    last = client.list_partition_offsets(dict.fromkeys(places, OffsetSpec.LATEST))
    lags = {}
    for place in places:
        done = max(committed[place].offset if place in committed else -1, first[place].offset)
        if lag := last[place].offset - done:
            lags[f"partition {place.partition}"] = lag
    if cut := [name for name, lag in lags.items() if lag < 0]:
        text = f"more events done than the topic {names.events} has: {', '.join(cut)}"
        advice = "it was made anew or cut short; workers that start now go on from its beginning"
        return Result("workers", "warn", text, advice)
    text = f"{members} running, {f'events to do: {_listed(lags)}' if lags else 'nothing to do'}"
    if not members:
        return Result("workers", "warn", text, "start one with `queuecast worker`")
    if max(lags.values(), default=0) > BEHIND:
        return Result(
            "workers", "warn", text, "start more workers, up to one for each partition, if it does not shrink"
        )
    return Result("workers", "ok", text)


def dead_letters(client: KafkaAdminClient, settings: Settings) -> Result:
    """How many messages could not be processed within the last day."""
    name = Topics(settings.kafka.prefix).dead_letters
    places = _places(client, name)
    since = OffsetTimestamp(int(time.time() * 1000) - DAY_MS)
    first = client.list_partition_offsets(dict.fromkeys(places, since))
    last = client.list_partition_offsets(dict.fromkeys(places, OffsetSpec.LATEST))
    count = sum(last[place].offset - first[place].offset for place in places if first[place].offset >= 0)
    if count:
        return Result("dead letters", "warn", f"{count} within a day", f"their reasons are on the topic {name}")
    return Result("dead letters", "ok", "none within a day")


def _places(client: KafkaAdminClient, topic: str) -> list[TopicPartition]:
    (found,) = client.describe_topics([topic])
    return [TopicPartition(topic, number) for number in range(len(found["partitions"]))]


def _listed(counts: dict[str, int]) -> str:
    return ", ".join(f"{name}: {count}" for name, count in counts.items())


async def _of_redis(settings: RedisSettings) -> list[Result]:
    try:
        await check_redis(settings)
        client = connect(settings)
    except UserError as error:
        return [Result("redis version", "fail", str(error))]
    try:
        checks = (redis_version, redis_clock, redis_durability, redis_memory)
        return [await _redis_result(partial(check, client), check.__name__.replace("_", " ")) for check in checks]
    finally:
        await client.aclose()


async def _redis_result(check: Callable[[], Any], name: str) -> Result:
    try:
        found: Result = await check()
        return found
    except ResponseError as error:  # forbidden, or a Redis that is let and not told about
        return Result(name, "warn", f"cannot be looked at: {error}", "look with a user who may")
    except (RedisError, OSError) as error:
        return Result(name, "fail", str(error))


async def redis_version(client: Redis) -> Result:
    """Which Redis it is."""
    number = str((await client.info("server"))["redis_version"])
    if tuple(map(int, number.split(".")[:2])) < TESTED_REDIS:
        return Result("redis version", "warn", number, "use 6.2 or newer")
    return Result("redis version", "ok", number)


async def redis_clock(client: Redis) -> Result:
    """How far its clock is from this one."""
    before = time.time()
    seconds, microseconds = await client.time()
    apart_s = seconds + microseconds / 1e6 - (before + time.time()) / 2
    text = f"{abs(apart_s):.1f} s {'ahead of' if apart_s > 0 else 'behind'} this one"
    if abs(apart_s) > APART_S:
        return Result("redis clock", "warn", text, "set clocks by NTP")
    return Result("redis clock", "ok", text)


async def redis_durability(client: Redis) -> Result:
    """Whether what is acknowledged is on disk."""
    found = await client.config_get("append*")
    text = f"appendonly {found['appendonly']}, appendfsync {found['appendfsync']}"
    if (found["appendonly"], found["appendfsync"]) != ("yes", "always"):
        return Result(
            "redis durability", "warn", text, "a crash may lose history; set appendonly yes, appendfsync always"
        )
    return Result("redis durability", "ok", text)


async def redis_memory(client: Redis) -> Result:
    """Whether it may throw away history when memory is short."""
    policy = (await client.config_get("maxmemory-policy"))["maxmemory-policy"]
    if policy != "noeviction":
        return Result("redis memory", "warn", f"maxmemory-policy {policy}", "it may drop history; set noeviction")
    return Result("redis memory", "ok", "maxmemory-policy noeviction")
