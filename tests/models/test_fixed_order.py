"""Models add in a fixed order: scan their source for operations whose order depends on the CPU or Python.

numpy's own `sum`, `mean`, `std` and `cumsum` are allowed: a release adds in one order on every CPU of an architecture.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODELS = ROOT / "models"
BY_CPU = {"dot", "vdot", "inner", "matmul", "einsum", "tensordot", "linalg", "corrcoef", "cov", "polyfit", "lstsq"}
"""Attributes that end in BLAS or LAPACK, which choose a kernel by the CPU; `models.linear` has what is needed."""

TIES_BY_CPU = {"argsort", "argpartition"}
"""numpy sorts equal numbers in an order that depends on the CPU, unless `kind` is stable."""

WHOLE_NUMBERS = {
    "models/engine/asking/engine_answers.py": {"_jobs"},
    "models/engine/asking/partitions.py": {"gpus_of", "partition_states"},
    "models/engine/asking/why.py": {"_free"},
    "models/engine/wait_counts.py": {"median_s"},
    "models/papers/gibbons.py": {"_fitted"},
    "models/papers/search/ibl.py": {"__init__"},
    "models/papers/search/templates.py": {"bits"},
    "models/simulation/comparison.py": {"perform"},
    "models/site/shapes.py": {"_gpu_sizes", "_plain_sizes"},
    "models/site/size.py": {"implausible_pools", "implausible_request"},
    "models/site/topology/layout.py": {"_nodes", "_room_nodes"},
    "models/site/topology/refusals.py": {"_of_all_nodes"},
    "models/site/topology/topology.py": {"_area", "node_of", "request_of"},
}
"""Functions that apply `sum` to integers only. For floats it depends on Python, which corrects rounding since 3.12."""


def problems(tree: ast.AST) -> Iterator[tuple[str, int, str]]:
    """Yield the function, the line and the operation of each use without a fixed order."""
    yield from _within(tree, "", False)


def _within(node: ast.AST, function: str, compiled: bool) -> Iterator[tuple[str, int, str]]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        function, compiled = node.name, any("njit" in ast.unparse(one) for one in node.decorator_list)
    if (found := _problem(node, compiled)) is not None:
        yield function, getattr(node, "lineno", 0), found
    for child in ast.iter_child_nodes(node):
        yield from _within(child, function, compiled)


def _problem(node: ast.AST, compiled: bool) -> str | None:
    match node:
        case ast.BinOp(op=ast.MatMult()) | ast.AugAssign(op=ast.MatMult()):
            return "@"
        case ast.Attribute(attr=name) if name in BY_CPU:
            return name
        case ast.Call(func=ast.Attribute(attr=name), keywords=options) if name in TIES_BY_CPU and not compiled:
            kinds = [one.value.value for one in options if one.arg == "kind" and isinstance(one.value, ast.Constant)]
            return None if kinds in (["stable"], ["mergesort"]) else name
        case ast.keyword(arg="fastmath" | "parallel" as name):
            return name
        case ast.Name(id="sum"):
            return "sum"
    return None


def of_models() -> Iterator[tuple[str, str, int, str]]:
    for path in sorted(MODELS.rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        for function, line, found in problems(ast.parse(path.read_text())):
            yield name, function, line, found


def test_models_add_in_a_fixed_order() -> None:
    found = [
        f"{name}:{line} {function}: {operation}"
        for name, function, line, operation in of_models()
        if operation != "sum" or function not in WHOLE_NUMBERS.get(name, ())
    ]
    assert not found, "use math.fsum, models.linear or a stable sort, or list whole numbers above: " + ", ".join(found)


def test_allowed_sums_match_the_source() -> None:
    listed = {(name, function) for name, functions in WHOLE_NUMBERS.items() for function in functions}
    assert listed == {(name, function) for name, function, _, operation in of_models() if operation == "sum"}


@pytest.mark.parametrize(
    ("source", "operation"),
    [
        ("a @ b", "@"),
        ("a @= b", "@"),
        ("np.dot(a, b)", "dot"),
        ("a.dot(b)", "dot"),
        ("np.linalg.solve(a, b)", "linalg"),
        ("sum(waits)", "sum"),
        ("fold = sum", "sum"),
        ("np.argsort(a)", "argsort"),
        ("a.argsort(kind='quicksort')", "argsort"),
        ("@njit(fastmath=True)\ndef f(): ...", "fastmath"),
    ],
)
def test_scan_finds_operation(source: str, operation: str) -> None:
    assert [found for _, _, found in problems(ast.parse(source))] == [operation]


@pytest.mark.parametrize(
    "source", ["np.argsort(a, kind='stable')", "@njit\ndef f(): np.argsort(a)", "math.fsum(a)", "a.sum()"]
)
def test_scan_accepts_fixed_order(source: str) -> None:
    assert not list(problems(ast.parse(source)))
