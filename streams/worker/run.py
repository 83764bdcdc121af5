"""Runs a worker, after making sure that all it needs is there."""

import asyncio
import ctypes
import gc
import logging
import socket
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_after_delay, wait_chain, wait_fixed

from models.engine.warm_up import warm_up
from streams.broker.admin import check_group, check_topics, partition_count
from streams.broker.topics import Topics, more_partitions, worker_uses
from streams.errors import Unreachable, UserError
from streams.process import program_log
from streams.process.compiling import compiling_alone
from streams.settings import Settings, WorkerSettings
from streams.training.processes import processes
from streams.worker.app import build_app
from streams.worker.checkpoint.server import check_redis, remembered_partitions
from streams.worker.faust_compat import is_of_broker, run_until_stopped

log = logging.getLogger(__name__)

PAUSES_S = (1.0, 2.0, 5.0, 10.0)
"""Seconds between looks at servers that do not answer when a worker starts; the last one is repeated."""


def check_port(settings: WorkerSettings) -> None:
    """Make sure that the web port is free.

    Raises:
        UserError: it is not free, or the host is not this machine's.
    """
    host, port = settings.web_host, settings.web_port
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        raise UserError(f"web port {port} of {host}: {error.strerror}; choose another with --web-port") from None


def await_servers(settings: Settings, sleep: Callable[[float], None] = time.sleep) -> int:
    """Make sure that Kafka, its topics and Redis are as they must be; wait a while for those that do not answer.

    Returns how many partitions the topics have.

    Raises:
        UserError: something is not as it must be, or did not answer within `worker.start_seconds`.
    """
    most, pauses = settings.worker.start_seconds, wait_chain(*map(wait_fixed, PAUSES_S))

    def left(state: RetryCallState) -> float:
        return most - (state.seconds_since_start or 0.0)

    def tell(state: RetryCallState) -> None:
        error = state.outcome and state.outcome.exception()
        log.warning(
            "not yet: %s (next look in %.0f s, the last one in %.0f s)", error, state.upcoming_sleep, left(state)
        )

    attempts = Retrying(
        retry=retry_if_exception_type(Unreachable),
        wait=lambda state: min(pauses(state), left(state)),
        stop=stop_after_delay(most),
        before_sleep=tell,
        sleep=sleep,
        reraise=True,
    )
    return attempts(_check_servers, settings)


def _check_servers(settings: Settings) -> int:
    check_topics(settings, worker_uses(settings))
    check_group(settings)
    asyncio.run(check_redis(settings.redis))
    return check_partitions(settings)


def check_partitions(settings: Settings) -> int:
    """Make sure that the topics have as many partitions as when sites were first stored; returns how many.

    With another number sites' keys hash to other partitions, away from their states. Redis remembers the number.

    Raises:
        UserError: it is another one, or a server does not answer.
    """
    topic = Topics(settings.kafka.prefix).events
    found = partition_count(settings, topic)
    before = asyncio.run(remembered_partitions(settings.redis, topic, found))
    if before not in (None, found):
        raise UserError(more_partitions(topic, found, before or 0))
    return found


def _give_memory_back() -> None:
    """Have glibc return large blocks when they are freed, such as a state on its way to the changelog."""
    mmap_threshold, arena_max = -3, -8
    with suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(mmap_threshold, 1 << 17)
        libc.mallopt(arena_max, 2)


def _collect_seldom() -> None:
    """Have Python look for cycles rarely, and never in what is there for good.

    By itself it goes through everything that is alive each time that this has grown by a quarter: 0.4 s of the event
    loop with few jobs, many seconds with a million. What goes with a site or a job holds no cycles.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 100)


def run_worker(settings: Settings) -> None:
    """Run a worker until it is told to stop (SIGTERM, SIGINT), after making sure that all it needs is there.

    Raises:
        UserError: Kafka, its topics, Redis or the web port are not as they must be.
        SystemExit: the same, after the log said so, when the log is in JSON.
    """
    logging_config = program_log.configure(settings.worker)
    try:
        partitions = await_servers(settings)
        check_port(settings.worker)
        _run(settings, partitions, logging_config)
    except UserError as error:
        if settings.worker.log_format == "text":
            raise
        log.critical("%s", error)
        raise SystemExit(1) from None


def _run(settings: Settings, partitions: int, logging_config: dict[str, Any]) -> None:
    _give_memory_back()
    started = time.perf_counter()
    processes()
    with compiling_alone():
        warm_up(settings.engine)
    _collect_seldom()
    log.info("compiled in %.1f s", time.perf_counter() - started)
    with tempfile.TemporaryDirectory(prefix="queuecast-") as directory:
        app = build_app(settings, directory, partitions)
        failed = run_until_stopped(app, loglevel=settings.worker.log_level, logging_config=logging_config)
    if failed is None:
        return
    if isinstance(failed, UserError):
        raise failed
    if is_of_broker(failed):
        raise UserError(f"kafka at {settings.kafka.bootstrap}: the broker closed the connections ({failed!r})")
    raise UserError(f"the worker stopped: {failed!r}; its log says more")
