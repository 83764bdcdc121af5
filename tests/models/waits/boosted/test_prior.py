"""Models pre-trained on other sites: used before a site has jobs, and as a start for its own forests."""

from typing import Any

import numpy as np
import pytest

from models.arrays import Floats
from models.engine.engine import Engine
from models.engine.operator_commands import operate
from models.engine.settings import EngineSettings
from models.records import LoadPrior, Prediction
from models.site.job import Job
from models.waits.boosted import prior as prior_module
from models.waits.boosted.boosted import Boosted
from models.waits.boosted.forest import Boosting, Rows
from models.waits.boosted.forests import POINT, QUANTILES, Forests, TrainingRows
from models.waits.boosted.prior import SHARES, SITE, Prior, TrainingSet, shares, shipped
from models.waits.boosted.submit_features import NAMES
from tests.support.engines import workload
from tests.support.events import capacity, submit

BOOSTING = Boosting(trees=40, rate=0.2, leaf_rows=5)
QUEUED = NAMES.index("queued_all_cpus")
AIMS = (*POINT, *QUANTILES)


def rows_of(queued: Floats, site: float) -> Rows:
    """Return features of jobs that find `queued` CPUs queued at a site of this size."""
    rows = np.zeros((len(queued), len(NAMES)), np.float32)
    rows[:, QUEUED], rows[:, SITE] = np.log2(1.0 + queued), np.log2(1.0 + site)
    return rows


def lesson_of(site: float, jobs: int = 400) -> TrainingSet:
    """Train on a site that waits 1.5 h for each multiple of its size that is queued."""
    queued = np.random.default_rng(int(site)).uniform(0.0, 4.0, jobs)
    waits = 5400.0 * queued
    return TrainingSet(rows_of(queued * site, site), {POINT[1]: np.sqrt(waits)}, np.ones(jobs))


@pytest.fixture(scope="module")
def prior() -> Prior:
    return Prior.fit([lesson_of(100.0), lesson_of(2000.0)], BOOSTING)


def median_s(forests: Forests, queued: float, site: float) -> float:
    return forests.snapshot(rows_of(np.array([queued]), site)[0]).quantiles[0.5]


def others(prior: Prior) -> Forests:
    return Forests.prior_estimates(prior, POINT[1:], NAMES)


def test_prior_features_are_scaled_by_the_site_size() -> None:
    small, large = (shares(rows_of(np.array([site / 2, 3 * site]), site)) for site in (64.0, 64_000.0))
    assert np.abs(small - large)[:, [place for place in range(len(NAMES)) if place != SITE]].max() < 1e-3
    assert small[:, QUEUED] == pytest.approx(np.log2([501.0, 3001.0]), abs=1e-3)
    assert {NAMES[place] for place in SHARES} >= {"cpus", "free", "queued_all_work", "freed_planned_60min"}
    assert not {NAMES[place] for place in SHARES} & {"share", "walltime", "drain_less_work", "queued_all_jobs", "site"}


def test_shares_of_negative_values_stay_negative() -> None:
    rows = np.zeros((1, len(NAMES)), np.float32)
    rows[0, [NAMES.index("free"), SITE]] = -np.log2(51.0), np.log2(101.0)
    assert shares(rows)[0, NAMES.index("free")] == pytest.approx(-np.log2(501.0), rel=1e-4)


def test_prior_predicts_for_a_site_of_another_size(prior: Prior) -> None:
    assert median_s(others(prior), queued=1000.0, site=500.0) == pytest.approx(2 * 5400.0, rel=0.2)
    assert others(prior).snapshot(rows_of(np.array([9.0]), 500.0)[0]).elsewhere


def test_prior_decoded_from_bytes_returns_equal_values(prior: Prior) -> None:
    again, row = Prior.decode(prior.encode()), rows_of(np.array([300.0]), 500.0)
    assert again.version == prior.version
    assert (again.aims, again.values(row).tolist()) == (prior.aims, prior.values(row).tolist())


def test_prior_is_corrected_by_the_jobs_of_the_site(prior: Prior) -> None:
    queued = np.random.default_rng(1).uniform(0.0, 4.0, 300)
    rows = TrainingRows(rows_of(queued * 500.0, 500.0), 540.0 * queued, np.ones(300))
    own = Forests.fit(rows, POINT[1:], NAMES, BOOSTING, prior)
    assert median_s(own, queued=1000.0, site=500.0) == pytest.approx(1080.0, rel=0.3)
    assert not own.snapshot(rows.features[0]).elsewhere


def test_prior_is_corrected_at_a_site_without_waits(prior: Prior) -> None:
    """All targets are on the same side of the prior, so no split of a tree has a gain."""
    rows = TrainingRows(rows_of(np.full(300, 1000.0), 500.0), np.zeros(300), np.ones(300))
    own = Forests.fit(rows, POINT[1:], NAMES, BOOSTING, prior)
    assert median_s(others(prior), queued=1000.0, site=500.0) > 3600.0
    assert median_s(own, queued=1000.0, site=500.0) < 120.0


def test_forests_decode_rejects_another_prior(prior: Prior) -> None:
    rows = TrainingRows(rows_of(np.arange(100.0), 500.0), np.arange(100.0), np.ones(100))
    stored = Forests.fit(rows, POINT[1:], NAMES, BOOSTING, prior).encode()
    assert Forests.decode(stored, NAMES, prior).jobs == 100
    for other in (None, Prior.fit([lesson_of(100.0)], BOOSTING)):
        with pytest.raises(ValueError, match="another prior"):
            Forests.decode(stored, NAMES, other)


def test_prior_decode_rejects_invalid_bytes() -> None:
    with pytest.raises(ValueError, match="not a prior"):
        Prior.decode(b"trees")


def test_prior_shipped_with_the_package_is_below_5_mb() -> None:
    assert len(shipped().encode()) < 5_000_000
    assert shipped().jobs > 50_000


def test_prior_predicts_the_first_job_of_a_site_of_known_size() -> None:
    engine = Engine("s", EngineSettings(method="boosted", shadows=()))
    engine.apply(capacity(cpus=64, time=0.0))
    (found,) = engine.apply(submit("1", time=10.0, cpus=8, walltime=3600))
    assert isinstance(found, Prediction)
    assert found.predicted_wait_s is not None and found.reason == "boosted: jobs of other sites"
    bounds = found.bounds
    assert bounds is not None and bounds["0.1"] <= found.predicted_wait_s <= bounds["0.95"]


def test_prior_requires_a_known_site_size() -> None:
    engine = Engine("s", EngineSettings(method="boosted", shadows=()))
    (found,) = engine.apply(submit("1", time=10.0, cpus=8, walltime=3600))
    assert isinstance(found, Prediction) and found.predicted_wait_s is None


def test_prior_disabled_gives_no_estimate_for_the_first_job() -> None:
    settings = EngineSettings(method="boosted", shadows=(), prior="none")
    engine = Engine("s", settings)
    engine.apply(capacity(cpus=64, time=0.0))
    (found,) = engine.apply(submit("1", time=10.0, cpus=8))
    assert isinstance(found, Prediction) and found.predicted_wait_s is None


def test_training_set_of_a_site_is_its_feature_rows() -> None:
    engine = Engine("s", EngineSettings(method="boosted", shadows=()))
    for event in workload(5, jobs=60):
        engine.apply(event)
    method = engine.methods.waits["boosted"]
    assert isinstance(method, Boosted)
    rows = method.learnt_rows()
    assert rows.features.shape == (len(rows.waits), len(NAMES)) and len(rows.waits) > 30


def test_prior_estimates_are_kept_and_made_for_earlier_jobs() -> None:
    engine, other = Engine("s", EngineSettings(method="boosted", shadows=())), own_prior()
    for event in workload(5, jobs=40):
        engine.apply(event)
    method = engine.methods.waits["boosted"]
    assert isinstance(method, Boosted)
    for prior in (shipped(), Prior.decode(other)):
        rows = method.learnt_rows()
        assert rows.begins is not None and len(rows.begins) > 20
        assert np.array_equal(rows.begins, prior.values(rows.features))
        method.use_prior(other)


def own_prior() -> bytes:
    """Return a prior of sites where all jobs wait an hour."""
    rows = lesson_of(100.0).features
    targets = {aim: np.full(len(rows), np.sqrt(3600.0) if aim.scale == "root" else np.log1p(120.0)) for aim in AIMS}
    return Prior.fit([TrainingSet(rows, targets, np.ones(len(rows)))], BOOSTING).encode()


def use(prior: bytes) -> LoadPrior:
    return LoadPrior(site="s", time=20.0, by="ada", prior=prior)


@pytest.mark.parametrize("jobs", [20, 300])
def test_prior_sent_by_operator_is_used_and_survives_a_restart(jobs: int) -> None:
    """Include a restored engine, before and after it has its own model."""
    settings = EngineSettings(method="boosted", shadows=())
    engine = Engine("s", settings)
    engine.apply(capacity(cpus=64, time=0.0))
    assert operate(engine, use(own_prior())) == "the forests start from 400 jobs of other sites"
    (found,) = engine.apply(submit("first", time=30.0, cpus=8, walltime=3600))
    assert isinstance(found, Prediction) and found.reason == "boosted: jobs of other sites"
    assert found.predicted_wait_s == pytest.approx(3600.0, rel=0.1)
    for event in workload(5, jobs=jobs):
        engine.apply(event)
    state, kept = engine.checkpoint()
    again = Engine.load(state, kept.started, kept.runs, settings, kept.rows)
    queries = [Job("", 0, 4e6, cpus=8, walltime=600.0, planned_run_s=600.0)]
    before, after = (list(one.methods.waits["boosted"].what_ifs(queries, one.context)) for one in (engine, again))
    assert before == after and before[0].reason == f"boosted: {'jobs of other sites' if jobs < 100 else '228 jobs'}"


def test_stored_prior_of_other_features_is_replaced_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = EngineSettings(method="boosted", shadows=())
    engine = Engine("s", settings)
    engine.apply(capacity(cpus=64, time=0.0))
    operate(engine, use(own_prior()))
    for event in workload(5, jobs=300):
        engine.apply(event)
    state, kept = engine.checkpoint()
    monkeypatch.setattr(prior_module, "NAMES", (*NAMES[:-1], "another"))
    prior_module._decoded.cache_clear()
    again = Engine.load(state, kept.started, kept.runs, settings, kept.rows)
    (found,) = again.apply(submit("last", time=engine.time, cpus=8, walltime=3600))
    assert isinstance(found, Prediction) and found.reason == "boosted: jobs of other sites"
    degraded = "cannot use the grid's prior: using the package's; the model was lost; training a new one"
    assert found.degraded is not None and degraded in found.degraded
    assert found.predicted_wait_s != pytest.approx(3600.0, rel=0.1)


@pytest.mark.parametrize("prior", ["wheel", "none"])
def test_prior_sent_while_disabled_has_no_effect(prior: Any) -> None:
    engine = Engine("s", EngineSettings(method="boosted", shadows=(), prior=prior))
    assert operate(engine, use(own_prior())) == f"nothing: engine.prior is {prior!r}"


@pytest.mark.parametrize(("prior", "why"), [(b"trees", "not a prior"), (None, "a prior that does not apply to Target")])
def test_prior_that_is_invalid_has_no_effect(prior: bytes | None, why: str) -> None:
    engine = Engine("s", EngineSettings(method="boosted", shadows=()))
    known = Prior.fit([lesson_of(100.0)], BOOSTING).encode()
    assert operate(engine, use(known if prior is None else prior)).startswith(f"nothing: {why}")
