"""Redis answers but rejects writes: the worker reports it, waits, and loses no record."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.local.stack import Redis, free_port
from tests.support.deployment import Deploy, metrics, parts, readiness, ready, simulated, until

pytestmark = pytest.mark.long

SITE = "alder"

Change = Callable[[Any], Any]

REFUSALS: dict[str, tuple[Change, Change, str]] = {
    "out of memory": (
        lambda client: client.config_set("maxmemory", 1),
        lambda client: client.config_set("maxmemory", 0),
        "used memory > 'maxmemory'",
    ),
    "replica": (
        lambda client: client.replicaof("127.0.0.1", free_port()),
        lambda client: client.replicaof("NO", "ONE"),
        "read only replica",
    ),
}
"""Functions that make Redis reject and accept writes, and its error message."""


@pytest.fixture
def own_redis(require_stack: None, tmp_path: Path) -> Iterator[Redis]:
    with Redis(tmp_path / "redis", config={"maxmemory-policy": "noeviction"}) as server:
        yield server


@pytest.mark.parametrize("why", REFUSALS)
def test_redis_rejecting_writes_is_reported_and_retried(deploy: Deploy, own_redis: Redis, why: str) -> None:
    refuse, take, message = REFUSALS[why]
    here, events = deploy(redis=own_redis.url), simulated(SITE, 150)
    expected = here.expected(events)
    first, second, third = parts(events, 3)

    def shown(name: str) -> float:
        return metrics(here.worker)[name][()]

    here.worker.start()
    here.send(first)
    until(lambda: shown("queuecast_messages_read_total") == len(first))
    until(lambda: shown("queuecast_checkpoint_age_seconds") == 0)
    pid = here.worker.pid
    refuse(here.redis)
    here.send(second)
    until(lambda: shown("queuecast_redis_up") == 0)
    until(lambda: readiness(here.worker)[0] == 503)
    assert message in readiness(here.worker)[1]
    until(lambda: shown("queuecast_checkpoint_age_seconds") > 3)
    assert here.worker.running and here.worker.pid == pid
    take(here.redis)
    until(lambda: ready(here.worker))
    assert shown("queuecast_redis_up") == 1
    here.send(third)
    here.await_outputs(sum(map(len, expected.values())))
    until(lambda: shown("queuecast_checkpoint_age_seconds") == 0)
    assert here.worker.pid == pid
    here.stop()
    assert here.records() == expected
    assert here.stored(SITE) == here.expected_in_redis(events, SITE)
