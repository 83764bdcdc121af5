"""The documented example method can be installed as a package and is found by its name."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import msgspec
import pytest

from models.method_registry import METHODS, RUN_METHODS
from models.records import AnyEvent, Capacity
from tests.support.packages import install
from tests.support.traces import made_trace

ROOT = Path(__file__).parents[2]
README = ROOT / "models" / "README.md"
GUIDE = ROOT / "docs" / "howto" / "method.md"


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """Return a directory with the documented package installed."""
    method, metadata, test = re.findall(r"^```(?:python|toml)\n(.*?)^```", GUIDE.read_text(), re.DOTALL | re.MULTILINE)
    project = tomllib.loads(metadata)["project"]
    directory = tmp_path / "packages"
    modules = {"queuecast_optimist": method, "test_optimist": test}
    install(directory, project["name"], project["version"], modules, project["entry-points"])
    return directory


def run(packages: Path, *arguments: str) -> str:
    """Run a Python module with these packages installed and return its output."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(packages), str(ROOT)))}
    command = [sys.executable, "-m", *arguments]
    done = subprocess.run(command, env=environment, cwd=packages, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.long
def test_readme_method_is_compared_and_replayed_by_name(packages: Path, tmp_path: Path) -> None:
    trace = str(made_trace(tmp_path / "made.swf", jobs=60))
    rows = json.loads(run(packages, "queuecast", "compare", trace, "--method", "optimist", "--workers", "1", "--json"))
    assert list(rows["waits"]) == ["zero", "median", "optimist"]
    out = tmp_path / "predictions"
    run(packages, "queuecast", "replay", trace, "--method", "optimist", "--out", str(out))
    records = [json.loads(line) for line in out.read_text().splitlines()]
    assert {line["method"] for line in records} == {"optimist"}
    assert {line["reason"] for line in records} == {"no history", "shortest of late"}


@pytest.mark.long
def test_documented_test_passes(packages: Path) -> None:
    assert "1 passed" in run(packages, "pytest", "-q", "test_optimist.py")


def test_documented_capacity_event_is_valid() -> None:
    (shown,) = re.findall(
        r"^```json\n(.*?)^```", (ROOT / "docs" / "howto" / "events.md").read_text(), re.DOTALL | re.MULTILINE
    )
    capacity = msgspec.json.decode(shown, type=AnyEvent, strict=True)
    assert isinstance(capacity, Capacity) and len(capacity.partitions) == 3
    assert {name for one in capacity.partitions for name in one.pools} == {pool.name for pool in capacity.pools}
    assert sum(pool.nodes * pool.cpus for pool in capacity.pools) == capacity.cpus
    assert sum(pool.nodes for pool in capacity.pools) == capacity.nodes


def test_readme_describes_all_methods() -> None:
    text = README.read_text()
    assert not [name for name in (*METHODS, *RUN_METHODS) if f"`{name}`" not in text]
