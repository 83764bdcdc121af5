"""A forest from an external source is decoded only if valid: the kernel checks no index."""

import zlib
from collections.abc import Callable

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.stored_values import MAX_DECOMPRESSED_BYTES, decompress, encode
from models.waits.boosted.forest import MAX_TREES, VERSION, Boosting, Forest, Trees
from models.waits.boosted.forests import POINT, QUANTILES, Forests, TrainingRows
from models.waits.boosted.prior import MAX_FOREST_BYTES, Prior, shipped
from models.waits.boosted.submit_features import NAMES as FEATURES
from tests.models.waits.boosted.test_forest import data, names

ROWS, TARGET = data(3, 120)
NAMES = names(ROWS)
VALID = Forest.fit(ROWS, TARGET, 0.5, Boosting(trees=3, leaves=6, leaf_rows=3), NAMES)


def encoded_with(change: Callable[[Trees], None]) -> bytes:
    """Return the valid forest with its trees changed in place."""
    trees = Trees(*(part.copy() for part in VALID.trees))
    change(trees)
    return Forest(NAMES, trees).encode()


def _set(part: str, place: int, value: float) -> Callable[[Trees], None]:
    def change(trees: Trees) -> None:
        getattr(trees, part)[place] = value

    return change


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (_set("left", 0, 0), "child"),  # its own child: an infinite walk
        (_set("right", 2, 1), "child"),  # back to an earlier node
        (_set("left", 0, 32_000), "child"),  # beyond the tree
        (_set("left", 1, 5), "child"),  # a node of the next tree
        (_set("right", 0, -7), "child"),  # a leaf of the next tree
        (_set("right", 0, -32_768), "child"),
        (_set("feature", 0, 4), "feature"),
        (_set("feature", 0, -1), "feature"),
        (_set("value", 1, np.nan), "not a number"),
        (_set("value", 1, np.inf), "not a number"),
        (_set("threshold", 1, np.nan), "not a number"),
        (_set("leaves", 0, 0), "without leaves"),
        (_set("leaves", 0, 9), "arrays of"),
    ],
)
def test_unsound_tree_is_rejected(change: Callable[[Trees], None], expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        Forest.decode(encoded_with(change), NAMES)


@pytest.mark.parametrize("parts", [5, 7])
def test_wrong_number_of_arrays_is_rejected(parts: int) -> None:
    trees = [part.tobytes() for part in VALID.trees]
    encoded = zlib.compress(msgspec.msgpack.encode([VERSION, NAMES, (trees + trees)[:parts]]))
    with pytest.raises(ValueError, match="arrays, expected 6"):
        Forest.decode(encoded, NAMES)


@settings(max_examples=60)
@given(place=st.integers(0, 10**6), byte=st.integers(0, 255), cut=st.integers(0, 40))
def test_mutated_forest_is_rejected_or_can_be_walked(place: int, byte: int, cut: int) -> None:
    plain = bytearray(zlib.decompress(VALID.encode()))
    plain[place % len(plain)] = byte
    try:
        forest = Forest.decode(zlib.compress(bytes(plain[: len(plain) - (cut if cut > 35 else 0)])), NAMES)
    except ValueError:
        return
    assert forest.predict(ROWS).shape == (len(ROWS),)


def test_empty_forest_and_shipped_prior_are_decoded() -> None:
    empty = Forest.decode(Forest.empty(NAMES).encode(), NAMES)
    assert empty.predict(ROWS[:2]).tolist() == [0.0, 0.0]
    assert Prior.decode(shipped().encode()).jobs == shipped().jobs


def test_prior_without_forests_is_rejected() -> None:
    with pytest.raises(ValueError, match="a prior of 0 forests"):
        Prior.decode(encode([10, list(FEATURES), []]))


def test_prior_that_grows_when_decompressed_is_rejected() -> None:
    large = Forest.empty(FEATURES).encode()
    with pytest.raises(ValueError, match="a prior of 9 forests; expected 1 to 8"):
        Prior.decode(encode([10, list(FEATURES), [("log", number / 10, large) for number in range(1, 10)]]))
    bomb = zlib.compress(bytes(MAX_FOREST_BYTES + 1), 9)
    with pytest.raises(ValueError, match="more than 4,194,304 bytes"):
        Prior.decode(encode([10, list(FEATURES), [("log", 0.5, bomb)]]))


@pytest.mark.parametrize(
    ("jobs", "forests"),
    [
        (-1, [("log", 0.5)]),
        (10**13, [("log", 0.5)]),
        (10, [("cube", 0.5)]),
        (10, [("log", float("nan"))]),
        (10, [("log", 0.0)]),
        (10, [("root", 1.5)]),
        (10, [("log", 0.5), ("log", 0.5)]),
    ],
)
def test_prior_with_values_out_of_range_is_rejected(jobs: int, forests: list[tuple[str, float]]) -> None:
    empty = Forest.empty(FEATURES).encode()
    with pytest.raises(ValueError, match="prior"):
        Prior.decode(encode([jobs, list(FEATURES), [(*aim, empty) for aim in forests]]))


def test_forests_without_a_requested_target_are_rejected() -> None:
    rows = TrainingRows(ROWS, np.abs(TARGET), np.ones(len(ROWS)))
    encoded = Forests.fit(rows, POINT, NAMES, Boosting(trees=2, leaf_rows=3)).encode()
    assert Forests.decode(encoded, NAMES, aims=POINT).jobs == len(ROWS)
    with pytest.raises(ValueError, match="forests without"):
        Forests.decode(encoded, NAMES, aims=(*POINT, *QUANTILES))


def test_forests_without_a_median_are_rejected() -> None:
    rows = TrainingRows(ROWS, np.abs(TARGET), np.ones(len(ROWS)))
    one = Forests.fit(rows, QUANTILES[:1], NAMES, Boosting(trees=2, leaf_rows=3))
    with pytest.raises(ValueError, match="without a median"):
        Forests.decode(one.encode(), NAMES)


def test_more_trees_than_allowed_are_rejected() -> None:
    many = np.ones(MAX_TREES + 1, np.int16)
    none, no_threshold = np.zeros(0, np.int16), np.zeros(0, np.float32)
    trees = Trees(many, none, no_threshold, none, none, np.zeros(len(many)))
    with pytest.raises(ValueError, match="2,001 trees"):
        Forest.decode(Forest(NAMES, trees).encode(), NAMES)


def test_range_of_a_feature_without_description_is_rejected() -> None:
    rows = TrainingRows(np.zeros((50, len(FEATURES)), np.float32), np.arange(50.0), np.ones(50))
    encoded = Forests.fit(rows, POINT, FEATURES, Boosting(trees=2, leaf_rows=3)).encode()
    jobs, forests, most, prior = msgspec.msgpack.decode(encoded)
    assert Forests.decode(encode([jobs, forests, most, prior]), FEATURES).jobs == 50
    with pytest.raises(ValueError, match="range of a feature"):
        Forests.decode(encode([jobs, forests, {"cpus": 1.0}, prior]), FEATURES)


def test_decompression_stops_at_its_limit() -> None:
    bomb = zlib.compress(bytes(MAX_DECOMPRESSED_BYTES + 1), 9)
    assert len(bomb) < 100_000
    with pytest.raises(ValueError, match="more than"):
        decompress(bomb)
    with pytest.raises(ValueError, match="not a forest: truncated"):
        Forest.decode(bomb, NAMES)
