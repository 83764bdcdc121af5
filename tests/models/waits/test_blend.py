"""The blend of several methods in an engine: from the first job on, across restarts, for considered jobs."""

from collections.abc import Callable
from itertools import pairwise
from zlib import crc32

import msgspec
import numpy as np
import pytest

from models.chances import cautious_s
from models.engine.asking.what_if import consider
from models.engine.engine import Engine
from models.engine.settings import EngineSettings
from models.method import JobTransition, SiteContext, WaitMethod
from models.method_registry import METHODS
from models.records import Alter, AnyEvent, Prediction
from models.site.job import Estimate, Job, Phase
from models.site.rows import Rows
from models.site.size import MIN_STARTED_JOBS
from models.waits.blend import Blend, quantiles
from models.waits.blend.blend import HOOKS, consistent
from models.waits.boosted.boosted import Boosted
from models.waits.boosted.submit_features import NAMES
from models.waits.qespera import Qespera
from tests.support.engines import engine_after, outcome, predicted, workload
from tests.support.events import cancel, capacity, end, start, submit

BLEND = EngineSettings(method="blend", shadows=(), bounds="", what_if_method="blend")


def blend_of(engine: Engine) -> Blend:
    method = engine.methods.waits["blend"]
    assert isinstance(method, Blend)
    return method


def steady(jobs: int, wait_s: float, gap_s: float = 1000.0) -> list[AnyEvent]:
    """Return jobs that each wait `wait_s`."""
    events: list[AnyEvent] = [capacity(100)]
    for number in range(jobs):
        at, job = gap_s * number, str(number)
        events += [submit(job, at, cpus=4, walltime=600.0), start(job, at + wait_s), end(job, at + wait_s + 60.0)]
    return sorted(events, key=lambda event: event.time)


def test_site_of_equal_waits_is_learned_in_a_hundred_jobs() -> None:
    engine = engine_after(*steady(120, 7200.0), settings=BLEND)
    prediction = predicted(engine, submit("next", 200_000.0, cpus=1, walltime=3600.0))
    assert prediction.predicted_wait_s == pytest.approx(7200.0, rel=0.1)


def test_new_site_of_known_size_uses_simulation_and_prior() -> None:
    unknown = predicted(Engine("s", BLEND), submit("1", 0.0, cpus=4))
    assert (unknown.predicted_wait_s, unknown.reason, unknown.bounds) == (None, "no history", None)
    engine = engine_after(capacity(100), settings=BLEND)
    first = predicted(engine, submit("1", 0.0, cpus=100, walltime=3600.0))
    assert first.predicted_wait_s is not None and first.bounds is not None
    assert 0.0 <= first.predicted_wait_s == first.bounds["0.5"] < 600.0 and first.bounds["0.9"] < 7200.0
    assert all(name in first.reason for name in ("mixed of boosted", "order"))
    assert "guarded" not in first.reason, "nothing is known yet of who errs"
    assert "; forests trained on other sites only" in first.reason
    engine.apply(start("1", 0.0))
    second = predicted(engine, submit("2", 10.0, cpus=4, walltime=3600.0))
    assert second.predicted_wait_s is not None and 300.0 < second.predicted_wait_s < 3600.0


def test_site_of_unknown_size_has_bounds_after_enough_starts() -> None:
    engine = engine_after(*steady(MIN_STARTED_JOBS - 1, 300.0)[1:], settings=BLEND)
    before = predicted(engine, submit("last", 90_000.0, cpus=4, walltime=600.0))
    assert before.predicted_wait_s is not None and before.bounds is None
    outcome(engine, start("last", 90_300.0))
    assert predicted(engine, submit("next", 90_400.0, cpus=4, walltime=600.0)).bounds is not None


def test_blend_gives_median_bounds_and_immediate_start() -> None:
    engine = engine_after(*steady(80, 7200.0), settings=BLEND)
    prediction = predicted(engine, submit("new", 100_000.0, cpus=4, walltime=600.0))
    assert prediction.bounds is not None and list(prediction.bounds) == ["0.1", "0.5", "0.9", "0.95"]
    assert prediction.bounds["0.5"] == prediction.predicted_wait_s == pytest.approx(7200.0, rel=0.15)
    assert all(low <= high for low, high in pairwise(prediction.bounds.values()))
    assert isinstance(prediction.p_immediate_start, float) and prediction.p_immediate_start < 0.1


def test_moved_job_counts_for_the_queue_of_its_prediction() -> None:
    engine = engine_after(*steady(40, 7200.0), settings=BLEND)
    queues = blend_of(engine)._quantiles.state.queues
    before = {queue: added.copy() for queue, added in queues.items()}
    engine.apply(submit("moved", 50_000.0, cpus=4, walltime=600.0, queue="route"))
    engine.apply(Alter(site=engine.site, time=50_001.0, job="moved", queue="work"))
    engine.apply(start("moved", 90_000.0))
    changed = {queue for queue, added in queues.items() if added.any() and (added != before.get(queue, 0.0)).any()}
    assert changed == {crc32(b"route")}


@pytest.mark.parametrize(("far", "at_least", "at_most"), [(0.05, 0.05, 0.15), (100.0, 0.3, 4.0)])
def test_burst_moves_the_bounds_by_a_limited_amount(
    monkeypatch: pytest.MonkeyPatch, far: float, at_least: float, at_most: float
) -> None:
    monkeypatch.setattr(quantiles, "FAR", far)
    engine = engine_after(*steady(40, 5.0), settings=BLEND)
    learnt = blend_of(engine)._quantiles.state.learnt
    before = learnt.shift[0] + learnt.shift[1]
    for number in range(40):
        engine.apply(submit(f"b{number}", 50_000.0 + number / 10, cpus=4, walltime=600.0))
    for number in range(4):  # still queued, beyond all bounds; each event processes a part of these
        engine.apply(submit(f"later{number}", 60_000.0 + number, cpus=4, walltime=600.0))
    moved = (learnt.shift[0] + learnt.shift[1] - before)[-1]
    assert at_least < moved < at_most
    state, changes = engine.checkpoint()
    again = Engine.load(state, changes.started, changes.runs, BLEND, changes.rows)
    for event in (start(f"b{number}", 70_000.0 + number) for number in range(40)):  # now their waits are observed
        assert again.apply(event) == engine.apply(event)
    assert blend_of(again).save() == blend_of(engine).save()
    assert (learnt.shift[0] + learnt.shift[1] - before)[-1] > moved + (0.3 if far < 1.0 else -0.01)


def test_blend_predicts_immediate_starts() -> None:
    engine = engine_after(*steady(60, 3.0), settings=BLEND)
    prediction = predicted(engine, submit("new", 100_000.0, cpus=4, walltime=600.0))
    assert prediction.predicted_wait_s == pytest.approx(3.0, abs=1.0)
    assert isinstance(prediction.p_immediate_start, float) and prediction.p_immediate_start > 0.9


def test_immediate_probability_is_consistent_with_the_bounds() -> None:
    bounds = np.array([0.0, 10.0, 100.0, 1000.0])
    assert [consistent(p, bounds) for p in (0.2, 0.7, 0.99)] == [0.5, 0.7, 0.9]


def test_considered_job_gets_the_estimate_of_a_submitted_job() -> None:
    engine = Engine("s", BLEND)
    count = 0
    for event in workload(1):
        if event.kind == "submit":
            job = Job.of(event)
            [what_if] = consider(engine, [msgspec.structs.replace(job, id="", attempt=0)])
            records = [record for record in engine.apply(event) if isinstance(record, Prediction)]
            for prediction in records[:1]:
                names = ("predicted_wait_s", "bounds", "p_immediate_start", "reason", "predicted_run_s")
                assert [getattr(what_if, name) for name in names] == [getattr(prediction, name) for name in names]
                count += prediction.predicted_wait_s is not None
        else:
            engine.apply(event)
    assert count > 50


def test_compared_wait_is_at_least_the_simulated_schedule() -> None:
    full = [submit("long", 40_000.0, cpus=100, walltime=90_000.0), start("long", 40_001.0)]
    engine = engine_after(*steady(30, 700.0), *full, settings=BLEND)
    job = Job("", 0, 40_100.0, cpus=100, walltime=600.0)
    [what_if] = consider(engine, [job])
    [schedule] = blend_of(engine)._order.what_ifs([job], engine.context)
    assert what_if.predicted_wait_s is not None and schedule.wait_s is not None
    known_s = cautious_s(what_if.predicted_wait_s, what_if.bounds)
    assert what_if.cautious_wait_s == schedule.wait_s > known_s


def test_considered_jobs_do_not_change_the_blend() -> None:
    engine = engine_after(*steady(30, 700.0), submit("queued", 40_000.0), settings=BLEND)
    engine.take_changes()  # a checkpoint lists the runs forgotten since the previous one
    before, _ = engine.checkpoint()
    list(consider(engine, [Job("", 0, 40_100.0, cpus=4)]))
    blend_of(engine).starts(engine.context, 50_000.0)
    assert engine.checkpoint()[0] == before


def test_blend_continues_equally_after_a_restart() -> None:
    events = workload(2)
    for cut in range(50, len(events), 97):
        whole, first = Engine("s", BLEND), Engine("s", BLEND)
        for event in events[:cut]:
            whole.apply(event), first.apply(event)
        state, changes = first.checkpoint()
        second = Engine.load(state, changes.started, changes.runs, BLEND, changes.rows)
        for event in events[cut:]:
            assert second.apply(event) == whole.apply(event)
        assert blend_of(second).save() == blend_of(whole).save()


def test_pending_job_past_its_bounds_counts_as_exceeding() -> None:
    waiting = [submit(f"w{number}", 60_000.0 + number, cpus=4, walltime=600.0) for number in range(200)]
    engine = engine_after(*steady(60, 60.0), *waiting, settings=BLEND)
    bounds = []
    for number, at in enumerate((60_300.0, *range(90_000, 90_012))):  # each event processes a part of the observations
        prediction = engine.apply(submit(f"x{number}", at, cpus=4, walltime=600.0))[0]  # re-estimates follow it
        assert isinstance(prediction, Prediction) and prediction.bounds is not None
        bounds.append(prediction.bounds)
    assert bounds[-1]["0.9"] > 2 * bounds[0]["0.9"]


def test_job_cancelled_past_its_bounds_counts_as_exceeding() -> None:
    waiting = [submit(f"w{number}", 60_000.0 + number, cpus=4, walltime=600.0) for number in range(200)]
    known = [submit(f"x{number}", 90_000.0 + number, cpus=4, walltime=600.0) for number in range(12)]
    before, *shifts = (
        blend_of(engine_after(*steady(60, 60.0), *waiting, *known, *left, settings=BLEND))._quantiles.state.learnt.shift
        for left in ([], [start("w5", 90_020.0)], [cancel("w5", 90_020.0)])
    )
    assert (shifts[1] == shifts[0]).all() and (shifts[0] > before).any()


def test_cancelled_job_counts_like_a_start() -> None:
    events = steady(80, 500.0)
    started = engine_after(*events, settings=BLEND)
    withdrawn = engine_after(
        *events[: 3 * 40],
        *(cancel(e.job, e.time) if e.kind == "start" else e for e in events[3 * 40 :]),
        settings=BLEND,
    )
    one, other = (predicted(engine, submit("new", 1e6, cpus=4)) for engine in (started, withdrawn))
    assert one.predicted_wait_s == pytest.approx(other.predicted_wait_s, rel=0.1)


def test_reestimate_of_pending_job_uses_its_elapsed_wait() -> None:
    engine = engine_after(*steady(60, 3000.0), submit("queued", 100_000.0, cpus=4, walltime=600.0), settings=BLEND)
    job, method = engine.context.state.jobs["queued", 0], blend_of(engine)
    waits = []
    for waited in (0.0, 1000.0, 3000.0, 20_000.0):
        later = method.re_estimate(job, engine.context, job.ready + waited)
        assert later is not None and later.wait_s is not None and later.bounds is not None
        assert later.wait_s == later.bounds["0.5"] >= waited
        waits.append(later.wait_s)
        assert method.starts(engine.context, job.ready + waited) == pytest.approx([job.ready + later.wait_s])
    assert waits == sorted(waits) and waits[-1] > 20_000.0
    assert job.phase is Phase.QUEUED


def test_queue_longer_than_in_training_is_reported_and_counted() -> None:
    engine = engine_after(*steady(150, 300.0), settings=BLEND)
    usual = predicted(engine, submit("usual", 150_000.0, cpus=4, walltime=600.0))
    assert usual.degraded is None and engine.scores.degraded == {"blend": 0}
    for number in range(30):
        engine.apply(submit(f"burst {number}", 150_001.0 + number, cpus=4, walltime=600.0))
    last = predicted(engine, submit("last", 150_100.0, cpus=4, walltime=600.0))
    reason = "a state unlike any it learnt from: some 31 queued jobs, 0 at most before"
    assert (last.degraded, last.predicted_wait_s is None) == (reason, False)
    counted = engine.scores.degraded["blend"]
    [considered] = consider(engine, [Job("", 0, 150_101.0, cpus=4, walltime=600.0)])
    assert considered.degraded is not None and "some 32 queued jobs" in considered.degraded
    assert engine.scores.degraded["blend"] == counted > 0
    state, changes = engine.checkpoint()
    again = Engine.load(state, changes.started, changes.runs, BLEND, changes.rows)
    assert again.scores.degraded == engine.scores.degraded


def test_forests_use_the_simulated_wait_as_feature() -> None:
    events = [capacity(100), submit("whole", 0.0, cpus=100, walltime=3600.0), start("whole", 0.0)]
    engine, new_job = engine_after(*events, settings=BLEND), Job("", 0, 600.0, cpus=4, walltime=600.0)
    [schedule] = blend_of(engine)._order.what_ifs([new_job], engine.context)
    for event in submit("next", 600.0, cpus=4, walltime=600.0), start("next", 4000.0):
        engine.apply(event)
    forests = blend_of(engine).parts["boosted"]
    assert isinstance(forests, Boosted) and schedule.wait_s is not None and schedule.wait_s > 600.0
    simulated = forests.learnt_rows().features[:, NAMES.index("simulated")]
    assert simulated == pytest.approx([0.0, np.log2(1.0 + schedule.wait_s)], rel=1e-3)


def test_blend_reports_degraded_experts(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Blend().degraded is None
    monkeypatch.setattr(Boosted, "degraded", "its model is lost")
    assert Blend().degraded == "its model is lost"


CALLS: dict[str, Callable[[Blend, Job, SiteContext], object]] = {
    "observe": lambda blend, job, context: blend.observe(job, JobTransition.ENDED, 0.0, context),
    "learn": lambda blend, job, context: blend.learn(job, 0.0, context),
    "cancelled": lambda blend, job, context: blend.cancelled(job, 0.0, context),
    "ended": lambda blend, job, context: blend.ended(job, 0.0, 1.0, context),
    "forget": lambda blend, job, context: blend.forget(job.key),
    "degraded": lambda blend, job, context: blend.degraded,
    "pending": lambda blend, job, context: blend.pending(),
}


@pytest.mark.parametrize("hook", HOOKS)
def test_expert_hook_is_called_if_defined(hook: str, monkeypatch: pytest.MonkeyPatch) -> None:
    called = list[object]()
    heard = property(called.append) if hook == "degraded" else lambda expert, *_: called.append(expert)
    monkeypatch.setattr(Qespera, hook, heard)
    blend, job = Blend(), Job("1", 0, 0.0, cpus=1)
    job.start = 0.0
    CALLS[hook](blend, job, engine_after(settings=BLEND).context)
    assert called == [blend.parts["qespera"]]


class _Inner(WaitMethod):
    """A method with its own rows."""

    name = "inner"

    def __init__(self) -> None:
        self.rows = Rows(10)

    def predict(self, job: Job, context: object) -> Estimate:
        self.rows.append(job.id.encode())
        return Estimate(float(self.rows.count), "")


class _Outer(_Inner):
    """A method that contains it."""

    name = "outer"

    def __init__(self) -> None:
        super().__init__()
        self._inner = _Inner()

    @property
    def parts(self) -> dict[str, WaitMethod]:
        return {"inner": self._inner}

    def predict(self, job: Job, context: object) -> Estimate:
        return self._inner.predict(job, context)


def test_nested_method_rows_are_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METHODS, "outer", _Outer)
    settings = EngineSettings(method="outer", shadows=(), bounds="", what_if_method="outer")
    engine = engine_after(submit("1"), submit("2", 1.0), settings=settings)
    state, changes = engine.checkpoint()
    assert {name: len(rows) for name, rows in changes.rows.items() if name.startswith("outer")} == {
        "outer": 0,
        "outer.inner": 2,
    }
    again = Engine.load(state, changes.started, changes.runs, settings, changes.rows)
    assert predicted(again, submit("3", 2.0)).predicted_wait_s == 3.0
