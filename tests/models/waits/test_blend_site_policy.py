"""A simulated scheduling policy replaces the learned order if it is closer to the site's."""

import msgspec
import pytest

from models.engine.engine import Engine
from models.engine.settings import EngineSettings
from models.simulation import generate
from models.site.job import Job
from models.waits.blend import Blend
from models.waits.blend.site_policy import EVERY, SitePolicy
from models.waits.policy import FIRST_TRIED_JOBS, MIN_TRIED_JOBS, Policy
from tests.simulation.schedulers import run_changing

BLEND = EngineSettings(method="blend", shadows=("order", "policy"), bounds="")


def after(policy: str, jobs: int = 1500, seed: int = 5) -> tuple[Engine, Blend]:
    """Return an engine after jobs at a site of 64 CPUs with this policy."""
    engine = Engine("alder", BLEND)
    for event in run_changing(generate(seed, jobs, cpus=64, load=0.9), 64, "alder", policy):
        engine.apply(event)
    method = engine.methods.waits["blend"]
    assert isinstance(method, Blend)
    return engine, method


@pytest.mark.long
def test_policy_is_simulated_if_closer_than_learned_order() -> None:
    engine, method = after("fcfs")
    assert method.site_policy.is_nearer and method.site_policy.best.name == "fcfs"
    job = Job("", 0, engine.time, cpus=8, walltime=3600.0)
    (its,) = method.site_policy.what_ifs([job], engine.context)
    (simulated,) = engine.methods.waits["policy"].what_ifs([job], engine.context)
    assert its.wait_s == pytest.approx(simulated.wait_s)
    accuracy = {name: engine.scores.accuracy[name].measures()["AAE"] for name in ("blend", "order")}
    assert accuracy["blend"] < accuracy["order"]


@pytest.mark.long
def test_site_policy_that_is_not_closer_returns_no_estimate() -> None:
    engine, method = after("multifactor", seed=6)
    assert not method.site_policy.is_nearer
    job = Job("", 0, engine.time, cpus=8)
    assert [estimate.wait_s for estimate in method.site_policy.what_ifs([job], engine.context)] == [None]
    assert MIN_TRIED_JOBS <= method.site_policy.compared <= FIRST_TRIED_JOBS + 1500 // EVERY


@pytest.mark.parametrize(
    ("error_s", "tried", "well", "counts"),
    [
        (89.0, 50, False, True),
        (104.0, 50, False, False),
        (104.0, 50, True, True),
        (106.0, 50, True, False),
        (10.0, 5, True, False),
    ],
)
def test_well_simulated_site_uses_policy_even_if_not_closer(
    error_s: float, tried: int, well: bool, counts: bool
) -> None:
    site_policy = SitePolicy(lambda: well)
    errors = dict.fromkeys(site_policy.parts.keys() - {"trial"}, 500.0) | {"easy": error_s, "order": 100.0}
    site_policy.load(msgspec.msgpack.encode((Policy().save(), tried, errors)))
    assert (site_policy.compared, site_policy.is_nearer) == (tried, counts)


@pytest.mark.long
def test_site_is_well_simulated_while_schedule_is_near_mixture() -> None:
    _, method = after("easy")
    errors = method._quantiles.state.schedule_errors
    for alone, well in ((1.09, True), (1.11, False)):
        errors[:] = 100.0, 100.0, 100.0 * alone
        assert method.site_policy._simulates_well() is well


@pytest.mark.long
def test_site_policy_follows_a_change_of_policy() -> None:
    jobs = generate(5, 1500, cpus=64, load=0.9)
    engine, method = Engine("alder", EngineSettings(method="blend", shadows=(), bounds="")), Blend()
    before = set()
    for event in run_changing(jobs, 64, "alder", "fcfs", [(jobs[1000].submit, "lwf")]):
        engine.apply(event)
        method = engine.methods.waits["blend"]
        assert isinstance(method, Blend)
        if event.time < jobs[1000].submit:
            before.add((method.site_policy.is_nearer, method.site_policy.best.name))
    assert (True, "fcfs") in before and (True, "lwf") not in before
    assert (method.site_policy.is_nearer, method.site_policy.best.name) == (True, "lwf")


def test_site_policy_is_saved_with_the_blend() -> None:
    _, method = after("fcfs", 600)
    again = Blend()
    again.load(method.save())
    assert again.site_policy.save() == method.site_policy.save()
    assert again.site_policy.compared > 0
