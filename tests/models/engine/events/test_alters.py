"""Alter events change any field of a request, and the allocation of a running job."""

from typing import Any

import msgspec
import pytest

from models.engine.engine import Engine
from models.records import Alter, End
from models.site.job import NO_LIMIT_S, Phase
from models.site.state import SITE
from tests.support.stories import applied, assert_sound, event, new_engine, outcomes

FIELDS: dict[str, Any] = {
    "account": "physics",
    "queue": "long",
    "partitions": ["long", "gpu"],
    "cpus": 8,
    "nodes": 2,
    "tasks": 16,
    "gpus": 4,
    "gpu_types": {"a100": 4},
    "memory": 1 << 36,
    "walltime": 7200.0,
    "eligible": 140.0,
    "qos": "high",
    "reservation": "course",
    "node_features": [["ib", "gpu"], ["big"]],
    "array_limit": 5,
    "priority": 1000.5,
    "pending_reason": "Resources",
}


def job_after(*events: Any) -> Any:
    engine = new_engine()
    applied(engine, events)
    assert_sound(engine)
    [job] = engine.context.state.jobs.values()
    return job


def test_alter_fields_are_all_covered_by_these_tests() -> None:
    others = {"v", "site", "time", "job", "attempt", "unlimited", "dependency"}
    assert FIELDS.keys() | others == {field.name for field in msgspec.structs.fields(Alter)}


@pytest.mark.parametrize("name", FIELDS)
@pytest.mark.parametrize("started", [False, True])
def test_alter_of_one_field_keeps_the_other_fields(name: str, started: bool) -> None:
    before = [event("submit@100", queue="batch", priority=1.0), *([event("start@150")] if started else [])]
    job, old = job_after(*before, event("alter@160", **{name: FIELDS[name]})), job_after(*before)
    home, was = (one.extras if hasattr(one.extras, name) else one for one in (job, old))
    assert getattr(home, name) == (None if name == "eligible" and started else FIELDS[name])
    job.alter_time = 0.0
    if home is job:
        setattr(job, name, getattr(was, name))
        job.planned_run_s = old.planned_run_s
    else:
        job.extras = job.extras.replaced(**{name: getattr(was, name)})
    for other in ("features", "estimates", "run_estimates"):
        setattr(job, other, getattr(old, other))
    assert job == old


@pytest.mark.parametrize(
    ("name", "value", "none"), [("pending_reason", "Priority", ""), ("node_features", [["ib"]], [])]
)
def test_alter_with_empty_value_clears_the_field(name: str, value: object, none: object) -> None:
    job = job_after(event("submit@100", **{name: value}), event("alter@110", **{name: none}))
    assert getattr(job.extras, name) is None


@pytest.mark.parametrize("walltime", [None, 60.0])
def test_alter_unlimited_removes_the_time_limit(walltime: float | None) -> None:
    job = job_after(event("submit@100", walltime=3600.0), event("alter@110", unlimited=True, walltime=walltime))
    assert (job.walltime, job.planned_run_s) == (NO_LIMIT_S, NO_LIMIT_S)


def test_alter_of_running_job_resizes_it_and_keeps_its_request() -> None:
    started = event("start@150", cpus=8, nodes=2, gpus=4, partition="gpu")
    job = job_after(event("submit@100", cpus=8), started, event("alter@160", cpus=4, nodes=1, gpus=2))
    assert (job.counted_cpus, job.progress.nodes, job.progress.gpus, job.progress.partition) == (4, 1, 2, "gpu")
    job = job_after(event("submit@100", cpus=8), started, event("alter@140", cpus=4, nodes=1, gpus=2))
    assert (job.counted_cpus, job.progress.nodes, job.progress.gpus) == (8, 2, 4)


def test_alter_of_running_job_frees_cpus() -> None:
    engine = new_engine()
    applied(engine, [event("submit@100", cpus=8), event("start@150"), event("alter@160", cpus=3)])
    assert engine.context.state.totals(SITE, Phase.RUNNING).cpus == 3


def ended(engine: Engine, state: str) -> Any:
    applied(engine, [event("submit@100"), event("start@150")])
    [*_, last] = outcomes(engine.apply(End(site="s", time=300.0, job="1", state=state)))
    return last


def test_preempted_job_does_not_train_run_times() -> None:
    engine = new_engine()
    last = ended(engine, "preempted")
    assert (last.actual_run_s, last.run_error_s, last.preempted) == (150.0, None, True)
    assert len(engine.context.runs) == 0 and engine.scores.run_accuracy["closest"].jobs == 0
    assert engine.scores.accuracy["median"].jobs == 1
    engine = new_engine()
    assert ended(engine, "timeout").preempted is msgspec.UNSET
    assert len(engine.context.runs) == 1
