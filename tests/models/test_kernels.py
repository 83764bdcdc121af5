"""Compiled kernels are cached by the content of their sources, for all copies on a machine."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from models import kernels
from tests.support.compiled import ROOT

CALLER = """
from models.kernels import njit
from models.callee import LIMIT, doubled


@njit(cache=True)
def caller(number):
    return doubled(number) + LIMIT
"""
CALLEE = """
from models.kernels import njit
from models.limits import BASE

LIMIT = 1


@njit(cache=True)
def doubled(number):
    return BASE * number
"""
RUN = "from models.caller import caller; print(caller(4), sum(caller.stats.cache_hits.values()))"


@pytest.fixture
def copies(tmp_path: Path) -> tuple[Path, Path]:
    """Return two copies of a package with three files and the module under test."""
    for clone in ("first", "second"):
        folder = tmp_path / clone / "models"
        folder.mkdir(parents=True)
        shutil.copy(ROOT / "models" / "kernels.py", folder)
        (folder / "__init__.py").touch()
        (folder / "caller.py").write_text(CALLER)
        (folder / "callee.py").write_text(CALLEE)
        (folder / "limits.py").write_text("BASE = 2\n")
    return tmp_path / "first", tmp_path / "second"


def called(clone: Path, cache: Path) -> tuple[int, int]:
    """Call the kernel in its own process; return its result and the number of cache hits."""
    run = subprocess.run(
        [sys.executable, "-c", RUN],
        cwd=clone,
        env={"NUMBA_CACHE_DIR": str(cache)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    result, hits = map(int, run.stdout.split())
    return result, hits


def test_kernels_of_equal_sources_are_compiled_once(copies: tuple[Path, Path], tmp_path: Path) -> None:
    assert [called(clone, tmp_path / "cache") for clone in copies] == [(9, 0), (9, 1)]


@pytest.mark.parametrize(
    ("file", "before", "after", "expected"),
    [
        ("callee.py", "BASE * number", "BASE * number * 10", 81),
        ("callee.py", "LIMIT = 1", "LIMIT = 100", 108),
        ("limits.py", "BASE = 2", "BASE = 3", 13),
    ],
)
def test_kernel_callers_recompile_after_a_change_in_another_file(
    copies: tuple[Path, Path], tmp_path: Path, file: str, before: str, after: str, expected: int
) -> None:
    first, _ = copies
    assert called(first, tmp_path / "cache") == (9, 0)
    changed = first / "models" / file
    changed.write_text(changed.read_text().replace(before, after))
    assert called(first, tmp_path / "cache") == (expected, 0)
    assert called(first, tmp_path / "cache") == (expected, 1)


def test_unwritable_cache_folder_falls_back_to_numba(copies: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "kernels").touch()
    first, _ = copies
    assert called(first, tmp_path / "cache") == (9, 0)
    assert list((tmp_path / "cache").rglob("caller*.nbi")) or list(first.rglob("caller*.nbi"))


def test_kernel_locator_ignores_functions_of_other_packages() -> None:
    assert kernels.KernelLocator.from_function(called, __file__) is None
