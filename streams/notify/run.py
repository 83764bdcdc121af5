"""Runs notices: asks before it tells, tells, and writes what it told.

What is to be told follows from the topics alone: from the predictions and outcomes of jobs that queue, and from the
notices that were delivered, which are its own topic. So nothing else is stored. A process that was killed between the
webhook and the topic tells the same notice again, with the same id.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import aiohttp
import msgspec
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from models.records import JobAnswer, Notice
from streams.broker.admin import check_topics
from streams.broker.consumer import started
from streams.broker.topics import Topics, event_topics
from streams.client.grid import AsyncClient
from streams.errors import UserError
from streams.notify.metrics import GONE, OUTDATED, NotifyCounts
from streams.notify.reading import Reader
from streams.notify.rules import BOUND, StartEstimate, WatchedJob, due, notice
from streams.notify.watching import NoticeFilter, Watching
from streams.notify.webhook import Webhook
from streams.process import program_log
from streams.process.scraping import serve_metrics
from streams.settings import Settings

log = logging.getLogger(__name__)

TICK_S = 2.0
"""How often the jobs are looked through."""

MAX_OPEN = 256
"""How many notices may be on their way at once; others wait, and are not told where they are outdated by then."""

PARALLEL = 16
"""How many requests to the webhook may be open at once."""

PAUSE_S = 15.0
"""The pause before a job is looked at again of which no worker says anything."""


async def run_notify(settings: Settings, wanted: NoticeFilter, tell: Callable[[Notice], None]) -> None:
    """Tell notices until it is cancelled.

    Parameters:
        wanted: of which jobs.
        tell: called with each notice that was delivered, or given up.

    Raises:
        UserError: Kafka refuses, or cannot be reached at the beginning; or the web port cannot be used.
    """
    own = settings.notify
    uses = Topics(settings.kafka.prefix).notifying
    if wanted.users:
        uses = dict.fromkeys(event_topics(settings), "read") | uses
    watching = Watching(wanted, own.name, own.before_seconds)
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
        consumer = await stack.enter_async_context(reader.caught_up(producer, bool(wanted.users)))
        log.debug("%d jobs queue of which notices may come", len(watching.jobs))
        teller = Teller(settings, watching, counts, grid, producer, hook, tell)
        await asyncio.gather(reader.follow(consumer), teller.run())


class Teller:
    """Looks through the jobs, and tells what is due of them; at most one notice of a job is on its way."""

    def __init__(
        self,
        settings: Settings,
        watching: Watching,
        counts: NotifyCounts,
        grid: AsyncClient,
        producer: Any,
        hook: Webhook | None,
        tell: Callable[[Notice], None],
    ) -> None:
        self._settings = settings
        self._watching = watching
        self._counts = counts
        self._grid = grid
        self._producer = producer
        self._hook = hook
        self._tell = tell
        self._open: set[asyncio.Task[None]] = set()
        self._sending = asyncio.Semaphore(PARALLEL)

    async def run(self) -> None:
        """Tell without end."""
        while True:
            for task in [task for task in self._open if task.done()]:
                self._open.discard(task)
                task.result()  # raises what it failed with
            found = list(self._watching.due())
            self._counts.waiting = len(self._open) + len(found)
            for job in found[: MAX_OPEN - len(self._open)]:
                job.sending = True
                self._open.add(asyncio.create_task(self._one(job)))
            await asyncio.sleep(TICK_S)

    async def _one(self, job: WatchedJob) -> None:
        try:
            async with self._sending:
                if not await self._still_queues(job):
                    return
                now = self._watching.now(job.place[0])
                kind = due(job, now, self._settings.notify.before_seconds)
                if kind is None:  # the worker knows better than the last estimate on the topic
                    self._counts.dropped[OUTDATED] += 1
                    return
                told = notice(job, kind, now, self._settings.notify.name)
                if self._hook is not None and (problem := await self._hook.deliver(told)) is not None:
                    log.warning("the webhook did not take the notice %s: %s", told.id, problem)
                    told = msgspec.structs.replace(told, undelivered=problem)
            await self._keep(told)
            self._watching.was_told(told)
            self._counts.told(told.kind, told.undelivered)
            self._tell(told)
        finally:
            job.sending = False

    async def _still_queues(self, job: WatchedJob) -> bool:
        """Ask the site's worker about a job, and take what it says; whether it is known to queue."""
        site, job_id, attempt = job.place
        try:
            answer = (await self._grid.job(job_id, [site]))[site]
        except UserError as error:
            log.warning("nobody can be asked about job %s: %s", job_id, error, extra={"site": site})
            answer = None
        if answer is None:
            self._counts.unanswered += 1
            await asyncio.sleep(PAUSE_S)
            return False
        live = answer.live
        if live is None or live.start is not None or live.attempt != attempt:
            self._counts.dropped[GONE] += 1
            self._watching.forget(job.place)
            return False
        job.held_back = None if live.held_back is msgspec.UNSET else live.held_back
        if (now := _estimate(answer)) is not None:
            job.estimated(now)
        return True

    async def _keep(self, told: Notice) -> None:
        """Write a notice to its topic, however long Kafka is away."""
        topic, value = Topics(self._settings.kafka.prefix).notices, msgspec.json.encode(told)
        while True:
            try:
                await self._producer.send_and_wait(topic, value, told.site.encode())
                return
            except KafkaError as error:
                if not error.retriable:
                    raise UserError(f"kafka at {self._settings.kafka.bootstrap}: {error!r}") from None
                log.warning("the notice %s cannot be written yet: %r", told.id, error)
                await asyncio.sleep(1.0)


def _estimate(answer: JobAnswer) -> StartEstimate | None:
    if answer.expected_start is None:
        return None
    return StartEstimate.of(answer.expected_start, answer.starts_by.get(BOUND), answer.made_at)


def configure_logs(settings: Settings) -> None:
    """Let this process log to stderr as the settings say."""
    own = settings.notify
    program_log.configure(
        msgspec.structs.replace(settings.worker, instance=own.name, log_format=own.log_format, log_level=own.log_level)
    )
    if own.log_level == "info":
        logging.getLogger("aiokafka").setLevel("WARNING")
