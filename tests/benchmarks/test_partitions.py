"""What it is worth to know a site's partitions, nodes and GPUs.

The jobs of simulated clusters (`models.simulation.cluster`: real nodes, GPUs, memory, limits, a window of maintenance)
are predicted twice by the same method: from all that the events say, and from the same events as of a site that is a
number of processors: without pools, partitions, limits, reservations and GPUs, but with the queues' names. The trivial
rules stand beside. Jobs of the first `LEARNING_DAYS` days are not scored.

By the environment: `QUEUECAST_PARTITIONS_SITES=mixed` names the sites, `QUEUECAST_PARTITIONS_SEEDS=1,2` the workloads,
`QUEUECAST_PARTITIONS_DAYS` how long they are and `QUEUECAST_PARTITIONS_METHOD` the method.

    .venv/bin/python -m pytest -m benchmark -s tests/benchmarks/test_partitions.py
"""

import os
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import pytest

from models.engine.engine import Engine
from models.engine.settings import EngineSettings
from models.measures import Accuracy
from models.records import AnyEvent, Capacity, Outcome, Reservation, Start, Submit
from models.registry import DEFAULT
from models.simulation.cluster import CLUSTER_SITES, ClusterSite, Window, generate_for, run_cluster
from models.simulation.grid import MONDAY
from models.simulation.workload import DAY

pytestmark = pytest.mark.timeout(7200)

RULES = ("zero", "median")
LEARNING_DAYS = 7
ASKED = {name: os.environ.get(f"QUEUECAST_PARTITIONS_{name}") for name in ("SITES", "SEEDS", "DAYS", "METHOD")}
DAYS = float(ASKED["DAYS"] or 28)
METHOD = ASKED["METHOD"] or DEFAULT
SEEDS = [int(seed) for seed in (ASKED["SEEDS"] or "1,2").split(",")]

Scores = dict[tuple[str, str], Accuracy]
"""By method and partition ("": all of them)."""


def with_maintenance(site: ClusterSite) -> ClusterSite:
    """The site with eight hours of maintenance in the third week, announced two days ahead."""
    begin = MONDAY + 16 * DAY
    told = Reservation(name="upgrade", start=float(begin), end=begin + DAY / 3, maintenance=True)
    windows = (Window(begin - 2 * DAY, told),)
    return site._replace(cluster=msgspec.structs.replace(site.cluster, windows=windows))


def events_of(site: ClusterSite, seed: int) -> list[AnyEvent]:
    """All that happens at a site."""
    jobs = generate_for(site, seed, DAYS, MONDAY)
    return list(run_cluster(jobs, site.cluster, "a"))


def as_processors(events: Iterable[AnyEvent]) -> Iterator[AnyEvent]:
    """The same events as of a site that is a number of processors."""
    no_topology: dict[str, Any] = {"pools": [], "partitions": [], "limits": [], "reservations": []}
    no_shape: dict[str, Any] = {"partitions": None, "gpus": 0, "gpu_types": None, "tasks": None, "exclusive": False}
    for event in events:
        if isinstance(event, Capacity):
            yield msgspec.structs.replace(event, **no_topology)
        elif isinstance(event, Submit):
            yield msgspec.structs.replace(event, **no_shape)
        elif isinstance(event, Start):
            yield msgspec.structs.replace(event, partition=None, gpus=None)
        else:
            yield event


def scores_of(events: Iterable[AnyEvent], found: Scores) -> None:
    """Add how well the jobs were predicted by the method and the trivial rules."""
    engine = Engine("a", EngineSettings(method=METHOD, shadows=RULES, publish_shadows=True))
    queues: dict[str, str] = {}
    for event in events:
        if isinstance(event, Submit):
            queues[event.job] = event.queue or ""
        for record in engine.apply(event):
            ended = isinstance(record, Outcome) and record.actual_run_s is not None
            if ended and record.made_at >= MONDAY + LEARNING_DAYS * DAY:
                for queue in ("", queues[record.job]):
                    _add(found.setdefault((record.method, queue), Accuracy()), record)


def _add(accuracy: Accuracy, outcome: Outcome) -> None:
    predicted_s, wait_s, run_s = outcome.predicted_wait_s, outcome.actual_wait_s, outcome.actual_run_s
    assert run_s is not None
    accuracy.add_wait(predicted_s, wait_s)
    accuracy.add_response(predicted_s, wait_s, run_s)


@pytest.mark.parametrize("name", (ASKED["SITES"] or ",".join(CLUSTER_SITES)).split(","))
def test_predictions_are_better_where_partitions_are_known(name: str) -> None:
    known: Scores = {}
    unknown: Scores = {}
    for seed in SEEDS:
        events = events_of(with_maintenance(CLUSTER_SITES[name]), seed)
        scores_of(events, known)
        scores_of(as_processors(events), unknown)
    show(name, known, unknown)
    found, without = (scores[METHOD, ""].measures() for scores in (known, unknown))
    assert found["AAE"] < without["AAE"] and found["x2"] > without["x2"]


def show(name: str, known: Scores, unknown: Scores) -> None:
    """Print the measures by partition, and of all jobs."""
    partitions = sorted({partition for _, partition in known}, key=lambda one: (one == "", one))
    jobs = known[METHOD, ""].jobs
    print(f"\n\n{name}: {jobs} jobs; seeds {SEEDS}, {DAYS:.0f} days each\n")
    print("| partition: AAE h / PPE1200 / within ×2 | jobs | zero | median | as processors | with partitions |")
    print("|---" * 6 + "|")
    for partition in partitions:
        rows = [known[rule, partition] for rule in RULES]
        rows += [unknown[METHOD, partition], known[METHOD, partition]]
        cells = ["{AAE:.2f} / {PPE1200:.2f} / {x2:.0%}".format(**one.measures()) for one in rows]
        print(f"| {partition or 'all'} | {rows[0].jobs} | {' | '.join(cells)} |")
