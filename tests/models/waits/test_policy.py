"""The policy method finds the policy of a site from its waits."""

import msgspec
import pytest

from models.engine.engine import Engine
from models.engine.settings import EngineSettings
from models.records import AnyEvent, Capacity, Start, Submit
from models.simulation import generate, run
from models.site.job import Job
from models.waits.policy import FIRST_TRIED_JOBS, MAX_LIVE_JOBS, MIN_TRIED_JOBS, POLICIES, Policy

SETTINGS = EngineSettings(method="policy", shadows=("easy",), bounds="", what_if_method="policy", history=200)


def workload(policy: str, jobs: int = 500) -> list[AnyEvent]:
    return list(run(generate(5, jobs, cpus=64, load=0.9), 64, "alder", policy))


def method(engine: Engine) -> Policy:
    found = engine.methods.waits["policy"]
    assert isinstance(found, Policy)
    return found


@pytest.mark.parametrize("policy", ["easy", "lwf", "fcfs"])
def test_policy_method_selects_the_policy_of_the_site(policy: str) -> None:
    engine = Engine("alder", SETTINGS)
    for event in workload(policy):
        engine.apply(event)
    assert method(engine).best.name == policy


def test_policy_method_at_lwf_site_is_better_than_easy() -> None:
    engine = Engine("alder", SETTINGS)
    for event in workload("lwf"):
        engine.apply(event)
    ours, usual = (engine.scores.accuracy[name].measures()["AAE"] for name in ("policy", "easy"))
    assert ours < 0.7 * usual


def test_policy_method_without_history_uses_the_first_policy() -> None:
    engine = Engine("alder", SETTINGS)
    for number in range(MIN_TRIED_JOBS - 1):
        engine.apply(Submit(site="alder", time=float(number), job=str(number), cpus=1, walltime=60.0))
        engine.apply(Start(site="alder", time=float(number), job=str(number)))
    assert method(engine).best.name == POLICIES[0].name
    assert all(name in ("easy", "conservative", "lwf", "fcfs") for name in (kind.name for kind in POLICIES))


def test_policy_method_tries_one_of_several_submissions() -> None:
    engine = Engine("alder", msgspec.structs.replace(SETTINGS, parameters={"policy": {"every": 10}}))
    tried = submits = 0
    for event in workload("easy", 400):
        engine.apply(event)
        if isinstance(event, Submit):
            submits += 1
            tried += (event.job, 0) in method(engine).per_job
    assert FIRST_TRIED_JOBS + (submits - 2 * FIRST_TRIED_JOBS) // 20 <= tried <= submits // 2


def test_policy_method_skips_sites_with_too_many_live_jobs() -> None:
    engine = Engine("alder", SETTINGS)
    engine.apply(Capacity(site="alder", time=0.0, cpus=1))
    for number in range(MAX_LIVE_JOBS + 5):
        engine.context.state.enter(Job(f"q{number}", 0, 0.0))
    for number in range(5):
        engine.apply(Submit(site="alder", time=1.0, job=str(number), cpus=1, walltime=60.0))
    assert len(method(engine).per_job) == 0


def test_saved_and_loaded_method_continues_identically() -> None:
    events = workload("conservative", 300)
    whole, half = Engine("alder", SETTINGS), Engine("alder", SETTINGS)
    for event in events[:450]:
        whole.apply(event)
        half.apply(event)
    state, changes = half.checkpoint()
    again = Engine.load(state, changes.started, changes.runs, SETTINGS, changes.rows)
    for event in events[450:]:
        assert again.apply(event) == whole.apply(event)
    assert method(again).save() == method(whole).save()
