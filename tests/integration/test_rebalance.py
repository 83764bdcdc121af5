"""Workers join and leave while twenty sites send events: states move, and the outputs equal a replay."""

from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest

from deploy.local.up import WorkerProcess
from streams.broker.admin import holder_of
from tests.support.deployment import Deploy, busy_sites, sites, unique, until

pytestmark = pytest.mark.timeout(1800)

SITES = tuple(f"site-{number:02d}" for number in range(20))
PARTITIONS = 6
SESSION_S = 80.0
"""The maximum, so that no worker loses its membership on a busy machine."""

PACE = 100
"""Events a second while workers join and leave."""


def each_by_one(*workers: WorkerProcess) -> bool:
    """Return True if each worker serves sites and exactly one worker serves each site."""
    try:
        served = [sites(worker) for worker in workers]
    except OSError:  # a page timed out
        return False
    return all(served) and Counter(site for some in served for site in some) == Counter(SITES)


@pytest.mark.long
def test_rebalance_of_twenty_sites_equals_replay(deploy: Deploy, tmp_path: Path) -> None:
    here = deploy(partitions=PARTITIONS, worker={"session_timeout_seconds": SESSION_S}, history=50)
    events = busy_sites(SITES, 40)
    expected = here.expected(events)
    coming = iter(events)
    first = here.worker
    second, third = (WorkerProcess(tmp_path / name, here.settings) for name in ("second", "third"))
    with ExitStack() as running:
        with here.fed(coming, PACE):
            running.enter_context(first)
            running.enter_context(second)
            until(lambda: each_by_one(first, second))
            running.enter_context(third)
            until(lambda: each_by_one(first, second, third))
            second.stop()
            assert holder_of(here.settings, "second") is None  # it left, so others need not wait for its session
            until(lambda: each_by_one(first, third))
            third.kill()
            third.start()
            until(lambda: each_by_one(first, third))
        here.send(coming)
        here.await_outputs(sum(map(len, expected.values())))
        assert each_by_one(first, third)
    here.read_all()
    assert {where: unique(values) for where, values in here.records().items()} == expected
    for site in SITES:
        assert here.stored(site) == here.expected_in_redis(events, site)
    assert not faults(first, second, third)


def faults(*workers: WorkerProcess) -> list[str]:
    """Return the log lines around the first exception of each worker that has one."""
    logs = [worker.log.read_text().partition("Traceback") for worker in workers]
    return [before[-1000:] + word + after[:4000] for before, word, after in logs if word]
