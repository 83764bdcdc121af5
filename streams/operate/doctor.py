"""Check Kafka, the topics, the workers and Redis, with advice for each problem."""

import asyncio
import platform
import time
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from kafka import TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient, OffsetSpec, OffsetTimestamp
from kafka.errors import AuthorizationError, KafkaError
from msgspec.structs import replace
from redis.asyncio import Redis
from redis.exceptions import ResponseError

from models.durations import duration
from streams.broker.admin import PERMISSIONS, admin, copies_of, explain, group_of, partition_count
from streams.broker.topics import IN_SYNC, MIN_SAFE_COPIES, Topics, configurations, event_topics, more_partitions
from streams.errors import UserError
from streams.operate.checks import CheckResult, check_notify_settings, check_sites
from streams.process.compile_progress import compile_progress
from streams.settings import RedisSettings, Settings
from streams.worker.checkpoint.redis_client import AWAY, check_redis, connect, remembered_partitions, servers

PACKAGES = ("queuecast", "faust-streaming", "aiokafka", "kafka-python", "redis", "msgspec", "numpy", "numba")

DAY_MS = 86_400_000
MAX_LAG_EVENTS = 10_000  # a partition with more unprocessed events than this gets a warning
MAX_CLOCK_DIFFERENCE_S = 2.0

REHASH = "stop all workers and sources, then run `queuecast topics repartition`"
MIN_REDIS = (6, 2)  # the oldest version of Redis that is tested


ok, warn, fail = (partial(CheckResult, "", state) for state in ("ok", "warn", "fail"))
"""Results of server checks; the name of the check is added later."""


def examine(settings: Settings) -> Iterator[CheckResult]:
    """Run all checks and yield each result immediately.

    If one server is unreachable, the checks of the other servers still run.
    """
    yield packages()
    reached = False
    for result in _of_kafka(settings):
        reached |= result.check == "workers"
        yield result
    if reached:
        yield from check_sites(settings)
    yield from asyncio.run(_of_redis(settings.redis))
    yield from homes(settings)
    yield from check_notify_settings(settings.notify)


def homes(settings: Settings) -> Iterator[CheckResult]:
    """Check that the partition count is the one of the stored sites; no result while a server is unreachable."""
    topic = Topics(settings.kafka.prefix).events
    try:
        before = asyncio.run(remembered_partitions(settings.redis, topic, None))
        found = partition_count(settings, topic)
    except UserError:
        return
    if before not in (None, found):
        yield CheckResult("partitions", "fail", more_partitions(topic, found, before or 0))
    else:
        yield CheckResult("partitions", "ok", "as many as when sites were first stored" if before else "no sites yet")


def packages() -> CheckResult:
    """Report the versions of Python and of the most important packages."""
    found = [f"Python {platform.python_version()}"]
    try:
        found += [f"{name} {version(name)}" for name in PACKAGES]
    except PackageNotFoundError as error:
        return CheckResult("packages", "fail", f"{error.name} is not installed", "pip install queuecast")
    return CheckResult("packages", "ok", ", ".join(found))


def _of_kafka(settings: Settings) -> Iterator[CheckResult]:
    try:
        with admin(settings.kafka) as client:
            for check in (brokers, topics, copies, topic_settings, stamps, workers, dead_letters):
                yield _kafka_result(check, client, settings)
    except UserError as error:
        yield CheckResult("brokers", "fail", str(error))


def _kafka_result(
    check: Callable[[Any, Settings], CheckResult], client: KafkaAdminClient, settings: Settings
) -> CheckResult:
    try:
        found = check(client, settings)
    except AuthorizationError as error:
        found = warn(f"cannot be read: {error}", PERMISSIONS)
    except KafkaError as error:
        found = fail(explain(error, (), settings.kafka))
    return replace(found, check=check.__name__.replace("_", " "))


def brokers(client: KafkaAdminClient, settings: Settings) -> CheckResult:
    """Report the number of brokers and their version; check that they suffice for the topics' replication factor."""
    found = client.describe_cluster()["brokers"]
    number = ".".join(map(str, client.get_broker_version_data(found[0]["broker_id"]).broker_version))
    text = f"{len(found)} of Kafka {number} at {settings.kafka.bootstrap}"
    if len(found) < (copies := settings.topics.replication):
        return warn(text, f"topics with {copies} copies need as many brokers")
    return ok(text)


def topics(client: KafkaAdminClient, settings: Settings) -> CheckResult:
    """Check that all topics exist and have the same number of partitions."""
    found = client.describe_topics(list(configurations(settings)))
    counts = {topic["name"]: len(topic["partitions"]) for topic in found}
    if missing := sorted(name for name, count in counts.items() if not count):
        return fail(
            f"topics missing or not visible to this user: {', '.join(missing)}", "run `queuecast topics create`"
        )
    if len(set(counts.values())) > 1:
        return fail(f"partitions differ: {_listed(counts)}", REHASH)
    return ok(f"{len(counts)} with {next(iter(counts.values()))} partitions each")


def copies(client: KafkaAdminClient, settings: Settings) -> CheckResult:
    """Check the topics' replication factor and `min.insync.replicas`."""
    wanted, found = settings.topics.replication, copies_of(client, configurations(settings))
    if unwritable := [name for name, (count, least) in found.items() if least is not None and least > count]:
        text = f"nothing can be written: {IN_SYNC} is more than the copies of {', '.join(unwritable)}"
        return fail(text, f"lower {IN_SYNC} with kafka-configs.sh, or add copies")
    if few := {name: count for name, (count, _) in found.items() if count < wanted}:
        text = f"fewer than the {wanted} of the settings: {_listed(few)}"
        return warn(text, "add some with kafka-reassign-partitions.sh")
    safe = MIN_SAFE_COPIES
    if unsafe := [name for name, (count, least) in found.items() if count >= safe and least == 1]:
        text = f"what is acknowledged may be on one broker alone ({IN_SYNC}=1): {', '.join(unsafe)}"
        return warn(text, "run `queuecast topics create`, which sets 2")
    counts = sorted({count for count, _ in found.values()})
    return ok(f"{' or '.join(map(str, counts)) or 'none'} of each topic")


def topic_settings(client: KafkaAdminClient, settings: Settings) -> CheckResult:
    """Check the topics' retention, compaction and maximum message size."""
    expected = configurations(settings)
    resources = [ConfigResource(ConfigResourceType.TOPIC, name) for name in expected]
    found = client.describe_configs(resources, config_filter="all")["topic"]
    if hidden := [name for name in expected if not found.get(name)]:
        return warn(f"not visible: {', '.join(hidden)}", PERMISSIONS)
    wrong = [
        (name, key, actual, value)
        for name, values in expected.items()
        for key, value in values.items()
        if key != IN_SYNC  # depends on the replication factor
        if (actual := found[name].get(key, {}).get("value")) != value
    ]
    if not wrong:
        return ok("as they are made")
    harmful = any(
        key == "cleanup.policy" or (key == "max.message.bytes" and int(actual) < int(value))
        for _, key, actual, value in wrong
    )
    text = ", ".join(f"{name} has {key}={actual} instead of {value}" for name, key, actual, value in wrong)
    return CheckResult("topic settings", "fail" if harmful else "warn", text, "change them with kafka-configs.sh")


def stamps(client: KafkaAdminClient, settings: Settings) -> CheckResult:
    """Report the broker timestamp of the latest event. The broker's retention counts from this timestamp."""
    places = _event_places(client, settings)
    found = client.list_partition_offsets(dict.fromkeys(places, OffsetSpec.MAX_TIMESTAMP))
    latest_ms = max((place.timestamp for place in found.values()), default=-1)
    if latest_ms < 0:
        return ok("no events yet")
    ahead_s = latest_ms / 1000 - time.time()
    if ahead_s > MAX_CLOCK_DIFFERENCE_S:
        return warn(f"an event is stamped {duration(ahead_s)} ahead of this clock", "set clocks by NTP")
    return ok(f"the latest event came {duration(max(-ahead_s, 0.0))} ago")


def workers(client: KafkaAdminClient, settings: Settings) -> CheckResult:
    """Check that workers are running, and report the consumer lag of each partition."""
    names = Topics(settings.kafka.prefix)
    members, committed = group_of(client, names.group)
    places = _event_places(client, settings)
    first = client.list_partition_offsets(dict.fromkeys(places, OffsetSpec.EARLIEST))
    last = client.list_partition_offsets(dict.fromkeys(places, OffsetSpec.LATEST))
    lags = {}
    lost = {
        _named(place, names.events): missing
        for place in places
        if place in committed and (missing := first[place].offset - committed[place].offset) > 0
    }
    if lost:
        text = f"events were deleted before they were read: {_listed(lost)}"
        return fail(text, "raise topics.events_retention_hours; have the sources send them again")
    for place in places:
        done = max(committed[place].offset if place in committed else -1, first[place].offset)
        if lag := last[place].offset - done:
            lags[_named(place, names.events)] = lag
    if cut := [name for name, lag in lags.items() if lag < 0]:
        text = f"more events done than the topic {names.events} has: {', '.join(cut)}"
        advice = "it was recreated or cut short; workers that start now go on from its beginning"
        return warn(text, advice)
    text = f"{members} running, {f'events to do: {_listed(lags)}' if lags else 'nothing to do'}"
    if not members and (progress := compile_progress()):
        return warn(f"{text}; a worker is {progress}", "wait until it is ready")
    if not members:
        return warn(text, "start one with `queuecast worker`")
    if max(lags.values(), default=0) > MAX_LAG_EVENTS:
        return warn(text, "start more workers, up to one for each partition, if it does not shrink")
    return ok(text)


def dead_letters(client: KafkaAdminClient, settings: Settings) -> CheckResult:
    """Count the dead letters of the last day."""
    name = Topics(settings.kafka.prefix).dead_letters
    places = _places(client, name)
    since = OffsetTimestamp(int(time.time() * 1000) - DAY_MS)
    first = client.list_partition_offsets(dict.fromkeys(places, since))
    last = client.list_partition_offsets(dict.fromkeys(places, OffsetSpec.LATEST))
    count = sum(last[place].offset - first[place].offset for place in places if first[place].offset >= 0)
    if count:
        return warn(f"{count} within a day", "`queuecast dead-letters` shows the reasons")
    return ok("none within a day")


def _event_places(client: KafkaAdminClient, settings: Settings) -> list[TopicPartition]:
    """Return the partitions of all events topics: the shared topic and the dedicated topics."""
    return [place for topic in event_topics(settings) for place in _places(client, topic)]


def _places(client: KafkaAdminClient, topic: str) -> list[TopicPartition]:
    (found,) = client.describe_topics([topic])
    return [TopicPartition(topic, number) for number in range(len(found["partitions"]))]


def _named(place: TopicPartition, shared: str) -> str:
    number = f"partition {place.partition}"
    return number if place.topic == shared else f"{place.topic} {number}"


def _listed(counts: dict[str, int]) -> str:
    return ", ".join(f"{name}: {count}" for name, count in counts.items())


async def _of_redis(settings: RedisSettings) -> list[CheckResult]:
    try:
        await check_redis(settings)
        client = connect(settings)
    except UserError as error:
        return [CheckResult("redis version", "fail", str(error))]
    try:
        checks = (redis_version, redis_clock, redis_durability, redis_memory)
        return [
            await _redis_result(partial(check, server), f"{check.__name__.replace('_', ' ')} {address}".strip())
            for address, server in (await servers(client)).items()
            for check in checks
        ]
    finally:
        await client.aclose()


async def _redis_result(check: Callable[[], Awaitable[CheckResult]], name: str) -> CheckResult:
    try:
        found = await check()
    except ResponseError as error:  # not permitted for this user, or disabled in a managed Redis
        found = warn(f"cannot be read: {error}", "use a Redis user with the permission")
    except AWAY as error:
        found = fail(str(error))
    return replace(found, check=name)


async def redis_version(client: Redis) -> CheckResult:
    """Check the version of Redis, or of Valkey, which also reports a compatible Redis version."""
    found = await client.info("server")
    own, like = found.get("valkey_version"), str(found["redis_version"])
    text = f"Valkey {own}, like Redis {like}" if own else like
    if tuple(map(int, like.split(".")[:2])) < MIN_REDIS:
        return warn(text, "use 6.2 or newer")
    return ok(text)


async def redis_clock(client: Redis) -> CheckResult:
    """Check the difference between Redis' clock and the local clock."""
    before = time.time()
    seconds, microseconds = await client.time()
    after = time.time()
    apart_s = seconds + microseconds / 1e6 - (before + after) / 2
    text = f"{abs(apart_s):.1f} s {'ahead of' if apart_s > 0 else 'behind'} this one"
    if abs(apart_s) - (after - before) / 2 > MAX_CLOCK_DIFFERENCE_S:  # exclude the duration of the request
        return warn(text, "set clocks by NTP")
    return ok(text)


async def redis_durability(client: Redis) -> CheckResult:
    """Check that Redis writes to disk before it acknowledges."""
    found = await client.config_get("append*")
    text = f"appendonly {found['appendonly']}, appendfsync {found['appendfsync']}"
    if (found["appendonly"], found["appendfsync"]) != ("yes", "always"):
        return warn(text, "a crash may lose history; set appendonly yes, appendfsync always")
    return ok(text)


async def redis_memory(client: Redis) -> CheckResult:
    """Check that Redis does not evict data when memory is short."""
    policy = (await client.config_get("maxmemory-policy"))["maxmemory-policy"]
    if policy != "noeviction":
        return warn(f"maxmemory-policy {policy}", "it may drop history; set noeviction")
    return ok("maxmemory-policy noeviction")
