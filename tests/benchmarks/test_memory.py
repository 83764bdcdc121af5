"""What a site takes of a worker's memory: its resident size with some large sites less that of an empty one."""

from collections.abc import Iterator

import psutil
import pytest

from deploy.local.up import WorkerProcess
from models.records import AnyEvent, Cancel, End, Submit
from models.simulation import generate, run
from tests.benchmarks.light import LIGHT
from tests.support.deployment import Deploy, interleaved, metrics, until

pytestmark = pytest.mark.timeout(1800)

SITES = ("alder", "birch", "cedar", "douglas")
HISTORY = 6000
LIVE = 10_000
MOST_MB = 40.0
"""What a site may take, megabytes (10⁶ bytes)."""

PATIENCE_S = 900.0


def test_memory_of_a_site(deploy: Deploy) -> None:
    here = deploy(**LIGHT, history=HISTORY, worker={"checkpoint_events": 1000, "checkpoint_seconds": 2.0})
    worker = here.worker
    events = interleaved(*(overloaded(site, seed) for seed, site in enumerate(SITES)))
    worker.start()
    empty = rss_mb(worker)
    here.send(events)
    until(lambda: metrics(worker)["queuecast_messages_read_total"][()] == len(events), PATIENCE_S)
    assert full(worker)
    grown = (rss_mb(worker) - empty) / len(SITES)
    here.worker.stop()
    worker.start()
    until(lambda: full(worker), PATIENCE_S)
    loaded = (rss_mb(worker) - empty) / len(SITES)
    print(f"\nempty {empty:.0f} MB; a site {grown:.1f} MB, and {loaded:.1f} MB read back from the stores")
    assert max(grown, loaded) <= MOST_MB


def overloaded(site: str, seed: int) -> Iterator[AnyEvent]:
    """The events of a site whose queue grows, until `LIVE` jobs are there and more than `HISTORY` have started."""
    live = 0
    for event in run(generate(seed, 3 * LIVE, cpus=128, load=1.7), 128, site, "fcfs"):
        live += isinstance(event, Submit) - isinstance(event, End | Cancel)
        yield event
        if live == LIVE:
            return


def full(worker: WorkerProcess) -> bool:
    """Whether the worker has every site with all its jobs."""
    told = metrics(worker)
    live = dict.fromkeys(SITES, 0.0)
    for (_, site), jobs in told["queuecast_live_jobs"].items():
        live[site] += jobs
    history = {site: jobs for (site,), jobs in told["queuecast_history_jobs"].items()}
    return live == dict.fromkeys(SITES, LIVE) and history == dict.fromkeys(SITES, HISTORY)


def rss_mb(worker: WorkerProcess) -> float:
    """The worker's resident size, megabytes."""
    return float(psutil.Process(worker.pid).memory_info().rss / 1e6)
