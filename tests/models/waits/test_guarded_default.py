"""The default method over misleading workloads is never much worse than the better baseline.

A method that predicts thousands of waits before one of these jobs leaves the queue cannot be accurate for all of them:
the estimate for an immediate start is wrong for a wait of days. So this holds for all jobs that start.
`test_guarded_experts.py` has a second property, for jobs of bursts with observed waits.
"""

import pytest

from tests.support.misled_sites import STRETCH, TRIVIAL, scored


@pytest.mark.long
@pytest.mark.parametrize(("seed", "jobs"), [(2, 8500), (4, 8500), (4, 4200), (7, 4200), (9, 4200), (10, 4200)])
def test_default_error_is_near_the_baseline_in_workloads(seed: int, jobs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each policy and each load, bursts of up to 3700 jobs, and storms of up to 2300."""
    found = scored(seed, jobs, monkeypatch)
    found.check(found.started, TRIVIAL, first=STRETCH)
