"""Gain of predictions that use a site's partitions, nodes and GPUs.

The jobs of simulated clusters (`tests.simulation.cluster`: real nodes, GPUs, memory, limits, a window of maintenance)
are predicted twice by the same method: from the full events, and from the same events of a site with only a number of
CPUs: without pools, partitions, limits, reservations and GPUs, but with queue names. The baselines are also shown. Jobs
of the first `LEARNING_DAYS` days are not scored.

What-if is queried with known run times and no later jobs: the true wait is that of a copy of the cluster.

The environment selects: `TESTS_PARTITIONS_SITES=mixed` names the sites, `TESTS_PARTITIONS_SEEDS=1,2` the workloads,
`TESTS_PARTITIONS_DAYS` how long they are and `TESTS_PARTITIONS_METHOD` the method. With
`TESTS_PARTITIONS_PRIORITIES=1` the scheduler reports the priorities of pending jobs before each what-if query;
with `TESTS_PARTITIONS_REASONS=1` it reports the pending reasons of jobs when they are predicted.

    .venv/bin/python -m pytest -m benchmark -s tests/benchmarks/test_partitions.py
"""

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
import pytest

from models.engine.engine import Engine
from models.engine.settings import EngineSettings
from models.measures import Accuracy
from models.method_registry import DEFAULT
from models.records import AnyEvent, Capacity, Outcome, Reservation, Start, Submit
from models.simulation.workload import DAY
from tests.simulation.cluster import CLUSTER_SITES, ClusterSite, Window, generate_for, run_cluster
from tests.simulation.grid import MONDAY
from tests.support.probes import Probe, Watched, as_planned, probes

pytestmark = pytest.mark.timeout(7200)

RULES = ("zero", "median")
LEARNING_DAYS = 7
OPTIONS = {
    name: os.environ.get(f"TESTS_PARTITIONS_{name}")
    for name in ("SITES", "SEEDS", "DAYS", "METHOD", "PRIORITIES", "REASONS")
}
DAYS = float(OPTIONS["DAYS"] or 28)
METHOD = OPTIONS["METHOD"] or DEFAULT
SEEDS = [int(seed) for seed in (OPTIONS["SEEDS"] or "1,2").split(",")]

PROBED_DAYS = (4, 6, 8, 10, 12)
PROBES = 40
"""Number of what-if queries per partition and day, around noon."""

Scores = dict[tuple[str, str], Accuracy]
"""Accuracy by method and partition ("": all partitions)."""


def with_maintenance(site: ClusterSite) -> ClusterSite:
    """Return the site with eight hours of maintenance in the third week, announced two days ahead."""
    begin = MONDAY + 16 * DAY
    reservation = Reservation(name="upgrade", start=float(begin), end=begin + DAY / 3, maintenance=True)
    windows = (Window(begin - 2 * DAY, reservation),)
    return site._replace(cluster=msgspec.structs.replace(site.cluster, windows=windows))


def events_of(site: ClusterSite, seed: int) -> list[AnyEvent]:
    """Yield all events of a site."""
    jobs = generate_for(site, seed, DAYS, MONDAY)
    return list(run_cluster(jobs, site.cluster, "a", reports_reasons=OPTIONS["REASONS"] is not None))


def as_processors(events: Iterable[AnyEvent]) -> Iterator[AnyEvent]:
    """Yield the same events of a site with only a number of CPUs."""
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
    """Score the predictions of the method and of the baselines."""
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


@pytest.mark.parametrize("name", (OPTIONS["SITES"] or ",".join(CLUSTER_SITES)).split(","))
def test_predictions_with_known_partitions_have_smaller_error(name: str) -> None:
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
    """Print the measures by partition and for all jobs, then the change of the mean error."""
    partitions = sorted({partition for _, partition in known}, key=lambda one: (one == "", one))
    jobs = known[METHOD, ""].jobs
    print(f"\n\n{name}: {jobs} jobs; seeds {SEEDS}, {DAYS:.0f} days each\n")
    print("| partition: AAE h / PPE1200 / within ×2 | jobs | zero | median | as CPUs | with partitions | AAE |")
    print("|---" * 7 + "|")
    for partition in partitions:
        rows = [known[rule, partition] for rule in RULES]
        rows += [unknown[METHOD, partition], known[METHOD, partition]]
        cells = ["{AAE:.2f} / {PPE1200:.2f} / {x2:.0%}".format(**one.measures()) for one in rows]
        without, found = (scores[METHOD, partition].measures()["AAE"] for scores in (unknown, known))
        print(f"| {partition or 'all'} | {rows[0].jobs} | {' | '.join(cells)} | {found / without - 1.0:+.0%} |")


@pytest.mark.parametrize("name", (OPTIONS["SITES"] or ",".join(CLUSTER_SITES)).split(","))
def test_what_if_with_known_run_times_and_no_later_jobs_is_exact(name: str) -> None:
    found: dict[str, list[Probe]] = defaultdict(list)
    settings = EngineSettings(method=METHOD, shadows=(), runtimes="walltime")
    moments = [MONDAY + day * DAY + DAY // 2 for day in PROBED_DAYS]
    for seed in SEEDS:
        site = CLUSTER_SITES[name]
        jobs = as_planned(generate_for(site, seed, PROBED_DAYS[-1] + 2, MONDAY))
        watched = Watched(site.cluster, settings, MONDAY, reports_priorities=OPTIONS["PRIORITIES"] is not None)
        for probe in probes(watched, jobs, moments, PROBES):
            found[probe.partition].append(probe)
    show_probes(name, found)
    assert _share_right([probe for group in found.values() for probe in group]) >= 0.85


def show_probes(name: str, found: dict[str, list[Probe]]) -> None:
    """Print the shares of exact what-if answers by partition, for all jobs and for jobs that waited."""
    print(f"\n\n{name}: what-if by {METHOD}; seeds {SEEDS}\n")
    print("| partition | probes | right | had to wait | of these right | mean wait h | mean error h |")
    print("|---" * 7 + "|")
    rows = [*sorted(found.items()), ("all", [probe for probed in found.values() for probe in probed])]
    for partition, group in rows:
        waited = [probe for probe in group if probe.true_s > 0.0]
        wait_h = sum(probe.true_s for probe in group) / len(group) / 3600
        error_h = sum(abs(probe.predicted_s - probe.true_s) for probe in group) / len(group) / 3600
        shares = f"{_share_right(group):.0%} | {len(waited)} | {_share_right(waited):.0%}"
        print(f"| {partition} | {len(group)} | {shares} | {wait_h:.2f} | {error_h:.2f} |")


def _share_right(group: Sequence[Probe]) -> float:
    return sum(probe.is_right for probe in group) / max(len(group), 1)
