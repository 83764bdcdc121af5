"""Waits at a site with partitions, GPUs, limits and reservations, from a simulation of its pools."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.engine.asking.what_if import consider
from models.engine.engine import Engine
from models.engine.settings import EngineSettings
from models.records import Capacity, End, Limit, Partition, Pool, Prediction, Reservation, Start, Submit
from models.site.job import EXTRAS, Job
from models.waits.order.pooled import Jobs, PoolTimeline, ReportedLimits, occupied, schedule_rooms
from models.waits.order.room_kernels import PlacedJobs
from models.waits.order.schedule import Limits, line_of, schedule
from tests.support.queues import Row, aging_of, queued_of, running_of

HOUR_S, DAY_S = 3600.0, 86_400.0

rows = st.tuples(st.integers(1, 8), st.floats(1.0, 1e4), st.floats(1.0, 3.0), st.integers(0, 3)).map(
    lambda job: (job[0], job[1], job[1] * job[2], job[3])
)


@given(st.lists(rows, max_size=6), st.lists(rows, min_size=1, max_size=15), st.sampled_from([np.inf, 6.0]))
def test_single_cpu_group_equals_schedule_without_topology(on: list[Row], queued: list[Row], several: float) -> None:
    table, cpus = np.array([*on, *queued], np.float64).reshape(-1, 4).T, 8 + sum(row[0] for row in on)
    sizes, users = table[0].astype(np.int64), table[3].astype(np.int64)
    first, limits = len(on), Limits(several=several)
    jobs_queued = queued_of(queued)
    line, aging = line_of(jobs_queued, np.arange(len(queued))), aging_of(jobs_queued, 10, cpus)
    kinds, kind = np.unique(sizes, return_inverse=True)
    demand = np.stack([kinds, 0 * kinds, 0 * kinds], axis=1)[:, None, :].astype(np.float64)
    parts, group = np.zeros((len(kinds), 1), np.int64), np.zeros(len(kinds), np.int64)
    world = PoolTimeline(np.zeros(1), np.array([[[cpus, 0.0, 0.0]]], np.float64), demand, parts, group)
    nothing = np.zeros((len(sizes), 0), np.int64)
    jobs = Jobs(kind, sizes, table[1].copy(), table[2].copy(), users, nothing)
    shares = occupied(world.holds[:1], demand, parts, kind, np.arange(first))
    running = PlacedJobs(shares, shares[:0], kind[:first], demand, demand)
    declared = ReportedLimits(np.zeros((0, 5)), np.zeros((0, 5)), np.zeros((len(kinds), 5)))
    places = np.arange(first, len(sizes))
    found, _ = schedule_rooms(world, jobs, running, places, 10, limits, declared, -1, False)
    assert found.tolist() == schedule(8, running_of(on), line, aging, limits, -1, False)[0].tolist()


def site(*reservations: Reservation, limits: tuple[Limit, ...] = (), time: float = 0.0) -> Capacity:
    """Build `cpu` with 4 nodes of 8 CPUs, `gpu` with 2 nodes of 4 GPUs each, and `spare` with both."""
    return Capacity(
        site="s",
        time=time,
        cpus=48,
        nodes=6,
        pools=[Pool(name="thin", nodes=4, cpus=8), Pool(name="fat", nodes=2, cpus=8, gpus={"a100": 4})],
        partitions=[
            Partition(name="cpu", pools=["thin"], default=True, tier=1, max_walltime=10 * DAY_S),
            Partition(name="gpu", pools=["fat"], tier=1),
            Partition(name="spare", pools=["thin", "fat"]),
        ],
        limits=list(limits),
        reservations=list(reservations),
    )


class EngineDriver:
    """An engine that receives jobs whose walltimes are their run times."""

    def __init__(self, capacity: Capacity, method: str = "blend") -> None:
        self.engine = Engine("s", EngineSettings(method=method, shadows=(), runtimes="walltime"))
        self.engine.apply(capacity)
        self.jobs = 0

    def queue(self, walltime: float, time: float = 0.0, **request: Any) -> Prediction:
        self.jobs += 1
        (prediction,) = self.engine.apply(
            Submit(site="s", time=time, job=str(self.jobs), walltime=walltime, **{"queue": "cpu"} | request)
        )
        assert isinstance(prediction, Prediction)
        return prediction

    def run(self, walltime: float, time: float = 0.0, **request: Any) -> None:
        self.queue(walltime, time, **request)
        self.engine.apply(Start(site="s", time=time, job=str(self.jobs)))

    def query(self, walltime: float = HOUR_S, time: float = 0.0, **request: Any) -> Prediction:
        rare = {
            name: request.pop(name)
            for name in ("partitions", "qos", "reservation", "exclusive", "tasks")
            if name in request
        }
        fields = {"queue": "cpu"} | request
        (prediction,) = consider(
            self.engine, [Job("", 0, time, walltime=walltime, extras=EXTRAS.replaced(**rare), **fields)]
        )
        return prediction

    def waits_s(self, *walltime: float, **request: Any) -> float | None:
        return self.query(*walltime, **request).predicted_wait_s


methods = pytest.mark.parametrize("method", ["order", "blend"])


@methods
def test_wait_depends_on_free_cpus_of_the_partition(method: str) -> None:
    driver = EngineDriver(site(), method)
    for number in range(4):
        driver.run((2 + number) * HOUR_S, cpus=8)
    driver.queue(5 * HOUR_S, cpus=8)
    assert driver.waits_s(queue="gpu") == pytest.approx(0.0, abs=1.0)
    assert driver.waits_s(queue="cpu", cpus=8) == pytest.approx(3 * HOUR_S, rel=0.03)
    assert driver.waits_s(queue="cpu", cpus=32) == pytest.approx(7 * HOUR_S, rel=0.03)


@methods
def test_nodes_that_partitions_share_are_counted_once(method: str) -> None:
    driver = EngineDriver(site(), method)
    driver.run(2 * HOUR_S, queue="cpu", cpus=32)
    assert driver.waits_s(queue="spare", cpus=16) == pytest.approx(0.0, abs=1.0)
    assert driver.waits_s(queue="spare", cpus=24) == pytest.approx(2 * HOUR_S, rel=0.03)
    driver.run(HOUR_S, queue="spare", cpus=16)
    assert driver.waits_s(queue="gpu") == pytest.approx(HOUR_S, rel=0.03)


@methods
def test_wait_depends_on_scarce_gpus(method: str) -> None:
    driver = EngineDriver(site(), method)
    driver.run(2 * HOUR_S, queue="gpu", cpus=1, gpus=4)
    driver.run(3 * HOUR_S, queue="gpu", cpus=1, gpus=3)
    assert driver.waits_s(queue="gpu", cpus=2, gpus=1) == pytest.approx(0.0, abs=1.0)
    assert driver.waits_s(queue="gpu", cpus=2, gpus=2) == pytest.approx(2 * HOUR_S, rel=0.03)
    assert driver.waits_s(queue="gpu", cpus=14) == pytest.approx(0.0, abs=1.0)


@methods
def test_partition_of_higher_tier_starts_first(method: str) -> None:
    driver = EngineDriver(site(), method)
    driver.run(HOUR_S, queue="spare", cpus=48)
    driver.queue(9 * HOUR_S, queue="spare", cpus=48)
    assert driver.waits_s(8 * HOUR_S, time=60.0, queue="cpu", cpus=32) == pytest.approx(HOUR_S, rel=0.05)


@methods
def test_declared_limits_are_respected(method: str) -> None:
    limits = (Limit(per="user", partition="gpu", gpus=2), Limit(per="account", name="physics", jobs=1))
    driver = EngineDriver(site(limits=limits), method)
    driver.run(2 * HOUR_S, queue="gpu", user="ada", gpus=2)
    driver.run(3 * HOUR_S, queue="cpu", user="bob", account="physics")
    assert driver.waits_s(queue="gpu", user="ada", gpus=1) == pytest.approx(2 * HOUR_S, rel=0.03)
    assert driver.waits_s(queue="gpu", user="bob", gpus=1) == pytest.approx(0.0, abs=1.0)
    assert driver.waits_s(queue="cpu", user="ada") == pytest.approx(0.0, abs=1.0)
    assert driver.waits_s(queue="cpu", user="cid", account="physics") == pytest.approx(3 * HOUR_S, rel=0.03)


@pytest.mark.parametrize(("run_s", "wait_s"), [(HOUR_S, 3 * HOUR_S), (0.5 * HOUR_S, 0.0)])
def test_known_run_times_simulate_single_nodes(run_s: float, wait_s: float) -> None:
    driver = EngineDriver(site(), "order")
    driver.run(HOUR_S, cpus=1)
    driver.engine.apply(End(site="s", time=run_s, job="1"))
    for _ in range(4):
        driver.run(3 * HOUR_S, HOUR_S, cpus=5)
    prediction = driver.query(time=HOUR_S, cpus=4, tasks=1)
    assert prediction.predicted_wait_s == pytest.approx(wait_s, rel=0.03, abs=1.0)
    assert ("its 6 nodes are simulated by pool" in prediction.reason) == (wait_s == 0.0)


def test_large_area_simulates_pools_and_reports_the_reason() -> None:
    driver = EngineDriver(
        Capacity(site="s", time=0.0, cpus=65 * 8, pools=[Pool(name="thin", nodes=65, cpus=8)]), "order"
    )
    for _ in range(65):
        driver.run(2 * HOUR_S, queue=None, cpus=5)
    prediction = driver.query(queue=None, cpus=4, tasks=1)
    assert prediction.predicted_wait_s == pytest.approx(0.0, abs=1.0)
    assert prediction.reason.endswith("; its 65 nodes are simulated by pool")


MAINTENANCE = Reservation(name="upgrade", start=2 * DAY_S, end=2 * DAY_S + 8 * HOUR_S, maintenance=True)
AFTER_S = 2 * DAY_S + 8 * HOUR_S


@methods
def test_jobs_overlapping_maintenance_start_after_it(method: str) -> None:
    driver = EngineDriver(site(), method)
    before = driver.queue(3 * DAY_S, cpus=8)
    assert before.predicted_wait_s == 0.0
    driver.engine.apply(site(MAINTENANCE, time=10.0))
    assert driver.waits_s(DAY_S, time=10.0) == pytest.approx(0.0, abs=1.0)
    what_if, submitted = driver.query(3 * DAY_S, time=10.0), driver.queue(3 * DAY_S, time=10.0)
    assert what_if.predicted_start == pytest.approx(AFTER_S, abs=60.0)
    assert submitted.predicted_start == pytest.approx(AFTER_S, abs=60.0)
    context, methods_of = driver.engine.context, driver.engine.methods
    assert all(not start < AFTER_S for view in context.views() for start in methods_of.starts(view, 20.0))
    first = context.state.jobs["1", 0]
    again = methods_of.re_estimate(first, context, 20.0)
    assert again is None or again.wait_s == pytest.approx(AFTER_S, abs=60.0)


def test_bounds_are_not_before_the_end_of_a_maintenance() -> None:
    driver = EngineDriver(site())
    time = 0.0
    for number in range(60):
        driver.run(600.0, time, cpus=8)
        driver.engine.apply(End(site="s", time=time + 600.0, job=str(number + 1)))
        time += 1000.0
    queued = driver.queue(3 * DAY_S, time, cpus=8)
    assert queued.predicted_wait_s == pytest.approx(0.0, abs=5.0)
    records = driver.engine.apply(site(MAINTENANCE, time=time))
    what_if = driver.query(3 * DAY_S, time)
    assert what_if.bounds is not None
    assert min(what_if.bounds.values()) >= AFTER_S - time
    assert what_if.p_immediate_start == 0.0
    later = [record for record in records if isinstance(record, Prediction)]
    assert [record.predicted_start for record in later] == [pytest.approx(AFTER_S, abs=1.0)]


def test_job_without_walltime_uses_the_partition_limit() -> None:
    driver = EngineDriver(site(MAINTENANCE))
    (prediction,) = consider(driver.engine, [Job("", 0, 0.0, queue="cpu", cpus=1)])
    assert prediction.predicted_start == pytest.approx(AFTER_S, abs=60.0)


def test_job_of_several_areas_starts_in_the_first_with_room() -> None:
    apart = site()
    apart = Capacity(site="s", time=0.0, cpus=48, pools=apart.pools, partitions=apart.partitions[:2])
    driver = EngineDriver(apart)
    driver.run(2 * HOUR_S, queue="cpu", cpus=32)
    assert driver.waits_s(cpus=8) == pytest.approx(2 * HOUR_S, rel=0.03)
    assert driver.waits_s(cpus=8, partitions=["cpu", "gpu"]) == pytest.approx(0.0, abs=1.0)


def test_job_that_cannot_run_has_its_reason_and_no_wait() -> None:
    driver = EngineDriver(site())
    prediction = driver.query(queue="gpu", gpus=8, nodes=1)
    assert (prediction.predicted_wait_s, prediction.reason) == (
        None,
        "needs 8 GPUs a node: none in gpu has more than 4",
    )
    submitted = driver.queue(HOUR_S, queue="gpu", gpus=8, nodes=1)
    assert (submitted.predicted_wait_s, submitted.reason) == (None, prediction.reason)


def test_down_nodes_of_one_area_do_not_affect_another() -> None:
    pools = [Pool(name="thin", nodes=4, cpus=8, down_nodes=3), Pool(name="fat", nodes=8, cpus=8)]
    partitions = [Partition(name="cpu", pools=["thin"]), Partition(name="gpu", pools=["fat"])]
    driver = EngineDriver(
        Capacity(site="s", time=0.0, cpus=96, nodes=12, down_nodes=3, pools=pools, partitions=partitions)
    )
    assert driver.query(queue="cpu").reason == "nodes down"
    assert driver.waits_s(queue="gpu") == 0.0
