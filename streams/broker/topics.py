"""The topics: their names, what they are for, how long they keep what."""

from collections.abc import Iterator
from functools import lru_cache

from streams.settings import Settings

HOUR_MS = 3_600_000
STATE_MESSAGE_BYTES = 64 << 20  # Bytes of the largest message of a state. Most have up to a megabyte.

ESTIMATE_SEGMENT_BYTES = 16 << 20
"""Bytes of a segment of the estimates; small, for a reader also reads what was not compacted yet."""

EVENT_MESSAGE_BYTES = 1 << 20  # bytes of the largest message of any other topic
MIN_SAFE_COPIES = 3  # copies of a topic from which on a message counts as sent only when two of them have it

IN_SYNC = "min.insync.replicas"
"""The configuration that says how many copies must have a message before it counts as sent."""

BROKER_STAMPS = {"message.timestamp.type": "LogAppendTime"}
"""The configuration of a topic whose messages the broker stamps, whatever the sender's clock says."""

LATE = "late"  # the header of a prediction that left late; its value is the delay in whole seconds, in ASCII


class Topics:
    """The topics' names. All are keyed by site and have the same number of partitions.

    Attributes:
        events: what schedulers report; the worker reads it.
        predictions: estimates, as jobs are submitted.
        outcomes: predictions beside what happened.
        dead_letters: messages that could not be processed, with the reason.
        estimates: grid estimates, the latest of each site and job shape.
        questions: questions about sites; the worker reads it.
        answers: the workers' answers.
        notices: what was told of jobs that queue; `queuecast notify` writes it, and reads there what it told before.
        group: the workers' consumer group, which is also the Faust app's id.
        state: the changelog of the table of sites, the latest state of each.
    """

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.events, self.predictions, self.outcomes = f"{prefix}events", f"{prefix}predictions", f"{prefix}outcomes"
        self.dead_letters, self.estimates = f"{prefix}dead-letters", f"{prefix}estimates"
        self.questions, self.answers, self.notices = f"{prefix}questions", f"{prefix}answers", f"{prefix}notices"
        self.group = f"{prefix}worker"
        self.state = f"{self.group}-sites-changelog"

    def own_events(self, site: str) -> str:
        """What is reported of one site only, where it has a topic to itself (`sites.dedicated_topics`)."""
        return f"{self.events}.{site}"

    @property
    def stamped(self) -> tuple[str, ...]:
        """Those whose messages the broker stamps."""
        return (self.events, self.questions, self.answers)

    @property
    def uses(self) -> dict[str, str]:
        """What a worker does with each topic."""
        inputs = dict.fromkeys((self.events, self.questions), "read")
        outputs = (self.predictions, self.outcomes, self.dead_letters, self.estimates, self.answers)
        return {**inputs, **dict.fromkeys(outputs, "write"), self.state: "read and write"}

    @property
    def asking(self) -> dict[str, str]:
        """What those who ask questions do with each topic."""
        return {self.questions: "write", **dict.fromkeys((self.answers, self.estimates, self.outcomes), "read")}

    @property
    def notifying(self) -> dict[str, str]:
        """What `queuecast notify` does with each topic; it asks workers too."""
        return {**dict.fromkeys((self.predictions, self.outcomes), "read"), self.notices: "read and write"}

    def __iter__(self) -> Iterator[str]:
        return iter(self.uses)


@lru_cache(maxsize=4096)
def partition_of(site: str, partitions: int) -> int:
    """The partition of a site's events: that to which Java's clients and kafka-python send its name as a key."""
    from aiokafka.partitioner import murmur2  # who asks over HTTP need not have it

    return int(murmur2(site.encode()) & 0x7FFFFFFF) % partitions


def event_topics(settings: Settings) -> dict[str, str | None]:
    """The topics of events by name, the shared one first: the site whose own it is, None for the shared one."""
    topics = Topics(settings.kafka.prefix)
    return {topics.events: None, **{topics.own_events(site): site for site in settings.sites.dedicated_topics}}


def events_topic_of(settings: Settings, site: str) -> str:
    """The topic on which a site's events are sent."""
    topics = Topics(settings.kafka.prefix)
    return topics.own_events(site) if site in settings.sites.dedicated_topics else topics.events


def more_partitions(topic: str, found: int, before: int) -> str:
    """What to tell where a topic of events has another number of partitions than its sites' states are for."""
    return (
        f"{topic} has {found} partitions, and the sites' states are for {before}: sites would begin anew in other "
        "partitions; stop all workers and sources, then `queuecast topics repartition` moves the sites"
    )


def configurations(settings: Settings) -> dict[str, dict[str, str]]:
    """The configuration of each topic, by its name.

    Kept by the wall clock, since messages are stamped with it; events, questions and answers are stamped by the
    broker, for their senders' clocks may be wrong. States and estimates are compacted, in small segments,
    so that who begins to read them reads little more than the latest.
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
        # Those of shapes that are no longer offered are not renewed, and so end.
        topics.estimates: for_hours(kept.estimates_retention_hours)
        | compacted
        | {"cleanup.policy": "compact,delete", "segment.bytes": str(ESTIMATE_SEGMENT_BYTES)},
        topics.state: compacted
        | {"max.message.bytes": str(STATE_MESSAGE_BYTES), "segment.bytes": str(STATE_MESSAGE_BYTES)},
    }
    if kept.replication >= MIN_SAFE_COPIES:  # what is acknowledged is on two brokers, and one may be away
        return {name: values | {IN_SYNC: "2"} for name, values in found.items()}
    return found
