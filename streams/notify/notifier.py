"""Notification process: verify each due notice with the worker, deliver it, and write it to the notices topic.

The due notices follow from topics alone: the predictions and outcomes of pending jobs, and the delivered notices on the
process's own topic. No other state is stored. A process that is killed after the webhook and before the write delivers
the same notice again, with the same id.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import msgspec
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

from models.notices import BOUND, StartEstimate, WatchedJob, due, notice
from models.records import JobAnswer, Notice
from streams.broker.admin import check_topics
from streams.broker.consumer import started
from streams.broker.topics import Topics, event_topics
from streams.client.grid import AsyncClient
from streams.errors import UserError
from streams.notify.metrics import GONE, OUTDATED, NotifyCounts
from streams.notify.signing import ID, SIGNATURE, TIMESTAMP, signature
from streams.notify.watching import NoticeFilter, NoticeTracker, Reader
from streams.process.scraping import serve_metrics
from streams.settings import Settings

TIMEOUT_S = 10.0  # how long a receiver may take
MAX_PAUSE_S = 60.0  # the longest pause between two tries
PASSING = (408, 425, 429)  # statuses below 500 that may pass


class DeliveryFailed(Exception):
    """The receiver did not accept the notice; a retry may succeed."""


class NoticeRejected(Exception):
    """The receiver rejected the notice permanently."""


@dataclass(eq=False)
class Webhook:
    """Deliver notices to a URL, signed with `secret` if there is one; retry each for `patience_s` seconds.

    `on_try` receives for each request whether it succeeded and whether it was a retry.
    """

    session: aiohttp.ClientSession
    url: str
    secret: str | None
    patience_s: float
    on_try: Callable[[bool, bool], None] = lambda taken, again: None

    async def deliver(self, notice: Notice) -> str | None:
        """Send a notice until it is accepted; return None, or the reason of the failure."""
        again = AsyncRetrying(
            stop=stop_after_delay(self.patience_s),
            wait=wait_random_exponential(0.5, MAX_PAUSE_S),
            retry=retry_if_exception_type(DeliveryFailed),
            reraise=True,
        )
        body = msgspec.json.encode(notice)
        try:
            async for attempt in again:
                with attempt:
                    await self._try(notice.id, body, attempt.retry_state.attempt_number > 1)
        except (DeliveryFailed, NoticeRejected) as error:
            return str(error)
        return None

    async def _try(self, notice_id: str, body: bytes, again: bool) -> None:
        timestamp = str(int(time.time()))
        headers = {"Content-Type": "application/json", ID: notice_id, TIMESTAMP: timestamp}
        if self.secret is not None:
            headers[SIGNATURE] = signature(self.secret, timestamp, body)
        timeout, problem = aiohttp.ClientTimeout(total=TIMEOUT_S), None
        try:
            request = self.session.post(self.url, data=body, headers=headers, timeout=timeout, allow_redirects=False)
            async with request as answer:
                if answer.status >= 300:
                    passing = answer.status >= 500 or answer.status in PASSING
                    problem = (DeliveryFailed if passing else NoticeRejected)(f"status {answer.status}")
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            problem = DeliveryFailed(f"{type(error).__name__}: {error}")
        self.on_try(problem is None, again)
        if problem is not None:
            raise problem


log = logging.getLogger(__name__)
TICK_S = 2.0  # how often the jobs are looked through

MAX_OPEN = 256
"""Maximum number of notices in flight; others wait, and are dropped if they become outdated."""

PARALLEL = 16  # how many requests to the webhook may be open at once
PAUSE_S = 15.0  # seconds before a retry for a job without a worker's answer


async def run_notify(settings: Settings, wanted: NoticeFilter, show: Callable[[Notice], None]) -> None:
    """Send notices of the `wanted` jobs until cancelled.

    Args:
        settings: of the deployment.
        wanted: selects the jobs.
        show: called with each notice that was delivered or given up.

    Raises:
        UserError: Kafka refuses, or is unreachable at the start; or the web port cannot be used.
    """
    own = settings.notify
    uses = Topics(settings.kafka.prefix).notifying
    if wanted.users:
        uses = dict.fromkeys(event_topics(settings), "read") | uses
    watching = NoticeTracker(wanted, own.name, own.before_seconds)
    counts = NotifyCounts(watching.jobs)
    async with AsyncExitStack() as stack:
        if own.web_port is not None:
            stack.callback(serve_metrics(counts, own.web_host, own.web_port))
        await asyncio.to_thread(check_topics, settings, uses)
        grid = await stack.enter_async_context(AsyncClient(settings, patience_s=0))
        producer = AIOKafkaProducer(**settings.kafka.async_options(), acks="all")
        await stack.enter_async_context(started(producer, settings))
        hook = None
        if own.webhook is not None:
            session = await stack.enter_async_context(aiohttp.ClientSession())
            hook = Webhook(session, own.webhook, own.secret, own.retry_seconds, counts.tried)
        reader = Reader(settings, watching, counts)
        consumer = await stack.enter_async_context(reader.caught_up(bool(wanted.users)))
        log.debug("Watching %d pending jobs for notices", len(watching.jobs))
        notifier = Notifier(settings, watching, counts, grid, producer, hook, show)
        await asyncio.gather(reader.follow(consumer), notifier.run())


@dataclass(eq=False)
class Notifier:
    """Scan the jobs and send their due notices; at most one notice per job is in flight."""

    settings: Settings
    watching: NoticeTracker
    counts: NotifyCounts
    grid: AsyncClient
    producer: Any
    hook: Webhook | None
    show: Callable[[Notice], None]
    _open: set[asyncio.Task[None]] = field(default_factory=set, init=False)
    _sending: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(PARALLEL), init=False)

    async def run(self) -> None:
        """Send notices without end."""
        while True:
            for task in [task for task in self._open if task.done()]:
                self._open.discard(task)
                task.result()  # raises what it failed with
            found = list(self.watching.due())
            self.counts.waiting = len(self._open) + len(found)
            for job in found[: MAX_OPEN - len(self._open)]:
                job.sending = True
                self._open.add(asyncio.create_task(self._one(job)))
            await asyncio.sleep(TICK_S)

    async def _one(self, job: WatchedJob) -> None:
        try:
            async with self._sending:
                if not await self._still_queues(job):
                    return
                now = self.watching.now(job.place[0])
                kind = due(job, now, self.settings.notify.before_seconds)
                if kind is None:  # the worker knows better than the last estimate on the topic
                    self.counts.dropped[OUTDATED] += 1
                    return
                sent = notice(job, kind, now, self.settings.notify.name)
                if self.hook is not None and (problem := await self.hook.deliver(sent)) is not None:
                    log.warning("Webhook rejected notice %s: %s", sent.id, problem)
                    sent = msgspec.structs.replace(sent, undelivered=problem)
            await self._keep(sent)
            self.watching.was_notified(sent)
            self.counts.count_sent(sent.kind, sent.undelivered)
            self.show(sent)
        finally:
            job.sending = False

    async def _still_queues(self, job: WatchedJob) -> bool:
        """Query the site's worker, update the job from its answer, and return True if it is still pending."""
        site, job_id, attempt = job.place
        try:
            answer = (await self.grid.job(job_id, [site]))[site]
        except UserError as error:
            log.warning("Cannot query job %s: %s", job_id, error, extra={"site": site})
            answer = None
        if answer is None:
            await asyncio.sleep(PAUSE_S)
            return False
        live = answer.live
        if live is None or live.start is not None or live.attempt != attempt:
            self.counts.dropped[GONE] += 1
            self.watching.forget(job.place)
            return False
        job.blocked_by = None if live.blocked_by is msgspec.UNSET else live.blocked_by
        if (now := _estimate(answer)) is not None:
            job.estimated(now)
        return True

    async def _keep(self, sent: Notice) -> None:
        """Write a notice to its topic; retry as long as Kafka is unreachable."""
        topic, value = Topics(self.settings.kafka.prefix).notices, msgspec.json.encode(sent)
        while True:
            try:
                await self.producer.send_and_wait(topic, value, sent.site.encode())
                return
            except KafkaError as error:
                if not error.retriable:
                    raise UserError(f"kafka at {self.settings.kafka.bootstrap}: {error!r}") from None
                log.warning("Cannot write notice %s yet: %r", sent.id, error)
                await asyncio.sleep(1.0)


def _estimate(answer: JobAnswer) -> StartEstimate | None:
    if answer.expected_start is None:
        return None
    return StartEstimate.of(answer.expected_start, answer.starts_by.get(BOUND), answer.made_at)
