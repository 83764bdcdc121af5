"""The order method learns the queue order and the limits of users and queues."""

from collections.abc import Iterable

import msgspec
import numpy as np
import pytest

from models.engine.asking.what_if import consider
from models.engine.engine import Engine
from models.engine.settings import EngineSettings
from models.records import AnyEvent, Capacity, End, Start, Submit
from models.simulation import generate
from models.site.job import Job
from models.waits.order import LearntOrder
from models.waits.order.inferred_limits import REFUSED, LimitsSeen, count
from models.waits.order.pair_preference import NO_QUEUE
from models.waits.order.queue_limits import QueueLimitsSeen, count_in, started_in
from models.waits.order.schedule import long_job_limit
from models.waits.order.usage import HALF_LIVES_S, Usage
from tests.simulation.drawn import Drawn, Rules
from tests.simulation.schedulers import TIERS, run_changing
from tests.support.sizes import mostly_long

SETTINGS = EngineSettings(method="order", shadows=("easy",), bounds="", what_if_method="order", history=200)


def engine_after(events: Iterable[AnyEvent]) -> Engine:
    engine = Engine("alder", SETTINGS)
    for event in events:
        engine.apply(event)
    return engine


def method(engine: Engine) -> LearntOrder:
    found = engine.methods.waits["order"]
    assert isinstance(found, LearntOrder)
    return found


def fair_site(starts: int) -> Engine:
    """Build a one-CPU site that prefers users with less usage: bob submits after ada and starts before her."""
    engine = engine_after([Capacity(site="alder", time=0.0, cpus=1)])
    time = 0.0
    for number in range(starts):
        ada, bob = f"ada{number}", f"bob{number}"
        submits = [(0.0, ada, "ada", 40_000.0), (600.0, bob, f"bob{number % 7}", 40_000.0)]
        for later, name, user, walltime in submits:
            engine.apply(Submit(site="alder", time=time + later, job=name, user=user, cpus=1, walltime=walltime))
        for name, run_s in ((bob, 1000.0), (ada, 30_000.0)):
            engine.apply(Start(site="alder", time=time + 1000.0, job=name))
            engine.apply(End(site="alder", time=time + 1000.0 + run_s, job=name))
            time += run_s
        time += 2000.0
    return engine


def test_order_puts_users_with_less_usage_first() -> None:
    engine = fair_site(starts=60)
    now = engine.time + 10.0
    for name, user in (("runs", "cid"), ("hers", "ada")):
        engine.apply(Submit(site="alder", time=now, job=name, user=user, cpus=1, walltime=40_000.0))
    engine.apply(Start(site="alder", time=now, job="runs"))
    queries = [Job("", 0, now + 900.0, user=user, cpus=1, walltime=40_000.0) for user in ("bob3", "ada")]
    before, behind = consider(engine, queries)
    assert "place 1 of 2" in before.reason
    assert "place 2 of 2" in behind.reason
    assert before.predicted_wait_s < behind.predicted_wait_s


def test_order_without_training_is_first_come_first_served() -> None:
    engine = fair_site(starts=0)
    for number in range(3):
        engine.apply(Submit(site="alder", time=float(number), job=str(number), user=f"u{number}", walltime=100.0))
    engine.apply(Start(site="alder", time=3.0, job="0"))
    starts = method(engine).starts(engine.context, 3.0)
    np.testing.assert_array_equal(starts, [np.nan, 103.0, 203.0])


def test_order_learns_the_cpu_limit_of_a_user() -> None:
    events = run_changing(generate(5, 1200, cpus=64, load=0.9, users=12), 64, "alder", "multifactor")
    engine = engine_after(events)
    limits = method(engine).limits.limits(64)
    assert 0.39 * 64 <= limits.several < 0.44 * 64  # the cap is 0.4, and no start was blocked up to 0.43
    assert limits.alone == np.inf
    ours, usual = (engine.scores.accuracy[name].measures()["AAE"] for name in ("order", "easy"))
    assert ours < 0.9 * usual


@pytest.mark.parametrize(("most", "found"), mostly_long([(TIERS.limits, 0.6 * 64), ((), np.inf)]))
def test_order_learns_the_cpu_limit_of_a_queue(most: tuple[tuple[str, float], ...], found: float) -> None:
    jobs = generate(5, 1500, cpus=64, load=0.9, users=12)
    engine = engine_after(run_changing(jobs, 64, "alder", msgspec.structs.replace(TIERS, limits=most)))
    places = [method(engine).preference.places.slot_of(queue) for queue in ("short", "batch", "long")]
    assert method(engine).queue_limits.limits(64)[places].tolist() == [np.inf, np.inf, pytest.approx(found)]


@pytest.mark.parametrize(("part", "found"), mostly_long([(0.25, (0.75 * 64, 3600.0)), (0.0, (np.inf, np.inf))]))
def test_order_learns_the_part_reserved_for_short_jobs(part: float, found: tuple[float, float]) -> None:
    scheduler = Drawn("alder", 64, 0, Rules(short_part=part))
    events: list[AnyEvent] = [scheduler.capacity()]
    for job in generate(5, 1500, cpus=64, load=0.7, users=12, start_time=0):
        events += scheduler.submit(job)
    engine = engine_after(events)
    long, long_s = long_job_limit(method(engine).queue_limits.limits(64))
    assert (long, long_s) == (pytest.approx(found[0], abs=0.04 * 64), found[1])


def test_tightest_independent_limit_of_longer_jobs_counts() -> None:
    places = np.full(NO_QUEUE + 1, np.inf)
    places[:7] = 471.0, 409.6, 409.6, 409.6, 409.6, 380.0, np.inf
    assert long_job_limit(places) == (409.6, 3600.0)


@pytest.mark.parametrize(
    ("rules", "found"),
    mostly_long(
        [
            (Rules(depth=4), 4.0),
            (Rules(backfill="none"), 1.0),
            (Rules(depth=4, user_jobs=3), 4.0),
            (Rules(fair=2.0), np.inf),
        ]
    ),
)
def test_order_learns_the_backfill_depth(rules: Rules, found: float) -> None:
    scheduler = Drawn("alder", 64, 0, rules)
    events: list[AnyEvent] = [scheduler.capacity()]
    for job in generate(5, 1500, cpus=64, load=0.55 if rules.backfill == "none" else 0.8, users=12, start_time=0):
        events += scheduler.submit(job)
    assert method(engine_after(events)).limits.limits(64).depth == found


def test_queue_limit_is_reset_if_its_place_is_reused() -> None:
    seen = QueueLimitsSeen()
    seen.begin("long", place=40)
    for _ in range(60):
        started_in(seen.counts[40], 20, 20, 100)
        count_in(seen.counts[40, REFUSED], 40, 1, 100, 1)
    again = QueueLimitsSeen()
    again.load(seen.save())
    assert again.limits(100)[40] == seen.limits(100)[40] == 40.0
    again.begin("longer", place=40)
    assert again.limits(100)[40] == np.inf


def test_lone_job_of_a_queue_does_not_affect_its_limit() -> None:
    seen = QueueLimitsSeen()
    seen.begin("long", place=40)
    for _ in range(60):
        started_in(seen.counts[40], 20, 20, 100)
        count_in(seen.counts[40, REFUSED], 40, 1, 100, 1)
        started_in(seen.counts[40], 0, 90, 100)
    assert seen.limits(100)[40] == 40.0


@pytest.mark.parametrize("policy", ["easy", "lwf"])
def test_order_finds_no_limit_at_a_site_without_limits(policy: str) -> None:
    engine = engine_after(run_changing(generate(5, 800, cpus=64, load=0.9), 64, "alder", policy))
    limits = method(engine).limits.limits(64)
    assert limits.several == limits.jobs == limits.depth == np.inf


def test_limit_is_dropped_after_a_few_starts_above_it() -> None:
    seen = LimitsSeen()
    for _ in range(40):
        seen.started(10, 1, 10, 100)
        count(seen.counts[REFUSED], 30, 2, 1, 100, 1)
    assert seen.limits(100).several == 30.0  # no start was blocked up to this value
    for _ in range(3):
        seen.started(60, 1, 10, 100)
    assert seen.limits(100).several == np.inf


def test_usage_at_limit_drops_the_name_with_the_least_usage() -> None:
    usage = Usage(most=2)
    for name, cpus in (("ada", 5), ("bob", 1), ("cid", 2)):
        usage.add(name, cpus, 0.0, 100.0)
    used = usage.of(["ada", "bob", "cid"], 100.0)[:, 0]
    assert used[1] == 0.0
    assert used[[0, 2]] == pytest.approx([500.0, 200.0], rel=1e-3)
    late = usage.of(["ada"], 100.0 + 3 * HALF_LIVES_S[0])[0, 0]
    assert late == pytest.approx(500.0 / 8, rel=1e-3)


def test_saved_and_loaded_method_continues_identically() -> None:
    events = list(run_changing(generate(5, 300, cpus=64, load=0.9), 64, "alder", "multifactor"))
    whole, half = engine_after(events[:450]), engine_after(events[:450])
    state, changes = half.checkpoint()
    again = Engine.load(state, changes.started, changes.runs, SETTINGS, changes.rows)
    for event in events[450:]:
        assert again.apply(event) == whole.apply(event)
    assert method(again).save() == method(whole).save()


def test_order_saved_state_is_bounded() -> None:
    engine = engine_after([Capacity(site="alder", time=0.0, cpus=1000)])
    for number in range(600):
        name, time = str(number), 100.0 * number
        engine.apply(
            Submit(site="alder", time=time, job=name, user=f"user{number}", account=f"a{number}", queue=f"q{number}")
        )
        engine.apply(Start(site="alder", time=time, job=name))
        engine.apply(End(site="alder", time=time + 500.0, job=name))
    assert len(method(engine).save()) < 21_500


def test_considered_jobs_do_not_change_the_order() -> None:
    engine = engine_after(list(run_changing(generate(5, 200, cpus=64, load=0.9), 64, "alder"))[:300])
    before = method(engine).save()
    queries = [Job("", 0, engine.time, user="u1", cpus=cpus, walltime=3600.0) for cpus in (1, 64, 65)]
    answers = list(consider(engine, queries))
    method(engine).starts(engine.context, engine.time)
    assert [answer.predicted_wait_s is None for answer in answers] == [False, False, True]
    assert method(engine).save() == before
