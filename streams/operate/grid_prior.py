"""Pre-train a prior on the mature sites of a deployment for its new sites. It contains features, no jobs, users or
names.

Training uses the events that the topics still hold. The prior is sent among the events of a new site, so a replay gives
the same predictions.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import suppress

from models.records import AnyEvent, LoadPrior
from models.waits.boosted.prior import Prior
from streams.broker.admin import check_topics, kafka_errors
from streams.broker.topic_messages import held
from streams.broker.topics import event_topics
from streams.client.blocking import Client
from streams.errors import UserError
from streams.offline.pretraining import JOBS, SourceSites, prior_of
from streams.operate.site import operator, send
from streams.settings import Settings
from streams.worker.intake.messages import Unreadable, read_site_message

MATURE_JOBS = 1000  # started jobs from which a site counts as mature


def stored_events(settings: Settings) -> Iterator[AnyEvent]:
    """Yield the events that the topics hold, in order within each site; skip invalid messages.

    Raises:
        UserError: The broker is unreachable or refuses, or a topic is missing or not readable.
    """
    topics = event_topics(settings)
    check_topics(settings, dict.fromkeys(topics, "read"))
    with kafka_errors(settings.kafka):
        for topic in topics:
            for message in held(settings, topic):
                with suppress(Unreadable):  # the worker sent it to the dead-letter queue
                    found = read_site_message(message.key, message.value).parts
                    yield from (part.found for part in found if not isinstance(part.found, Unreadable))


def pretrain_on_sites(settings: Settings, on_event: Callable[[AnyEvent], None]) -> tuple[Prior, list[str]]:
    """Train the prior on the deployment's mature sites, with equal weights, and return it with their names.

    Raises:
        UserError: No site is mature.
    """
    teachers = SourceSites(JOBS)
    for event in stored_events(settings):
        teachers.take(event)
        on_event(event)
    lessons = {site: found for site, found in teachers.training_sets().items() if len(found.weights) >= MATURE_JOBS}
    if not lessons:
        raise UserError(f"no site has {MATURE_JOBS} started jobs in Kafka yet; pass log files instead")
    return prior_of(lessons[site] for site in sorted(lessons)), sorted(lessons)


def load_into_new_sites(settings: Settings, prior: Prior) -> list[str]:
    """Send a prior to each site with a short history, and return the names of these sites.

    Raises:
        UserError: The broker is unreachable or refuses, or no worker responds.
    """
    with Client(settings, patience_s=0) as grid:
        found = grid.every_site()
    mature = min(MATURE_JOBS, settings.engine.history)
    young = sorted(site for site, known in found.items() if known is not None and known.history_jobs < mature)
    encoded, by = prior.encode(), operator(settings)
    for site in young:
        send(settings, LoadPrior(site=site, time=time.time(), by=by, why="what other sites taught", prior=encoded))
    return young
