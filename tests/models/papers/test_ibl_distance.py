import math
from collections.abc import Iterable

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.papers.ibl.distance import JOB, MAX_EXACT_INTEGER, VECTORS, CategoryState, Instance, Request, nearest
from models.papers.ibl.instance_based import InstanceMemory, Selection, averaged
from models.papers.search.ibl import MIDDLES

VECTOR = st.lists(st.sampled_from([0, 1, 2, 60, 86_400, MAX_EXACT_INTEGER // 64]), min_size=6, max_size=6)


def request(
    group: str | None = "g",
    user: str | None = "ada",
    executable: str | None = "namd",
    queue: str | None = "day",
    cpus: int = 1,
    walltime: float | None = 3600.0,
    time_of_day: float = 0.0,
) -> Request:
    return Request(group, user, executable, queue, cpus, walltime, time_of_day)


def state(free: int | None, vectors: dict[str, list[int]]) -> CategoryState:
    return CategoryState(("queue",), free, [(queue,) for queue in vectors], list(vectors.values()))


def distances(selection: Selection, x: Instance, learnt: Iterable[Instance], job_share: float) -> list[float]:
    """Return the distance of `x` from each of `learnt`, in their order."""
    listed = list(learnt)
    memory = InstanceMemory(len(listed), selection)
    for seen in listed:
        memory.push(seen, 0.0)
    places, found = nearest(memory.point(x), memory.columns, 0, len(listed), len(listed), job_share, -1.0)
    return [float(found[list(places).index(place)]) for place in range(len(listed))]


def test_job_distances_equal_manual_computation() -> None:
    selection = Selection(("user", "cpus", "walltime", "time_of_day"), (), ())
    x = Instance(request(walltime=1000.0, time_of_day=0.0))
    same = Instance(request(walltime=1000.0))
    longer = Instance(request(walltime=3000.0, time_of_day=3600.0))
    other = Instance(request(user="bob", cpus=2, walltime=None))
    assert distances(selection, x, [same, longer, other], 1.0) == pytest.approx(
        [0.0, math.sqrt((1.0**2 + 1.0**2) / 4), math.sqrt(3 / 4)]
    )
    half = Instance(request(walltime=2000.0))
    assert distances(selection, x, [half, longer], 1.0)[0] == pytest.approx(math.sqrt(0.5**2 / 4))


def test_ranges_include_the_job_itself() -> None:
    selection = Selection(("walltime",), (), ())
    x, near, far = (Instance(request(walltime=walltime)) for walltime in (5000.0, 4000.0, 1000.0))
    assert distances(selection, x, [near, far], 1.0) == pytest.approx([0.25, 1.0])


def test_state_distances_equal_manual_computation() -> None:
    selection = Selection((), ("queue",), ("free_cpus", "running_jobs", "queued_demand"))
    x = Instance(request(), state(10, {"day": [3, 0, 0, 0, 0, 100], "night": [1, 0, 0, 0, 0, 0]}))
    y = Instance(request(), state(30, {"day": [1, 0, 0, 0, 0, 60], "week": [2, 0, 0, 0, 0, 40]}))
    z = Instance(request(), state(50, {}))
    # Running: |3-1| + |1-0| + |0-2| of 4 + 3; demand: 40 + 40 of 200. An empty site has the maximum distance.
    expected = [math.sqrt((0.5**2 + (5 / 7) ** 2 + 0.4**2) / 3), 1.0]
    assert distances(selection, x, [y, z], 0.0) == pytest.approx(expected)
    assert distances(selection, z, [z, y], 0.0)[0] == 0.0


def test_job_and_state_distances_are_weighted() -> None:
    selection = Selection(("user",), ("queue",), ("queued_jobs",))
    x = Instance(request(), state(0, {"day": [0, 3, 0, 0, 0, 0]}))
    y = Instance(request(user="bob"), state(0, {"day": [0, 1, 0, 0, 0, 0]}))
    assert distances(selection, x, [y], 0.25) == [pytest.approx(0.25 * 1.0 + 0.75 * 0.5)]
    assert distances(selection, x, [y], 1.0) == [1.0]


def test_missing_values_have_the_maximum_distance() -> None:
    for selection, unknown in (
        (Selection(("user",), (), ()), Instance(request(user=None))),
        (Selection(("walltime",), (), ()), Instance(request(walltime=None))),
    ):
        assert distances(selection, unknown, [unknown, Instance(request())], 1.0) == [1.0, 1.0]
        assert distances(selection, Instance(request()), [unknown, Instance(request())], 1.0) == [1.0, 0.0]
    selection = Selection((), ("queue",), ("free_cpus", "queued_jobs"))
    known, other_policy = state(1, {"day": [1] * 6}), CategoryState(("user",), 1, [("ada",)], [[1] * 6])
    for unknown_state in (None, other_policy):
        x = Instance(request(), unknown_state)
        assert distances(selection, x, [Instance(request(), known)], 0.0) == [1.0]
        assert distances(selection, Instance(request(), known), [x, Instance(request(), known)], 0.0) == [1.0, 0.0]


names = st.sampled_from(["a", "b", None])


requests = st.builds(
    Request,
    names,
    names,
    names,
    names,
    st.integers(1, 4),
    st.none() | st.floats(1.0, 1e6),
    st.floats(0.0, 86_399.0),
)


states = st.none() | st.builds(state, st.none() | st.integers(0, 64), st.dictionaries(st.sampled_from("abc"), VECTOR))


seen_jobs = st.builds(Instance, requests, states)


@given(x=seen_jobs, learnt=st.lists(seen_jobs, min_size=1, max_size=6), share=st.sampled_from([0.0, 0.25, 0.5, 1.0]))
def test_distances_are_within_0_and_1_and_0_for_equals(x: Instance, learnt: list[Instance], share: float) -> None:
    selection = Selection(policy=("queue",))
    found = distances(selection, x, learnt, share)
    assert all(0.0 <= distance <= 1.0 for distance in found)
    known = None not in msgspec.structs.astuple(x.request) and x.state is not None and x.state.free_cpus is not None
    assert not known or distances(selection, x, [*learnt, x], share)[-1] == 0.0


@given(seen_jobs, seen_jobs, st.sampled_from((*JOB, "free_cpus", *VECTORS)))
def test_distance_of_one_attribute_is_symmetric(x: Instance, y: Instance, attribute: str) -> None:
    selection = Selection((attribute,), ("queue",), (attribute,))  # type: ignore[arg-type]
    share = 1.0 if attribute in JOB else 0.0
    assert distances(selection, x, [y], share) == distances(selection, y, [x], share)


def remembered(size: int, walltimes: Iterable[float]) -> InstanceMemory:
    """Return a memory of jobs with different walltimes only, each of which predicts its number."""
    memory = InstanceMemory(size, Selection(("walltime",), (), ()))
    for number, walltime in enumerate(walltimes):
        memory.push(Instance(request(walltime=walltime)), float(number))
    return memory


def near(memory: InstanceMemory, walltime: float, most: int, above: float = -1.0) -> list[float]:
    point = memory.point(Instance(request(walltime=walltime)))
    places, _ = nearest(point, memory.columns, memory.first, memory.count, most, 1.0, above)
    return [float(memory.columns.value[place]) for place in places]


def test_nearest_are_sorted_by_distance_then_latest_first() -> None:
    memory = remembered(8, [100.0, 200.0, 300.0, 200.0, 500.0])
    assert near(memory, 210.0, 3) == [3.0, 1.0, 2.0]
    assert near(memory, 210.0, 99) == [3.0, 1.0, 2.0, 0.0, 4.0]
    assert near(memory, 210.0, 2, above=2.0) == [3.0, 4.0]


def test_memory_at_limit_drops_the_oldest() -> None:
    memory = remembered(3, [100.0, 200.0, 300.0, 400.0, 500.0])
    assert near(memory, 100.0, 99) == [2.0, 3.0, 4.0]


@given(st.lists(seen_jobs, min_size=1, max_size=40), st.integers(1, 9), seen_jobs)
def test_memory_ring_equals_a_new_memory_of_the_same_jobs(learnt: list[Instance], size: int, x: Instance) -> None:
    ring, fresh = (InstanceMemory(size, Selection(policy=("queue",))) for _ in range(2))
    for number, seen in enumerate(learnt):
        ring.push(seen, float(number))
    for number, seen in list(enumerate(learnt))[-size:]:
        fresh.push(seen, float(number))
    results = []
    for memory in (ring, fresh):
        places, found = nearest(memory.point(x), memory.columns, memory.first, memory.count, 5, 0.5, -1.0)
        results.append((memory.columns.value[places].tolist(), found.tolist()))
    assert results[0] == results[1]


def test_averaged_uses_kernel_weights_for_mean_and_median() -> None:
    values, distance = np.array([0.0, 30.0, 90.0]), np.array([0.0, 0.5, 1.0])
    weights = [1.0, math.exp(-0.25), math.exp(-1.0)]
    assert averaged(values, distance, "mean") == pytest.approx((30 * weights[1] + 90 * weights[2]) / sum(weights))
    assert averaged(values, distance, "median") == 30.0
    assert averaged(values, np.array([0.0, 2.0, 2.0]), "median") == 0.0
    assert [averaged(values[:1], distance[:1], middle) for middle in MIDDLES] == [0.0, 0.0]
