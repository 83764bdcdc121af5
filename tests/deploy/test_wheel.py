"""The wheel: one package, `queuecast`, that works with any files in the working directory."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.support.command import PATIENCE_S

ROOT = Path(__file__).parents[2]
COMMON = ("models", "streams", "deploy")
PROGRAM = """
import pickle
from queuecast.methods import WaitMethod
from queuecast.models.method_registry import METHODS, RUN_METHODS
from queuecast.streams.sources.source_registry import sources
from queuecast.streams.training.child import Child
for registry in (METHODS, RUN_METHODS, sources()):
    print(*(registry[name].__module__ for name in registry))
child = Child()
assert child.call(pickle.dumps(b"".join), (), 60) == b""
child.kill()
"""
LIGHT = """
import sys
from importlib.metadata import distribution, packages_distributions
from packaging.requirements import Requirement

def closure(name, found):
    found.add(name.lower().replace("_", "-"))
    for text in distribution(name).requires or ():
        wanted = Requirement(text)
        if wanted.name.lower() not in found and (not wanted.marker or wanted.marker.evaluate({"extra": ""})):
            closure(wanted.name, found)
    return found

light = closure("queuecast-client", set())
heavy = {name for name, of in packages_distributions().items() if not light & {one.lower() for one in of}}
sys.modules.update(dict.fromkeys(heavy - set(sys.modules)))
from queuecast import Client, HttpClient, UserError
from queuecast.deploy.cli import main
print(main(["ask", "--url", "http://127.0.0.1:1"]), main(["ask"]), main(["replay", "x.swf"]), main(["up"]))
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel and install it into a folder, as pip does."""
    return _installed(ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def light(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build and install the light distribution."""
    return _installed(ROOT / "deploy" / "client", tmp_path_factory.mktemp("light"))


def _installed(root: Path, tmp: Path) -> Path:
    build = "from hatchling.build import build_wheel; import sys; print(build_wheel(sys.argv[1]))"
    name = subprocess.check_output([sys.executable, "-c", build, str(tmp)], cwd=root, text=True).splitlines()[-1]
    install = ["install", "--quiet", "--no-deps", "--no-index", "--target", str(tmp / "installed"), str(tmp / name)]
    subprocess.run([sys.executable, "-m", "pip", "--disable-pip-version-check", *install], check=True)
    return tmp / "installed"


@pytest.fixture
def clashing(tmp_path: Path) -> Path:
    """Create a directory of modules with the names of the repository's folders."""
    for name in COMMON:
        (tmp_path / f"{name}.py").write_text(f"raise AssertionError('{name} of the working directory')\n")
    return tmp_path


def _run(installed: Path, directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(installed)}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=directory, env=environment, text=True, capture_output=True, timeout=PATIENCE_S)


def test_wheel_has_one_package_and_all_files(installed: Path) -> None:
    assert {path.name for path in installed.iterdir() if path.suffix != ".dist-info"} == {"bin", "queuecast"}
    inside = {path.relative_to(installed / "queuecast") for path in (installed / "queuecast").rglob("*")}
    tracked = subprocess.check_output(["git", "ls-files", *COMMON], cwd=ROOT, text=True).splitlines()
    assert set(map(Path, tracked)) - inside <= {Path("deploy/wheel.py")}


@pytest.mark.long
def test_wheel_commands_run_with_modules_of_same_name(installed: Path, clashing: Path) -> None:
    for words in (["-m", "queuecast"], [str(installed / "bin" / "queuecast")]):
        shown = _run(installed, clashing, *words, "--help")
        assert (shown.returncode, shown.stderr) == (0, ""), shown.stderr
        assert " replay " in shown.stdout
    trace = clashing / "one.swf"
    trace.write_text("1 0 5 60 4 -1 -1 4 60 -1 1 1 1 -1 1 -1 -1 -1\n")
    replayed = _run(
        installed, clashing, "-m", "queuecast", "replay", trace.name, "--method", "median", "--method", "qbets"
    )
    assert replayed.returncode == 0, replayed.stderr


def test_wheel_imports_only_its_own_package(installed: Path, clashing: Path) -> None:
    ran = _run(installed, clashing, "-c", PROGRAM)
    assert ran.returncode == 0, ran.stderr
    assert {word.partition(".")[0] for word in ran.stdout.split()} == {"queuecast"}


def test_wheel_sources_import_no_repository_folders(installed: Path) -> None:
    for file in (installed / "queuecast").rglob("*.py"):
        for line in file.read_text(encoding="utf-8").splitlines():
            words = line.split()
            assert words[:1] not in (["import"], ["from"]) or words[1].partition(".")[0] not in COMMON, (file, line)


def test_source_distribution_builds_same_wheel(tmp_path: Path, installed: Path) -> None:
    build = "from hatchling.build import build_sdist, build_wheel; import sys; print({}(sys.argv[1]))"
    sdist = subprocess.check_output(
        [sys.executable, "-c", build.format("build_sdist"), str(tmp_path)], cwd=ROOT, text=True
    )
    subprocess.run(["tar", "-xf", sdist.split()[-1]], cwd=tmp_path, check=True)
    source = next(path for path in tmp_path.iterdir() if path.is_dir())
    name = subprocess.check_output(
        [sys.executable, "-c", build.format("build_wheel"), str(tmp_path)], cwd=source, text=True
    ).split()[-1]
    with zipfile.ZipFile(tmp_path / name) as wheel:
        packed = {item for item in wheel.namelist() if ".dist-info" not in item}
    assert packed == {
        str(path.relative_to(installed))
        for path in (installed / "queuecast").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_light_http_client_runs_without_kafka_and_models(light: Path, clashing: Path) -> None:
    ran = _run(light, clashing, "-c", LIGHT)
    assert ran.stdout == "1 1 1 1\n", ran.stderr
    refused, *missing = ran.stderr.splitlines()
    assert "is `queuecast serve` running there?" in refused
    assert [line.rpartition(" ")[2] for line in missing] == ["HttpClient", "queuecast", "'queuecast[local]'"]
