"""A worker joins or leaves every three seconds while Redis is slow: the outputs equal a replay.

Run it for five minutes: `TESTS_STORM_SECONDS=300 pytest -m long tests/integration/test_storm.py`.
"""

import os
import random
import signal
import threading
import time
from contextlib import ExitStack, closing
from itertools import cycle
from pathlib import Path

import pytest

from deploy.local.stack import LocalStack
from deploy.local.up import WorkerProcess
from tests.support.deployment import Deployment, busy_sites, meanwhile, settings_on, unique

SECONDS = float(os.environ.get("TESTS_STORM_SECONDS", "30"))
EVERY_S, SLOW_S = 3.0, 0.4
PATIENCE_S = 600.0
SITES = ("alder", "birch", "cedar", "oak")

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]


def test_storm_of_joining_workers_with_slow_redis_equals_replay(stack: LocalStack, tmp_path: Path) -> None:
    worker = {"checkpoint_events": 100, "checkpoint_seconds": 0.5, "session_timeout_seconds": 30.0, "processes": 1}
    settings = settings_on(stack.kafka.bootstrap, stack.redis.url, worker, {"history": 150})
    events = busy_sites(SITES, 300)
    dice, coming = random.Random(1), iter(events)

    def slow_redis(stop: threading.Event) -> None:
        while not stop.wait(1.0):
            os.kill(stack.redis.pid, signal.SIGSTOP)
            time.sleep(SLOW_S)
            os.kill(stack.redis.pid, signal.SIGCONT)

    with closing(Deployment(settings, tmp_path / "first")) as here, ExitStack() as running:
        expected = here.expected(events)
        others = [WorkerProcess(tmp_path / name, here.settings) for name in ("second", "third")]
        for other in others:
            running.callback(other.kill)
        here.worker.start()
        end = time.monotonic() + SECONDS
        with here.fed(coming, len(events) / SECONDS), meanwhile(slow_redis):
            for other in cycle(others):
                time.sleep(EVERY_S)
                if time.monotonic() > end:
                    break
                if other.running:
                    dice.choice((other.stop, other.kill))()
                else:
                    other.start()
        here.send(coming)
        for other in others:
            other.stop()
        here.await_outputs(sum(map(len, expected.values())), PATIENCE_S)
        here.stop()
        assert {where: unique(values) for where, values in here.records().items()} == expected
        for site in SITES:
            assert here.stored(site) == here.expected_in_redis(events, site)
