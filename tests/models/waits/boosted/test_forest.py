"""Forest predictions equal those of LightGBM to the last bit, before and after storing."""

from typing import Any

import lightgbm
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.arrays import Floats
from models.waits.boosted.forest import BinnedFeatures, Boosting, Forest, Rows

SMALL = Boosting(trees=12, leaves=7, leaf_rows=3)


def data(seed: int, rows: int, features: int = 4) -> tuple[Rows, Floats]:
    random = np.random.default_rng(seed)
    scale = random.choice([1e-3, 1.0, 1e4], features)
    found = (random.normal(size=(rows, features)) * scale).astype(np.float16).astype(np.float32)
    found[:, 0] = random.integers(0, 3, rows)
    target = np.log1p(np.abs(found @ random.normal(size=features)) + random.exponential(3.0, rows))
    return found, target.round(2)


def names(features: Rows) -> list[str]:
    return [f"f{number}" for number in range(features.shape[1])]


def booster(features: Rows, target: Floats, quantile: float, parameters: Boosting) -> Any:
    named = parameters.as_named_by_lightgbm(quantile)
    return lightgbm.train(named, lightgbm.Dataset(features, target, params=named), parameters.trees)


@settings(max_examples=40)
@given(
    seed=st.integers(0, 1000),
    rows=st.integers(2, 400),
    quantile=st.sampled_from([0.1, 0.5, 0.9]),
    share=st.sampled_from([0.5, 1.0]),
    bins=st.sampled_from([15, 255]),
)
def test_forest_predictions_equal_lightgbm(seed: int, rows: int, quantile: float, share: float, bins: int) -> None:
    features, target = data(seed, rows)
    parameters = Boosting(trees=12, leaves=7, leaf_rows=3, rows=share, features=share, bins=bins, seed=seed)
    forest = Forest.fit(features, target, quantile, parameters, names(features))
    others = np.concatenate([features, data(seed + 1, 200)[0], np.nextafter(features, np.float32(np.inf))])
    expected = booster(features, target, quantile, parameters).predict(others)
    assert forest.predict(others).tolist() == expected.tolist()
    again = Forest.decode(forest.encode(), names(features))
    assert again.predict(others).tolist() == expected.tolist() and again.encode() == forest.encode()


def test_float32_near_threshold_is_split_like_lightgbm() -> None:
    values = np.float32(0.1) + np.arange(64, dtype=np.float32) * np.spacing(np.float32(0.1))
    features = np.repeat(values, 8).reshape(-1, 1)
    target = np.repeat(np.arange(64.0) % 5, 8)
    predictions = Forest.fit(features, target, 0.5, SMALL, ["x"]).predict(features)
    assert predictions.tolist() == booster(features, target, 0.5, SMALL).predict(features).tolist()


def test_same_data_trains_same_bytes_after_other_trainings() -> None:
    features, target = data(1, 300)
    once = Forest.fit(features, target, 0.5, SMALL, names(features)).encode()
    Forest.fit(*data(2, 200), 0.9, SMALL, names(features))
    assert Forest.fit(features, target, 0.5, SMALL, names(features)).encode() == once


def test_forests_with_shared_bins_are_equal() -> None:
    features, target = data(1, 300)
    weights = np.linspace(0.5, 1.0, 300)
    for weight in (None, weights):
        binned = BinnedFeatures(features, SMALL, weight)
        for label, quantile in ((target, 0.5), (np.sqrt(target), 0.9), (target, 0.1)):
            shared = Forest.fit(binned, label, quantile, SMALL, names(features))
            alone = Forest.fit(features, label, quantile, SMALL, names(features), weight)
            assert shared.encode() == alone.encode()


def test_targets_without_any_difference_give_one_value() -> None:
    features, _ = data(1, 50)
    assert set(Forest.fit(features, np.full(50, 3.0), 0.5, SMALL, names(features)).predict(features)) == {3.0}


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_fit_rejects_nonfinite_values(wrong: float) -> None:
    features, target = data(1, 50)
    target[7] = wrong
    with pytest.raises(ValueError, match="finite"):
        Forest.fit(features, target, 0.5, SMALL, names(features))
    target[7], features[3, 2] = 1.0, wrong
    with pytest.raises(ValueError, match="finite"):
        Forest.fit(features, target, 0.5, SMALL, names(features))


def test_fit_rejects_inconsistent_shapes() -> None:
    features, target = data(1, 50)
    for wrong in ((features, target[1:]), (features[:, 1:], target), (features[:0], target[:0])):
        with pytest.raises(ValueError, match="shape"):
            Forest.fit(*wrong, 0.5, SMALL, names(features))


def test_decode_rejects_other_features_and_invalid_bytes() -> None:
    features, target = data(1, 50)
    encoded = Forest.fit(features, target, 0.5, SMALL, names(features)).encode()
    with pytest.raises(ValueError, match="other features"):
        Forest.decode(encoded, ["a", *names(features)[1:]])
    for wrong in (b"", encoded[:-9], b"x" + encoded):
        with pytest.raises(ValueError, match="not a forest"):
            Forest.decode(wrong, names(features))


def test_forest_rejects_splits_by_missing_values_or_category() -> None:
    features, target = data(1, 300)
    missing = features.copy()
    missing[::3] = np.nan
    plain = {**SMALL.as_named_by_lightgbm(0.5), "use_missing": True}
    middle = (features[:, 0] == 1.0).astype(float)
    for odd in (lightgbm.Dataset(missing, target), lightgbm.Dataset(features, middle, categorical_feature=[0])):
        text = lightgbm.train(plain, odd, 20).model_to_string()
        with pytest.raises(ValueError, match="missing"):
            Forest.of_text(text, names(features))
    with pytest.raises(ValueError, match="without trees"):
        Forest.of_text("", names(features))
