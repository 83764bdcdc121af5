"""The topics: their names, what is kept in them and for how long, and how they are made."""

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
from kafka.admin import KafkaAdminClient
from kafka.errors import KafkaError, KafkaTimeoutError, TopicAlreadyExistsError

from streams.errors import UserError
from streams.settings import KafkaSettings, Settings

HOUR_MS = 3_600_000
STATE_MESSAGE_BYTES = 16 << 20
"""The largest state of one site that can be stored: about half a million live jobs."""

EVENT_MESSAGE_BYTES = 1 << 20
"""The largest message of any other topic."""


class Topics(msgspec.Struct, frozen=True):
    """The topics' names. All are keyed by site and have the same number of partitions."""

    prefix: str

    @property
    def events(self) -> str:
        """What schedulers report, in."""
        return f"{self.prefix}events"

    @property
    def predictions(self) -> str:
        """Estimates, as jobs are submitted."""
        return f"{self.prefix}predictions"

    @property
    def outcomes(self) -> str:
        """Predictions beside what happened."""
        return f"{self.prefix}outcomes"

    @property
    def dead_letters(self) -> str:
        """Messages that could not be processed, with the reason."""
        return f"{self.prefix}dead-letters"

    @property
    def group(self) -> str:
        """The workers' consumer group, which is also the Faust app's id."""
        return f"{self.prefix}worker"

    @property
    def state(self) -> str:
        """The changelog of the table of sites: the latest state of each."""
        return f"{self.group}-sites-changelog"

    def __iter__(self) -> Iterator[str]:
        return iter((self.events, self.predictions, self.outcomes, self.dead_letters, self.state))


def configurations(settings: Settings) -> dict[str, dict[str, str]]:
    """The configuration of each topic, by its name.

    Kept by the wall clock, since messages are stamped with it; the state is compacted, in small segments, so that a
    worker that comes back reads little more than the latest states.
    """
    topics, kept = Topics(settings.kafka.prefix), settings.topics
    plain = {"max.message.bytes": str(EVENT_MESSAGE_BYTES), "compression.type": "producer"}

    def for_hours(hours: int) -> dict[str, str]:
        return plain | {"cleanup.policy": "delete", "retention.ms": str(hours * HOUR_MS)}

    return {
        topics.events: for_hours(kept.events_hours),
        topics.predictions: for_hours(kept.predictions_hours),
        topics.outcomes: for_hours(kept.predictions_hours),
        topics.dead_letters: for_hours(kept.dead_letters_hours),
        topics.state: {
            "cleanup.policy": "compact",
            "max.message.bytes": str(STATE_MESSAGE_BYTES),
            "segment.bytes": str(2 * STATE_MESSAGE_BYTES),
            "min.cleanable.dirty.ratio": "0.1",
            "max.compaction.lag.ms": str(HOUR_MS),
        },
    }


def create_topics(settings: Settings) -> dict[str, bool]:
    """Make the topics that are missing; tells of each whether it was made now.

    Raises:
        UserError: the broker cannot be reached, or refuses.
    """
    made = {}
    with admin(settings.kafka) as client:
        for name, configuration in configurations(settings).items():
            wanted = {
                "num_partitions": settings.topics.partitions,
                "replication_factor": settings.topics.replication,
                "configs": configuration,
            }
            try:
                client.create_topics({name: wanted}, wait_for_metadata=True)
                made[name] = True
            except TopicAlreadyExistsError:
                made[name] = False
    return made


def partitions_of(settings: Settings) -> dict[str, int]:
    """How many partitions each of the topics has; 0 for one that is missing.

    Raises:
        UserError: the broker cannot be reached, or refuses.
    """
    names = list(Topics(settings.kafka.prefix))
    with admin(settings.kafka) as client:
        existing = set(client.list_topics())
        found = client.describe_topics([name for name in names if name in existing])
    counts = {topic["name"]: len(topic["partitions"]) for topic in found}
    return {name: counts.get(name, 0) for name in names}


def check_topics(settings: Settings) -> None:
    """Make sure that the topics are there and have the same number of partitions.

    Raises:
        UserError: they are not; the message says what to do.
    """
    counts = partitions_of(settings)
    missing = [name for name, count in counts.items() if count == 0]
    if missing:
        raise UserError(f"topics are missing: {', '.join(missing)}; make them with `queuecast topics`")
    if len(set(counts.values())) > 1:
        raise UserError(f"topics differ in their number of partitions: {counts}; all must have the same")


@contextmanager
def admin(settings: KafkaSettings) -> Iterator[KafkaAdminClient]:
    """An admin client, closed afterwards; what Kafka refuses becomes a `UserError`."""
    client = None
    try:
        client = KafkaAdminClient(**settings.client_options())
        yield client
    except KafkaTimeoutError:
        raise UserError(
            f"kafka: no broker answers at {settings.bootstrap}; is it running, and is it this address?"
        ) from None
    except KafkaError as error:
        raise UserError(f"kafka at {settings.bootstrap}: {error}") from None
    finally:
        if client is not None:
            client.close()
