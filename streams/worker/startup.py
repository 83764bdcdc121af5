"""Run a worker after checking its servers and topics."""

import asyncio
import logging
import time
from collections.abc import Callable

from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_after_delay, wait_chain, wait_fixed

from streams.broker.admin import check_group, check_topics, partition_count
from streams.broker.topics import Topics, event_topics, more_partitions
from streams.errors import Unreachable, UserError
from streams.process import program_log
from streams.process.scraping import bound
from streams.settings import Settings
from streams.worker.checkpoint.redis_client import check_redis, remembered_partitions
from streams.worker.supervisor import run_crew

log = logging.getLogger(__name__)

PAUSES_S = (1.0, 2.0, 5.0, 10.0)
"""Retry intervals for unreachable servers at a worker's start, seconds; the last one is repeated."""


def await_servers(settings: Settings, sleep: Callable[[float], None] = time.sleep) -> int:
    """Check Kafka, its topics and Redis, and retry servers that do not respond.

    Returns:
        The number of partitions of the topics.

    Raises:
        UserError: A check failed, or a server did not respond within `worker.startup_timeout_seconds`.
    """
    most, pauses = settings.worker.startup_timeout_seconds, wait_chain(*map(wait_fixed, PAUSES_S))

    def remaining_s(state: RetryCallState) -> float:
        return most - (state.seconds_since_start or 0.0)

    def log_retry(state: RetryCallState) -> None:
        error = state.outcome and state.outcome.exception()
        log.warning(
            "Waiting for server: %s (next check in %.0f s, last one in %.0f s)",
            error,
            state.upcoming_sleep,
            remaining_s(state),
        )

    attempts = Retrying(
        retry=retry_if_exception_type(Unreachable),
        wait=lambda state: min(pauses(state), remaining_s(state)),
        stop=stop_after_delay(most),
        before_sleep=log_retry,
        sleep=sleep,
        reraise=True,
    )
    return attempts(_check_servers, settings)


def _check_servers(settings: Settings) -> int:
    check_topics(settings, Topics(settings.kafka.prefix).uses | dict.fromkeys(event_topics(settings), "read"))
    check_group(settings)
    asyncio.run(check_redis(settings.redis))
    return check_partitions(settings)


def check_partitions(settings: Settings) -> int:
    """Check that the topics have as many partitions as when sites were first stored; return their number.

    With another number the keys of sites hash to other partitions, without their states. Redis stores the number.

    Raises:
        UserError: The number differs, or a server does not respond.
    """
    topic = Topics(settings.kafka.prefix).events
    found = partition_count(settings, topic)
    before = asyncio.run(remembered_partitions(settings.redis, topic, found))
    if before not in (None, found):
        raise UserError(more_partitions(topic, found, before or 0))
    return found


def run_worker(settings: Settings) -> None:
    """Run a worker until it is stopped (SIGTERM, SIGINT), after checking its servers and topics.

    Raises:
        UserError: Kafka, its topics, Redis or the web port failed a check.
        SystemExit: The same, after it was logged, if the log is in JSON.
    """
    worker = settings.worker
    logging_config = program_log.configure(worker, worker.name)
    with program_log.exit_on_errors(worker.log_format):
        partitions = await_servers(settings)
        bound(worker.web_host, worker.web_port).close()
        if worker.shared_by(partitions) > 1:
            run_crew(settings, partitions)
        else:
            from streams.worker.process import run_process  # large import; the supervisor does not need it

            run_process(settings, partitions, logging_config)
