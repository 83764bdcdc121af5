"""A worker of two processes that share the sites: after a kill of one, the outputs equal a replay."""

import psutil
import pytest

from deploy.local.up import WorkerProcess
from tests.support.deployment import Deploy, busy_sites, metrics, ready, unique, until

pytestmark = pytest.mark.timeout(600)

SITES = tuple(f"site-{number:02d}" for number in range(8))
PARTITIONS = 6


def members(worker: WorkerProcess) -> list[psutil.Process]:
    """Return the processes of a worker."""
    return [one for one in psutil.Process(worker.pid).children() if "streams.worker.process" in one.cmdline()]


@pytest.mark.long
def test_killed_process_restarts_with_records_of_a_replay(deploy: Deploy) -> None:
    here = deploy(partitions=PARTITIONS, worker={"processes": 2}, history=50)
    events = busy_sites(SITES, 40)
    expected, half = here.expected(events), len(events) // 2
    with here.worker as worker:
        until(lambda: ready(worker))
        assert metrics(worker)["queuecast_process_up"] == {("1",): 1.0, ("2",): 1.0}
        with here.fed(iter(events[:half]), pace=300):
            until(lambda: len(served(worker)) == 2)
            members(worker)[0].kill()
            until(lambda: sum(metrics(worker)["queuecast_process_restarts_total"].values()) == 1.0)
            until(lambda: ready(worker))
        here.send(events[half:])
        here.await_outputs(sum(map(len, expected.values())))
        until(lambda: set().union(*served(worker).values()) == set(SITES))
        both = members(worker)
    assert not any(one.is_running() for one in both)
    here.read_all()
    assert {where: unique(values) for where, values in here.records().items()} == expected
    for site in SITES:
        assert here.stored(site) == here.expected_in_redis(events, site)
    assert f"{here.worker.directory.name}-1 ended with exit code -9" in here.log and "Traceback" not in here.log
    name = here.worker.directory.name
    assert f'instance="{name}-1"' in here.log and f'instance="{name}-2"' in here.log


def served(worker: WorkerProcess) -> dict[str, set[str]]:
    """Return the sites that each process serves now, by its number."""
    found: dict[str, set[str]] = {}
    for process, site in metrics(worker).get("queuecast_events_total", {}):
        found.setdefault(process, set()).add(site)
    return found
