from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from typing import Any

import msgspec
import numpy as np
import pytest

from models.engine.engine import Engine
from models.engine.settings import EngineSettings
from models.method import RunMethod, SiteContext
from models.method_registry import METHODS, RUN_METHODS, method_named
from models.records import AnyEvent, Hold, Outcome, Prediction, Release
from models.simulation import POLICIES, SimulatedJob, generate, run
from models.simulation.assumed_run_times import Actual
from models.site.history import History
from models.site.job import UNKNOWN_RUN_S, Job, Phase, RunEstimate
from models.site.runs import RunHistory
from models.site.state import SiteState
from models.waits.simulated import (
    MIN_REMAINING_S,
    Simulated,
    SimulatedConservative,
    SimulatedEasy,
    SimulatedFcfs,
)
from tests.support.events import capacity, end, start, submit
from tests.support.methods import kept_by, taken_back

NAMES = ("fcfs", "lwf", "easy", "conservative")
each = pytest.mark.parametrize("name", NAMES)


class ActualRunTimes(RunMethod):
    """Return the actual run times of jobs."""

    name = "actual"

    def __init__(self, run_s: dict[str, float] | None = None) -> None:
        self.run_s = run_s or {}

    def predict(self, job: Job, runs: RunHistory, elapsed_s: float = 0.0) -> RunEstimate:
        return RunEstimate(self.run_s.get(job.id), "actual")


# Simulated sites.

CPUS = 64


def use_actual_run_times(jobs: Iterable[SimulatedJob], patch: pytest.MonkeyPatch) -> None:
    truth = {job.job: float(job.seconds) for job in jobs}
    patch.setitem(
        RUN_METHODS,
        "actual",
        type("ActualRunTimes", (ActualRunTimes,), {"__init__": lambda self: ActualRunTimes.__init__(self, truth)}),
    )


def outcomes(events: Iterable[AnyEvent], name: str, runtimes: str = "actual") -> Iterator[Outcome]:
    """Yield the outcomes of the jobs at their starts."""
    engine = Engine("a", EngineSettings(method=name, shadows=(), bounds="", runtimes=runtimes))
    for event in events:
        for record in engine.apply(event):
            if isinstance(record, Outcome) and record.actual_run_s is None:
                yield record


def relative_error(found: Iterable[Outcome]) -> float:
    """Return the mean error as a share of the mean wait."""
    errors, waits = np.array([(abs(outcome.error_s), outcome.actual_wait_s) for outcome in found]).T
    assert waits.mean() > 600.0
    return float(errors.mean() / waits.mean())


def test_fcfs_with_actual_run_times_predicts_actual_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = generate(2, 600, CPUS, 0.6, impatient=0.0)
    use_actual_run_times(jobs, monkeypatch)
    found = list(outcomes(run(jobs, CPUS, "a", "fcfs"), "fcfs"))
    assert len(found) == 600
    assert sum(outcome.actual_wait_s > 0 for outcome in found) > 300
    assert [outcome.error_s for outcome in found] == [0.0] * 600


def test_conservative_with_known_run_times_matches_as_well(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    jobs = [msgspec.structs.replace(job, walltime=None) for job in generate(2, 600, CPUS, 0.7, impatient=0.0)]
    use_actual_run_times(jobs, monkeypatch)
    scheduler = POLICIES["conservative"]("a", CPUS, jobs[0].submit, Actual())
    events = [scheduler.capacity(), *(event for job in jobs for event in scheduler.submit(job)), *scheduler.finish()]
    found = list(outcomes(events, "conservative"))
    assert sum(outcome.actual_wait_s > 0 for outcome in found) > 300
    assert [outcome.error_s for outcome in found] == [0.0] * 600


@pytest.mark.parametrize(
    ("name", "least", "most"), [("lwf", 0.2, 0.9), ("easy", 0.01, 0.25), ("conservative", 0.01, 0.25)]
)
def test_later_jobs_cause_prediction_errors_by_policy(
    name: str, least: float, most: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in table 4 of the paper: large under LWF, small under backfilling."""
    jobs = generate(2, 600, CPUS, 0.7, impatient=0.0)
    use_actual_run_times(jobs, monkeypatch)
    events = list(run(jobs, CPUS, "a", name))
    error = relative_error(outcomes(events, name))
    print(f"{name}: {error:.1%} of the mean wait")
    assert least < error < most
    assert error < relative_error(outcomes(events, name, runtimes="closest"))


@each
def test_restored_engine_continues_equally(name: str) -> None:
    events = list(run(generate(3, 300, CPUS, 0.8), CPUS, "a", "easy"))
    settings = EngineSettings(method=name, shadows=(), bounds="")
    engine = Engine("a", settings)
    rest = iter(events)
    for event in rest:
        engine.apply(event)
        if engine.events > len(events) // 2 and len(method_of(engine).per_job):
            break  # a job has outlived its estimate
    saved, changes = engine.checkpoint()
    forgotten = {run.number for run in changes.forgotten_runs}
    runs = [run for run in changes.runs if run.number not in forgotten]
    restored = Engine.load(saved, changes.started, runs, settings, changes.rows)
    assert kept_by(method_of(restored)) == kept_by(method_of(engine))
    remaining = list(rest)
    assert len(remaining) > 100
    for event in remaining:
        assert restored.apply(event) == engine.apply(event)


def method_of(engine: Engine) -> Simulated:
    (method,) = engine.methods.waits.values()
    assert isinstance(method, Simulated)
    return method


# Sites of a few jobs.

NOW = 10_000.0


def make(number: int, cpus: int = 1, run_s: float | None = None, **fields: Any) -> Job:
    return Job(id=str(number), attempt=0, submit=fields.pop("submit", NOW), cpus=cpus, run_s=run_s, **fields)


def running(number: int, cpus: int, run_s: float | None, start: float = NOW, **fields: Any) -> Job:
    return make(number, cpus, run_s, submit=start, start=start, phase=Phase.RUNNING, **fields)


def site(cpus: int, *jobs: Job, runtimes: RunMethod | None = None) -> SiteContext:
    state = SiteState()
    for job in jobs:
        state.enter(job)
    size = capacity(cpus, site="a") if cpus else None
    return SiteContext(state, History(10), RunHistory(), runtimes or ActualRunTimes(), size)


def wait(where: SiteContext, job: Job, method: Simulated | None = None) -> float | None:
    return (method or SimulatedFcfs()).predict(job, where).wait_s


@each
def test_simulated_methods_are_registered(name: str) -> None:
    method = method_named(name, {"plans": "predicted"})
    assert type(method) is METHODS[name] and isinstance(method, Simulated)
    assert (method.name, method.plans) == (name, "predicted")
    with pytest.raises(ValueError, match="plans"):
        method_named(name, {"plans": "guessed"})


@pytest.mark.parametrize(("name", "expected"), [("fcfs", 28.0), ("lwf", 10.0), ("easy", 0.0), ("conservative", 28.0)])
def test_simulated_wait_depends_on_the_policy(name: str, expected: float) -> None:
    """Two of four CPUs are free; queued: three CPUs for 8 s, four for 10 s, and now one for 25 s."""
    where = site(4, running(1, 2, 10.0), make(2, 3, 8.0), make(3, 4, 10.0))
    estimate = method_named(name).predict(make(9, 1, 25.0), where)
    assert estimate.wait_s == expected
    assert estimate.reason == f"{name}: 1 running and 2 queued jobs, run times by actual"


def test_backfill_plans_with_walltimes_by_default() -> None:
    where = site(4, running(1, 3, 10.0, walltime=50.0), make(2, 4, 10.0))
    job = make(9, 1, 20.0, walltime=40.0)
    for kind in (SimulatedEasy, SimulatedConservative):
        assert wait(where, job, kind()) == 0.0  # it ends before the walltime of the other
        assert wait(where, job, kind(plans="predicted")) == 20.0


def test_job_that_cannot_run_has_no_estimate() -> None:
    method = SimulatedFcfs()
    assert method.predict(make(9, 5), site(4)).reason == "larger than the site: 5 of 4 CPUs"
    assert method.predict(make(9, 5), site(0)).reason == "size of the site unknown"
    assert wait(site(4), make(9, 5)) is wait(site(0), make(9, 5)) is None
    seen = site(0, running(1, 4, 10.0))
    seen.see_cpus(0.0)
    assert wait(seen, make(9, 4, 1.0)) == 10.0  # the observed maximum is four CPUs


def test_jobs_that_cannot_start_are_excluded() -> None:
    held = make(2, 4, 100.0, phase=Phase.HELD)
    too_large = make(3, 5, 100.0)
    not_yet = make(4, 4, 100.0, eligible=NOW + 5.0)
    over = make(5, 4, 100.0, phase=Phase.ENDED_BEFORE_START)
    assert wait(site(4, held, too_large, not_yet, over), make(9, 4, 1.0)) == 0.0
    assert wait(site(4, make(4, 4, 100.0, eligible=NOW)), make(9, 4, 1.0)) == 100.0


@pytest.mark.parametrize(("eligible", "expected"), [(None, 50.0), (NOW + 20.0, 30.0), (NOW + 80.0, 0.0)])
def test_wait_begins_when_the_job_is_eligible(eligible: float | None, expected: float) -> None:
    assert wait(site(4, running(1, 4, 50.0)), make(9, 4, 1.0, eligible=eligible)) == expected


@pytest.mark.parametrize(
    ("run_s", "walltime", "expected"),
    [
        (50.0, None, 50.0),
        (50.0, 80.0, 50.0),
        (90.0, 80.0, 80.0),
        (None, 80.0, 80.0),
        (None, None, UNKNOWN_RUN_S),
        (None, 0.0, UNKNOWN_RUN_S),
        (0.0, 80.0, MIN_REMAINING_S),
    ],
)
def test_run_time_is_prediction_or_walltime_or_default(
    run_s: float | None, walltime: float | None, expected: float
) -> None:
    assert wait(site(4, make(1, 4, run_s, walltime=walltime)), make(9, 4, 1.0)) == expected
    assert wait(site(4, running(1, 4, run_s, walltime=walltime)), make(9, 4, 1.0)) == expected


@pytest.mark.parametrize(
    ("repredicted_s", "walltime", "expected"),
    [
        (300.0, None, 200.0),
        (None, None, 100.0),  # double the elapsed time
        (100.0, None, 100.0),
        (None, 150.0, 50.0),
        (300.0, 150.0, 50.0),
        (300.0, 100.0, MIN_REMAINING_S),
        (300.0, 90.0, MIN_REMAINING_S),
    ],
)
def test_overrunning_job_is_predicted_again_within_its_walltime(
    repredicted_s: float | None, walltime: float | None, expected: float
) -> None:
    runtimes = ActualRunTimes({} if repredicted_s is None else {"1": repredicted_s})
    where = site(4, running(1, 4, 60.0, start=NOW - 100.0, walltime=walltime), runtimes=runtimes)
    assert wait(where, make(9, 4, 1.0)) == expected


class Counted(ActualRunTimes):
    """Count the queries, which must be as few as possible."""

    def __init__(self) -> None:
        super().__init__({"1": 300.0})
        self.queries: list[float] = []

    def predict(self, job: Job, runs: RunHistory, elapsed_s: float = 0.0) -> RunEstimate:
        self.queries.append(elapsed_s)
        return super().predict(job, runs, elapsed_s)


def test_overrunning_job_is_predicted_again_after_each_estimate() -> None:
    runtimes, method = Counted(), SimulatedFcfs()
    where = site(4, running(1, 4, 60.0, start=NOW), runtimes=runtimes)
    waits = [wait(where, make(9, 4, 1.0, submit=NOW + after), method) for after in (0, 59, 100, 200, 299, 310, 600)]
    assert waits == [60.0, 1.0, 200.0, 100.0, 1.0, 310.0, 20.0]
    assert runtimes.queries == [100.0, 310.0]


def test_reestimates_survive_a_restart_but_not_the_job() -> None:
    method = SimulatedFcfs()
    where = site(4, running(1, 4, 60.0, start=NOW), runtimes=ActualRunTimes({"1": 300.0}))
    assert wait(where, make(9, 4, 1.0, submit=NOW + 100.0), method) == 200.0
    again = taken_back(method, SimulatedFcfs())
    where.runtimes = ActualRunTimes({"1": 1000.0})
    assert [wait(where, make(9, 4, 1.0, submit=NOW + 150.0), kind) for kind in (method, again)] == [150.0, 150.0]
    where.state.leave(where.state.jobs["1", 0])
    assert wait(where, make(9, 4, 1.0, submit=NOW + 150.0), method) == 0.0
    assert len(method.per_job) == 0


@each
def test_considered_job_does_not_change_the_state(name: str) -> None:
    method = method_named(name)
    assert isinstance(method, Simulated)
    queued: Sequence[Job] = [make(number, number % 3 + 1, 30.0 * number, walltime=1000.0) for number in range(2, 8)]
    where = site(4, running(1, 3, 60.0, start=NOW - 100.0), *queued, runtimes=ActualRunTimes({"1": 300.0}))
    before = deepcopy(where.state.jobs)
    (what_if,) = method.what_ifs([make(9, 2, 50.0)], where)
    assert what_if.wait_s is not None and what_if.wait_s > 0
    assert len(method.per_job) == 0
    assert list(map(msgspec.structs.astuple, where.state.jobs.values())) == list(
        map(msgspec.structs.astuple, before.values())
    )
    assert method.predict(make(9, 2, 50.0), where) == what_if
    assert len(method.per_job) == 1


def test_released_job_returns_to_its_place() -> None:
    engine = Engine("a", EngineSettings(method="fcfs", shadows=(), bounds=""))

    def predicted(event: AnyEvent) -> float | None:
        (record,) = [record for record in engine.apply(event) if isinstance(record, Prediction)]
        return record.predicted_wait_s

    request = {"cpus": 4, "walltime": 100.0}
    engine.apply(capacity(4, site="a"))
    assert predicted(submit("1", 10.0, "a", **request)) == 0.0
    engine.apply(start("1", 10.0, "a"))
    assert predicted(submit("2", 20.0, "a", **request)) == 90.0
    engine.apply(Hold(site="a", time=25.0, job="2"))
    assert predicted(submit("3", 30.0, "a", **request)) == 80.0
    engine.apply(Release(site="a", time=35.0, job="2"))
    assert predicted(submit("4", 40.0, "a", **request)) == 270.0
    engine.apply(end("1", 50.0, "a"))
    assert predicted(submit("5", 50.0, "a", **request)) == 300.0
