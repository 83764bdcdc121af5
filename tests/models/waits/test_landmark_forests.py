"""The forests of later estimates: their prior, and the landmarks that they are trained on."""

import numpy as np
import pytest

from models.engine.engine import Engine
from models.engine.settings import EngineSettings
from models.waits.blend.blend import Blend
from models.waits.blend.remaining import RemainingWait, landmark_forests
from models.waits.blend.remaining.landmark_forests import AIMS, OLD_CLASS, LandmarkForests, shipped
from models.waits.blend.remaining.queued_features import NAMES, OF_QUEUE, SUBMISSION, rows_of
from models.waits.boosted.forests import Forests, TrainingRows, training_set
from models.waits.boosted.prior import Prior

AGE = NAMES.index("age")


def landmark_rows(ages_s: np.ndarray) -> np.ndarray:
    """Return rows of landmarks that differ in their age alone."""
    rows = np.zeros((len(ages_s), len(NAMES)), np.float16)
    rows[:, AGE] = np.log2(1.0 + ages_s)
    return rows


def learn(forests: LandmarkForests, jobs: int, remaining_s: float, first: int = 0) -> None:
    """Let jobs leave the queue that waited this long after 10 minutes and after a day."""
    rows, classes = landmark_rows(np.array([600.0, 86_400.0])), np.array([2, OLD_CLASS + 1])
    for number in range(first, first + jobs):
        forests.learn((str(number), 0), classes, rows, np.full(2, remaining_s), cancelled=number % 4 == 3)
        forests.training.step()


@pytest.mark.parametrize("prior", [True, False])
def test_forests_start_from_the_prior(prior: bool) -> None:
    forests = LandmarkForests()
    if prior:
        forests.start_from_prior()
    assert forests.training.model is None
    learn(forests, jobs=90, remaining_s=3600.0)
    assert forests.training.model is not None
    rows = landmark_rows(np.array([600.0, 86_400.0])).astype(np.float32)
    found_s = forests.training.model.quantiles(rows)
    places = [shipped().aims.index(aim) for aim in AIMS]
    own_s = Forests.fit(forests.learnt_rows(), AIMS, NAMES, landmark_forests.BOOSTING).quantiles(rows)
    assert np.ptp(shipped().values(rows)[:, places[0]]) > 10.0, "the prior distinguishes the ages"
    assert (np.ptp(found_s[:, 1]) > 60.0) == prior and np.ptp(own_s[:, 1]) < 1.0
    assert (np.diff(found_s) >= 0.0).all()


def test_engine_without_prior_starts_forests_from_none() -> None:
    def prior_of(settings: EngineSettings) -> Prior | None:
        blend = Engine("s", settings).methods.waits["blend"]
        assert isinstance(blend, Blend)
        remaining = blend.parts[RemainingWait.name]
        assert isinstance(remaining, RemainingWait)
        return remaining.forests.prior

    assert prior_of(EngineSettings(prior="none")) is None
    assert prior_of(EngineSettings(prior="wheel")) is prior_of(EngineSettings()) is shipped()


def test_many_jobs_thin_out_landmarks_of_young_ages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(landmark_forests, "DENSE_JOBS", 20)
    forests = LandmarkForests()
    learn(forests, jobs=40, remaining_s=3600.0)
    found = forests.learnt_rows()
    young = found.features[:, AGE] < 10.0
    assert (~young).sum() == 40 and young.sum() == 30
    assert set(found.weights) == {0.5, 1.0} and (found.weights[~young] == 0.5).sum() == 10
    assert (found.waits == 3600.0).all()


def test_landmark_features_are_shares_of_the_site() -> None:
    def features(site_cpus: float) -> np.ndarray:
        queue, submissions = np.zeros((1, len(OF_QUEUE))), np.zeros((1, len(SUBMISSION.names)))
        queue[0, OF_QUEUE.index("free")] = -site_cpus / 2
        queue[0, OF_QUEUE.index("ahead_jobs")] = 7.0
        return rows_of(np.array([600.0]), np.zeros((1, 4)), np.zeros((1, 4)), queue, submissions, site_cpus)[0]

    small, large = features(64.0), features(6400.0)
    np.testing.assert_array_equal(small, large)
    assert small[NAMES.index("free")] == pytest.approx(-np.log2(501.0), abs=0.01)
    assert small[NAMES.index("ahead_jobs")] == 3.0
    assert np.isfinite(features(0.0)).all()


@pytest.mark.parametrize(
    ("noted", "settled", "message"),
    [
        (b"short", b"\0", "not landmarks of"),
        (b"", b"\2", "cancelled"),
        *((left_s, b"\0", "remaining wait") for left_s in (-1.0, np.nan, np.inf)),
    ],
)
def test_unsound_noted_landmarks_are_rejected(noted: bytes | float, settled: bytes, message: str) -> None:
    forests = LandmarkForests()
    learn(forests, jobs=2, remaining_s=3600.0)
    saved = forests.training.save()
    if isinstance(noted, float):
        landmark = np.zeros(1, landmark_forests.NOTED)
        landmark["remaining_s"] = noted
        noted = landmark.tobytes()
    forests.notes.note(("odd", 0), noted)
    forests.notes.settle(("odd", 0), settled)
    with pytest.raises(ValueError, match=message):
        forests.load(saved)


def test_prior_of_landmarks_keeps_features_as_they_are() -> None:
    rows = landmark_rows(np.linspace(600.0, 86_400.0, 500)).astype(np.float32)
    waits_s = np.exp2(rows[:, AGE].astype(np.float64))
    lesson = training_set(TrainingRows(rows, waits_s, np.ones(len(rows))), AIMS)
    prior = Prior.fit([lesson], landmark_forests.BOOSTING, NAMES)
    assert Prior.decode(prior.encode(), NAMES).names == NAMES
    with pytest.raises(ValueError, match="of other features"):
        Prior.decode(prior.encode())
    median = prior.values(rows)[:, prior.aims.index(AIMS[0])]
    assert np.corrcoef(median, np.sqrt(waits_s))[0, 1] > 0.95
