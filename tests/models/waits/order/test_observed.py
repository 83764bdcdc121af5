"""Usage and limits of users are learned from each attempt, including attempts without a scored wait."""

from collections.abc import Iterable
from math import inf

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from models.engine.engine import Engine
from models.engine.settings import EngineSettings
from models.records import Alter, AnyEvent, Cancel, Capacity, End, Pool, Requeue, Resume, Start, Submit, Suspend
from models.waits.order import LearntOrder
from models.waits.order.inferred_limits import JOBS, PLACE, REFUSED, STARTED
from models.waits.order.site_view import MOST_LOOKS

SITE = "alder"
SETTINGS = EngineSettings(method="order", shadows=(), bounds="", what_if_method="order", history=200)


def learnt(events: Iterable[AnyEvent], cpus: int = 1000) -> LearntOrder:
    engine = Engine(SITE, SETTINGS)
    engine.apply(Capacity(site=SITE, time=0.0, cpus=cpus))
    for event in events:
        engine.apply(event)
    method = engine.methods.waits["order"]
    assert isinstance(method, LearntOrder)
    return method


def used(method: LearntOrder, user: str, now: float) -> float:
    """Return CPU-seconds with the longest half-life, decayed to `now`."""
    return float(method._sums.users.of([user], now)[0, -1])


def array_of(tasks: int, user: str, time: float, cpus: int = 4, limit: int | None = None) -> Submit:
    return Submit(
        site=SITE, time=time, job=user, user=user, cpus=cpus, walltime=3600.0, array_size=tasks, array_limit=limit
    )


def task(user: str, number: int, time: float) -> Start:
    return Start(site=SITE, time=time, job=f"{user}_{number}", array=user)


@pytest.mark.parametrize(
    "reason",
    [
        None,  # two tasks run, the limit is two
        "JobArrayTaskLimit",
        "Licenses",
        "Reservation",
        "PartitionDown",
        "AssocGrpCpuLimit",
        "AssocGrpCPURunMinutesLimit",
        "QOSMaxGRESPerUser",
        "QOSMaxMemoryPerUser",
        "QOSUsageThreshold",
        "BurstBufferStageIn",
        "Nodes_required_for_job_are_DOWN,_DRAINED_or_reserved_for_jobs_in_higher_priority_partitions",
    ],
)
def test_job_with_own_pending_reason_sets_no_user_limit(reason: str | None) -> None:
    events: list[AnyEvent] = [array_of(100, "ada", 1.0, limit=2)]
    events += [task("ada", 1, 2.0), task("ada", 2, 2.0)]
    events += [] if reason is None else [Alter(site=SITE, time=3.0, job="ada", pending_reason=reason)]
    events += [Submit(site=SITE, time=1000.0 + n, job=f"j{n}", user=f"u{n}", cpus=1, walltime=60.0) for n in range(60)]
    assert learnt(events).limits.limits(1000)[:3] == (inf, inf, inf)


def test_array_below_its_limit_counts_as_rejected_by_user_limit() -> None:
    events: list[AnyEvent] = [array_of(100, "ada", 1.0, limit=3)]
    events += [task("ada", 1, 2.0), task("ada", 2, 2.0), task("ada", 3, 2.0)]
    events.append(End(site=SITE, time=600.0, job="ada_2"))
    events += [Submit(site=SITE, time=1000.0 + n, job=f"j{n}", user=f"u{n}", cpus=1, walltime=60.0) for n in range(60)]
    assert learnt(events).limits.limits(1000).jobs == 2


@pytest.mark.parametrize(
    ("reason", "limits"),
    [
        ("QOSMaxJobsPerUserLimit", (inf, inf, 2)),
        ("AssocMaxJobsLimit", (inf, inf, 2)),
        ("QOSMaxCpuPerUserLimit", (inf, 10, inf)),
        ("QOSMaxNodePerUserLimit", (inf, 10, inf)),
        ("Resources", (inf, 10, 2)),
    ],
)
def test_pending_reason_of_a_user_limit_is_counted(reason: str, limits: tuple[float, float, float]) -> None:
    events: list[AnyEvent] = [Submit(site=SITE, time=float(n), job=f"{n}", user="ada", cpus=4) for n in range(1, 4)]
    events += [Start(site=SITE, time=5.0, job=f"{n}") for n in (1, 2)]
    events.append(Alter(site=SITE, time=6.0, job="3", pending_reason=reason))
    events += [Submit(site=SITE, time=1000.0 + n, job=f"j{n}", user=f"u{n}", cpus=1, walltime=60.0) for n in range(60)]
    assert learnt(events).limits.limits(1000)[:3] == limits


@pytest.mark.parametrize("topology", [False, True])
def test_blocked_starts_count_equally_for_array_and_its_tasks(topology: bool) -> None:
    def events(as_arrays: bool) -> Iterable[AnyEvent]:
        if topology:
            yield Capacity(site=SITE, time=0.5, cpus=1000, pools=[Pool(name="p", nodes=100, cpus=10)])
        for number in (1, 2, 3):
            yield Submit(site=SITE, time=1.0, job=f"{number}", user="ada", cpus=4, walltime=1e6)
        yield from (Start(site=SITE, time=2.0, job=f"{number}") for number in (1, 2))
        for number in range(5):
            user, time = f"u{number}", 1000.0 * (number + 1)
            tasks = [f"{user}_{one}" for one in range(8)]
            rows = [array_of(8, user, time, cpus=1)]
            singles = [Submit(site=SITE, time=time, job=task, user=user, cpus=1, walltime=3600.0) for task in tasks]
            yield from rows if as_arrays else singles
            yield from (Start(site=SITE, time=time + 1, job=task, array=user if as_arrays else None) for task in tasks)

    whole, single = (learnt(events(as_arrays)).limits.counts[REFUSED] for as_arrays in (True, False))
    assert whole[JOBS].sum() > 30 and np.allclose(whole[:PLACE], single[:PLACE])


def test_user_of_several_arrays_withdraws_as_with_single_jobs() -> None:
    def events(as_arrays: bool) -> Iterable[AnyEvent]:
        for name, time in (("a", 1.0), ("b", 2.0)):
            tasks = [f"{name}_{one}" for one in range(4)]
            request = {"site": SITE, "time": time, "user": "ada", "cpus": 2, "walltime": 3600.0}
            row = [Submit(job=name, array_size=4, **request)]
            yield from row if as_arrays else [Submit(job=task, **request) for task in tasks]
        for number, job in enumerate(["a_0", "a_1", "b_0", "b_1"]):
            array = {"array": job[0]} if as_arrays else {}
            yield Start(site=SITE, time=100.0 * number + 50.0, job=job, **array)
        for number, job in enumerate(["a_2", "b_2"]):
            array = {"array": job[0]} if as_arrays else {}
            yield Cancel(site=SITE, time=100.0 * number + 1000.0, job=job, **array)

    whole, single = (learnt(events(as_arrays))._sums.withdrawals for as_arrays in (True, False))
    assert whole.seen[0].sum() > 0.0 and np.allclose(whole.seen, single.seen)
    assert np.allclose(whole.users, single.users)


@pytest.mark.parametrize("topology", [False, True])
def test_order_is_learned_from_tasks_as_from_single_jobs(topology: bool) -> None:
    def events(as_arrays: bool) -> Iterable[AnyEvent]:
        if topology:
            yield Capacity(site=SITE, time=0.5, cpus=80, pools=[Pool(name="p", nodes=10, cpus=8)])
        for name, user in (("a", "ada"), ("b", "bob"), ("c", "ada")):
            tasks = [f"{name}_{one}" for one in range(4)]
            time = 1.0 + ord(name)
            request = {"site": SITE, "time": time, "user": user, "cpus": 2, "walltime": 3600.0, "queue": name}
            row = [Submit(job=name, array_size=4, **request)]
            yield from row if as_arrays else [Submit(job=task, **request) for task in tasks]
        for number, job in enumerate(["b_0", "a_0", "c_0", "a_1", "c_1", "b_1", "c_2"]):
            time, array = 1000.0 + 100.0 * number, {"array": job[0]} if as_arrays else {}
            yield Start(site=SITE, time=time, job=job, **array)
            if job in ("a_0", "c_1"):
                yield Requeue(site=SITE, time=time + 20.0, job=job, state="preempted")
        yield from (Start(site=SITE, time=2000.0, job=job, attempt=1) for job in ("c_1", "a_0"))

    whole, single = (learnt(events(as_arrays), cpus=80).preference.weights for as_arrays in (True, False))
    assert np.abs(whole).max() > 0.0 and np.allclose(whole, single)


def test_single_array_does_not_outweigh_all_observations() -> None:
    events = [Submit(site=SITE, time=1.0, job=f"{number}", user="ada", cpus=4, walltime=1e6) for number in (1, 2, 3)]
    events += [array_of(1_000_000, "eve", 1000.0, cpus=1)]
    starts = [Start(site=SITE, time=2.0, job=f"{number}") for number in (1, 2)]
    assert learnt([*events[:3], *starts, *events[3:]]).limits.counts[REFUSED, JOBS].sum() == MOST_LOOKS


def test_array_tasks_all_count_as_usage() -> None:
    events: list[AnyEvent] = [array_of(10, "ada", 1.0)]
    events += [task("ada", n, 10.0) for n in range(10)]
    events += [End(site=SITE, time=1010.0, job=f"ada_{n}", state="completed") for n in range(10)]
    assert used(learnt(events), "ada", 1010.0) == pytest.approx(40_000, rel=0.01)


@pytest.mark.parametrize(
    "last",
    [
        Requeue(site=SITE, time=1010.0, job="1", state="preempted"),
        Requeue(site=SITE, time=1010.0, job="1", state="node_fail"),
        End(site=SITE, time=1010.0, job="1", state="preempted"),
        End(site=SITE, time=1010.0, job="1", state="completed"),
    ],
)
@pytest.mark.parametrize("late", [False, True])
def test_attempt_counts_as_usage_for_any_end(last: AnyEvent, late: bool) -> None:
    submit = Submit(site=SITE, time=1.0, job="1", user="ada", cpus=4, walltime=3600.0, late=late)
    assert used(learnt([submit, Start(site=SITE, time=10.0, job="1"), last]), "ada", 1010.0) == pytest.approx(
        4000, rel=0.01
    )


def test_suspended_time_does_not_count_as_usage() -> None:
    events = [
        Submit(site=SITE, time=1.0, job="1", user="ada", cpus=4, walltime=3600.0),
        Start(site=SITE, time=10.0, job="1"),
        Suspend(site=SITE, time=110.0, job="1", releases=True),
        Resume(site=SITE, time=910.0, job="1"),
        End(site=SITE, time=1010.0, job="1", state="completed"),
    ]
    assert used(learnt(events), "ada", 1010.0) == pytest.approx(800, rel=0.01)


@pytest.mark.parametrize("state", ["preempted", "node_fail"])
def test_interrupted_attempts_do_not_affect_run_times(state: str) -> None:
    def events() -> Iterable[AnyEvent]:
        for number in range(40):
            time = 10_000.0 * (number + 1)
            yield Submit(site=SITE, time=time, job=f"{number}", user="ada", cpus=4, walltime=3600.0)
            yield Start(site=SITE, time=time + 1.0, job=f"{number}")
            if number % 2:
                yield End(site=SITE, time=time + 61.0, job=f"{number}", state=state)
            else:
                yield End(site=SITE, time=time + 3601.0, job=f"{number}", state="completed")

    assert learnt(events()).knows_run_times


Day = list[tuple[int, int, float, float, bool]]
"""Job arrays: a user, tasks, submit time, run time of each, and if the first task is preempted halfway."""

days = st.lists(
    st.tuples(st.integers(0, 3), st.integers(1, 5), st.floats(1.0, 80_000.0), st.floats(60.0, 7200.0), st.booleans()),
    min_size=1,
    max_size=8,
    unique_by=lambda one: round(one[2]),
)


def events_of(day: Day, as_arrays: bool) -> list[AnyEvent]:
    """Return the events of the day, with job arrays or with single jobs."""
    events: list[AnyEvent] = []
    for number, (who, tasks, time, run_s, preempted) in enumerate(sorted(day, key=lambda one: one[2])):
        user, request = f"u{who}", {"cpus": 2, "walltime": 7200.0, "queue": f"q{who % 2}"}
        array, row = ({"array": f"a{number}"}, {"job": f"a{number}", "array_size": tasks}) if as_arrays else ({}, {})
        names = [f"a{number}_{one}" for one in range(tasks)]
        rows = [row] if as_arrays else [{"job": name} for name in names]
        events.extend(Submit(site=SITE, time=time, user=user, **submitted, **request) for submitted in rows)
        for place, name in enumerate(names):
            start, end = time + 30.0, time + 30.0 + run_s
            events.append(Start(site=SITE, time=start, job=name, **array))
            if preempted and place == 0:
                half = time + 30.0 + run_s / 2
                events.append(Requeue(site=SITE, time=half, job=name, state="preempted"))
                events.append(Start(site=SITE, time=half + 5.0, job=name, attempt=1))
                events.append(End(site=SITE, time=end, job=name, attempt=1, state="completed"))
            else:
                events.append(End(site=SITE, time=end, job=name, state="completed"))
    return sorted(events, key=lambda event: event.time)


@given(days)
@example([(0, 1, 1.0, 60.0, True), (0, 2, 36.0, 60.0, False)])
@settings(max_examples=40, deadline=None)
def test_arrays_requeues_preemption_teach_like_single_jobs(day: Day) -> None:
    whole, single = (learnt(events_of(day, as_arrays)) for as_arrays in (True, False))
    now = 100_000.0
    for user in {f"u{who}" for who, *_ in day}:
        assert used(whole, user, now) == pytest.approx(used(single, user, now), rel=1e-4)
    # An array has one place in the queue, as in its scheduler; its tasks have one each.
    assert np.allclose(whole.limits.counts[0, :PLACE], single.limits.counts[0, :PLACE])
    assert whole.limits.limits(1000)[:3] == single.limits.limits(1000)[:3]
    assert whole.knows_run_times == single.knows_run_times
    assert np.allclose(whole.preference.weights, single.preference.weights)
    queues, one_by_one = (method.queue_limits for method in (whole, single))
    assert queues.save().keys() == one_by_one.save().keys() != set()
    assert np.allclose(queues.counts[:, STARTED], one_by_one.counts[:, STARTED])
