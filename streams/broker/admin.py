"""Create, repair, inspect and check topics, and convert Kafka's errors to one-line messages.

This module uses kafka-python, which is slow to import. Code that needs only topic names imports
`streams.broker.topics`. Each function raises a `UserError` if the broker is unreachable or refuses a request.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec
from kafka import TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient
from kafka.errors import (
    AuthorizationError,
    CoordinatorNotAvailableError,
    GroupAuthorizationFailedError,
    KafkaError,
    KafkaTimeoutError,
    SaslAuthenticationFailedError,
    TopicAlreadyExistsError,
    TopicAuthorizationFailedError,
    UnknownBrokerIdError,
    UnsupportedSaslMechanismError,
)

from models.durations import duration
from streams.broker.topics import BROKER_STAMPS, IN_SYNC, MIN_SAFE_COPIES, Topics, configurations, event_topics
from streams.errors import UNTRUSTED, Unreachable, UserError
from streams.running import starting_since_s
from streams.settings import KafkaSettings, Settings


def create_topics(settings: Settings) -> dict[str, bool]:
    """Create missing topics and repair the configuration of topics that were created by other means.

    If all existing topics have the same number of partitions, new topics get this number instead of the configured one.

    Returns:
        For each topic, whether this call created it.
    """
    made = {}
    with admin(settings.kafka) as client:
        wanted_configurations = configurations(settings)
        before = {len(topic["partitions"]) for topic in client.describe_topics(list(wanted_configurations))} - {0}
        partitions = before.pop() if len(before) == 1 else settings.topics.partitions
        for name, configuration in wanted_configurations.items():
            wanted = {
                "num_partitions": partitions,
                "replication_factor": settings.topics.replication,
                "configs": configuration,
            }
            try:
                client.create_topics({name: wanted}, wait_for_metadata=True)
                made[name] = True
            except TopicAlreadyExistsError:
                made[name] = False
            except AuthorizationError:
                raise refused(settings.kafka, "make", name) from None
        stamped = dict.fromkeys((*Topics(settings.kafka.prefix).stamped, *event_topics(settings)))
        _stamp_by_broker(client, [name for name in stamped if not made[name]])
        _make_safe(client, [name for name, new in made.items() if not new])
    return made


def _stamp_by_broker(client: KafkaAdminClient, names: Iterable[str]) -> None:
    """Set the timestamp type of topics that were created by other means, for example automatically, to the broker's
    time.
    """
    key, stamps = next(iter(BROKER_STAMPS.items()))
    wrong = [name for name, value in _configured(client, names, key).items() if value not in (None, stamps)]
    if wrong:
        client.alter_configs([ConfigResource(ConfigResourceType.TOPIC, name, BROKER_STAMPS) for name in wrong])


def _configured(client: KafkaAdminClient, names: Iterable[str], key: str) -> dict[str, str | None]:
    """Return one configuration value of each topic; None if this client may not read it."""
    resources = [ConfigResource(ConfigResourceType.TOPIC, name, {key: None}) for name in names]
    found = client.describe_configs(resources, config_filter="all")["topic"] if resources else {}
    return {name: configs[key]["value"] if configs.get(key) else None for name, configs in found.items()}


def copies_of(client: KafkaAdminClient, names: Iterable[str]) -> dict[str, tuple[int, int | None]]:
    """Return the replication factor and `min.insync.replicas` of each existing topic.

    The second number is None if this client may not read the topic's configuration.
    """
    described = client.describe_topics(list(names))
    copies = {
        topic["name"]: min(len(one["replica_nodes"]) for one in topic["partitions"])
        for topic in described
        if topic["partitions"]
    }
    least = _configured(client, copies, IN_SYNC)
    return {name: (count, int(fewest) if (fewest := least.get(name)) else None) for name, count in copies.items()}


def _make_safe(client: KafkaAdminClient, names: Iterable[str]) -> None:
    """Set `min.insync.replicas` to 2 for topics that have three or more replicas and a value of 1."""
    found = copies_of(client, names)
    unsafe = [name for name, (copies, least) in found.items() if copies >= MIN_SAFE_COPIES and least == 1]
    if unsafe:
        client.alter_configs([ConfigResource(ConfigResourceType.TOPIC, name, {IN_SYNC: "2"}) for name in unsafe])


class TopicState(msgspec.Struct, frozen=True):
    """A topic as the broker describes it: its number of partitions (0 if it is missing) and the operations allowed to
    us.
    """

    partitions: int
    allowed: frozenset[str]


def find_topics(settings: Settings, names: Iterable[str]) -> dict[str, TopicState]:
    """Describe the topics with these names.

    Raises:
        UserError: This client may not describe one of them.
    """
    with admin(settings.kafka) as client:
        described = client.describe_topics(list(names))
    found = {}
    for topic in described:
        name = topic["name"]
        if topic["error_code"] == TopicAuthorizationFailedError.errno:
            raise refused(settings.kafka, "see", name)
        found[name] = TopicState(len(topic["partitions"]), frozenset(topic["authorized_operations"] or ()))
    return found


def partitions_of(settings: Settings) -> dict[str, int]:
    """Return the number of partitions of each configured topic; 0 if the topic is missing."""
    names = list(configurations(settings))
    found = find_topics(settings, names)
    return {name: found[name].partitions for name in names}


def partition_count(settings: Settings, name: str) -> int:
    """Return the number of partitions of one topic; 0 if it is missing. Needs no permission for the other topics."""
    return find_topics(settings, [name])[name].partitions


def check_topics(settings: Settings, uses: Mapping[str, str]) -> None:
    """Check that topics exist, have the same number of partitions, and permit the given operations.

    Args:
        uses: The operations on each topic, read, write or both: `{"queuecast.events": "read"}`.

    Raises:
        UserError: A check failed; the message contains the remedy.
    """
    found = find_topics(settings, uses)
    if missing := [name for name in uses if not found[name].partitions]:
        raise UserError(f"topics are missing: {', '.join(missing)}; create them with `queuecast topics create`")
    counts = {name: found[name].partitions for name in uses}
    if len(set(counts.values())) > 1:
        raise UserError(
            f"topics differ in their number of partitions: {counts}; "
            "`queuecast topics repartition` gives all of them the same number"
        )
    for name, use in uses.items():
        for operation in use.split(" and "):
            if operation.upper() not in found[name].allowed:
                raise refused(settings.kafka, operation, name)


def topic_id(settings: Settings, name: str) -> str:
    """Return the id that the broker assigned when the topic was created; a recreated topic has another id.

    Raises:
        UserError: The topic is missing.
    """
    check_topics(settings, {name: "describe"})
    with admin(settings.kafka) as client:
        (described,) = client.describe_topics([name])
    return str(described["topic_id"])


def check_group(settings: Settings) -> None:
    """Check that this client may join the workers' consumer group.

    Raises:
        UserError: It may not.
    """
    group = Topics(settings.kafka.prefix).group
    with admin(settings.kafka) as client:
        try:
            found = client.describe_groups([group])[group]
        except GroupAuthorizationFailedError:
            raise refused(settings.kafka, "use", f"the group {group}") from None
        except CoordinatorNotAvailableError:  # a new cluster has no coordinator before its first group
            return
    allowed = found["authorized_operations"]
    if allowed is not None and "READ" not in allowed:  # None for a group that does not exist yet
        raise refused(settings.kafka, "use", f"the group {group}")


def group_of(client: KafkaAdminClient, group: str) -> tuple[int, dict[TopicPartition, Any]]:
    """Return the number of members of a consumer group and its committed position of each partition (`.offset`)."""
    try:
        members = len(client.describe_groups([group])[group]["members"])
        return members, client.list_group_offsets({group: None})[group]
    except CoordinatorNotAvailableError:  # as above
        return 0, {}


def holder_of(settings: Settings, name: str) -> str | None:
    """Return the id of the member with this `group.instance.id` in the workers' group; None if there is none.

    Raises:
        UserError: This client may not describe the group.
    """
    group = Topics(settings.kafka.prefix).group
    with admin(settings.kafka) as client:
        members = client.describe_groups([group])[group]["members"]
    return next((member["member_id"] for member in members if member["group_instance_id"] == name), None)


def refused(settings: KafkaSettings, operation: str, what: str) -> UserError:
    """Return the error for a missing permission."""
    verb = {"write": "write to"}.get(operation, operation)
    return UserError(f"kafka at {settings.bootstrap}: {client_identity(settings)} may not {verb} {what}; {PERMISSIONS}")


@contextmanager
def admin(settings: KafkaSettings) -> Iterator[KafkaAdminClient]:
    """Provide an admin client and close it afterwards. Convert Kafka errors to `UserError`."""
    with kafka_errors(settings):
        client = KafkaAdminClient(**settings.client_options())
        try:
            yield client
        finally:
            client.close()


PERMISSIONS = "docs/howto/secure.md, Permissions, lists what each role needs"


class _ErrorCollector(logging.Handler):
    """Collect the errors that a logger receives, each type and text once.

    kafka-python retries refused requests until its timeout and reports the reason only in its log.
    """

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.errors: dict[str, KafkaError] = {}

    def emit(self, record: logging.LogRecord) -> None:
        arguments = record.args if isinstance(record.args, tuple) else ()
        self.errors |= {repr(error): error for error in arguments if isinstance(error, KafkaError)}


@contextmanager
def kafka_errors(settings: KafkaSettings) -> Iterator[None]:
    """Convert Kafka errors in the block to `UserError`, or to `Unreachable` if the broker does not respond."""
    heard, log = _ErrorCollector(), logging.getLogger("kafka")
    log.addHandler(heard)
    try:
        yield
    except KafkaError as error:
        reason = explain(error, heard.errors.values(), settings)
        passing = isinstance(error, UnknownBrokerIdError) or (
            error.retriable and reason in (_away(settings), f"{_place(settings)}: {error}")
        )
        raise (Unreachable if passing else UserError)(reason) from None
    finally:
        log.removeHandler(heard)


def explain(error: KafkaError, heard: Iterable[KafkaError], settings: KafkaSettings) -> str:
    """Describe an error in one line.

    Args:
        heard: Errors that the client retried before it gave up.
    """
    place = _place(settings)
    errors = [error, *heard]
    for known in errors:
        if isinstance(known, SaslAuthenticationFailedError):
            return _refused(settings)
        if isinstance(known, UnsupportedSaslMechanismError):
            return f"{place}: {settings.mechanism} is not supported there; set kafka.mechanism to a supported one"
        if found := UNTRUSTED.search(str(known)):
            return f"{place}: its certificate is not trusted: {found[1]}; is ca_file the authority that signed it?"
    if isinstance(error, AuthorizationError):
        return f"{place}: {client_identity(settings)} may not do this: {error}; {PERMISSIONS}"
    if isinstance(error, UnknownBrokerIdError):
        return f"{place}: broker {error.args[0]} is not registered with all brokers yet; retry later"
    if not isinstance(error, KafkaTimeoutError):
        return f"{place}: {error}"
    if any(sign in str(known) for known in errors for sign in ("Handshake failed", "frame length", "disconnected")):
        return _refused(settings)
    return _away(settings)


def _place(settings: KafkaSettings) -> str:
    return f"kafka at {settings.bootstrap}"


def _refused(settings: KafkaSettings) -> str:
    """Return the message for a refused login, with all possible causes.

    A broker that refuses a client returns an error and closes the connection. Either can reach the client first, so
    both have the same message.
    """
    if (starting := _starting(settings)) is not None:
        return starting
    login = f"this username, this password, {settings.mechanism} and " if settings.sasl else ""
    return f"{_place(settings)}: {client_identity(settings)} is refused; is it {login}{settings.security}?"


def _starting(settings: KafkaSettings) -> str | None:
    """Return the message for a broker that `queuecast up` is starting here; None if another broker is configured."""
    since_s = starting_since_s()
    if settings.bootstrap != KafkaSettings().bootstrap or settings.sasl or since_s is None:
        return None
    starting = f"`queuecast up` has been starting here for {duration(since_s)}"
    return f"kafka: no broker answers yet; {starting}; wait until it is ready"


def _away(settings: KafkaSettings) -> str:
    unset = settings.bootstrap == KafkaSettings().bootstrap
    if (starting := _starting(settings)) is not None:
        return starting
    check = "is it running, and is it this address?"
    todo = "start one with `queuecast up`, or set kafka.bootstrap" if unset else check
    return f"kafka: no broker answers at {settings.bootstrap}; {todo}"


def client_identity(settings: KafkaSettings) -> str:
    """Describe the identity with which this client connects to the broker."""
    if settings.sasl:
        return f"user {settings.username!r}"
    return "the owner of cert_file" if settings.cert_file else "a client without a name"
