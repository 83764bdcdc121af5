"""Methods by name: built-in and from other packages."""

import subprocess
import sys
from pathlib import Path

import pytest

from models.method import RunMethod, WaitMethod
from models.method_registry import METHODS, RUN_METHODS, check_parameters, method_named, run_method_named
from models.plugins import Registry
from models.waits.trivial import Zero
from tests.support.packages import install

GROUP = "queuecast.tested_methods"
OURS = {"zero": "models.waits.trivial:Zero"}
METHOD = """
from models.method import WaitMethod

class Mine(WaitMethod):
    name = "mine"
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a directory to install packages into."""
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def found() -> Registry[WaitMethod]:
    return Registry("method", "models.method:WaitMethod", GROUP, OURS)


def test_registry_entries_have_their_class_and_name() -> None:
    for registry, kind in ((METHODS, WaitMethod), (RUN_METHODS, RunMethod)):
        for name, method in registry.items():
            assert issubclass(method, kind) and method.name == name


def test_methods_of_other_packages_come_after_ours(here: Path) -> None:
    install(here, "mine", "1.0", {"tested_mine": METHOD}, {GROUP: {"mine": "tested_mine:Mine"}})
    registry = found()
    assert list(registry) == ["zero", "mine"] and len(registry) == 2
    assert "tested_mine" not in sys.modules, "naming a method loads nothing"
    assert registry["mine"].name == "mine" and registry["zero"] is Zero


@pytest.mark.parametrize("takes", ["zero", "mine"])
def test_duplicate_method_name_is_rejected_with_the_package(here: Path, takes: str) -> None:
    install(here, "mine", "1.0", {}, {GROUP: {"mine": "tested_mine:Mine"}})
    install(here, "other", "2.1", {}, {GROUP: {takes: "tested_other:Other"}})
    with pytest.raises(ValueError, match=rf"the package \w+ [\d.]+ registers a method with the name '{takes}', which"):
        "zero" in found()  # noqa: B015
    with pytest.raises(ValueError, match=r"other 2\.1"):
        list(found())


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("raise OSError('no licence')", "cannot be loaded: OSError: no licence"),
        ("", "cannot be loaded: AttributeError: "),
        ("import nowhere_at_all", "cannot be loaded: ModuleNotFoundError: "),
        ("class Mine: ...", "tested_broken:Mine is not a WaitMethod"),
        ("Mine = 1", "tested_broken:Mine is not a WaitMethod"),
        (METHOD.replace('"mine"', '"yours"'), "tested_broken:Mine has the name 'yours'"),
    ],
)
def test_unloadable_method_error_names_it_and_its_package(
    here: Path, monkeypatch: pytest.MonkeyPatch, source: str, problem: str
) -> None:
    monkeypatch.delitem(sys.modules, "tested_broken", raising=False)
    install(here, "broken", "0.3", {"tested_broken": source}, {GROUP: {"mine": "tested_broken:Mine"}})
    registry = found()
    assert registry["zero"] is Zero, "the others can be used"
    for taken in (lambda: registry["mine"], lambda: registry.check("mine")):
        with pytest.raises(ValueError, match=f"method 'mine' of the package broken 0.3(:)? {problem}"):
            taken()


def test_unknown_method_error_lists_available_methods() -> None:
    for make in (method_named, run_method_named, lambda name: check_parameters(name, {})):
        with pytest.raises(ValueError, match=r"no method 'oracle'; there are: \w+, \w+"):
            make("oracle")
    with pytest.raises(ValueError, match="'oracle' is not a method; there are: zero, median"):
        METHODS.check("oracle")


def test_parameters_of_either_kind_are_checked() -> None:
    check_parameters("qespera", {"window": 0.1})
    check_parameters("downey", {"lifetime": "average"})
    with pytest.raises(ValueError, match=r"downey\.window is not a parameter"):
        check_parameters("downey", {"window": 0.1})


def test_check_parameters_loads_only_that_method() -> None:
    program = """
import sys
from models.method_registry import check_parameters
check_parameters("median", {})
print(*(name for name in sys.modules if name.startswith(("models.waits.", "models.runtimes."))))
"""
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["models.waits.trivial"]
