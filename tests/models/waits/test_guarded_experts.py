"""The default method over misleading workloads is near its best experts for jobs of bursts with observed waits.

These include withdrawn jobs, and begin with the first job of a burst after an observed wait. The experts are the two
best ones of the last week, of which the mean counts.
"""

import pytest

from tests.support.misled_sites import EXPERTS, TRIVIAL, scored


@pytest.mark.long
def test_default_error_is_near_simpler_estimates_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    found = scored(11, 4200, monkeypatch)
    found.check(found.started, TRIVIAL)
    found.check(found.shown, EXPERTS)
    assert 0 < found.started.sum() < len(found.started)


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2])
def test_default_error_of_informed_jobs_is_near_the_experts(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    found = scored(seed, 4200, monkeypatch)
    found.check(found.shown, EXPERTS)
