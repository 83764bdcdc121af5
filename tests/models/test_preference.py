"""A preferred site goes first unless another starts sooner by the margin."""

import msgspec
import pytest

from models.preference import Preference, preferring
from models.ranking import rank
from tests.models.test_ranking import JOB, bounded


@pytest.mark.parametrize(
    ("margin_s", "first"),
    [(0.0, "fast"), (1799.0, "fast"), (1801.0, "home"), (86_400.0, "home")],
)
def test_preferred_site_is_first_unless_another_is_sooner(margin_s: float, first: str) -> None:
    answers = {"fast": bounded(1800.0), "slow": bounded(9000.0), "home": bounded(3600.0)}
    answers = {
        site: msgspec.structs.replace(one, cautious_wait_s=one.predicted_wait_s or 0.0) for site, one in answers.items()
    }
    found = preferring(rank(JOB, answers, {}), Preference("home", margin_s))
    assert found.ranking[0].site == first
    assert [one.site for one in found.ranking[1:]] == [site for site in ("fast", "home", "slow") if site != first]


@pytest.mark.parametrize("doubt", [{"stale": "old"}, {"low_confidence": "2 jobs"}, {"predicted_wait_s": None}])
def test_preferred_site_with_uncertain_estimate_keeps_its_rank(doubt: dict[str, str | None]) -> None:
    answers = {"fast": bounded(1800.0), "home": msgspec.structs.replace(bounded(3600.0), **doubt)}  # type: ignore[arg-type]
    assert preferring(rank(JOB, answers, {}), Preference("home", 1e9)).ranking[0].site == "fast"


def test_uncertain_site_does_not_outrank_the_preferred_one() -> None:
    answers = {"young": bounded(0.0, low_confidence="2 jobs"), "home": bounded(3600.0)}
    assert preferring(rank(JOB, answers, {}), Preference("home")).ranking[0].site == "home"


def test_preferred_site_that_is_missing_has_no_effect() -> None:
    answers = {"fast": bounded(1800.0), "slow": bounded(9000.0)}
    assert preferring(rank(JOB, answers, {}), Preference("elm", 1e9)) == rank(JOB, answers, {})
