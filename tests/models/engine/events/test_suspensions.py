"""The run time of a suspended job stops, and the job may release its CPUs."""

from typing import Any

import pytest

from models.engine.engine import Engine
from models.engine.settings import EngineSettings
from models.records import Requeue
from models.site.job import Phase
from models.site.state import SITE
from tests.support.events import capacity, submit
from tests.support.stories import applied, event, new_engine, outcomes, story


def ran(text: str) -> float | None:
    engine = new_engine()
    [*_, last] = outcomes(applied(engine, story(text)))
    [learnt] = engine.context.runs or [None]
    assert learnt is None or learnt.run_s == last.actual_run_s
    return last.actual_run_s


@pytest.mark.parametrize(
    ("text", "run_s"),
    [
        ("submit@100 start@150 suspend@200 resume@250 end@300", 100.0),
        ("submit@100 start@150 suspend@200 resume@250 suspend@260 resume@270 end@300", 90.0),
        ("submit@100 start@150 suspend@200 end@300", 50.0),
        ("submit@100 start@150 suspend@200 suspend@220 end@300", 50.0),
        ("submit@100 start@150 suspend@140 resume@200 end@300", 100.0),
        ("submit@100 start@150 suspend@200 resume@250 suspend@200 end@300", 100.0),
        ("submit@100 start@150 suspend@200 resume@250 resume@280 end@300", 100.0),
        ("submit@100 start@150 suspend@200 end@190", 40.0),
        ("submit@100 start@150 suspend@200 cancel@250", 50.0),
    ],
)
def test_run_time_excludes_suspended_time(text: str, run_s: float) -> None:
    assert ran(text) == run_s


def totals(engine: Engine) -> dict[str, tuple[int, int]]:
    found = {phase: engine.context.state.totals(SITE, phase) for phase in Phase}
    return {phase.value: (total.count, total.cpus) for phase, total in found.items() if total.count}


@pytest.mark.parametrize("releases", [True, False])
def test_suspended_job_frees_cpus_where_the_site_releases_them(releases: bool) -> None:
    engine = new_engine()
    applied(engine, [submit("1", 100.0, cpus=4), event("start@150", cpus=6)])
    applied(engine, [event("suspend@200", releases=releases)])
    assert totals(engine) == {"suspended" if releases else "running": (1, 6)}
    applied(engine, [event("resume@250")])
    assert totals(engine) == {"running": (1, 6)}


def expected_wait_s(releases: bool | None, suspended_s: float, submit_at: float = 2000.0) -> float | None:
    """Predict the wait of a job behind a job of 3600 s that uses the whole site and is suspended at 600."""
    engine = Engine("s", EngineSettings(method="fcfs", shadows=(), runtimes="walltime"))
    applied(engine, [capacity(8), submit("1", 0.0, cpus=8, walltime=3600.0), event("start@0")])
    if releases is not None:
        applied(engine, [event("suspend@600", releases=releases)])
        if suspended_s:
            applied(engine, [event(f"resume@{600 + suspended_s}")])
    fields: dict[str, Any] = {"cpus": 8, "walltime": 60.0}
    [prediction] = engine.apply(submit("2", submit_at, **fields))
    return prediction.predicted_wait_s  # type: ignore[union-attr]


def test_suspended_job_keeps_its_remaining_run_time() -> None:
    assert expected_wait_s(None, 0.0) == 1600.0
    assert expected_wait_s(True, 300.0) == expected_wait_s(False, 300.0) == 1900.0
    assert expected_wait_s(False, 0.0) == 3000.0
    assert expected_wait_s(False, 0.0, 9000.0) == 3000.0
    assert expected_wait_s(True, 0.0) == 0.0


def test_requeue_of_suspended_job_begins_the_next_attempt() -> None:
    engine = new_engine()
    applied(engine, story("submit@100 start@150 suspend@200"))
    applied(engine, [Requeue(site="s", time=260.0, job="1", state="preempted")])
    [job] = engine.context.state.jobs.values()
    assert (job.key, job.submit, job.phase, job.progress.requeued) == (("1", 1), 260.0, Phase.QUEUED, "preempted")
    assert job.progress.suspended_s == 0.0
