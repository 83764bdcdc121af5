"""Time without predictions of a site when workers are killed, restarted, join and leave."""

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import islice, pairwise
from pathlib import Path

import msgspec

from deploy.local.up import WorkerProcess
from models.records import AnyEvent, Capacity, Submit
from models.simulation import generate
from tests.support.deployment import Deploy, Deployment, interleaved, metrics, simulated, sites, until

BACK_S = 10.0
"""Target time from a worker's kill and immediate restart to its first prediction."""

MOVED_S = 5.0
"""Target time from the last prediction of a site's worker to the first of its next worker."""

SLACK = 2.0
"""Factor allowed over the target, as other work may share the machine. Measured values are printed."""

LIVE, HISTORY = 10_000, 6_000
PACE = 20
"""Events a second of the large site."""

SITES = tuple(f"site-{number:02d}" for number in range(20))
SITES_PACE = 100
"""Events a second of the twenty sites together."""


def submits(site: str, begin: float, seed: int = 7) -> Iterator[Submit]:
    """Yield pending jobs, submitted once a second."""
    for number, job in enumerate(generate(seed, 2 * LIVE, cpus=128, load=0.8)):
        yield msgspec.structs.replace(job.submission(site), time=begin + number, job=f"late-{number}")


def times(here: Deployment) -> dict[str, list[float]]:
    """Return the times of each site's distinct predictions (Unix seconds), ascending."""
    here.read_all()
    first: dict[str, dict[bytes, float]] = defaultdict(dict)
    for message in here.messages[here.topics.predictions]:
        first[message.key.decode()].setdefault(message.value, message.timestamp / 1000)
    return {site: sorted(found.values()) for site, found in first.items()}


def pause(made: list[float], since: float) -> float:
    """Return the longest gap between predictions (s), from the last one before `since`."""
    earlier = [moment for moment in made if moment <= since]
    return max(after - before for before, after in pairwise(earlier[-1:] + made[len(earlier) :]))


def killed_and_back(worker: WorkerProcess) -> float:
    """Kill and restart a worker; return the time of the kill."""
    at = time.time()
    worker.kill()
    worker.start()
    return at


def show(title: str, rows: list[tuple[str, float, float]]) -> None:
    print(f"\n{title:58} {'measured':>9} {'wanted':>7}")
    for name, measured, wanted in rows:
        print(f"{name:58} {measured:7.1f} s {wanted:5.0f} s")


def test_large_site_recovers_and_moves_in_time(deploy: Deploy, tmp_path: Path) -> None:
    here = deploy(partitions=2, history=HISTORY, worker={"checkpoint_events": 1000, "checkpoint_seconds": 2.0})
    first, second = here.worker, WorkerProcess(tmp_path / "second", here.settings)
    with first:
        large = one_that_moves(here, second)
        coming = grown(here, large)

        def again(since: float) -> None:
            until(lambda: times(here)[large][-1] > since)
            time.sleep(2.0)

        with here.fed(coming, PACE), ExitStack() as later:
            again(time.time())
            at_kill = killed_and_back(first)
            again(at_kill)
            back = next(moment for moment in times(here)[large] if moment > at_kill) - at_kill
            at_join = time.time()
            later.enter_context(second)
            until(lambda: large in sites(second))
            again(time.time())
            joined = pause(times(here)[large], at_join)
            at_leave = time.time()
            second.stop()
            until(lambda: large in sites(first))
            again(time.time())
            left = pause(times(here)[large], at_leave)
    rows = [
        ("its worker is killed and started again", back, BACK_S),
        ("another worker joins and gets it", joined, MOVED_S),
        ("its worker stops, and another gets it", left, MOVED_S),
    ]
    show(f"a site of {LIVE} waiting jobs and {HISTORY} in its history", rows)
    assert all(measured < SLACK * wanted for _, measured, wanted in rows)


def one_that_moves(here: Deployment, other: WorkerProcess) -> str:
    """Return a site that moves to another worker when it joins; that worker stops again."""
    here.send(Capacity(site=site, time=0.0, cpus=128) for site in SITES)
    until(lambda: sites(here.worker) == set(SITES))
    with other:
        until(lambda: bool(sites(other)))
        moves = min(sites(other))
    until(lambda: sites(here.worker) == set(SITES))
    return moves


def grown(here: Deployment, site: str) -> Iterator[AnyEvent]:
    """Send a large site to the worker; return its next events."""
    past: list[AnyEvent] = simulated(site, HISTORY)
    coming = submits(site, past[-1].time)
    events = past + list(islice(coming, LIVE))
    here.send(events)
    until(lambda: metrics(here.worker)["queuecast_events_total"][site,] >= len(events), 400)
    return coming


def test_twenty_sites_recover_in_time_after_worker_kill(deploy: Deploy, tmp_path: Path) -> None:
    here = deploy(partitions=6, history=HISTORY)
    workers = [here.worker, *(WorkerProcess(tmp_path / name, here.settings) for name in ("second", "third"))]
    coming = interleaved(*(islice(submits(site, 0.0, seed), 1000) for seed, site in enumerate(SITES)))
    with ExitStack() as running, here.fed(iter(coming), SITES_PACE):
        for worker in workers:
            running.enter_context(worker)
        until(lambda: all(map(sites, workers)) and set().union(*map(sites, workers)) == set(SITES))
        theirs = sites(workers[1])
        at = killed_and_back(workers[1])
        until(lambda: all(times(here)[site][-1] > at for site in theirs))
        time.sleep(2.0)
        made = times(here)
    back = max(next(moment for moment in made[site] if moment > at) - at for site in theirs)
    others = max(pause(made[site], at) for site in set(SITES) - theirs)
    show(
        "twenty sites, one of three workers is killed and started again",
        [
            (f"the last of its {len(theirs)} sites is back", back, BACK_S),
            ("longest pause of the others", others, MOVED_S),
        ],
    )
    assert back < SLACK * BACK_S
    assert others < SLACK * MOVED_S
