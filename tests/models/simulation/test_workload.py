from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from models.simulation import workload
from models.simulation.workload import (
    DAY,
    QUEUES,
    SLOT,
    WALLTIMES,
    SimulatedJob,
    arrivals,
    day_cycle,
    generate,
    job_sizes,
    run_times,
)

START = 1_700_000_000


@pytest.fixture(scope="module")
def jobs() -> list[SimulatedJob]:
    return generate(seed=7, jobs=30_000, cpus=128, load=0.8, start_time=START)


def work(jobs: list[SimulatedJob]) -> int:
    return sum(job.cpus * min(job.run, job.walltime) for job in jobs)


def test_same_seed_same_jobs_and_another_seed_others() -> None:
    assert generate(3, 500, 64, 0.7) == generate(3, 500, 64, 0.7)
    assert generate(3, 500, 64, 0.7) != generate(4, 500, 64, 0.7)


@given(
    seed=st.integers(0, 2**32),
    count=st.integers(1, 60),
    cpus=st.integers(1, 5000),
    load=st.floats(0.05, 3.0),
    start=st.integers(0, 2_000_000_000),
    users=st.integers(1, 50),
)
def test_any_site_gets_a_valid_workload(seed: int, count: int, cpus: int, load: float, start: int, users: int) -> None:
    jobs = generate(seed, count, cpus, load, start_time=start, users=users)
    assert [job.job for job in jobs] == [str(number) for number in range(1, count + 1)]
    submits = [job.submit for job in jobs]
    assert submits == sorted(submits) and submits[0] >= start
    assert all(1 <= job.cpus <= cpus and job.run >= 1 and job.walltime >= 1 for job in jobs)
    assert all(job.patience is None or job.patience >= 1 for job in jobs)
    # Submissions are rounded to a second.
    assert submits[-1] - start == pytest.approx(work(jobs) / (cpus * load), abs=1)


@pytest.mark.parametrize("load", [0.3, 0.85, 1.1])
def test_generated_load_equals_the_requested_load(load: float) -> None:
    jobs = generate(5, 5_000, 256, load, start_time=START)
    assert work(jobs) / (256 * (jobs[-1].submit - START)) == pytest.approx(load, rel=1e-3)


def test_sizes_follow_the_published_model(jobs: list[SimulatedJob]) -> None:
    sizes = np.array([job.cpus for job in jobs])
    assert np.mean(sizes == 1) == pytest.approx(0.2927, abs=0.01)
    odd = np.mean((sizes & (sizes - 1)) != 0)
    # Jobs of any size whose size rounds to a power of two are not visible.
    assert 0.7 * (1 - 0.2927 - 0.6686) < odd < 1 - 0.2927 - 0.6686 + 0.004
    # More than 32 of 128: an eighth is in the upper stage, from 5 to 7 in log2; powers of two round 5.5 up.
    upper = 0.125 * (0.6686 * 1.5 / 2 + 0.0387 * (7 - np.log2(32.5)) / 2)
    assert np.mean(sizes > 32) == pytest.approx(upper, abs=0.006)


@pytest.mark.parametrize(("size", "short_share"), [(1, 0.6956), (100, 0.3986), (300, 0.0)])
def test_run_times_follow_the_published_hyper_gamma(size: int, short_share: float) -> None:
    runs = run_times(np.random.default_rng(1), np.full(40_000, size))

    def below(log_seconds: float) -> float:
        short = stats.gamma.cdf(log_seconds, 6.57, scale=0.823)
        long = stats.gamma.cdf(log_seconds, 639.1, scale=0.0156)
        return float(short_share * short + (1 - short_share) * long)

    for seconds in (50, 500, 5_000, 15_000, 25_000, 60_000):
        expected = below(np.log(seconds)) / below(12.0)
        assert np.mean(runs < seconds) == pytest.approx(expected, abs=0.01)
    assert runs.max() <= np.exp(12.0)


def test_run_times_of_the_whole_workload_keep_the_models_mean(jobs: list[SimulatedJob]) -> None:
    sizes = np.array([job.cpus for job in jobs])
    short = np.clip(0.6986 - 0.003 * sizes, 0, 1)
    expected = np.mean(short * 6.57 * 0.823 + (1 - short) * 639.1 * 0.0156)
    assert np.mean(np.log([job.run for job in jobs])) == pytest.approx(expected, abs=0.1)
    longer = np.mean([job.run for job in jobs if job.cpus > 64]) / np.mean([job.run for job in jobs if job.cpus == 1])
    assert longer > 1.2


def test_day_cycle_equals_the_published_gamma() -> None:
    cycle = day_cycle()
    edges = np.arange(11, 60) - 0.5
    published = np.diff(stats.gamma.cdf(edges, 6.1271, scale=5.2740))
    # Slot 11 there is the half hour from 5:00.
    np.testing.assert_allclose(np.roll(cycle, -10), published / published.mean(), rtol=1e-4)
    assert np.argmin(cycle) == 9 and np.argmax(cycle) in (25, 26)


@pytest.mark.parametrize("start", [0, 50_000, START])
def test_arrivals_follow_the_day_cycle_for_any_start(start: int) -> None:
    submits = np.concatenate([arrivals(np.random.default_rng(seed), 4_000, start, 400.0 * DAY) for seed in range(6)])
    share = np.bincount(submits % DAY // (6 * 3600), minlength=4) / submits.size
    expected = day_cycle().reshape(4, -1).sum(axis=1) / (DAY // SLOT)
    np.testing.assert_allclose(share, expected, atol=0.03)


def test_gaps_are_as_bursty_as_the_published_gamma() -> None:
    gaps = np.diff(arrivals(np.random.default_rng(2), 20_000, 0, 20_000 * 3_500.0))
    log = np.log(gaps[gaps > 0])
    # Of a gamma of shape 6.0415 * 1.0519 and scale 0.8531, cut at 13; the day's cycle adds a little.
    gamma = stats.gamma(6.0415 * 1.0519, scale=0.8531)
    cut = gamma.expect(lambda x: x, ub=13, conditional=True)
    spread = np.sqrt(gamma.expect(lambda x: (x - cut) ** 2, ub=13, conditional=True))
    assert log.std() == pytest.approx(spread, rel=0.1)


def test_walltimes_are_round_mostly_ample_and_seldom_short(jobs: list[SimulatedJob]) -> None:
    assert {job.walltime for job in jobs} <= set(WALLTIMES.tolist())
    assert 0.02 < np.mean([job.run > job.walltime for job in jobs]) < 0.08
    assert 0.25 < np.mean([min(job.run / job.walltime, 1) for job in jobs]) < 0.5


def test_queue_is_the_smallest_with_sufficient_walltime_limit(jobs: list[SimulatedJob]) -> None:
    limits = dict(QUEUES)
    below = {"short": 0, "batch": limits["short"], "long": limits["batch"]}
    assert {job.queue for job in jobs} == set(limits)
    assert all(below[job.queue] < job.walltime <= limits[job.queue] for job in jobs)


def test_users_differ_in_popularity_and_belong_to_one_group(jobs: list[SimulatedJob]) -> None:
    users, counts = np.unique([job.user for job in jobs], return_counts=True)
    shares = dict(zip(users.tolist(), counts / len(jobs), strict=True))
    assert len(shares) == 40
    harmonic = np.sum(1 / np.arange(1, 41))
    assert shares["u1"] == pytest.approx(1 / harmonic, abs=0.02)
    assert shares["u40"] == pytest.approx(1 / 40 / harmonic, abs=0.005)
    assert len({(job.user, job.group) for job in jobs}) == 40
    assert len({job.group for job in jobs}) > 3
    assert max(len({job.executable for job in jobs if job.user == user}) for user in shares) <= workload.APPLICATIONS


def test_jobs_of_one_application_resemble_each_other(jobs: list[SimulatedJob]) -> None:
    last: dict[tuple[str, str], SimulatedJob] = {}
    pairs = []
    for job in jobs:
        before = last.get((job.user, job.executable))
        if before is not None:
            pairs.append((before, job))
        last[job.user, job.executable] = job
    strangers = list(pairwise(jobs))

    def unlike(pairs: list[tuple[SimulatedJob, SimulatedJob]]) -> tuple[float, float]:
        run = np.median([abs(np.log(a.run / b.run)) for a, b in pairs])
        return float(run), float(np.mean([a.cpus != b.cpus for a, b in pairs]))

    run, size = unlike(pairs)
    other_run, other_size = unlike(strangers)
    assert run < 0.5 * other_run
    assert size < 0.6 * other_size


def test_impatient_share_equals_the_requested_share() -> None:
    for share in (0.0, 0.3, 1.0):
        jobs = generate(1, 3_000, 64, 0.7, impatient=share)
        assert np.mean([job.patience is not None for job in jobs]) == pytest.approx(share, abs=0.03)


@pytest.mark.parametrize(
    "wrong",
    [
        {"jobs": 0},
        {"cpus": 0},
        {"load": 0.0},
        {"users": 0},
        {"session_jobs": 0},
        {"impatient": 1.5},
        {"impatient": -0.1},
    ],
)
def test_generate_rejects_non_positive_parameters(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must be positive"):
        generate(**{"seed": 1, "jobs": 10, "cpus": 4, "load": 0.5} | wrong)  # type: ignore[arg-type]


def test_sizes_of_the_smallest_machines_fit() -> None:
    rng = np.random.default_rng(0)
    for cpus in (1, 2, 3, 5):
        sizes = job_sizes(rng, 2_000, cpus)
        assert sizes.min() == 1 and sizes.max() == cpus
