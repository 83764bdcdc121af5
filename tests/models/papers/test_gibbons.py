import math
import random
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.method_registry import run_method_named
from models.papers.execution_time import CONFIDENCE, ExecutionTime, Sample, runs_longer, student, welch
from models.papers.gibbons import Gibbons, RunEntry, outlived
from models.site.job import Job, RunEstimate
from models.site.runs import RunHistory

NO_RUNS = RunHistory()


def make(
    user: str | None = "ada",
    executable: str | None = "namd",
    cpus: int = 4,
    walltime: float | None = None,
    memory: int | None = None,
) -> Job:
    return Job(
        id="1", attempt=0, submit=0.0, user=user, executable=executable, cpus=cpus, walltime=walltime, memory=memory
    )


def taught(*ran: tuple[Job, float], relative: bool = True, depth: int = 2048) -> Gibbons:
    method = Gibbons(relative, depth)
    for job, run_s in ran:
        method.learn(job, run_s, NO_RUNS)
    return method


def predicted(method: Gibbons, job: Job, elapsed_s: float = 0.0) -> RunEstimate:
    return method.predict(job, NO_RUNS, elapsed_s)


def restored(method: Gibbons, depth: int = 2048) -> Gibbons:
    """Return a method restored from its stored rows."""
    other = Gibbons(method.relative, depth)
    rows = list(method.rows.numbered)
    random.Random(1).shuffle(rows)
    other.rows.restore(rows, method.rows.count, method.rows.oldest)
    other.load(method.save())
    return other


# The examples of the thesis, section 4.3.3.

CPUS, TIMES, DEVIATIONS = [1, 4, 8], [8350.0, 2500.0, 1700.0], [4175.0, 1250.0, 850.0]


def example(variances: list[float], observations: int = 60) -> ExecutionTime:
    function = ExecutionTime.fitted(CPUS, TIMES, variances, observations)
    assert function is not None
    return function


@pytest.mark.parametrize("variances", [DEVIATIONS, [s**2 for s in DEVIATIONS], [s**2 / 20 for s in DEVIATIONS]])
def test_execution_time_function_matches_the_thesis_example(variances: list[float]) -> None:
    function = example(variances)
    assert function.coefficients == pytest.approx([8000.0, 300.0, 50.0])
    assert function.estimate_time(16)[0] == pytest.approx(1600.0)


def test_confidence_interval_follows_from_the_matrices() -> None:
    design = np.array([[1 / p, 1, p] for p in CPUS])
    x0 = np.array([1 / 16, 1, 16])
    for variances in (DEVIATIONS, [s**2 / 20 for s in DEVIATIONS]):
        spread = x0 @ np.linalg.inv(design.T @ np.diag(1 / np.array(variances)) @ design) @ x0
        assert example(variances).estimate_time(16)[1] == pytest.approx(student(60, 0.975) * math.sqrt(spread))
    assert student(60, 0.975) == pytest.approx(2.0, abs=0.001)
    assert example(DEVIATIONS).estimate_time(16)[1] == pytest.approx(2.0003 * math.sqrt(16935.2), rel=1e-4)


def test_hypothesis_test_matches_the_thesis_example() -> None:
    x, y = Sample(30, 700.0, 900.0), Sample(40, 300.0, 500.0)
    statistic, freedom = welch(x, y, 300.0)
    assert statistic == pytest.approx(0.5484, abs=5e-5)
    assert freedom == pytest.approx(42.29, abs=5e-3)
    assert student(freedom, 0.95) == pytest.approx(1.682, abs=5e-4)
    assert student(freedom, 0.60) == pytest.approx(0.255, abs=5e-4)
    assert not runs_longer(x, y, 300.0, 0.95)
    assert runs_longer(x, y, 300.0, 0.60)


def test_runs_longer_with_zero_variance_compares_the_means() -> None:
    x, y = Sample(2, 500.0, 0.0), Sample(3, 300.0, 0.0)
    assert runs_longer(x, y, 199.0) and not runs_longer(x, y, 200.0) and not runs_longer(x, y, 201.0)


def test_fit_gives_more_weight_to_lower_variance() -> None:
    cpus, times = [1, 2, 4, 8], [8350.0, 4400.0, 2500.0, 5000.0]
    unsure, sure = (ExecutionTime.fitted(cpus, times, [100, 100, 100, last], 40) for last in (1e8, 1e-2))
    assert unsure is not None and sure is not None
    assert unsure.estimate_time(1)[0] == pytest.approx(8350.0, rel=1e-3)
    assert sure.estimate_time(8)[0] == pytest.approx(5000.0, rel=1e-3)
    assert abs(unsure.estimate_time(8)[0] - 5000.0) > 1000.0


@pytest.mark.parametrize("cpus", [[1, 2], [4, 4, 4], [1, 4, 4]])
def test_fit_requires_distinguishable_terms(cpus: list[int]) -> None:
    assert ExecutionTime.fitted(cpus, [100.0] * len(cpus), [1.0] * len(cpus), 10) is None


terms = st.floats(1, 1e5)


@given(terms, terms, st.floats(0, 100), st.lists(st.floats(1, 1e6), min_size=4, max_size=4), st.integers(1, 512))
def test_fit_recovers_the_execution_time_function(
    work: float, alpha: float, beta: float, variances: list[float], cpus: int
) -> None:
    def true(p: float) -> float:
        return work / p + alpha + beta * p

    places = [1.0, 3.5, 16.0, 100.0]
    function = ExecutionTime.fitted(places, [true(p) for p in places], variances, 20)
    assert function is not None
    estimate, error = function.estimate_time(cpus)
    assert estimate == pytest.approx(true(cpus), rel=1e-6)
    assert error >= 0


samples = st.builds(Sample, st.integers(2, 1000), st.floats(0, 1e6), st.floats(0, 1e6))


@given(samples, samples, st.floats(-1e6, 1e6), st.floats(0.5, 0.999))
def test_hypothesis_and_its_opposite_are_not_both_supported(
    x: Sample, y: Sample, difference_s: float, confidence: float
) -> None:
    assert not (runs_longer(x, y, difference_s, confidence) and runs_longer(y, x, -difference_s, confidence))


@given(samples, samples, st.floats(-1e6, 1e6))
def test_welch_degrees_of_freedom_are_within_their_limits(x: Sample, y: Sample, difference_s: float) -> None:
    freedom = welch(x, y, difference_s)[1]
    assert (1 - 1e-9) * (min(x.count, y.count) - 1) <= freedom <= (1 + 1e-9) * (x.count + y.count - 2)


def test_gibbons_returns_the_function_of_an_executable() -> None:
    ran = [(make(cpus=cpus), 8000.0 / cpus + 300 + 50 * cpus + off) for cpus in (1, 4, 8) for off in (-20.0, 20.0)]
    for relative in (False, True):
        found = predicted(taught(*ran, relative=relative), make(cpus=16))
        assert found.run_s == pytest.approx(1600.0)
        assert found.reason == "T(16) of 6 by executable,user"
        function = taught(*ran, relative=relative).get_exec_time_function(make(cpus=16))
        assert function is not None and function.coefficients == pytest.approx([8000.0, 300.0, 50.0])
    assert predicted(taught(*ran[:4]), make(cpus=16)).run_s is None


def test_range_weight_is_the_variance_of_its_mean() -> None:
    """The weight uses the variance of a range's runs over their number; single runs use the pooled one."""
    ranges = {1: [900.0, 1100.0, 1600.0], 2: [500.0, 540.0], 4: [700.0], 16: [90.0, 100.0, 200.0, 250.0]}
    found = taught(*((make(cpus=cpus), run_s) for cpus, runs in ranges.items() for run_s in runs))
    together = sum(statistics.variance(runs) * (len(runs) - 1) for runs in ranges.values() if len(runs) > 1) / 6
    variances = [(statistics.variance(runs) if len(runs) > 1 else together) / len(runs) for runs in ranges.values()]
    expected = ExecutionTime.fitted([*ranges], [statistics.mean(runs) for runs in ranges.values()], variances, 10)
    assert expected is not None
    estimate, (estimate_s, error_s) = predicted(found, make(cpus=8)), expected.estimate_time(8)
    assert estimate.run_s == pytest.approx(estimate_s)
    assert estimate.high == pytest.approx(estimate_s + error_s)


def test_function_relative_to_walltime_returns_seconds() -> None:
    ran = [(make(cpus=cpus, walltime=1e4), 8000.0 / cpus + 300 + 50 * cpus) for cpus in (1, 4, 8)]
    assert predicted(taught(*ran), make(cpus=16, walltime=2e4)).run_s == pytest.approx(3200.0, rel=1e-4)


# Selection of runs.


def test_templates_are_used_in_order_of_the_thesis() -> None:
    bob, other = make("bob"), make("bob", "wrf")
    steps: list[tuple[list[tuple[Job, float]], str]] = [
        ([(make("bob", "wrf", cpus), 100.0 * cpus) for cpus in (1, 2, 8)], "T(4) of 3 by site"),
        ([(other, 700.0), (other, 900.0)], "mean of 2 by site,cpus"),
        ([(make("bob", "namd", cpus), 10.0 * cpus) for cpus in (1, 2, 8)], "T(4) of 3 by executable"),
        ([(bob, 40.0), (bob, 60.0)], "mean of 2 by executable,cpus"),
        ([(make(cpus=cpus), 5.0 * cpus) for cpus in (1, 2, 8)], "T(4) of 3 by executable,user"),
        ([(make(), 15.0), (make(cpus=3), 35.0)], "mean of 2 by executable,user,cpus"),
    ]
    expected = [400.0, 800.0, 40.0, 50.0, 20.0, 25.0]
    method = taught()
    assert predicted(method, make()) == RunEstimate(None, "too little history")
    for (ran, reason), run_s in zip(steps, expected, strict=True):
        for job, took_s in ran:
            method.learn(job, took_s, NO_RUNS)
        estimate = predicted(method, make())
        assert estimate.run_s == pytest.approx(run_s)
        assert estimate.reason == reason


def test_cpu_ranges_end_at_powers_of_two() -> None:
    method = taught(*((make(cpus=cpus), 100.0 * cpus) for cpus in (5, 8)))
    assert [predicted(method, make(cpus=cpus)).run_s for cpus in (4, 5, 8, 9)] == [None, 650.0, 650.0, None]


def test_function_that_falls_below_zero_is_rejected() -> None:
    falling = taught(*((make(cpus=cpus), run_s) for cpus, run_s in ((1, 900.0), (2, 500.0), (4, 100.0))))
    assert predicted(falling, make(cpus=8)) == RunEstimate(None, "too little history")


def test_jobs_without_executable_share_an_unnamed_one() -> None:
    method = taught(
        *((make(user, None), run_s) for user, run_s in (("ada", 10), ("ada", 30), ("bob", 50), ("bob", 70)))
    )
    assert predicted(method, make("ada", None)).run_s == 20.0
    assert predicted(method, make("eve", None)).reason == "mean of 4 by executable,cpus"
    assert predicted(method, make(None, None)).reason == "mean of 4 by executable,cpus"
    assert predicted(method, make("ada", "namd")).reason == "mean of 4 by site,cpus"


def test_memory_distinguishes_problem_sizes() -> None:
    ran = [(make(memory=memory), 1.0 * memory) for memory in (64, 128, 4096, 8000)]
    method = taught(*ran)
    assert predicted(method, make(memory=100)).run_s == 96.0
    assert predicted(method, make(memory=5000)).run_s == 6048.0
    assert predicted(method, make()).reason == "mean of 4 by executable,user,cpus"
    assert predicted(method, make(memory=10**9)).reason == "mean of 4 by executable,user,cpus"  # no such job ran


def test_run_times_with_walltimes_are_shares_of_these() -> None:
    ran = [(make(walltime=1000.0), 100.0), (make(walltime=2000.0), 600.0)]
    assert predicted(taught(*ran), make(walltime=4000.0)).run_s == pytest.approx(800.0)
    assert predicted(taught(*ran, relative=False), make(walltime=4000.0)).run_s == 350.0
    assert predicted(taught(*ran), make()).run_s == 350.0  # without a walltime there is no share
    assert predicted(taught((make(), 10.0), (make(), 30.0)), make(walltime=4000.0)).run_s == 20.0


def test_run_longer_than_walltime_counts_as_all_of_it() -> None:
    method = taught((make(walltime=100.0), 150.0), (make(walltime=100.0), 50.0))
    assert predicted(method, make(walltime=200.0)).run_s == 150.0


def test_interval_of_a_mean_uses_student_quantiles() -> None:
    found = predicted(taught(*((make(), run_s) for run_s in (390.0, 400.0, 410.0))), make())
    half = student(2, 0.975) * 10.0 / math.sqrt(3)
    assert found.interval == pytest.approx((400 - half, 400 + half))


def test_depth_limits_the_runs_that_count() -> None:
    ran = [(make(walltime=3600.0, memory=n), 100.0 * n) for n in (1, 2, 3, 4, 5, 7)]
    last = taught(*ran, depth=2)
    assert predicted(last, make()) == predicted(taught(*ran[-2:]), make())
    assert len(last.rows.numbered) == 2


# Running jobs.


def test_running_job_is_compared_with_runs_at_least_as_long() -> None:
    method = taught(*((make(), run_s) for run_s in (10.0, 20.0, 1000.0, 1020.0)))
    assert predicted(method, make()).run_s == 512.5
    assert predicted(method, make(), 300.0).run_s == 1010.0
    assert predicted(method, make(), 1015.0).run_s == 1015.0  # within the interval: can end at any moment


def test_category_without_long_enough_runs_is_skipped() -> None:
    method = taught(*((make(), run_s) for run_s in (10.0, 20.0)), *((make("bob"), run_s) for run_s in (5000.0, 6000.0)))
    assert predicted(method, make(), 300.0).run_s == 5500.0


def test_job_longer_than_all_others_gets_multiple_of_estimate() -> None:
    method = taught((make(), 600.0), (make(), 602.0))
    assert predicted(method, make(), 6500.0).run_s == 11 * 601.0
    assert predicted(method, make(walltime=6550.0), 6500.0).run_s == 6550.0


@pytest.mark.parametrize(
    ("estimate_s", "error_s", "elapsed_s", "expected"),
    [
        (600.0, 0.0, 0.0, 600.0),
        (600.0, 0.0, 600.0, 600.0),
        (600.0, 0.0, 601.0, 600.0),  # 1.0017 rounds to 1
        (600.0, 0.0, 901.0, 1200.0),
        (600.0, 100.0, 900.0, 600.0),  # three times the interval
        (600.0, 100.0, 901.0, 1200.0),
        (600.0, 0.0, 1499.0, 1200.0),
        (0.0, 0.0, 7.0, 7.0),  # at least a second
    ],
)
def test_outlived_extends_an_exceeded_estimate(
    estimate_s: float, error_s: float, elapsed_s: float, expected: float
) -> None:
    assert outlived(estimate_s, error_s, elapsed_s) == expected


# Comparison of jobs.


def test_compare_job_estimates_compares_the_means() -> None:
    dice = random.Random(2)
    ran = [(make("ada"), dice.gauss(5000.0, 100.0)) for _ in range(20)]
    ran += [(make("bob"), dice.gauss(4000.0, 100.0)) for _ in range(20)]
    method = taught(*ran)
    ada, bob = make("ada"), make("bob")
    assert method.compare_job_estimates(ada, bob) and method.compare_job_estimates(ada, bob, 800.0)
    assert not method.compare_job_estimates(ada, bob, 1200.0) and not method.compare_job_estimates(bob, ada)
    assert not method.compare_job_estimates(ada, bob, 990.0, confidence=0.99)
    assert not method.compare_job_estimates(ada, make(cpus=64))  # no history of this size


def test_compare_job_estimates_uses_elapsed_time() -> None:
    method = taught(*((make(), run_s) for run_s in (10.0, 12.0, 5000.0, 5100.0) * 10))
    assert method.compare_job_estimates(make(), make(), 1000.0, elapsed_a_s=3000.0)
    assert not method.compare_job_estimates(make(), make(), 0.0)


# Stored rows.


def jobs(dice: random.Random) -> Job:
    return make(
        dice.choice([None, "ada", "bob", "eve"]),
        dice.choice([None, "namd", "wrf"]),
        dice.choice([1, 2, 3, 5, 16, 100, 512]),
        dice.choice([None, 0.0, 600.0, 7000.0, 36000.0]),
        dice.choice([None, 1 << 20, 1 << 30]),
    )


def test_load_rejects_a_corrupt_row() -> None:
    method = Gibbons()
    method.rows.append(b"\xc1")
    with pytest.raises(ValueError, match="row 0"):
        method.load(b"")


def test_expired_runs_are_removed_from_the_repository() -> None:
    dice = random.Random(4)
    method = Gibbons(depth=50)
    for _ in range(500):
        method.learn(jobs(dice), dice.expovariate(1 / 3000), NO_RUNS)
    last = restored(method, depth=50)
    assert method._repository.keys() == last._repository.keys()
    for key, entry in method._repository.items():
        assert entry.ranges.keys() == last._repository[key].ranges.keys()


def test_run_sums_are_exact() -> None:
    dice = random.Random(5)
    times = [dice.randrange(10**12) for _ in range(200)]
    entry, other = RunEntry(), RunEntry()
    for time in times:
        entry.add(time, 3, 1)
    for time in reversed(times[100:]):
        entry.add(time, 3, -1)
    for time in reversed(times[:100]):
        other.add(time, 3, 1)
    assert entry.sample(1.0) == other.sample(1.0)
    seconds = [time / 1e6 for time in times[:100]]
    sample = entry.sample(1.0)
    assert sample.count == 100
    assert sample.mean == pytest.approx(statistics.mean(seconds))
    assert sample.deviation == pytest.approx(statistics.stdev(seconds))


times = st.floats(0, 1e11)
made = st.builds(
    make,
    st.sampled_from([None, "ada", "bob"]),
    st.sampled_from([None, "namd"]),
    st.sampled_from([1, 2, 4, 64]),
    st.none() | times,
    st.none() | st.integers(0, 1 << 50),
)


@given(st.lists(st.tuples(made, times), min_size=1, max_size=12), made, times)
def test_estimate_is_between_elapsed_time_and_walltime(
    ran: list[tuple[Job, float]], job: Job, elapsed_s: float
) -> None:
    estimate = predicted(taught(*ran), job, elapsed_s)
    if estimate.run_s is not None:
        assert estimate.low is not None and estimate.high is not None
        assert elapsed_s <= estimate.low <= estimate.run_s <= estimate.high
        assert not job.walltime or estimate.high <= max(job.walltime, elapsed_s)


def test_parameters_are_tunable() -> None:
    method = run_method_named("gibbons", {"relative": False, "depth": 100})
    assert isinstance(method, Gibbons) and not method.relative
    with pytest.raises(ValueError, match=r"gibbons\.depth"):
        run_method_named("gibbons", {"depth": 1})
    assert 0.5 < CONFIDENCE < 1
