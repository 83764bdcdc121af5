"""The live jobs of the areas together equal those of the whole site after any event."""

from collections import defaultdict
from typing import Any

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given

from models.engine.engine import Engine
from models.engine.settings import EngineSettings
from models.records import (
    Alter,
    AnyEvent,
    Cancel,
    Capacity,
    End,
    Hold,
    Partition,
    Pool,
    Release,
    Requeue,
    Reservation,
    Resume,
    Start,
    Submit,
    Suspend,
)
from models.site import areas as areas_module
from models.site.areas import JOBS_PER_STEP, Areas
from models.site.job import Phase
from models.site.state import SITE, Scope, SiteState, Totals, micros
from models.site.topology import Topology, request_of
from models.site.topology.layout import Layout
from tests.simulation.cluster import CLUSTER_SITES, Window, generate_for, run_cluster
from tests.support.engines import encoded

GIB, DAY_S, BEGIN = 1 << 30, 86_400, 1_700_000_000

POOLS = [
    Pool(name="thin", nodes=8, cpus=8, memory=32 * GIB),
    Pool(name="gpu", nodes=4, cpus=8, gpus={"a100": 4}, memory=64 * GIB),
    Pool(name="old", nodes=2, cpus=4, memory=8 * GIB),
]
LESS = Pool(name="thin", nodes=8, cpus=8, memory=32 * GIB, down_nodes=3)
BATCH = Partition(name="batch", pools=["thin"], default=True)
GPU = Partition(name="gpu", pools=["gpu"])
OLD = Partition(name="old", pools=["old"])
SPARE = Partition(name="spare", pools=["thin", "gpu"])

SITES: list[dict[str, Any]] = [
    {},
    {"pools": POOLS, "partitions": [BATCH, GPU, OLD]},
    {"pools": [LESS, *POOLS[1:]], "partitions": [BATCH, GPU, OLD]},
    {"pools": POOLS, "partitions": [BATCH, GPU, OLD, SPARE]},
    {"pools": POOLS[:2], "partitions": []},
]


def site(number: int, time: float = 0.0) -> Capacity:
    return Capacity(site="s", time=time, cpus=104, nodes=14, **SITES[number])


queues = st.sampled_from([None, "batch", "gpu", "old", "spare", "nowhere"])
requests = st.fixed_dictionaries(
    {"cpus": st.integers(1, 70)},
    optional={
        "queue": queues,
        "user": st.sampled_from(["ada", "bob"]),
        "partitions": st.lists(st.sampled_from(["batch", "gpu", "old", "spare"]), min_size=1, max_size=3, unique=True),
        "gpus": st.integers(0, 16),
        "memory": st.integers(0, 64 * GIB),
        "nodes": st.integers(1, 4),
        "walltime": st.sampled_from([60.0, 3600.0]),
    },
)
exclusive = st.booleans()


@st.composite
def events(draw: st.DrawFn) -> list[AnyEvent]:
    """Draw events of a few jobs in any order."""
    sequence: list[AnyEvent] = []
    for number in range(draw(st.integers(1, 40))):
        who: dict[str, Any] = {"site": "s", "time": 1000.0 + 10 * number, "job": str(draw(st.integers(0, 6)))}
        match draw(st.integers(0, 11)):
            case 0 | 1 | 2:
                sequence.append(Submit(**who, **draw(requests), exclusive=draw(exclusive)))
            case 3 | 4:
                where = draw(st.sampled_from([None, "batch", "gpu", "spare"]))
                sequence.append(Start(**who, cpus=draw(st.none() | st.integers(1, 70)), partition=where))
            case 5:
                sequence.append(End(**who))
            case 6:
                sequence.append(Alter(**who, **_altered(draw(requests))))
            case 7:
                sequence.append(draw(st.sampled_from([Hold, Release, Cancel]))(**who))
            case 8:
                sequence.append(Suspend(**who, releases=draw(st.booleans())))
            case 9:
                sequence.append(draw(st.sampled_from([Resume, Requeue]))(**who))
            case _:
                sequence.append(site(draw(st.integers(0, len(SITES) - 1)), who["time"]))
    return sequence


def _altered(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name != "user" and value is not None}


def recount(state: SiteState) -> dict[tuple[Scope, Phase], Totals]:
    """Compute the totals by their definition from the list of jobs."""
    counted: dict[tuple[Scope, Phase], Totals] = defaultdict(Totals)
    for job in state.jobs.values():
        since = job.submit if job.start is None else job.shifted_start
        assert since is not None
        scopes = (("user", job.user), ("group", job.group), ("queue", job.queue))
        for scope in (SITE, *((kind, name) for kind, name in scopes if name is not None)):
            counted[scope, job.phase].add(job.counted_cpus, micros(job.planned_run_s), micros(since))
    return dict(counted)


def filled(topology: Topology, whole: SiteState) -> Areas:
    areas = Areas(topology, whole)
    assert len(list(areas.fill())) == len(whole) // JOBS_PER_STEP
    return areas


def seen(areas: Areas) -> list[Any]:
    """Return the contents of the areas: jobs in order, sums, and the rows of the tables with their requests."""
    found = []
    for state in areas.states:
        table = state.table
        columns = table.columns()
        rows = []
        for key in state.jobs:
            row = table.row(key)
            values = [column[row].item() for column in columns[:8]]
            codes = (("user", columns.user[row]), ("queue", columns.queue[row]))
            names = [table.names(kind)[code] if code >= 0 else None for kind, code in codes]
            rows.append((key, values, names, table.requests[columns.request[row]]))
        jobs = [
            (job.key, job.cpus, job.allocated, job.phase, job.start, job.ready, job.run_s)
            for job in state.jobs.values()
        ]
        found.append((jobs, state._totals, rows))
    return found


@given(events())
def test_prepared_areas_equal_those_built_by_the_event(sequence: list[AnyEvent]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("models.method.JOBS_PER_STEP", 0)
        patch.setattr("models.site.areas.JOBS_PER_STEP", 1)
        settings = EngineSettings(method="median", shadows=(), runtimes="walltime")
        engine, other = Engine("s", settings), Engine("s", settings)
        for event in sequence:
            steps = engine.prepare(event)
            built = [] if steps is None else list(steps)
            assert len(built) == (0 if steps is None else len(engine.context.state))
            prepared = engine.context.prepared
            assert engine.apply(event) == other.apply(event)
            if prepared is not None and steps is not None:
                assert engine.context.areas is prepared or engine.context.capacity is not event
            assert (
                engine.context.areas is None
                or other.context.areas is None
                or (seen(engine.context.areas) == seen(other.context.areas))
            )
        assert engine.checkpoint()[0] == other.checkpoint()[0]


def test_prepared_areas_are_not_used_after_a_change_of_the_jobs() -> None:
    engine = Engine("s", EngineSettings(method="median", shadows=(), runtimes="walltime"))
    for number in range(300):
        engine.apply(Submit(site="s", time=1000.0 + number, job=str(number), cpus=1, queue="batch"))
    steps = engine.prepare(site(1, 2000.0))
    assert steps is not None and len(list(steps)) == 1
    prepared = engine.context.prepared
    engine.apply(Cancel(site="s", time=1999.0, job="7"))
    engine.apply(site(1, 2000.0))
    areas = engine.context.areas
    assert areas is not None and areas is not prepared and sum(map(len, areas.states)) == 299
    assert engine.prepare(site(2, 2001.0)) is None  # only the number of down nodes changed
    assert engine.prepare(site(4, 1999.0)) is None  # stale event


def test_prepared_areas_are_dropped_with_a_rejected_event() -> None:
    engine = Engine("s", EngineSettings(method="median", shadows=(), runtimes="walltime"))
    for number in range(300):
        engine.apply(Submit(site="s", time=1000.0 + number, job=str(number), cpus=1, queue="batch"), 1300.0)
    steps = engine.prepare(site(1, 1e12))
    assert steps is not None and len(list(steps)) == 1 and engine.context.prepared is not None
    engine.apply(site(1, 1e12), 1301.0)
    assert engine.context.areas is None and engine.context.prepared is None


@given(events())
def test_any_event_sequence_keeps_sums_of_site_and_areas(sequence: list[AnyEvent]) -> None:
    engine = Engine("s", EngineSettings(method="median", shadows=(), runtimes="walltime"))
    for event in sequence:
        engine.apply(event)
        context = engine.context
        assert context.state._totals == recount(context.state)
        assert (context.areas is None) == (not context.capacity or not context.capacity.pools)
        if context.areas is None:
            continue
        kept = seen(context.areas)
        for state in context.areas.states:
            assert state._totals == recount(state)
        counts = [sum(state.totals(SITE, phase).count for state in context.areas.states) for phase in Phase]
        assert counts == [context.state.totals(SITE, phase).count for phase in Phase]
        assert kept == seen(filled(context.areas.topology, context.state))
        context.state.follower = context.areas


def test_job_moves_to_the_area_where_it_starts() -> None:
    engine = Engine("s", EngineSettings(method="median", shadows=()))
    engine.apply(site(1))
    for number, queue in enumerate(["batch", "gpu", "batch"]):
        both = ["batch", "gpu"]
        engine.apply(Submit(site="s", time=10.0 + number, job=str(number), queue=queue, partitions=both, gpus=2))
    areas = engine.context.areas
    assert areas is not None
    assert [len(state) for state in areas.states] == [3, 0, 0]
    engine.apply(Start(site="s", time=20.0, job="2", partition="gpu"))
    engine.apply(Start(site="s", time=21.0, job="0", partition="gpu"))
    assert [[key[0] for key in state.jobs] for state in areas.states] == [["1"], ["0", "2"], []]


def test_job_size_in_area_is_its_dominant_share() -> None:
    engine = Engine("s", EngineSettings(method="median", shadows=()))
    engine.apply(site(1))
    engine.apply(Submit(site="s", time=10.0, job="1", queue="gpu", cpus=2, gpus=8))
    job = engine.context.state.jobs["1", 0]
    view, there = engine.context.of(job)
    assert (job.cpus, view.cpus, view.requested_cpus, there.cpus) == (2, 16, 2, 32)
    assert there.state.totals(SITE, Phase.QUEUED).cpus == 16
    assert request_of(view) == request_of(job)
    assert view.estimates is job.estimates


def test_layouts_of_new_areas_are_built_once(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[Layout] = []

    def build(*given: Any) -> Layout:
        built.append(Layout(*given))
        return built[-1]

    monkeypatch.setattr(areas_module, "Layout", build)
    engine = Engine("s", EngineSettings(method="median", shadows=()))
    for number, expected in ((1, 3), (2, 3), (3, 2)):  # other areas, the same areas with nodes down, other areas
        engine.apply(site(number, float(number)))
        found = engine.context.areas
        assert found is not None and found.layouts == built and len(built) == expected
        assert [layout.topology for layout in built] == [found.topology] * expected
        built.clear()


def test_site_without_topology_shares_its_objects_with_methods() -> None:
    engine = Engine("s", EngineSettings(method="median", shadows=()))
    engine.apply(Capacity(site="s", time=0.0, cpus=8))
    engine.apply(Submit(site="s", time=10.0, job="1", cpus=2))
    context, job = engine.context, engine.context.state.jobs["1", 0]
    assert context.of(job)[0] is job
    assert context.of(job)[1] is context
    assert context.views() == [context]


@pytest.mark.parametrize("name", ["mixed", "shared"])
def test_restored_engine_emits_the_same_records(name: str) -> None:
    window = Reservation(name="upgrade", start=BEGIN + 2 * DAY_S, end=BEGIN + 2.5 * DAY_S, maintenance=True)
    simulated = CLUSTER_SITES[name]
    cluster = msgspec.structs.replace(simulated.cluster, windows=(Window(BEGIN + 3600, window),))
    sequence = list(run_cluster(generate_for(simulated, seed=3, days=0.7, start_time=BEGIN), cluster, "s"))[:300]
    blend = EngineSettings(shadows=(), runtimes="walltime")
    first = Engine("s", blend)
    for event in sequence[:200]:
        first.apply(event)
    state, changes = first.checkpoint()
    again = Engine.load(state, changes.started, changes.runs, blend, changes.rows)
    assert first.context.areas is not None
    assert again.context.areas is not None
    assert seen(again.context.areas) == seen(first.context.areas)
    for event in sequence[200:]:
        assert encoded(again.apply(event)) == encoded(first.apply(event))
