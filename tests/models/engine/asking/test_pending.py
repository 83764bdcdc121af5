"""The scheduler's pending reason and its rendering for users."""

import msgspec
import pytest

from models.engine.asking.engine_answers import live_jobs
from models.engine.asking.pending import REASONS, plainly
from models.engine.engine import Engine
from models.engine.settings import EngineSettings
from models.records import AnyEvent, LiveJob
from tests.support.events import capacity, start, submit
from tests.support.stories import applied, event


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("QOSMaxCpuPerUserLimit", "held back by a limit of the QOS on your CPUs"),
        ("QOSMaxJobsPerUserLimit", "held back by a limit of the QOS on your running jobs"),
        ("QOSGrpNodeLimit", "held back by a limit of the QOS on all jobs' nodes"),
        ("MaxMemPerAccount", "held back by a limit of the site on your account's memory"),
        ("AssocGrpCPURunMinutesLimit", "held back by a limit of the account on all jobs' CPUs over time"),
        ("AssocMaxJobsLimit", "held back by a limit of the account on all jobs' running jobs"),
        ("QOSMaxUnheardOfPerUser", 'the reason of the scheduler is "QOSMaxUnheardOfPerUser"'),
        ("(Resources)", REASONS["Resources"]),
        ("None", ""),
    ],
)
def test_pending_reason_is_rendered_in_plain_words(reason: str, words: str) -> None:
    assert plainly(reason) == words


def live_job(*events: AnyEvent) -> LiveJob:
    engine = Engine("s", EngineSettings(method="fcfs", shadows=(), runtimes="walltime"))
    applied(engine, [capacity(8), submit("0", 0.0, cpus=8, walltime=1000.0), start("0", 0.0), *events])
    [job] = live_jobs(engine, [engine.context.state.jobs["1", max(engine.context.state.jobs)[1]]], engine.time)
    return job


def test_pending_reason_is_appended_to_jobs_ahead() -> None:
    job = live_job(event("submit@100", priority=7.5, pending_reason="QOSMaxCpuPerUser"))
    assert job.why is not None and job.why.endswith("; held back by a limit of the QOS on your CPUs")
    assert (job.priority, job.pending_reason) == (7.5, "QOSMaxCpuPerUser")
    job = live_job(event("submit@100", pending_reason="Priority"), event("alter@110", pending_reason=""))
    assert "priority" not in (job.why or "") and job.pending_reason is msgspec.UNSET


@pytest.mark.parametrize(
    ("events", "phase", "why"),
    [
        ([event("submit@100", dependency="afterok:7")], "held", REASONS["Dependency"]),
        ([event("submit@100"), event("hold@110")], "held", "it is held"),
        ([event("submit@100", pending_reason="JobHeldAdmin"), event("hold@110")], "held", REASONS["JobHeldAdmin"]),
        ([event("submit@100", pending_reason="Priority"), event("start@150")], "running", None),
        ([event("submit@100"), event("start@150"), event("suspend@160", releases=False)], "suspended", None),
    ],
)
def test_held_job_is_explained_by_its_pending_reason_only(events: list[AnyEvent], phase: str, why: str | None) -> None:
    job = live_job(*events)
    assert (job.phase, job.why) == (phase, why)


def test_preempted_job_is_explained_as_preempted_and_requeued() -> None:
    job = live_job(event("submit@100"), event("start@150"), event("requeue@200", state="preempted"))
    assert job.why is not None and job.why.endswith("it was preempted and requeued")


def test_live_job_shows_remaining_tasks_and_external_estimates() -> None:
    job = live_job(event("submit@100", array_size=5, cpus=2), event("expected_start@120", expected=900.0))
    assert (job.tasks_remaining, job.tasks_running, job.expected_by) == (5, 0, {"slurm": 900.0})
    plain = live_job(event("submit@100"))
    wire = msgspec.json.decode(msgspec.json.encode(plain))
    assert not wire.keys() & {"tasks_remaining", "tasks_running", "expected_by", "priority", "pending_reason"}
