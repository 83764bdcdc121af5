"""Only one process of a machine compiles at a time."""

import fcntl
import gc
import importlib
import os
import re
import subprocess
import sys
from pathlib import Path
from signal import SIGTERM
from typing import Any

import pytest
from numba import njit

from models import kernels
from models.engine.settings import EngineSettings
from streams import python_process
from streams.bulk.reading import read_log
from streams.offline import compare
from streams.offline.excerpt import whole
from streams.offline.searching import process_map
from streams.process import compiling, first_start
from streams.process.compile_progress import compile_progress, is_locked, published
from streams.process.compiling import (
    collecting_seldom,
    compilation_warning,
    compiling_alone,
    progress_line,
    reported_progress,
)
from tests.support.traces import made_trace

DONE: list[tuple[int, bool]] = []
"""Results of `where_and_whether` in this process."""


def where_and_whether(_: int) -> tuple[int, bool]:
    """Return the process of an item, and whether it holds the lock."""
    DONE.append((os.getpid(), is_locked()))
    return DONE[-1]


def test_compiling_alone_holds_lock() -> None:
    with compiling_alone():
        assert is_locked()
    assert not is_locked()


def test_lock_without_creatable_folder_uses_the_sources(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(kernels, "folder", lambda: tmp_path / "file" / "kernels")
    with compiling_alone():
        descriptor = os.open(kernels.ROOT, os.O_RDONLY)
        try:
            with pytest.raises(BlockingIOError):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        finally:
            os.close(descriptor)


def test_process_map_runs_first_item_locally_before_others() -> None:
    with process_map(where_and_whether, 2, 0) as apply_all:
        found = list(apply_all(range(4)))
    assert [(os.getpid(), True)] == DONE
    assert not any(locked or process == os.getpid() for process, locked in found)


def test_compare_compiles_before_starting_processes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    compiled: list[tuple[EngineSettings, bool]] = []

    def warm_up(settings: EngineSettings) -> None:
        compiled.append((settings, is_locked()))

    monkeypatch.setattr(first_start, "warm_up", warm_up)
    with read_log([made_trace(tmp_path / "made.swf", jobs=20)]) as (log, _):
        compare.compare(whole(log), set(), EngineSettings(history=20), ["easy", "ibl", "downey"], 2)
    ((chosen, locked),) = compiled
    assert locked
    assert {"easy", "ibl"} <= set(chosen.methods)
    assert "downey" in chosen.run_methods


@pytest.mark.parametrize(
    ("compiled", "cpus", "expected"), [(False, 2, 1), (False, 1, 0), (True, 2, 0)], ids=["cold", "one CPU", "warm"]
)
def test_compile_kernels_starts_second_process_if_needed(
    monkeypatch: pytest.MonkeyPatch, compiled: bool, cpus: int, expected: int
) -> None:
    started: list[subprocess.Popen[bytes]] = []
    begin = subprocess.Popen

    def popen(command: list[str], env: dict[str, str]) -> subprocess.Popen[bytes]:
        assert command == python_process.command(first_start.__name__) and env == python_process.environment()
        started.append(begin([sys.executable, "-c", "import time; time.sleep(600)"]))
        return started[-1]

    def warm_up(_: EngineSettings) -> None:
        assert [process.poll() for process in started] == [None] * expected

    monkeypatch.setattr(subprocess, "Popen", popen)
    monkeypatch.setattr(kernels, "is_compiled", lambda _: compiled)
    monkeypatch.setattr(first_start, "usable_cpus", lambda: cpus)
    monkeypatch.setattr(first_start, "warm_up", warm_up)
    first_start.compile_kernels(EngineSettings())
    assert [process.returncode for process in started] == [-SIGTERM] * expected


def test_collector_is_as_before_after_compiling() -> None:
    before = gc.get_threshold(), gc.get_freeze_count()
    with collecting_seldom():
        assert gc.get_threshold() > before[0]
        assert gc.get_freeze_count() > before[1]
    assert (gc.get_threshold(), gc.get_freeze_count()) == before


def test_progress_of_compiling_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    reports: list[str] = []
    monkeypatch.setattr(compiling, "REPORT_EVERY_S", 0.0)
    with reported_progress(reports.append):
        assert njit(lambda number: number - 1)(1) == 0
    assert len(reports) == 2  # at its begin and its end
    assert re.fullmatch(r"compiling \d+ of \d+ kernels.*; first start only", reports[0])


KERNELS = """from models.kernels import njit


@njit(cache=True)
def double(number: int) -> int:
    return 2 * number


@njit(cache=True)
def halve(number: int) -> int:
    return number // 2


@njit(cache=True)
def negate(number: int) -> int:
    return -number
"""


def test_progress_counts_missing_kernels_only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Kernels in the cache are not reported as compiled; those that another process stores are."""
    (tmp_path / "made_kernels.py").write_text(KERNELS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(compiling, "REPORT_EVERY_S", 0.0)

    def loaded() -> Any:
        sys.modules.pop("made_kernels", None)
        module = importlib.import_module("made_kernels")
        every = [module.double, module.halve, module.negate]
        monkeypatch.setattr(compiling, "_kernels", lambda: every)
        return module

    loaded().double(1)
    module, reports = loaded(), list[str]()
    with reported_progress(reports.append):
        assert module.double(1) == 2
        assert reports == []
        assert module.halve(2) == 1
        assert loaded().negate(1) == -1  # as the second process does
        monkeypatch.setattr(compiling, "_kernels", lambda: [module.double, module.halve, module.negate])
        assert njit(lambda number: number - 3)(1) == -2  # the next report
    counts = [re.findall(r"\d+ of \d+ kernels", report)[0] for report in reports]
    assert counts == ["0 of 2 kernels", *3 * ["1 of 2 kernels"], *2 * ["2 of 2 kernels"]]


def test_progress_line_has_remaining_time() -> None:
    assert progress_line(50, 200, 20.0) == "compiling 50 of 200 kernels, about 60 s left; first start only"
    assert progress_line(100, 200, 90.0) == "compiling 100 of 200 kernels, about 2 min left; first start only"
    assert progress_line(2, 200, 30.0) == "compiling 2 of 200 kernels; first start only"


@pytest.fixture
def own_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Use an empty folder of kernels."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    return tmp_path / "kernels"


@pytest.mark.usefixtures("own_folder")
def test_progress_is_published_while_compiling(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str | None] = []

    def warm_up(_: EngineSettings) -> None:
        seen.append(compile_progress())
        njit(lambda number: number - 2)(1)
        seen.append(compile_progress())

    reports: list[str] = []
    monkeypatch.setattr(first_start, "warm_up", warm_up)
    monkeypatch.setattr(first_start, "usable_cpus", lambda: 1)
    assert compile_progress() is None
    first_start.compile_kernels(EngineSettings(), reports.append)
    assert seen == [None, *reports]
    assert compile_progress() is None


def test_progress_of_ended_process_is_ignored(own_folder: Path) -> None:
    own_folder.mkdir()
    (own_folder / "progress").write_text("compiling 1 of 2 kernels")
    assert compile_progress() is None
    with compiling_alone():  # also of one that publishes nothing, as a search
        assert compile_progress() is None


def test_progress_without_kernel_folder_is_none(own_folder: Path) -> None:
    own_folder.touch()
    assert compile_progress() is None
    reports: list[str] = []
    with published(reports.append) as publish:
        publish("compiling 1 of 2 kernels")
    assert reports == ["compiling 1 of 2 kernels"]


def test_compilation_warning_is_given_once(monkeypatch: pytest.MonkeyPatch) -> None:
    messages: list[str] = []

    def compiled() -> None:
        assert njit(lambda number: number + 1)(1) == 2

    with compilation_warning(messages.append):
        compiled()
        assert not messages
        monkeypatch.setattr(compiling, "MIN_WARNED_S", 0.0)
        compiled()
        compiled()
    assert messages == [compiling.COMPILES]
    with compilation_warning(messages.append):
        pass
    compiled()
    assert len(messages) == 1
