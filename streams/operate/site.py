"""Operations on one site: inspect it, and repair it.

A change is sent as a message among the site's events. So it has a position in their order, is part of the site's state,
and is applied exactly once, even after a crash. Any client that may write the site's events may send it; Kafka ACLs
control this.
"""

import getpass
from collections.abc import Iterator
from itertools import islice

import msgspec
from kafka import KafkaProducer

from models.durations import duration
from models.records import AnyOperation, SiteAnswer
from streams.broker.admin import check_topics, kafka_errors
from streams.broker.topics import events_topic_of
from streams.client.blocking import Client
from streams.settings import Settings
from streams.text.terminal import moment

MAX_FEATURES = 4  # maximum number of features in the description of a site


def operator(settings: Settings) -> str:
    """Return the user name for a change: the Kafka user, else the local user."""
    return settings.kafka.username or getpass.getuser()


def send(settings: Settings, operation: AnyOperation) -> None:
    """Send a change to the worker of its site.

    Raises:
        UserError: The broker is unreachable or refuses it.
    """
    topic = events_topic_of(settings, operation.site)
    check_topics(settings, {topic: "write"})
    with kafka_errors(settings.kafka):
        producer = KafkaProducer(**settings.kafka.client_options(), acks="all")
        try:
            producer.send(topic, msgspec.json.encode(operation), operation.site.encode()).get(30)
        finally:
            producer.close()


def query_site(settings: Settings, site: str) -> SiteAnswer:
    """Query the site's worker about the site.

    Raises:
        UserError: No worker responds, or the site is unknown.
    """
    with Client(settings, patience_s=0) as grid:
        return grid.site(site)


def lines(found: SiteAnswer) -> Iterator[str]:
    """Describe a site, one line per fact."""
    live = found.live
    yield f"{found.site}: {found.cpus} CPUs, {live.free_cpus} free"
    yield f"jobs: {live.queued_jobs} queued, {live.running_jobs} running, {found.held_jobs} held"
    for one in found.partitions or ():
        gpus = f", {one.free_gpus} of {one.gpus} GPUs" if one.gpus else ""
        name = f"partition {one.name}" + ("" if one.up else " (down)")
        free = f"{one.free_cpus} of {one.cpus} CPUs{gpus} free"
        yield f"{name}: {one.queued_jobs} queued, {one.running_jobs} running, {free}"
    yield f"history: {found.history_jobs} jobs; method {found.method}"
    largest = [
        f"{name} {weight:.2f}" for name, weight in islice(found.features.items(), MAX_FEATURES) if weight >= 0.01
    ]
    if largest:
        yield f"waits correlate with: {', '.join(largest)}"
    if found.order_fit:
        yield f"queue order: {found.order_fit.text}"
    yield f"last event: {moment(found.as_of) if found.as_of else 'none'}; {found.lag_messages} unread, " + (
        f"{duration(found.lag_s)} behind"
    )
    if found.degraded:
        yield f"degraded: {found.degraded}"
    for name, count in found.unknown_fields.items():
        yield f"unknown field of its events: {name!r}, {count} times"
    for done in found.operations:
        why = f" ({done.why})" if done.why else ""
        yield f"{moment(done.at)}  {done.type.removeprefix('operator_')} by {done.by}{why}: {done.done}"
