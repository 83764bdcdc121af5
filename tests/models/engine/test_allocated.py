"""The allocation in a start event counts while the job runs; the request keeps its values."""

import pytest

from models.engine.asking.engine_answers import live_jobs, remaining_work_s
from models.engine.engine import Engine
from models.engine.settings import EngineSettings
from models.records import Alter, Requeue
from models.site.job import Phase
from models.site.state import SITE
from tests.support.events import capacity, end, start, submit
from tests.support.stories import assert_sound

SETTINGS = EngineSettings(method="median", shadows=("fcfs", "ibl"), runtimes="walltime", bounds="", history=50)


def in_use(engine: Engine) -> int:
    assert_sound(engine)
    return engine.context.state.totals(SITE, Phase.RUNNING).cpus


@pytest.mark.parametrize("fields", [{}, {"cpus": 32}])
def test_allocated_cpus_count_while_job_runs(fields: dict[str, int]) -> None:
    engine = Engine("s", SETTINGS)
    engine.apply(capacity(256, 0.0))
    engine.apply(submit("1", 1.0, walltime=100.0, **fields))
    assert engine.context.state.totals(SITE, Phase.QUEUED).cpus == fields.get("cpus", 1)
    engine.apply(start("1", 2.0, cpus=128))
    assert in_use(engine) == 128 and remaining_work_s(engine, 2.0) == 128 * 100.0 / 256
    (shown,) = live_jobs(engine, list(engine.context.state.jobs.values()), 2.0)
    assert shown.cpus == 128
    state, changes = engine.checkpoint()
    assert changes.started[0].features[0] == fields.get("cpus", 1)
    assert in_use(Engine.load(state, changes.started, changes.runs, SETTINGS, changes.rows)) == 128
    engine.apply(end("1", 60.0))
    assert in_use(engine) == 0


def test_late_submit_keeps_allocated_cpus_of_running_job() -> None:
    engine = Engine("s", SETTINGS)
    engine.apply(start("1", 2.0, cpus=64))
    engine.apply(submit("1", 1.0, walltime=100.0))
    job = engine.context.state.jobs["1", 0]
    assert in_use(engine) == engine.context.cpus == 64 and (job.cpus, job.walltime) == (1, 100.0)
    engine.apply(end("1", 60.0))
    assert in_use(engine) == 0


def test_start_without_cpus_counts_requested_cpus() -> None:
    engine = Engine("s", SETTINGS)
    engine.apply(submit("1", 1.0, cpus=8))
    engine.apply(start("1", 2.0))
    assert in_use(engine) == 8


def test_allocated_cpus_are_altered_and_kept_by_a_requeue() -> None:
    engine = Engine("s", SETTINGS)
    engine.apply(submit("1", 1.0, cpus=8))
    engine.apply(start("1", 2.0, cpus=16))
    engine.apply(Alter(site="s", job="1", time=3.0, cpus=4))
    assert in_use(engine) == 4
    engine.apply(Requeue(site="s", job="1", time=4.0))
    assert in_use(engine) == 0 and engine.context.state.jobs["1", 1].counted_cpus == 4
