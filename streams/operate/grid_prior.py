"""What the sites of a deployment teach those of it that are young: features of queues, no job, no user, no name.

It is learnt from the events that the topics still have. What a young site begins with goes among its own events, so a
replay of these says the same.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import suppress

from models.records import AnyEvent, LoadPrior
from models.waits.boosted.prior import Prior
from streams.broker.admin import check_topics, kafka_errors
from streams.broker.stored import held
from streams.broker.topics import event_topics
from streams.client.blocking import Client
from streams.errors import UserError
from streams.offline.prior import JOBS, Teachers, prior_of
from streams.operate.site import operator, send
from streams.settings import Settings
from streams.worker.intake.messages import Unreadable, read_told

MATURE_JOBS = 1000  # jobs that have started: a site with more teaches, one with fewer is taught


def stored_events(settings: Settings) -> Iterator[AnyEvent]:
    """The events that the topics have, of each site in their order; what is none is passed over. Raises UserError: the
    broker cannot be reached or refuses, or a topic is missing or may not be read.
    """
    topics = event_topics(settings)
    check_topics(settings, dict.fromkeys(topics, "read"))
    with kafka_errors(settings.kafka):
        for topic in topics:
            for message in held(settings, topic):
                with suppress(Unreadable):  # it is among the dead letters
                    found = read_told(message.key, message.value).parts
                    yield from (part.found for part in found if not isinstance(part.found, Unreadable))


def taught_by_sites(settings: Settings, on_event: Callable[[AnyEvent], None]) -> tuple[Prior, list[str]]:
    """The prior that the deployment's mature sites make, each of equal weight, and their names. Raises UserError: none
    is.
    """
    teachers = Teachers(JOBS)
    for event in stored_events(settings):
        teachers.take(event)
        on_event(event)
    lessons = {site: found for site, found in teachers.lessons().items() if len(found.weights) >= MATURE_JOBS}
    if not lessons:
        raise UserError(f"of no site do the topics have {MATURE_JOBS} jobs that started; give logs instead")
    return prior_of(lessons[site] for site in sorted(lessons)), sorted(lessons)


def send_to_young(settings: Settings, prior: Prior) -> list[str]:
    """Have each site with fewer jobs in its history begin with a prior; returns which these are. Raises UserError: the
    broker cannot be reached or refuses, or no worker answers.
    """
    with Client(settings, patience_s=0) as grid:
        found = grid.every_site()
    mature = min(MATURE_JOBS, settings.engine.history)
    young = sorted(site for site, known in found.items() if known is not None and known.history_jobs < mature)
    encoded, by = prior.encode(), operator(settings)
    for site in young:
        send(settings, LoadPrior(site=site, time=time.time(), by=by, why="what other sites taught", prior=encoded))
    return young
