"""What a worker needs is compiled before its first event, and each kernel for one kind of arguments."""

import json
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.compiled import BEFOREHAND, ROOT


def kinds_of_arguments(cache: Path) -> Iterator[tuple[str, list[Any]]]:
    """The kernels in a cache of numba's, and the types of arguments that each was compiled for."""
    for index in sorted(cache.rglob("*.nbi")):
        with index.open("rb") as file:
            pickle.load(file)  # numba's version
            _, kinds = pickle.loads(file.read())
        yield index.name.partition("-")[0], [types for types, *_ in kinds]


def test_nothing_is_left_to_compile_when_events_and_questions_come() -> None:
    run = subprocess.run([sys.executable, "-m", "tests.support.kernels"], capture_output=True, cwd=ROOT, check=False)
    assert run.returncode == 0, run.stderr.decode()
    assert json.loads(run.stdout) == {}


@pytest.mark.skipif(not BEFOREHAND.exists(), reason="looks at what `make check` compiles beforehand")
def test_each_kernel_is_compiled_for_one_kind_of_arguments() -> None:
    found = dict(kinds_of_arguments(BEFOREHAND))
    assert len(found) > 80
    assert {name: kinds for name, kinds in found.items() if len(kinds) > 1} == {}
