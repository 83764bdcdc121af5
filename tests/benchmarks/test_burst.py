"""A worker processes a large backlog in as little memory as a small one, and the lag falls.

A larger backlog: `TESTS_BURST_EVENTS=1000000 pytest -s -m benchmark tests/benchmarks/test_burst.py`.
"""

import os
import time
from collections.abc import Callable, Iterator
from itertools import count, islice

import psutil
import pytest

from models.records import AnyEvent, Cancel, Submit
from tests.support.deployment import PARTITIONS, Deployment, jobs_predicted, metrics

pytestmark = pytest.mark.timeout(7200)

EVENTS = int(os.environ.get("TESTS_BURST_EVENTS", "60000"))
SMALL_BACKLOG = 6000
SITES = ("alder", "birch", "cedar", "hazel", "oak")  # over all partitions, two of them in one
MAX_MEMORY_RATIO = 1.15
"""Maximum ratio of a worker's peak memory with a large backlog to that with a small one."""

MIN_EVENTS_PER_S = 200.0
"""Minimum event rate; a slower worker fails the test."""


def test_burst_processing_memory_is_bounded(deploy: Callable[..., Deployment]) -> None:
    here = deploy(history=6000, worker={"checkpoint_events": 1000})
    events = brief_jobs()
    here.send(islice(events, 2 * SMALL_BACKLOG))
    work_off(here, 2 * SMALL_BACKLOG)  # so that the engines' memory is allocated before
    here.send(islice(events, SMALL_BACKLOG))
    small, _ = work_off(here, SMALL_BACKLOG)
    here.send(islice(events, EVENTS))
    large, lags = work_off(here, EVENTS)
    print(
        f"\npeak {small:.0f} MB with {SMALL_BACKLOG} events waiting, "
        f"{large:.0f} MB with {EVENTS}; lag {lags[0]:.0f} at first"
    )
    assert large < MAX_MEMORY_RATIO * small
    assert lags[0] > EVENTS / 2 and lags == sorted(lags, reverse=True)
    assert jobs_predicted(here) == (3 * SMALL_BACKLOG + EVENTS) // 2


def brief_jobs() -> Iterator[AnyEvent]:
    """Yield jobs that are cancelled a second after their submit: a site's state soon stops growing."""
    for number in count():
        site, job, time_s = SITES[number % len(SITES)], str(number), float(number)
        yield Submit(site=site, time=time_s, job=job, user=f"u{number % 50}", queue="batch", cpus=8, walltime=3600.0)
        yield Cancel(site=site, time=time_s + 1.0, job=job)


def work_off(here: Deployment, events: int) -> tuple[float, list[float]]:
    """Run the worker for these events; return its peak memory (MB) and the lags."""
    worker, peak, lags, read = here.worker, 0.0, list[float](), 0.0
    worker.start()
    process, deadline = psutil.Process(worker.pid), time.monotonic() + 60 + events / MIN_EVENTS_PER_S
    while read < events or lags[-1:] != [0.0]:
        assert time.monotonic() < deadline, f"{read:.0f} of {events} read; {here.log[-2000:]}"
        metric_values = metrics(worker)
        read, lag = metric_values["queuecast_messages_read_total"][()], metric_values["queuecast_consumer_lag_messages"]
        peak = max(peak, process.memory_info().rss / 1e6)
        if len(lag) == PARTITIONS:  # a partition has a lag after its first message
            lags.append(sum(lag.values()))
        time.sleep(0.05)
    here.worker.stop()
    assert "Traceback" not in here.log
    return peak, lags
