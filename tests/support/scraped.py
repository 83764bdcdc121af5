"""A Prometheus of a test's own and its values."""

import json
import math
import urllib.parse
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from deploy.local.stack import Prometheus
from deploy.local.stack.servers import RULES


def prometheus(directory: Path, interval: float = 0.3, rules: Sequence[Path] = RULES) -> Prometheus:
    """Prometheus, to be started; skips where it is not installed."""
    if not Prometheus.available():
        pytest.skip("Prometheus is not installed")
    return Prometheus(directory, interval=interval, rules=rules)


def api_data(server: Prometheus, page: str, **query: str) -> Any:
    """The data that one of its API's pages gives."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"{server.url}/api/v1/{page}?{urllib.parse.urlencode(query)}", timeout=10) as answer:
        return json.load(answer)["data"]


def values(server: Prometheus, expr: str) -> list[float]:
    """What a query gives now, of as many series as there are, without what is not a number."""
    found = [float(sample["value"][1]) for sample in api_data(server, "query", query=expr)["result"]]
    return [value for value in found if not math.isnan(value)]


def value(server: Prometheus, expr: str) -> float:
    """What a query that has one answer gives; 0 where it has none so far."""
    return next(iter(values(server, expr)), 0.0)
