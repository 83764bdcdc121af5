"""Boosted regression trees: trained by LightGBM, stored as arrays, and read by compiled code.

LightGBM is maintained, fast on one core, and returns the same trees for the same data and seed. Its own prediction of
one row spends most of its time on the call; the compiled code avoids that.
"""

import sys
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from models.arrays import Floats, Records, Singles
from models.kernels import njit
from models.stored_values import MAX_DECOMPRESSED_BYTES, decompress

Rows = Singles
Ints = npt.NDArray[np.int32]
Shorts = npt.NDArray[np.int16]

VERSION = 1
"""Version of the data that `Forest.encode` writes."""

BIN_SAMPLE_ROWS = 20_000
"""Rows from which the bins are chosen; LightGBM copies these, at 8 bytes a feature."""

MAX_TREES = 2000
"""Maximum number of trees of a forest from outside; each increases the cost of every prediction."""

NODE_LINES = ("split_feature", "threshold", "left_child", "right_child")
"""The lines of a tree in LightGBM's text that describe its nodes, in the order of `Trees`."""


class Boosting(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters of the training of a forest.

    `trees` of up to `leaves` leaves are added, each with the weight `rate`. A leaf has at least `leaf_rows` rows, and
    `l2` shrinks its value. Every tree uses the share `features` of the features and the share `rows` of the rows,
    chosen by `seed`. Features are cut into `bins` ranges.
    """

    trees: int = 150
    leaves: int = 31
    rate: float = 0.1
    leaf_rows: int = 20
    l2: float = 0.0
    features: float = 1.0
    rows: float = 1.0
    bins: int = 255
    seed: int = 1

    @property
    def reach(self) -> float:
        """Share of a constant that all trees together could add."""
        return 1.0 - (1.0 - self.rate) ** self.trees

    def as_named_by_lightgbm(self, quantile: float) -> dict[str, Any]:
        """Return LightGBM's parameters, with which it returns the same trees each time."""
        return {
            "objective": "quantile",
            "alpha": quantile,
            "num_leaves": self.leaves,
            "learning_rate": self.rate,
            "min_data_in_leaf": self.leaf_rows,
            "lambda_l2": self.l2,
            "feature_fraction": self.features,
            "bagging_fraction": self.rows,
            "bagging_freq": 1 if self.rows < 1.0 else 0,
            "max_bin": self.bins,
            "bin_construct_sample_cnt": BIN_SAMPLE_ROWS,
            "use_missing": False,
            "seed": self.seed,
            "deterministic": True,
            "force_row_wise": True,
            "num_threads": 1,
            "verbosity": -1,
        }


class Trees(NamedTuple):
    """The trees, one after another. A tree of n leaves has n - 1 nodes, the first of which is its root.

    A row whose `feature` is at most the `threshold` goes to the left. Children are nodes of the same tree, or below 0
    leaves: -1 is the first.
    """

    leaves: Shorts
    feature: Shorts
    threshold: Rows
    left: Shorts
    right: Shorts
    value: Floats


_KINDS: tuple[np.dtype[Any], ...] = tuple(map(np.dtype, ("i2", "i2", "f4", "i2", "i2", "f8")))


_NODE = np.dtype([("threshold", "f4"), ("left", "i4"), ("right", "i4"), ("feature", "i4")])


class _EncodedForest(msgspec.Struct, array_like=True, frozen=True):
    version: int
    names: list[str]
    trees: list[bytes]


class BinnedFeatures:
    """Features cut into bins, for forests that share them, with the edges of the bins and the weights of the rows.

    Binning is a fifth of a forest's training.

    Raises:
        ValueError: there are no rows, or a value is not finite.
    """

    def __init__(self, features: Rows, parameters: Boosting, weights: Floats | None = None) -> None:
        if features.ndim != 2 or not len(features):
            raise ValueError(f"features of shape {features.shape}")
        if not np.isfinite(features).all():
            raise ValueError("features must be finite")
        self.shape = features.shape
        settings = parameters.as_named_by_lightgbm(0.5)
        rows, unlabelled = np.ascontiguousarray(features, np.float32), np.zeros(len(features))
        self.data: Any = _lightgbm().Dataset(rows, unlabelled, weight=weights, params=settings).construct()

    def copy(self) -> "BinnedFeatures":
        """Return a copy for another thread: training writes a forest's targets into it."""
        copied = copy(self)
        copied.data = self.data.subset(range(self.shape[0])).construct()
        return copied


class Forest:
    """Trees whose leaves' values are added up. It is never changed.

    `names` are those of the features, the forest's schema.

    >>> rows = np.arange(200, dtype=np.float32).reshape(200, 1)
    >>> forest = Forest.fit(rows, np.where(rows[:, 0] < 100, 1.0, 5.0), 0.5, Boosting(), ["age"])
    >>> forest.predict(rows[[0, 150]]).round(3).tolist()
    [1.0, 5.0]
    """

    def __init__(self, names: Sequence[str], trees: Trees) -> None:
        self.names = tuple(names)
        self.trees = trees
        self._alone: ForestBatch | None = None

    @classmethod
    def empty(cls, names: Sequence[str]) -> "Forest":
        """Return a forest without trees, which predicts 0."""
        return cls(names, Trees(*(np.zeros(0, kind) for kind in _KINDS)))

    @classmethod
    def fit(
        cls,
        features: "Rows | BinnedFeatures",
        target: Floats,
        quantile: float,
        parameters: Boosting,
        names: Sequence[str],
        weights: Floats | None = None,
        begin: Floats | None = None,
    ) -> "Forest":
        """Train a quantile of the target, given the features.

        Args:
            features: finite, of shape [n, len(names)]; or the binned features, to share them between several forests.
            target: finite, of shape [n].
            quantile: between 0 and 1; 0.5 minimises the absolute error.
            parameters: those of the training.
            names: of the features.
            weights: the weight of each row, of shape [n]; all equal by default. `BinnedFeatures` contains its weights.
            begin: an estimate for each row, of shape [n], to which the forest's own predictions are to be added. The
                forest then starts from a constant as well: trees do not grow where all targets lie on the same side.

        Raises:
            ValueError: shapes do not fit, or a value is not finite.
        """
        binned = features if isinstance(features, BinnedFeatures) else BinnedFeatures(features, parameters, weights)
        if binned.shape != (len(target), len(names)):
            raise ValueError(f"features of shape {binned.shape} for {len(target)} targets and {len(names)} names")
        if not np.isfinite(target).all():
            raise ValueError("targets must be finite")
        binned.data.set_label(target)
        constant = 0.0
        if begin is not None:
            constant = parameters.reach * float(np.quantile(target - begin, quantile))
            binned.data.set_init_score(begin + constant)
        booster = _lightgbm().Booster(parameters.as_named_by_lightgbm(quantile), binned.data)
        for _ in range(parameters.trees):
            booster.update()
        found = cls.of_text(booster.model_to_string(), names)
        found.trees.value[: found.trees.leaves[0]] += constant
        return found

    @classmethod
    def of_text(cls, text: str, names: Sequence[str]) -> "Forest":
        """Parse a forest from LightGBM's text of a model.

        Raises:
            ValueError: it has splits by category or by missing values, or is not a model.
        """
        exact = [np.concatenate(part) for part in zip(*_trees(text), strict=True)]
        if not exact:
            raise ValueError("a model without trees")
        found = Trees(*(part.astype(kind) for part, kind in zip(exact, _KINDS, strict=True)))
        # A float32 is at most a float64 where it is at most the greatest float32 that is not above that.
        above = found.threshold.astype(np.float64) > exact[Trees._fields.index("threshold")]
        found.threshold[above] = np.nextafter(found.threshold[above], np.float32(-np.inf))
        return cls(names, found)

    def predict(self, rows: Rows) -> Floats:
        """Predict each row, of shape [m, len(names)]; the results are bitwise equal to LightGBM's.

        O(trees · depth) a row.
        """
        self._alone = self._alone or ForestBatch([self])
        predicted: Floats = self._alone.predict(rows)[:, 0]
        return predicted

    def encode(self) -> bytes:
        """Serialize the forest, compressed: some 70 kB for 150 trees of 31 leaves."""
        trees = [part.tobytes() for part in self.trees]
        return zlib.compress(msgspec.msgpack.encode(_EncodedForest(VERSION, list(self.names), trees)))

    @classmethod
    def decode(cls, encoded: bytes, names: Sequence[str], max_bytes: int = MAX_DECOMPRESSED_BYTES) -> "Forest":
        """Deserialize a forest from `encode`.

        Args:
            encoded: the result of `encode`.
            names: the features that it must have.
            max_bytes: its maximum size when decompressed.

        Raises:
            ValueError: it is not a forest, has other features, or is of another version.
        """
        try:
            read = msgspec.msgpack.decode(decompress(encoded, max_bytes), type=_EncodedForest)
        except ValueError as error:  # msgspec's errors are ValueErrors too
            raise ValueError(f"not a forest: {error}") from error
        if (read.version, read.names) != (VERSION, list(names)):
            raise ValueError(f"a forest of version {read.version}, or of other features")
        if len(read.trees) != len(_KINDS):
            raise ValueError(f"not a forest: {len(read.trees)} arrays, expected {len(_KINDS)}")
        trees = Trees(*(np.frombuffer(part, kind).copy() for part, kind in zip(read.trees, _KINDS, strict=True)))
        _check(trees, len(names))
        return cls(names, trees)


def _check(trees: Trees, features: int) -> None:
    """Check that a kernel can walk the trees: it trusts every index, and a walk must end.

    Raises:
        ValueError: lengths do not fit, a child is not a later node or a leaf of its tree, or a value is not finite.
    """
    leaves = trees.leaves.astype(np.int64)
    if len(leaves) > MAX_TREES:
        raise ValueError(f"{len(leaves):,} trees; expected {MAX_TREES:,} at most")
    if (leaves < 1).any():
        raise ValueError("a tree without leaves; expected one or more")
    nodes = leaves - 1
    lengths = [len(trees.feature), len(trees.threshold), len(trees.left), len(trees.right), len(trees.value)]
    expected = [int(nodes.sum())] * 4 + [int(leaves.sum())]
    if lengths != expected:
        raise ValueError(f"arrays of {lengths} numbers; expected {expected} by the number of leaves")
    if ((trees.feature < 0) | (trees.feature >= features)).any():
        raise ValueError(f"a feature out of range; expected 0 to {features - 1}")
    own = np.arange(len(trees.feature)) - np.repeat(np.cumsum(nodes) - nodes, nodes)  # each node's number in its tree
    last = np.repeat(leaves, nodes)
    for children in (trees.left.astype(np.int64), trees.right.astype(np.int64)):
        is_node = children >= 0
        if (is_node & ((children <= own) | (children >= last - 1))).any() or (~is_node & (~children >= last)).any():
            raise ValueError("a child that is neither a later node nor a leaf of its tree")
    if np.isnan(trees.threshold).any() or not np.isfinite(trees.value).all():
        raise ValueError("a threshold or a leaf's value is not a number")


class ForestBatch:
    """Forests that are predicted together, laid out so that each step down a tree is one memory access."""

    def __init__(self, forests: Sequence[Forest]) -> None:
        trees = Trees(*map(np.concatenate, zip(*(forest.trees for forest in forests), strict=True)))
        leaves = trees.leaves.astype(np.int32)
        nodes = leaves - 1
        first_node, first_leaf = np.cumsum(nodes) - nodes, np.cumsum(leaves) - leaves
        self._ends = np.cumsum([len(forest.trees.leaves) for forest in forests])
        self._roots = np.where(nodes > 0, first_node, ~first_leaf).astype(np.int32)
        self._nodes, self._values = np.zeros(len(trees.feature), _NODE), trees.value
        self._nodes["feature"], self._nodes["threshold"] = trees.feature, trees.threshold
        before, after = np.repeat(first_node, nodes), np.repeat(first_leaf, nodes)
        for side, child in (("left", trees.left.astype(np.int32)), ("right", trees.right.astype(np.int32))):
            self._nodes[side] = np.where(child >= 0, child + before, child - after)

    def predict(self, rows: Rows) -> Floats:
        """Return the prediction of each forest for each row, (rows, forests)."""
        predicted = np.zeros((len(rows), len(self._ends)))
        _predict(rows, self._ends, self._roots, self._nodes, self._values, predicted)
        return predicted


def warm_up() -> None:
    """Compile the kernel that reads a forest."""
    Forest.empty([]).predict(np.zeros((0, 0), np.float32))


def _trees(text: str) -> Iterator[list[Floats]]:
    """The parts of each tree in LightGBM's text."""
    for block in text.split("\nTree=")[1:]:
        lines = dict(line.split("=", 1) for line in block.split("\n\n", 1)[0].splitlines()[1:])
        leaves = int(lines["num_leaves"])
        split = lines if leaves > 1 else dict.fromkeys((*NODE_LINES, "decision_type"), "")
        if int(lines["num_cat"]) or any(int(kind) & 0b1101 for kind in split["decision_type"].split()):
            raise ValueError("splits by category or by missing values")
        nodes = [np.array(split[name].split(), np.float64) for name in NODE_LINES]
        yield [np.array([leaves], np.float64), *nodes, np.array(lines["leaf_value"].split(), np.float64)]


@njit(cache=True, nogil=True)
def _predict(
    rows: Rows, ends: npt.NDArray[np.int64], roots: Ints, nodes: Records, values: Floats, predicted: Floats
) -> None:
    """Add the trees' values, four trees at a time, so that their memory accesses overlap."""
    for row in range(len(rows)):
        job, tree = rows[row], 0
        for forest in range(len(ends)):
            while tree + 4 <= ends[forest]:
                one, two, three, four = roots[tree], roots[tree + 1], roots[tree + 2], roots[tree + 3]
                while (one & two & three & four) >= 0:  # until all are leaves
                    one, two = _below(job, nodes, one), _below(job, nodes, two)
                    three, four = _below(job, nodes, three), _below(job, nodes, four)
                for leaf in (one, two, three, four):
                    predicted[row, forest] += values[~leaf]
                tree += 4
            while tree < ends[forest]:
                leaf = roots[tree]
                while leaf >= 0:
                    leaf = _below(job, nodes, leaf)
                predicted[row, forest] += values[~leaf]
                tree += 1


@njit(cache=True, nogil=True)
def _below(job: Singles, nodes: Records, node: int) -> int:
    """Return the next node, or leaf, on a row's path down; for a leaf, the leaf itself."""
    if node < 0:
        return node
    at = nodes[node]
    return at.right if job[at.feature] > at.threshold else at.left  # type: ignore[no-any-return]


def _lightgbm() -> Any:
    """LightGBM, imported when it is first needed."""
    with _without(*(name for name in ("sklearn", "pandas", "matplotlib") if name not in sys.modules)):
        import lightgbm
    return lightgbm


@contextmanager
def _without(*names: str) -> Iterator[None]:
    """Hide these packages during an import: LightGBM imports them if installed, and sklearn takes 70 MB."""
    sys.modules.update(dict.fromkeys(names))  # type: ignore[arg-type]  # None marks a package as missing
    try:
        yield
    finally:
        for name in names:
            del sys.modules[name]
