"""The topics as the broker has them: made, mended, looked at and checked; and what its refusals mean, in a line.

It talks through kafka-python, which is slow to import. Who needs only the topics' names takes `streams.broker.topics`.
Where the broker cannot be reached, or refuses, each function here raises a `UserError`.
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
    """Make the topics that are missing, and mend those that others made; returns of each whether it was made now.

    Where there are topics already, the others get as many partitions as these, whatever the settings say.
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
    """Have the broker stamp the messages of topics that were made by other means, such as by the broker itself."""
    key, stamps = next(iter(BROKER_STAMPS.items()))
    wrong = [name for name, value in _configured(client, names, key).items() if value not in (None, stamps)]
    if wrong:
        client.alter_configs([ConfigResource(ConfigResourceType.TOPIC, name, BROKER_STAMPS) for name in wrong])


def _configured(client: KafkaAdminClient, names: Iterable[str], key: str) -> dict[str, str | None]:
    """How topics are configured in one respect; None for those who may not know it."""
    resources = [ConfigResource(ConfigResourceType.TOPIC, name, {key: None}) for name in names]
    found = client.describe_configs(resources, config_filter="all")["topic"] if resources else {}
    return {name: configs[key]["value"] if configs.get(key) else None for name, configs in found.items()}


def copies_of(client: KafkaAdminClient, names: Iterable[str]) -> dict[str, tuple[int, int | None]]:
    """How many copies topics have, and how many of these must have a message before it counts as sent.

    A topic that is missing is left out; the second number is None for those who may not know it.
    """
    described = client.describe_topics(list(names))
    copies = {
        topic["name"]: min(len(one["replica_nodes"]) for one in topic["partitions"])
        for topic in described
        if topic["partitions"]
    }
    least = _configured(client, copies, IN_SYNC)
    return {name: (count, int(told) if (told := least.get(name)) else None) for name, count in copies.items()}


def _make_safe(client: KafkaAdminClient, names: Iterable[str]) -> None:
    """Have two copies acknowledge, where a topic has three and one is enough for it."""
    found = copies_of(client, names)
    unsafe = [name for name, (copies, least) in found.items() if copies >= MIN_SAFE_COPIES and least == 1]
    if unsafe:
        client.alter_configs([ConfigResource(ConfigResourceType.TOPIC, name, {IN_SYNC: "2"}) for name in unsafe])


class TopicState(msgspec.Struct, frozen=True):
    """A topic as the broker describes it: its number of partitions (0: it is missing), and the operations we may do."""

    partitions: int
    allowed: frozenset[str]


def find_topics(settings: Settings, names: Iterable[str]) -> dict[str, TopicState]:
    """The topics with these names, for those who may know of them."""
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
    """How many partitions each of the topics has; 0 for one that is missing."""
    names = list(configurations(settings))
    found = find_topics(settings, names)
    return {name: found[name].partitions for name in names}


def partition_count(settings: Settings, name: str) -> int:
    """How many partitions one topic has; 0 where it is missing. Who asks need not be permitted to see the others."""
    return find_topics(settings, [name])[name].partitions


def check_topics(settings: Settings, uses: Mapping[str, str]) -> None:
    """Make sure that topics are there, have the same number of partitions, and can be used.

    Parameters:
        uses: what is to be done with each, read or write or both: `{"queuecast.events": "read"}`.

    Raises:
        UserError: something is not so; the message says what to do.
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
    """The id that the broker gave a topic when it was made; a topic that is deleted and made again has another. Raises
    UserError: the topic is missing.
    """
    check_topics(settings, {name: "describe"})
    with admin(settings.kafka) as client:
        (described,) = client.describe_topics([name])
    return str(described["topic_id"])


def check_group(settings: Settings) -> None:
    """Make sure that we may join the workers' group. Raises UserError: we may not."""
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
    """How many members a consumer group has, and what it has committed of each partition (`.offset`)."""
    try:
        members = len(client.describe_groups([group])[group]["members"])
        return members, client.list_group_offsets({group: None})[group]
    except CoordinatorNotAvailableError:  # as above
        return 0, {}


def holder_of(settings: Settings, name: str) -> str | None:
    """The id of the member with this lasting name in the workers' group; None when there is none. Raises UserError: we
    may not know.
    """
    group = Topics(settings.kafka.prefix).group
    with admin(settings.kafka) as client:
        members = client.describe_groups([group])[group]["members"]
    return next((member["member_id"] for member in members if member["group_instance_id"] == name), None)


def refused(settings: KafkaSettings, operation: str, what: str) -> UserError:
    """The error that we may not do something."""
    verb = {"write": "write to"}.get(operation, operation)
    return UserError(f"kafka at {settings.bootstrap}: {who(settings)} may not {verb} {what}; {PERMISSIONS}")


@contextmanager
def admin(settings: KafkaSettings) -> Iterator[KafkaAdminClient]:
    """An admin client, closed afterwards; an error of Kafka becomes a `UserError`."""
    with kafka_errors(settings):
        client = KafkaAdminClient(**settings.client_options())
        try:
            yield client
        finally:
            client.close()


PERMISSIONS = "docs/howto/secure.md, Permissions, lists what each role needs"


class _Heard(logging.Handler):
    """Keeps the errors that are told to a log, each kind and text once, however often it is tried.

    kafka-python goes on trying where it is refused, until its time is up, and tells the reason to its log alone.
    """

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.errors: dict[str, KafkaError] = {}

    def emit(self, record: logging.LogRecord) -> None:
        arguments = record.args if isinstance(record.args, tuple) else ()
        self.errors |= {repr(error): error for error in arguments if isinstance(error, KafkaError)}


@contextmanager
def kafka_errors(settings: KafkaSettings) -> Iterator[None]:
    """What Kafka refuses in the block becomes a `UserError`; that it does not answer, an `Unreachable`."""
    heard, log = _Heard(), logging.getLogger("kafka")
    log.addHandler(heard)
    try:
        yield
    except KafkaError as error:
        said = explain(error, heard.errors.values(), settings)
        passing = isinstance(error, UnknownBrokerIdError) or (
            error.retriable and said in (_away(settings), f"{_place(settings)}: {error}")
        )
        raise (Unreachable if passing else UserError)(said) from None
    finally:
        log.removeHandler(heard)


def explain(error: KafkaError, heard: Iterable[KafkaError], settings: KafkaSettings) -> str:
    """One line about an error.

    Parameters:
        heard: errors that the client tried to get over before it gave up.
    """
    place = _place(settings)
    errors = [error, *heard]
    for known in errors:
        if isinstance(known, SaslAuthenticationFailedError):
            return _refused(settings)
        if isinstance(known, UnsupportedSaslMechanismError):
            return f"{place}: {settings.mechanism} is not spoken there; set kafka.mechanism to what is"
        if found := UNTRUSTED.search(str(known)):
            return f"{place}: its certificate is not trusted: {found[1]}; is ca_file the authority that signed it?"
    if isinstance(error, AuthorizationError):
        return f"{place}: {who(settings)} may not do this: {error}; {PERMISSIONS}"
    if isinstance(error, UnknownBrokerIdError):
        return f"{place}: brokers come and go: broker {error.args[0]} is not known to all of them yet; try again"
    if not isinstance(error, KafkaTimeoutError):
        return f"{place}: {error}"
    if any(sign in str(known) for known in errors for sign in ("Handshake failed", "frame length", "disconnected")):
        return _refused(settings)
    return _away(settings)


def _place(settings: KafkaSettings) -> str:
    return f"kafka at {settings.bootstrap}"


def _refused(settings: KafkaSettings) -> str:
    """A broker that refuses a user says so and hangs up; which of the two the client sees first is a matter of chance.

    So both have the same message, which names all that may be wrong.
    """
    if (begun := _starting(settings)) is not None:
        return begun
    login = f"this username, this password, {settings.mechanism} and " if settings.sasl else ""
    return f"{_place(settings)}: {who(settings)} is refused; is it {login}{settings.security}?"


def _starting(settings: KafkaSettings) -> str | None:
    """That the broker is about to run, where an `up` is starting here and no other broker is meant."""
    since_s = starting_since_s()
    if settings.bootstrap != KafkaSettings().bootstrap or settings.sasl or since_s is None:
        return None
    begun = f"`queuecast up` has been starting here for {duration(since_s)}"
    return f"kafka: no broker answers yet; {begun}; wait until it says what runs"


def _away(settings: KafkaSettings) -> str:
    unset = settings.bootstrap == KafkaSettings().bootstrap
    if (begun := _starting(settings)) is not None:
        return begun
    ask = "is it running, and is it this address?"
    todo = "`queuecast up` runs one here, and kafka.bootstrap says where another is" if unset else ask
    return f"kafka: no broker answers at {settings.bootstrap}; {todo}"


def who(settings: KafkaSettings) -> str:
    """As whom we come to the broker."""
    if settings.sasl:
        return f"user {settings.username!r}"
    return "the owner of cert_file" if settings.cert_file else "a client without a name"
