"""Topics: their names, purposes and retention."""

from collections.abc import Iterator
from functools import lru_cache

from streams.settings import Settings

HOUR_MS = 3_600_000
STATE_MESSAGE_BYTES = 64 << 20  # maximum size of a state message; most have less than a megabyte

ESTIMATE_SEGMENT_BYTES = 16 << 20
"""Segment size of the estimates topic; small, because a reader also reads records that are not compacted yet."""

EVENT_MESSAGE_BYTES = 1 << 20  # maximum message size of the other topics
MIN_SAFE_COPIES = 3  # from this replication factor on, two replicas must acknowledge a message

IN_SYNC = "min.insync.replicas"
"""The topic configuration for the number of replicas that must have a message before it is acknowledged."""

BROKER_STAMPS = {"message.timestamp.type": "LogAppendTime"}
"""The configuration of a topic whose timestamps the broker sets, independent of the sender's clock."""

LATE = "late"  # header of a prediction that was sent late: the delay in whole seconds, in ASCII


class Topics:
    """Names of the topics. All are keyed by site and have the same number of partitions.

    Attributes:
        events: Scheduler events; the worker reads it.
        predictions: Predictions at job submission.
        outcomes: Predictions with the actual waits.
        dead_letters: Messages that could not be processed, with the reason.
        estimates: Grid estimates, the latest of each site and job shape.
        questions: Questions about sites; the worker reads it.
        answers: The workers' answers.
        notices: Notifications about pending jobs. `queuecast notify` writes it and reads its earlier ones there.
        group: The workers' consumer group, which is also the id of the Faust app.
        state: The changelog of the table of sites, the latest state of each.
    """

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.events, self.predictions, self.outcomes = f"{prefix}events", f"{prefix}predictions", f"{prefix}outcomes"
        self.dead_letters, self.estimates = f"{prefix}dead-letters", f"{prefix}estimates"
        self.questions, self.answers, self.notices = f"{prefix}questions", f"{prefix}answers", f"{prefix}notices"
        self.group = f"{prefix}worker"
        self.state = f"{self.group}-sites-changelog"

    def own_events(self, site: str) -> str:
        """Return the events topic of one site that has a dedicated topic (`sites.dedicated_topics`)."""
        return f"{self.events}.{site}"

    @property
    def stamped(self) -> tuple[str, ...]:
        """The topics whose messages have the broker's timestamp (LogAppendTime)."""
        return (self.events, self.questions, self.answers)

    @property
    def uses(self) -> dict[str, str]:
        """Operations of a worker on each topic."""
        inputs = dict.fromkeys((self.events, self.questions), "read")
        outputs = (self.predictions, self.outcomes, self.dead_letters, self.estimates, self.answers)
        return {**inputs, **dict.fromkeys(outputs, "write"), self.state: "read and write"}

    @property
    def query_topics(self) -> dict[str, str]:
        """Operations of a client that sends questions on each topic."""
        return {self.questions: "write", **dict.fromkeys((self.answers, self.estimates, self.outcomes), "read")}

    @property
    def notifying(self) -> dict[str, str]:
        """Operations of `queuecast notify` on each topic, without those of its questions to the workers."""
        return {**dict.fromkeys((self.predictions, self.outcomes), "read"), self.notices: "read and write"}

    def __iter__(self) -> Iterator[str]:
        return iter(self.uses)


@lru_cache(maxsize=4096)
def partition_of(site: str, partitions: int) -> int:
    """Return the partition of a site's events, as the default partitioner of Java clients and kafka-python does for its
    name.
    """
    from aiokafka.partitioner import murmur2  # HTTP clients may not have it installed

    return int(murmur2(site.encode()) & 0x7FFFFFFF) % partitions


def event_topics(settings: Settings) -> dict[str, str | None]:
    """Return the events topics by name, the shared one first, each with the site it is dedicated to (None: shared)."""
    topics = Topics(settings.kafka.prefix)
    return {topics.events: None, **{topics.own_events(site): site for site in settings.sites.dedicated_topics}}


def events_topic_of(settings: Settings, site: str) -> str:
    """Return the topic of a site's events."""
    topics = Topics(settings.kafka.prefix)
    return topics.own_events(site) if site in settings.sites.dedicated_topics else topics.events


def more_partitions(topic: str, found: int, before: int) -> str:
    """Return the message for an events topic whose partition count differs from the one of the stored site states."""
    return (
        f"{topic} has {found} partitions, and the sites' states are for {before}: sites would lose their history in "
        "other partitions; stop all workers and sources, then run `queuecast topics repartition`"
    )


def configurations(settings: Settings) -> dict[str, dict[str, str]]:
    """Return the configuration of each topic by name.

    Retention uses the wall clock, as messages have wall-clock timestamps. The broker sets the timestamps of events,
    questions and answers, because the clocks of their senders may be wrong. States and estimates are compacted in small
    segments, so that a new reader reads little more than the latest values.
    """
    topics, kept = Topics(settings.kafka.prefix), settings.topics
    compacted = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1", "max.compaction.lag.ms": str(HOUR_MS)}

    def for_hours(hours: int) -> dict[str, str]:
        kept_for = {"cleanup.policy": "delete", "retention.ms": str(hours * HOUR_MS)}
        return {"max.message.bytes": str(EVENT_MESSAGE_BYTES), "compression.type": "producer", **kept_for}

    found = {
        **{name: for_hours(kept.events_retention_hours) | BROKER_STAMPS for name in event_topics(settings)},
        topics.predictions: for_hours(kept.predictions_retention_hours),
        topics.outcomes: for_hours(kept.predictions_retention_hours),
        topics.notices: for_hours(kept.predictions_retention_hours),
        topics.dead_letters: for_hours(kept.dead_letters_retention_hours),
        topics.questions: for_hours(1) | BROKER_STAMPS,
        topics.answers: for_hours(1) | BROKER_STAMPS,
        # Estimates of shapes that are no longer offered are not refreshed, and so expire.
        topics.estimates: for_hours(kept.estimates_retention_hours)
        | compacted
        | {"cleanup.policy": "compact,delete", "segment.bytes": str(ESTIMATE_SEGMENT_BYTES)},
        topics.state: compacted
        | {"max.message.bytes": str(STATE_MESSAGE_BYTES), "segment.bytes": str(STATE_MESSAGE_BYTES)},
    }
    if kept.replication >= MIN_SAFE_COPIES:  # acknowledged messages are on two brokers, so one may fail
        return {name: values | {IN_SYNC: "2"} for name, values in found.items()}
    return found
