"""Grid estimates: time of refresh, records sent and records deleted."""

import asyncio
import json
import time
from collections.abc import Awaitable
from itertools import count
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from aiokafka.errors import NodeNotReadyError
from faust.exceptions import NotReady

from models.engine.engine import Engine
from models.engine.settings import EngineSettings
from models.records import Capacity, GridEstimate, Partition, Pool, Submit
from models.simulation import generate, run
from models.site.shapes import WALLTIMES, Shape, grid, sizes
from streams.settings import EstimateSettings
from streams.worker.answers import estimate_grid as grid_module
from streams.worker.answers.estimate_grid import EstimateGrids, key_of, site_time
from streams.worker.answers.time_slicer import HANDING_S, TimeSlicer
from streams.worker.checkpoint.stored_site import SiteHandle

ENGINE = EngineSettings(method="median", shadows=(), bounds="", history=50)
FREELY = EstimateSettings(cpu_share=1.0)


class Topic:
    """Record the sent values by key, and their partitions."""

    def __init__(self) -> None:
        self.values: dict[bytes, bytes | None] = {}
        self.partitions: set[int] = set()
        self.error: Exception | None = None

    async def send(self, key: bytes, value: bytes | None, partition: int) -> Awaitable[Any]:
        if self.error is not None:
            raise self.error
        self.values[key] = value
        self.partitions.add(partition)
        arrived: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        arrived.set_result(None)
        return arrived


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def handle(site: str = "alder", jobs: int = 60, partition: int = 3) -> SiteHandle:
    engine = Engine(site, ENGINE)
    for event in run(generate(3, jobs, cpus=32, load=0.9), 32, site):
        engine.apply(event)
    return SiteHandle(engine, partition)


def keeper(*handles: SiteHandle, settings: EstimateSettings = FREELY) -> tuple[EstimateGrids, Topic, Clock]:
    topic, clock = Topic(), Clock()
    return EstimateGrids({one.engine.site: one for one in handles}, settings, topic.send, clock), topic, clock


numbers = count(10_000)


def submit(here: SiteHandle, cpus: int = 1, queue: str | None = "batch") -> None:
    site, time = here.engine.site, here.engine.time
    here.engine.apply(Submit(site=site, time=time, job=str(next(numbers)), cpus=cpus, queue=queue, walltime=600.0))


def test_grid_sends_a_record_of_each_shape_to_its_partition() -> None:
    here = handle()
    grids, topic, _ = keeper(here)
    asyncio.run(grids.refresh(here))
    shapes = grid(sizes(32), WALLTIMES, tuple(here.engine.open_queues(8)))
    assert set(topic.values) == {key_of("alder", shape) for shape in shapes} and topic.partitions == {3}
    estimate = msgspec.json.decode(topic.values[key_of("alder", shapes[0])] or b"", type=GridEstimate)
    assert (estimate.site, estimate.cpus, estimate.walltime, estimate.queue) == ("alder", *shapes[0][:3])
    assert b"gpus" not in (topic.values[key_of("alder", shapes[0])] or b"")
    assert grids.records == len(shapes)


def test_estimate_shapes_follow_configured_limits_and_queues() -> None:
    here = handle()
    settings = EstimateSettings(walltimes=(60.0,), max_cpus=4, queues=("night",))
    grids, _, _ = keeper(here, settings=settings)
    assert grids.shapes(here.engine) == [Shape(1, 60.0, "night"), Shape(2, 60.0, "night"), Shape(4, 60.0, "night")]


def test_grid_uses_partitions_as_queues_with_gpus_in_the_key() -> None:
    here = handle()
    pools = [Pool(name="thin", nodes=4, cpus=4), Pool(name="card", nodes=2, cpus=8, gpus={"a100": 2})]
    partitions = [
        Partition(name="batch", pools=["thin"], max_walltime=60.0),
        Partition(name="gpu", pools=["card"]),
        Partition(name="old", pools=["thin"], up=False),
    ]
    time = here.engine.time
    here.engine.apply(Capacity(site="alder", time=time, cpus=32, pools=pools, partitions=partitions))
    settings = EstimateSettings(cpu_share=1.0, walltimes=(60.0, 600.0), queues=("nowhere",))
    grids, topic, _ = keeper(here, settings=settings)
    asyncio.run(grids.refresh(here))
    batch = [["alder", cpus, 60.0, "batch"] for cpus in (1, 2, 4, 8, 16)]
    gpu = [["alder", 4 * gpus, time_s, "gpu", gpus] for gpus in (1, 2, 4) for time_s in (60.0, 600.0)]
    assert sorted(map(json.loads, topic.values)) == sorted([*batch, *gpu])
    estimate = json.loads(topic.values[key_of("alder", Shape(4, 600.0, "gpu", 1))] or b"")
    assert (estimate["queue"], estimate["cpus"], estimate["gpus"]) == ("gpu", 4, 1)
    few = keeper(here, settings=EstimateSettings(max_queues=1))[0].shapes(here.engine)
    assert {shape.queue for shape in few} == {"batch"}


def test_grid_refresh_needs_enough_change_and_time() -> None:
    here = handle()
    grids, _, clock = keeper(here, settings=msgspec.structs.replace(FREELY, min_change=0.05))
    for _ in range(40):
        submit(here)
    assert grids.due(here)
    asyncio.run(grids.refresh(here))
    clock.now = 31.0
    assert not grids.due(here)  # no event since
    submit(here, cpus=1)
    assert not grids.due(here)  # a change of one in 41 jobs and in 32 CPUs
    submit(here, cpus=1)
    assert grids.due(here)
    clock.now = 29.0
    assert not grids.due(here)  # below the minimum age


def test_grid_is_due_after_capacity_change_or_maximum_age() -> None:
    here = handle(jobs=150)
    grids, _, clock = keeper(here, settings=msgspec.structs.replace(FREELY, min_change=1.0))
    asyncio.run(grids.refresh(here))
    clock.now = 31.0
    here.engine.apply(Capacity(site="alder", time=here.engine.time, cpus=16))
    assert grids.due(here)
    asyncio.run(grids.refresh(here))
    clock.now += 899.0
    assert not grids.due(here)
    clock.now += 1.0
    assert grids.due(here)


def test_grid_of_unknown_size_is_due_after_capacity_event() -> None:
    here = SiteHandle(Engine("alder", ENGINE), 3)
    grids, topic, _ = keeper(here)
    submit(here)
    asyncio.run(grids.refresh(here))
    assert not grids.due(here) and topic.values == {}
    here.engine.apply(Capacity(site="alder", time=here.engine.time, cpus=16))
    assert grids.due(here)


def test_grid_of_reloaded_site_is_due_immediately() -> None:
    here = handle()
    grids, _, _ = keeper(here)
    asyncio.run(grids.refresh(here))
    here.engine = handle().engine
    assert grids.due(here)


def halved() -> tuple[Any, ...]:
    """Build a site that lost half of its CPUs after its estimates were sent.

    Returns:
        Its handle, its grid, the topic, and the keys of the shapes that no longer fit.
    """
    here = handle()
    grids, topic, _ = keeper(here)
    asyncio.run(grids.refresh(here))
    too_large = {key for key in topic.values if msgspec.json.decode(key)[1] == 32}
    here.engine.apply(Capacity(site="alder", time=here.engine.time, cpus=16))
    return here, grids, topic, too_large


def test_grid_refresh_deletes_records_of_unavailable_shapes() -> None:
    here, grids, topic, too_large = halved()
    asyncio.run(grids.refresh(here))
    gone = {key for key, value in topic.values.items() if value is None}
    assert gone == too_large


def test_grid_deletes_unavailable_shapes_after_failed_refreshes() -> None:
    here, grids, topic, too_large = halved()
    topic.error = NodeNotReadyError()
    for _ in range(2):
        with pytest.raises(NodeNotReadyError):
            asyncio.run(grids.refresh(here))
    topic.error = None
    asyncio.run(grids.refresh(here))
    gone = {key for key, value in topic.values.items() if value is None}
    assert gone == too_large != set()


def test_failed_grid_refresh_is_retried_without_events() -> None:
    here = handle()
    grids, topic, clock = keeper(here)
    topic.error = NodeNotReadyError()
    with pytest.raises(NodeNotReadyError):
        asyncio.run(grids.refresh(here))
    topic.error, clock.now = None, clock.now + FREELY.refresh_seconds
    assert grids.due(here)
    asyncio.run(grids.refresh(here))
    assert topic.values and not grids.due(here)


def test_grid_removes_shapes_that_a_reset_site_lost() -> None:
    here, grids, topic, too_large = halved()
    grids.handles, grids.is_restoring = {}, lambda site: site == "alder"

    async def run() -> None:
        looking = asyncio.ensure_future(grids.run())
        await asyncio.sleep(0.1)
        looking.cancel()
        grids.handles = {"alder": here}
        await grids.refresh(here)

    asyncio.run(run())
    assert {key for key, value in topic.values.items() if value is None} == too_large != set()


def test_grid_refresh_stops_when_site_is_revoked() -> None:
    here = handle()
    topic, handles = Topic(), {"alder": here}

    async def send(key: bytes, value: bytes | None, partition: int) -> Awaitable[Any]:
        handles.clear()
        return await topic.send(key, value, partition)

    asyncio.run(EstimateGrids(handles, FREELY, send).refresh(here))
    assert len(topic.values) == 1


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (RuntimeError("a flaw"), "Cannot compute grid estimates\nTraceback"),
        (ConnectionError("away"), "Cannot compute grid estimates\nTraceback"),
        (NodeNotReadyError(), "Cannot send grid estimates: NodeNotReadyError"),
        (NotReady("ended"), "Cannot send grid estimates: NotReady('ended')\n"),
    ],
)
def test_grid_error_at_one_site_keeps_other_sites_refreshed(
    error: Exception, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    here, other = handle("alder"), handle("birch")
    grids, topic, _ = keeper(here, other)

    def broken(engine: Engine) -> list[Shape]:
        if engine.site == "alder":
            raise error
        return [Shape(1, 60.0)]

    grids.shapes = broken  # type: ignore[method-assign]

    async def until_the_other_is_served() -> None:
        task = asyncio.create_task(grids.run())
        while not topic.values:
            await asyncio.sleep(0.01)
        assert not task.done()
        task.cancel()

    asyncio.run(until_the_other_is_served())
    assert set(topic.values) == {key_of("birch", Shape(1, 60.0))}
    assert message in caplog.text


def test_grid_refresh_pauses_after_each_slice_of_work(monkeypatch: pytest.MonkeyPatch) -> None:
    here = handle()
    ticks, pauses = count(), list[float]()  # each reading of the clock takes 1.5 ms

    def clock() -> float:
        return next(ticks) * 0.0015

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    settings, topic = msgspec.structs.replace(FREELY, cpu_share=0.2), Topic()
    keeping = EstimateGrids({"alder": here}, settings, topic.send, Clock(), turns=TimeSlicer(clock=clock))
    monkeypatch.setattr(grid_module, "time", SimpleNamespace(perf_counter=clock, time=time.time))
    monkeypatch.setattr(asyncio, "sleep", sleep)
    asyncio.run(keeping.refresh(here))
    # The clock is read four times a slice: by the time slicer, at the start, and after each of two shapes.
    rests = [seconds for seconds in pauses if seconds > HANDING_S]
    assert rests.count(pytest.approx(4 * 0.006)) == len(topic.values) // 2  # 6 ms of work take a fifth of the time


def test_grid_shown_estimates_cover_four_shapes() -> None:
    here = handle()
    grids, _, _ = keeper(here)
    asyncio.run(grids.refresh(here))
    shown = dict(grids.shown(grids.estimates["alder"]))
    assert [(shape.cpus, shape.walltime) for shape in shown] == [(1, 3600), (4, 14400), (8, 43200), (16, 86400)]


def test_site_time_is_wall_time_unless_events_differ() -> None:
    engine = handle().engine
    assert site_time(engine, lambda: engine.time + 3600.0) == engine.time + 3600.0
    assert site_time(engine, lambda: engine.time + 3 * 86_400.0) == engine.time
    assert site_time(engine, lambda: engine.time - 3 * 86_400.0) == engine.time


def test_live_site_ages_while_idle_and_replayed_one_does_not() -> None:
    for arrives_after_s, grows in ((5.0, True), (86_400.0 * 365, False)):
        engine = Engine("alder", ENGINE)
        for minute in range(100):
            time = 1.7e9 + 60.0 * minute
            engine.apply(Submit(site="alder", time=time, job=str(minute)), time + arrives_after_s)
        monday = engine.time + 3 * 86_400.0
        assert site_time(engine, lambda now=monday: now) == (monday if grows else engine.time)  # type: ignore[misc]
