"""The jobs that notices are about, and the reader of the topics that describe them."""

import logging
import time
from collections import Counter, OrderedDict
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import chain
from typing import Any

import msgspec
from aiokafka import TopicPartition

from models.notices import JobPlace, WatchedJob, due, estimate_of, watched
from models.records import Notice, Outcome, Prediction, Submit
from streams.broker.consumer import Consumer, started
from streams.broker.standstill import batches_to
from streams.broker.topics import Topics, event_topics
from streams.client.watch import arriving
from streams.errors import UNDECODABLE
from streams.notify.metrics import NotifyCounts
from streams.settings import Settings

log = logging.getLogger(__name__)
MAX_GONE = 200_000  # maximum number of departed jobs kept, to ignore their late predictions
MAX_USERS = 500_000  # maximum number of job owners kept if notices are for some users only

MAX_EARLY = 200_000
"""Maximum number of predicted jobs without a known user: their Submit may still arrive."""

LIVE_S = 86_400.0  # a site whose events come within this time is live: its time is the clock's


class NoticeFilter(msgspec.Struct, frozen=True):
    """Filter of the jobs that get notices; an empty set matches all."""

    sites: frozenset[str] = frozenset()
    users: frozenset[str] = frozenset()
    jobs: frozenset[str] = frozenset()


class NoticeTracker:
    """The pending jobs according to the topics, and the notices sent; for `before_s` see `models.notices.due`."""

    def __init__(
        self, wanted: NoticeFilter, name: str, before_s: float, clock: Callable[[], float] = time.time
    ) -> None:
        self.jobs: dict[JobPlace, WatchedJob] = {}
        self._wanted = wanted
        self._name = name
        self._before_s = before_s
        self._clock = clock
        self._gone: OrderedDict[JobPlace, None] = OrderedDict()
        self._users: OrderedDict[tuple[str, str], str] = OrderedDict()  # by site and job: a requeued one has no Submit
        self._early: OrderedDict[JobPlace, WatchedJob] = OrderedDict()
        self._delivered: dict[JobPlace, list[Notice]] = {}
        self._latest: dict[str, tuple[float, bool]] = {}  # by site: its last record's time, and whether it is live

    def submitted(self, event: Submit) -> None:
        """Record a job's user from a submit event."""
        early = self._early.pop((event.site, event.job, event.attempt), None)
        if event.user is None or event.user not in self._wanted.users:
            self._users.pop((event.site, event.job), None)  # of an earlier job of this name
            return
        self._users[event.site, event.job] = event.user
        if len(self._users) > MAX_USERS:
            self._users.popitem(last=False)
        if early is not None:
            self._watch(early)

    def predicted(self, prediction: Prediction, stamp: float) -> None:
        """Record a prediction; `stamp` is the broker timestamp (Unix seconds).

        It may arrive before the event that names the job's user: they are on two topics.
        """
        self._seen(prediction.site, prediction.made_at, stamp)
        place = (prediction.site, prediction.job, prediction.attempt)
        estimate = estimate_of(prediction)
        if estimate is None or place in self._gone or not self._names(place):
            return
        job = self.jobs.get(place) or self._early.get(place)
        if job is not None:
            if prediction.method == job.method:  # shadows' may be published too, behind the site's own
                job.estimated(estimate)
            return
        job = watched(place, estimate, self._before_s, prediction.method)
        if not self._wanted.users or place[:2] in self._users:
            self._watch(job)
            return
        self._early[place] = job
        if len(self._early) > MAX_EARLY:
            self._early.popitem(last=False)

    def _watch(self, job: WatchedJob) -> None:
        job.user = self._users.get(job.place[:2])
        for notice in self._delivered.pop(job.place, ()):
            job.was_notified(notice, self._before_s)
        self.jobs[job.place] = job

    def job_dequeued(self, outcome: Outcome, stamp: float) -> None:
        """Record an outcome: the job is no longer pending."""
        self._seen(outcome.site, outcome.observed_at, stamp)
        self.forget((outcome.site, outcome.job, outcome.attempt))

    def forget(self, place: JobPlace) -> None:
        """Stop watching a job."""
        self.jobs.pop(place, None)
        self._early.pop(place, None)
        self._delivered.pop(place, None)
        self._gone[place] = None
        if len(self._gone) > MAX_GONE:
            self._gone.popitem(last=False)

    def was_notified(self, notice: Notice) -> None:
        """Record a notice from the topic, sent by this process or an earlier one."""
        place = (notice.site, notice.job, notice.attempt)
        if notice.name != self._name:
            return
        if (job := self.jobs.get(place)) is not None:
            job.was_notified(notice, self._before_s)
        elif place not in self._gone:
            self._delivered.setdefault(place, []).append(notice)

    def due(self) -> Iterator[WatchedJob]:
        """Yield the jobs with a notice due now. O(jobs)."""
        for job in self.jobs.values():
            if not job.sending and due(job, self.now(job.place[0]), self._before_s) is not None:
                yield job

    def now(self, site: str) -> float:
        """Return the site's time: the wall clock if the site is live, else the time of its last record."""
        latest, live = self._latest.get(site, (0.0, False))
        return max(self._clock(), latest) if live else latest

    def _seen(self, site: str, at: float, stamp: float) -> None:
        latest, _ = self._latest.get(site, (at, False))
        self._latest[site] = max(latest, at), abs(stamp - at) < LIVE_S

    def _names(self, place: JobPlace) -> bool:
        """Check if the filter accepts this site and this job, regardless of the user."""
        site, job, _ = place
        wanted = self._wanted
        return (not wanted.sites or site in wanted.sites) and (not wanted.jobs or job in wanted.jobs)


MAX_BATCH_MESSAGES = 1000


class _NoticeKind(msgspec.Struct):
    type: str | None = None


class Reader:
    """Read the topics; keep the watched jobs and the consumer lag up to date."""

    def __init__(self, settings: Settings, watching: NoticeTracker, counts: NotifyCounts) -> None:
        self._settings = settings
        self._watching = watching
        self._counts = counts
        self._topics = Topics(settings.kafka.prefix)

    @asynccontextmanager
    async def caught_up(self, with_users: bool) -> AsyncGenerator[Any]:
        """Read the topics to their present ends, then yield a consumer of later messages.

        First the submissions and notices, then the predictions, then the outcomes.
        """
        topics = self._topics
        users = list(event_topics(self._settings)) if with_users else []
        consumer = Consumer(**self._settings.kafka.async_options(), enable_auto_commit=False)
        async with started(consumer, self._settings):
            positions: dict[TopicPartition, int] = {}
            for names in ([*users, topics.notices], [topics.predictions], [topics.outcomes]):
                positions |= await self._read_whole(consumer, await consumer.places(*names))
            following = {place: at for place, at in positions.items() if place.topic != topics.notices}
            consumer.assign(list(following))
            for place, at in following.items():
                consumer.seek(place, at)
            yield consumer

    async def _read_whole(self, consumer: Any, places: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        consumer.assign(places)
        await consumer.seek_to_beginning(*places)
        ends: dict[TopicPartition, int] = await consumer.end_offsets(places)
        async for batches in batches_to(consumer, ends, MAX_BATCH_MESSAGES):
            await self._take_in(consumer, chain.from_iterable(batches.values()))
        return {place: await consumer.position(place) for place in places}

    async def follow(self, consumer: Any) -> None:
        """Process messages as they arrive, without end.

        Raises:
            UserError: Kafka refuses.
        """
        async for messages in arriving(consumer, self._settings.kafka, log.warning):
            await self._take_in(consumer, messages)

    async def _take_in(self, consumer: Any, messages: Iterable[Any]) -> None:
        for message in messages:
            self._take(message.topic, message.value or b"", message.timestamp / 1000)
        lag: Counter[str] = Counter()
        for place, at in consumer.positions().items():
            lag[place.topic] += max(0, (consumer.highwater(place) or 0) - at)
        self._counts.lag = lag

    def _take(self, topic: str, value: bytes, stamp: float) -> None:
        """Process a message; skip an invalid one, which the workers have reported already."""
        watching, topics = self._watching, self._topics
        with suppress(*UNDECODABLE):
            if topic == topics.predictions:
                watching.predicted(msgspec.json.decode(value, type=Prediction), stamp)
            elif topic == topics.outcomes:
                watching.job_dequeued(msgspec.json.decode(value, type=Outcome), stamp)
            elif topic == topics.notices:
                watching.was_notified(msgspec.json.decode(value, type=Notice))
            elif msgspec.json.decode(value, type=_NoticeKind).type == "submit":
                watching.submitted(msgspec.json.decode(value, type=Submit))
