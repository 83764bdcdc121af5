import random

import numpy as np
import pytest

from models.method import SiteContext, WaitMethod
from models.method_registry import METHODS, TRIVIAL, method_named
from models.runtimes.closest import Closest
from models.site.history import COUNT, LATEST_JOBS, History
from models.site.job import Estimate, Job
from models.site.runs import RunHistory
from models.site.state import SiteState
from models.waits.trivial import Median, Zero

JOB = Job(id="new", attempt=0, submit=1e9, user="ada", cpus=64, walltime=3600.0)


def site_after(waits: list[float], size: int = 6000) -> SiteContext:
    history = History(size)
    for number, wait_s in enumerate(waits):
        job = Job(id=str(number), attempt=0, submit=0.0, start=wait_s, features=np.zeros(COUNT))
        history.learn(job, wait_s)
    return SiteContext(SiteState(), history, RunHistory(), Closest())


def upper_median(waits: list[float]) -> float:
    """Compute the baseline's value as the referee does."""
    return sorted(waits)[len(waits) // 2]


@pytest.mark.parametrize("waits", [[], [5.0], [100.0] * 7])
def test_zero_is_always_zero(waits: list[float]) -> None:
    assert Zero().predict(JOB, site_after(waits)) == Estimate(0.0, "always zero")


def test_median_without_history_returns_no_estimate() -> None:
    assert Median().predict(JOB, site_after([])) == Estimate(None, "no history")


@pytest.mark.parametrize(
    ("waits", "median"), [([7.0], 7.0), ([1.0, 9.0], 9.0), ([9.0, 0.0, 5.0], 5.0), ([4.0, 1.0, 3.0, 2.0], 3.0)]
)
def test_median_is_the_upper_median(waits: list[float], median: float) -> None:
    estimate = Median().predict(JOB, site_after(waits))
    assert (estimate.wait_s, estimate.bounds) == (median, None)
    assert estimate.reason == f"median of the last {len(waits)} jobs to start"


@pytest.mark.parametrize("size", [500, 1000, 1024, 6000])
@pytest.mark.parametrize("count", [999, 1000, 1001, 1500, 2600])
def test_median_uses_the_last_thousand_starts(size: int, count: int) -> None:
    dice = random.Random(count)
    waits = [dice.choice([0.0, dice.expovariate(1e-3) + number]) for number in range(count)]
    estimate = Median().predict(JOB, site_after(waits, size))
    assert estimate.wait_s == upper_median(waits[-min(LATEST_JOBS, size) :])


def test_median_predict_does_not_change_the_history() -> None:
    site = site_after([3.0, 1.0, 2.0])
    Median().predict(JOB, site)
    assert site.history.waits.tolist() == [3.0, 1.0, 2.0]


def test_baselines_have_no_saved_state() -> None:
    for name in TRIVIAL:
        method = method_named(name)
        assert method.save() == b""
        method.load(b"")
        method.forget(JOB.key)
        method.learn(JOB, 1.0, site_after([]))


def test_methods_are_found_by_their_names() -> None:
    for name, kind in METHODS.items():
        method = method_named(name)
        assert type(method) is kind and isinstance(method, WaitMethod) and method.name == name
        assert method is not method_named(name)
    with pytest.raises(ValueError, match=r"no method 'oracle'; there are: zero, median"):
        method_named("oracle")
