"""The metrics that the code defines, read from the code itself: their names, kinds, labels and what they are."""

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from streams.sources.run import Watch
from streams.worker.metrics.process import Metrics
from streams.worker.metrics.sites import SiteFamilies

ROOT = Path(__file__).parents[2]
PROCESSES = {"HTTP service": "streams/serve", "Notifier": "streams/notify"}
"""Where the metrics of each process are defined."""


class MetricText(NamedTuple):
    """A metric: `kind` is counter, gauge or histogram."""

    name: str
    kind: str
    labels: tuple[str, ...]
    text: str


_REQUEST = ("method", "path", "status_code", "app_name")
LITESTARS = [
    MetricText("queuecast_http_requests_total", "counter", _REQUEST, "Requests answered."),
    MetricText("queuecast_http_request_duration_seconds", "histogram", _REQUEST, "From a request to its answer's end."),
]
"""What Litestar counts, whose names are made of `METRICS` in `streams/serve/middleware.py`."""


def metrics_by_process() -> dict[str, list[MetricText]]:
    """The metrics of the workers, of the HTTP service, of what tells notices and of the sources, by name."""
    found = {process: list(_defined(ROOT / folder)) for process, folder in PROCESSES.items()}
    found["HTTP service"] += LITESTARS
    found["Worker"] = list(_of_workers())
    return {process: sorted(of) for process, of in (found | {"Source": list(_of_sources())}).items()}


def _defined(folder: Path) -> Iterator[MetricText]:
    """The metrics that are made with their name and text in the call, such as `Counter("name", "text", ["label"])`."""
    for path in sorted(folder.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        within = {node for function in functions for node in ast.walk(function)}
        for scope in (*functions, tree):
            own = [node for node in ast.walk(scope) if scope is not tree or node not in within]
            assigned = [node for node in own if isinstance(node, ast.Assign)]
            yield from (metric for node in own if isinstance(node, ast.Call) for metric in _made(node, assigned))


def _made(call: ast.Call, assigned: Sequence[ast.Assign]) -> Iterator[MetricText]:
    """The metric that a call makes, if it makes one."""
    kind = _kind(call.func)
    if kind is None or len(call.args) < 2:
        return
    name, text = (_constant(argument) for argument in call.args[:2])
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    labels = given.get("labels", given.get("labelnames", call.args[2] if len(call.args) > 2 else None))
    if name.startswith("queuecast_"):
        yield _metric(name, kind, _labels(labels, assigned), text)


def _kind(function: ast.expr) -> str | None:
    name = str(getattr(function, "attr", None) or getattr(function, "id", ""))
    kind = name.removesuffix("MetricFamily").lower()
    return kind if kind in ("counter", "gauge", "histogram") else None


def _constant(node: ast.expr) -> str:
    return str(node.value) if isinstance(node, ast.Constant) else ""


def _labels(node: ast.expr | None, assigned: Sequence[ast.Assign]) -> tuple[str, ...]:
    """The labels of a list, which may name one that was assigned before: `[*labels, "bound"]`."""
    if isinstance(node, ast.Starred):
        node = node.value
    if isinstance(node, ast.Name):
        before = [one for one in assigned if one.lineno < node.lineno and _names(one, node.id)]
        node = max(before, key=lambda one: one.lineno).value if before else None
    if isinstance(node, ast.List | ast.Tuple):
        return tuple(label for one in node.elts for label in _labels(one, assigned))
    return (str(node.value),) if isinstance(node, ast.Constant) else ()


def _names(assigned: ast.Assign, name: str) -> bool:
    return any(isinstance(target, ast.Name) and target.id == name for target in assigned.targets)


def _metric(name: str, kind: str, labels: tuple[str, ...], text: str) -> MetricText:
    ended = name if kind != "counter" or name.endswith("_total") else f"{name}_total"
    return MetricText(ended, kind, labels, text)


def _of_workers() -> Iterator[MetricText]:
    own: Any = (metric for metric in Metrics(1).registry._collector_to_names if hasattr(metric, "_documentation"))
    for metric in own:
        yield _metric(metric._name, metric._type, metric._labelnames, metric._documentation)
    families: Any = SiteFamilies().collect()
    for family in families:
        yield _metric(family.name, family.type, tuple(family._labelnames), family.documentation)


def _of_sources() -> Iterator[MetricText]:
    """Those that a source shows which has called its scheduler, read a record and skipped another one."""
    watch, one = Watch(lambda _: None), {"": 1.0}
    call: Any = SimpleNamespace(count=1, failed=0, seconds=1.0, last_s=1.0)
    watch.source = SimpleNamespace(name="", sites=(), records=1, calls={"": call}, lag=one, left_out=one)  # type: ignore[assignment]
    watch.sent.update(one)
    watch.newest = 1.0
    for metric in watch.collect():
        yield _metric(metric.name, metric.type, tuple(metric.samples[0].labels), metric.documentation)
