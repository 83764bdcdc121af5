import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.papers.run_template import LAST_RESORT, RunTemplate
from models.papers.search.evaluation_jobs import Workload, WorkloadStep, complete
from models.papers.template import Choice, Templates
from models.site.job import Job
from models.site.runs import RunHistory


def random_workload(dice: random.Random, jobs: int, running: bool = True) -> Workload:
    """Return jobs of few users and sizes, some without walltime or user; predict some while they run."""
    listed, run_s = [], []
    for number in range(jobs):
        listed.append(
            Job(
                id=str(number),
                attempt=0,
                submit=0.0,
                user=dice.choice([None, "a", "b", "c"]),
                queue=dice.choice("pq"),
                executable=dice.choice([None, "x", "y"]),
                cpus=dice.randint(1, 20),
                walltime=dice.choice([None, 0.0, 600.0, 3600.0]),
            )
        )
        run_s.append(dice.choice([0.0, 60.0, dice.expovariate(1 / 900), 4000.5]))
    moments, live = [], []
    for place in range(jobs):
        moments.append(WorkloadStep(place, 0.0))
        live.append(place)
        if running and dice.random() < 0.4:
            moments.append(WorkloadStep(dice.choice(live), dice.choice([1.0, 90.0, 700.0, 5000.0])))
        while live and dice.random() < 0.5:
            moments.append(WorkloadStep(live.pop(dice.randrange(len(live))), None))
    return Workload(listed, run_s, moments)


def live(workload: Workload, texts: list[str], choice: Choice) -> list[float]:
    """Return the method's prediction at each step."""
    method = Templates(texts, choice)
    history, predictions = RunHistory(method.templates), []
    for place, elapsed_s in zip(workload.place, workload.elapsed_s, strict=True):
        job = workload.jobs[place]
        if np.isnan(elapsed_s):
            history.learn(job, float(workload.run_s[place]))
        else:
            run_s = method.predict(job, history, float(elapsed_s)).run_s
            predictions.append(math.nan if run_s is None else run_s)
    return predictions


names = st.lists(st.sampled_from(["queue", "user", "executable", "cpus/1", "elapsed/64", "walltime"]), unique=True)
texts = st.tuples(
    names.map(lambda listed: ",".join(listed) or "site"),
    st.sampled_from(["mean", "linear", "inverse", "logarithmic"]),
    st.sampled_from(["absolute", "relative"]),
    st.sampled_from(["2", "3", "8", "65536"]),
).map(" ".join)


@settings(max_examples=25)
@given(st.integers(0, 10**6), st.lists(texts, min_size=1, max_size=6), st.sampled_from(["surest", "weighted"]))
def test_workload_predictions_equal_the_live_method(seed: int, templates: list[str], choice: Choice) -> None:
    workload = random_workload(random.Random(seed), 80)
    estimates = [workload.estimates(RunTemplate.parse(text)) for text in templates]
    np.testing.assert_array_equal(workload.predictions(estimates, choice), live(workload, templates, choice))


def jobs_of(*requests: tuple[str, float | None]) -> list[Job]:
    return [Job(id=user, attempt=0, submit=0.0, user=user, walltime=walltime) for user, walltime in requests]


def test_workload_error_equals_manual_computation() -> None:
    jobs = jobs_of(("a", None), ("a", None), ("b", None), ("a", 150.0))
    moments = [
        WorkloadStep(0, 0.0),
        WorkloadStep(0, None),
        WorkloadStep(1, 0.0),
        WorkloadStep(1, None),
        WorkloadStep(2, 0.0),
        WorkloadStep(3, 0.0),
    ]
    workload = Workload(jobs, [100.0, 300.0, 50.0, 120.0], moments)
    estimates = [workload.estimates(RunTemplate.parse("user mean absolute 64"))]
    assert workload.predictions(estimates, "surest").tolist() == pytest.approx([math.nan] * 3 + [150.0], nan_ok=True)
    assert workload.error_s(estimates, "surest") == (100 + 300 + 50 + 30) / 4  # a missing prediction counts as zero


def test_workload_detects_the_attributes_that_vary() -> None:
    alike = Workload(jobs_of(("a", None), ("a", None)), [1.0, 2.0], [WorkloadStep(0, 0.0), WorkloadStep(1, 0.0)])
    assert (alike.attributes, alike.has_walltimes, alike.has_running) == ((), False, False)
    different = Workload(jobs_of(("a", 60.0), ("b", 90.0)), [1.0, 2.0], [WorkloadStep(0, 0.0), WorkloadStep(0, 5.0)])
    assert (different.attributes, different.has_walltimes, different.has_running) == (("user", "walltime"), True, True)


def test_workload_fingerprint_differs_for_other_workloads() -> None:
    jobs, moments = (
        jobs_of(("a", None), ("b", None)),
        [WorkloadStep(0, 0.0), WorkloadStep(0, None), WorkloadStep(1, 0.0)],
    )
    prints = [
        Workload(jobs, [1.0, 2.0], moments).fingerprint,
        Workload(jobs, [1.0, 3.0], moments).fingerprint,
        Workload(jobs, [1.0, 2.0], moments[::-1]).fingerprint,
        Workload(jobs[::-1], [1.0, 2.0], moments).fingerprint,
    ]
    assert len(set(prints)) == 4
    assert Workload(list(jobs), [1.0, 2.0], iter(moments)).fingerprint == prints[0]


def test_workload_without_predictions_raises_value_error() -> None:
    with pytest.raises(ValueError, match="no job to predict"):
        Workload(jobs_of(("a", None)), [1.0], [WorkloadStep(0, None)])


def test_complete_adds_last_resort_to_weighted_sets() -> None:
    some = (RunTemplate.parse("user mean relative 64"),)
    all_jobs = (*some, RunTemplate.parse("elapsed/64 linear relative 64"))
    assert complete(some, "weighted") == (*some, RunTemplate.parse(LAST_RESORT))
    assert complete(some, "surest") == some
    assert complete(all_jobs, "weighted") == all_jobs
