"""Compiled kernels are cached by the content of their sources, for all copies on a machine."""

import ast
import os
import re
import shutil
import subprocess
import sys
import time
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
from llvmlite import binding

from models import kernel_folder, kernels
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
    if number < 0:
        raise ValueError(number)
    return BASE * number
"""
RUN = "from models.caller import caller; print(caller(4), sum(caller.stats.cache_hits.values()))"
CALL_BOTH = "from models.caller import caller, doubled; print(caller(4), doubled(4))"
CALL_CALLEE = "from models.caller import doubled; print(doubled(4), sum(doubled.stats.cache_hits.values()))"
CALL_WRONGLY = """
from models.caller import caller

caller(4)
try:
    caller(-4)
except ValueError as error:
    print(*error.args, sum(caller.stats.cache_hits.values()))
"""
IN_THREADS = """
from concurrent.futures import ThreadPoolExecutor
from models.caller import caller, doubled

with ThreadPoolExecutor(2) as threads:
    print(*(one.result() for one in (threads.submit(caller, 4), threads.submit(doubled, 4))))
"""


@pytest.fixture
def copies(tmp_path: Path) -> tuple[Path, Path]:
    """Return two copies of a package with three files and the modules under test."""
    for clone in ("first", "second"):
        folder = tmp_path / clone / "models"
        folder.mkdir(parents=True)
        for module in ("kernels.py", "machine_code.py", "kernel_locks.py", "kernel_folder.py"):
            shutil.copy(ROOT / "models" / module, folder)
        (folder / "__init__.py").touch()
        (folder / "caller.py").write_text(CALLER)
        (folder / "callee.py").write_text(CALLEE)
        (folder / "limits.py").write_text("BASE = 2\n")
    return tmp_path / "first", tmp_path / "second"


def called(clone: Path, cache: Path, program: str = RUN) -> tuple[int, int]:
    """Run a program in its own process; return the two numbers that it prints.

    The default one calls the kernel, and prints its result and the number of cache hits.
    """
    run = subprocess.run(
        [sys.executable, "-c", program],
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


@pytest.mark.long
def test_kernel_callers_recompile_after_a_change_in_another_file(copies: tuple[Path, Path], tmp_path: Path) -> None:
    first, _ = copies
    assert called(first, tmp_path / "cache") == (9, 0)
    for file, before, after, expected in (
        ("callee.py", "BASE * number", "BASE * number * 10", 81),
        ("callee.py", "LIMIT = 1", "LIMIT = 100", 180),
        ("limits.py", "BASE = 2", "BASE = 3", 220),
    ):
        changed = first / "models" / file
        changed.write_text(changed.read_text().replace(before, after))
        assert called(first, tmp_path / "cache") == (expected, 0)
    assert called(first, tmp_path / "cache") == (220, 1)


def test_kernel_use_is_marked(copies: tuple[Path, Path], tmp_path: Path) -> None:
    first, _ = copies
    assert called(first, tmp_path / "cache") == (9, 0)
    (place,) = (tmp_path / "cache" / "kernels").glob("caller-*")
    os.utime(place, (0, 0))
    assert called(first, tmp_path / "cache") == (9, 1)
    assert time.time() - place.stat().st_mtime < kernel_folder.MARK_EVERY_S


def test_kernels_are_compiled_for_cpus_with_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    features = dict.fromkeys(("avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "xsave", "sse4a"), True)
    monkeypatch.setattr("models.kernels.binding.get_host_cpu_features", lambda: features)
    assert kernels.cpu_name() == "x86-64-v3"
    features["avx2"] = False
    assert kernels.cpu_name() == "generic"


def test_kernels_of_undetected_cpus_are_generic(monkeypatch: pytest.MonkeyPatch) -> None:
    def undetected() -> None:
        raise RuntimeError("failed to get host cpu features")

    monkeypatch.setattr("models.kernels.binding.get_host_cpu_features", undetected)
    assert kernels.cpu_name() == "generic"


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        ({}, [kernels.cpu_name()]),
        ({"NUMBA_CPU_NAME": "generic"}, ["generic"]),
        ({"NUMBA_CPU_FEATURES": "+avx"}, [binding.get_host_cpu_name(), "+avx"]),
    ],
)
def test_kernels_have_the_chosen_cpu(chosen: dict[str, str], expected: list[str]) -> None:
    """A change of another setting of numba keeps it."""
    program = """
import os, numba, models.kernels
os.environ["NUMBA_OPT"] = "1"
numba.core.config.reload_config()
print(*numba.njit(lambda: 0).targetctx.codegen().magic_tuple()[1:])
"""
    run = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=chosen, capture_output=True, text=True, check=True
    )
    assert run.stdout.split() == expected


def test_unused_kernels_are_removed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    old, used, other = (tmp_path / "kernels" / name for name in ("order-0123456789abcdef", f"order-{16 * 'a'}", "mine"))
    for place in (old, used, other):
        place.mkdir(parents=True)
        (place / "kernel.nbi").touch()
        os.utime(place, (0, 0))
    kernel_folder.mark_used(used)
    assert kernel_folder.remove_unused() == [old.name]
    assert [place.exists() for place in (old, used, other)] == [False, True, True]
    assert kernel_folder.remove_unused() == []


def test_removal_without_kernel_folder_does_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "none"))
    assert kernel_folder.remove_unused() == []


@pytest.mark.long
def test_unwritable_cache_folder_falls_back_to_numba(copies: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "kernels").touch()
    first, _ = copies
    assert called(first, tmp_path / "cache") == (9, 0)
    assert list((tmp_path / "cache").rglob("caller*.nbi")) or list(first.rglob("caller*.nbi"))


def test_kernel_locator_ignores_functions_of_other_packages() -> None:
    assert kernels.KernelLocator.from_function(called, __file__) is None


def has_machine_code(cache: Path, module: str) -> bool:
    """Return whether the only kernel of this module is stored with machine code."""
    (file,) = cache.rglob(f"{module}.*.nbc")
    return b"bitcode" not in file.read_bytes()


def test_callee_is_stored_without_machine_code(copies: tuple[Path, Path], tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    assert called(copies[0], cache) == (9, 0)
    assert has_machine_code(cache, "caller")
    assert not has_machine_code(cache, "callee")


def test_callee_gets_machine_code_when_python_calls_it(copies: tuple[Path, Path], tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    assert called(copies[0], cache, CALL_BOTH) == (9, 8)
    assert has_machine_code(cache, "callee")
    assert called(copies[1], cache, CALL_CALLEE) == (8, 1)


@pytest.mark.long
def test_stored_callee_gets_machine_code_in_a_later_process(copies: tuple[Path, Path], tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    assert called(copies[0], cache) == (9, 0)
    assert called(copies[1], cache, CALL_CALLEE) == (8, 1)
    assert has_machine_code(cache, "callee")
    assert called(copies[1], cache, CALL_CALLEE) == (8, 1)


def test_stored_callee_serves_another_caller(copies: tuple[Path, Path], tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    assert called(copies[0], cache) == (9, 0)
    for file in cache.rglob("caller.*"):
        file.unlink()
    assert called(copies[0], cache) == (9, 0)
    assert not has_machine_code(cache, "callee")


def test_callee_raises_its_own_errors(copies: tuple[Path, Path], tmp_path: Path) -> None:
    assert [called(clone, tmp_path / "cache", CALL_WRONGLY) for clone in copies] == [(-4, 0), (-4, 1)]


@pytest.mark.long
def test_kernel_that_two_processes_need_is_compiled_once(copies: tuple[Path, Path], tmp_path: Path) -> None:
    programs = [
        subprocess.Popen(
            [sys.executable, "-c", f"import models.caller; print('ready', flush=True); input(); {RUN}"],
            cwd=clone,
            env={"NUMBA_CACHE_DIR": str(tmp_path / "cache")},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for clone in copies
    ]
    for program in programs:
        assert program.stdout.readline() == "ready\n"
    for program in programs:
        program.stdin.write("\n")
        program.stdin.flush()
    assert sorted(program.communicate()[0] for program in programs) == ["9 0\n", "9 1\n"]


@pytest.mark.long
def test_callee_in_another_thread_is_callable(copies: tuple[Path, Path], tmp_path: Path) -> None:
    assert called(copies[0], tmp_path / "cache", IN_THREADS) == (9, 8)


def test_kernels_do_not_call_themselves() -> None:
    """A recursive kernel can crash the process if its calls have other types, and two processes can wait forever."""
    calls: dict[str, set[str]] = {}
    for file in (ROOT / "models").rglob("*.py"):
        for kernel in ast.parse(file.read_text()).body:
            if isinstance(kernel, ast.FunctionDef) and any("njit" in ast.unparse(one) for one in kernel.decorator_list):
                names = (one.id for one in ast.walk(kernel) if isinstance(one, ast.Name))
                calls.setdefault(kernel.name, set()).update(names)
    graph = {name: names & calls.keys() for name, names in calls.items()}
    assert len(graph) > 100
    TopologicalSorter(graph).prepare()


@pytest.mark.long
def test_untested_numba_compiles_callees_as_usual(copies: tuple[Path, Path], tmp_path: Path) -> None:
    file = copies[0] / "models" / "machine_code.py"
    file.write_text(re.sub(r"^TESTED = .*$", 'TESTED = ("0.0.",)', file.read_text(), flags=re.MULTILINE))
    assert called(copies[0], tmp_path / "cache") == (9, 0)
    assert has_machine_code(tmp_path / "cache", "callee")
