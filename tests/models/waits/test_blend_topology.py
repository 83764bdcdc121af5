"""At a site with a topology the blend uses the simulated schedule only, as far as it is exact."""

import msgspec
import pytest

from models.engine.engine import Engine
from models.engine.settings import EngineSettings
from models.records import AnyEvent, Capacity, Partition, Pool
from models.simulation import generate, run
from models.site.job import Job
from models.site.size import MIN_STARTED_JOBS
from models.waits.blend import Blend
from tests.support.engines import predicted
from tests.support.events import end, start, submit

HOUR_S = 3600.0


def with_partition(event: AnyEvent) -> AnyEvent:
    """Add one partition with all CPUs to a capacity event."""
    if not isinstance(event, Capacity):
        return event
    pools, partitions = (
        [Pool(name="thin", nodes=1, cpus=event.cpus)],
        [Partition(name="all", pools=["thin"], default=True)],
    )
    return msgspec.structs.replace(event, pools=pools, partitions=partitions)


def blend_of(engine: Engine) -> Blend:
    method = engine.methods.waits["blend"]
    assert isinstance(method, Blend)
    return method


@pytest.mark.parametrize(("run_s", "is_alone"), [(HOUR_S, True), (HOUR_S / 2, False)])
def test_known_run_times_make_schedule_the_only_median(run_s: float, is_alone: bool) -> None:
    engine = Engine("s", EngineSettings(method="blend", shadows=(), runtimes="walltime"))
    engine.apply(with_partition(Capacity(site="s", time=0.0, cpus=64)))
    for number in range(MIN_STARTED_JOBS + 10):  # none has to wait, so each is simulated
        at, job = 2 * HOUR_S * number, str(number)
        for event in (submit(job, at, cpus=8, walltime=HOUR_S), start(job, at), end(job, at + run_s)):
            engine.apply(event)
    now = engine.time + HOUR_S
    engine.apply(submit("all", now, cpus=64, walltime=10 * HOUR_S))
    engine.apply(start("all", now))
    prediction = predicted(engine, submit("next", now, cpus=8, walltime=HOUR_S))
    assert prediction.predicted_wait_s is not None
    if is_alone:
        assert prediction.predicted_wait_s == pytest.approx(10 * HOUR_S, rel=0.01)
    else:
        assert prediction.predicted_wait_s < 8 * HOUR_S


@pytest.mark.long
def test_site_policy_is_not_used_with_a_topology() -> None:
    engine = Engine("alder", EngineSettings(method="blend", shadows=(), bounds=""))
    for event in run(generate(5, 600, cpus=64, load=0.9), 64, "alder", "fcfs"):
        engine.apply(with_partition(event))
    policy = blend_of(engine).site_policy
    assert (policy.compared, policy.is_nearer, len(policy.per_job)) == (0, False, 0)
    (context,) = engine.context.views()
    policy._compared |= {"easy": 1.0, "order": 100.0}
    policy.compared = 100
    job = Job("", 0, engine.time, cpus=8, walltime=HOUR_S)
    assert policy.is_nearer
    assert [estimate.wait_s for estimate in policy.what_ifs([job], context)] == [None]
