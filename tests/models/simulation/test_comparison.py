import pytest

from models.simulation import POLICIES, Actual, perform
from tests.support.simulated_jobs import CPUS, Given, make


def test_perform_measures_equal_manual_computation() -> None:
    # Jobs 1 and 2 need 8 of 8 CPUs: 1 runs 0 to 40, 2 runs 40 to 45 after a wait of 30, 3 runs 100 to 120.
    jobs = [make(1, 0, 8, 40), make(2, 10, 8, 5), make(3, 100, 4, 20)]
    found = perform(jobs, CPUS, "fcfs", Actual())
    assert (found.jobs, found.total_s, found.killed, found.suspended, found.suspensions) == (3, 120, 0, 0, 0)
    assert found.utilisation == pytest.approx((8 * 40 + 8 * 5 + 4 * 20) / (8 * 120))
    assert found.wait_s == pytest.approx(30 / 3)
    assert found.response_s == pytest.approx((40 + 35 + 20) / 3)
    assert found.slowdown == pytest.approx((1 + 3.5 + 1) / 3)


def test_perform_measures_count_killed_and_suspended_jobs() -> None:
    jobs = [make(1, 0, 8, 30), make(2, 1, 8, 5)]
    estimates = {"1": 12, "2": 9}
    killed = perform(jobs, CPUS, "easy-kill", Given(estimates))
    assert (killed.killed, killed.total_s, killed.utilisation) == (1, 17, 1.0)
    assert killed.slowdown == pytest.approx((1 + 1.6) / 2)
    suspended = perform(jobs, CPUS, "easy-preemptive", Given(estimates))
    assert (suspended.suspended, suspended.suspensions, suspended.utilisation) == (1, 2, 1.0)
    assert suspended.wait_s == pytest.approx(11 / 2)
    assert suspended.response_s == pytest.approx((35 + 16) / 2)


def test_perform_rejects_empty_workload_and_missing_policy() -> None:
    with pytest.raises(ValueError, match="no jobs"):
        perform([], CPUS, "fcfs", Actual())
    with pytest.raises(KeyError):
        perform([make(1, 0, 1, 1)], CPUS, "lottery", Actual())


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_perform_reports_progress_once_per_job(policy: str) -> None:
    steps: list[int] = []
    jobs = [make(0, 0, 8, 10), make(1, 1, 3, 40), make(2, 2, 7, 12), make(3, 3, 2, 20)]
    perform(jobs, CPUS, policy, Actual(), lambda: steps.append(1))
    assert len(steps) == len(jobs)
