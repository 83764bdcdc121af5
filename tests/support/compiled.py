"""The compiled kernels of the tests: this module comes before anything else that imports numba.

`python -m tests.support.compiled` compiles beforehand what the methods need, as `make check` and `make test` do, into
the folder that the commands use. Each process of pytest-xdist begins with a copy of that, in a folder of its own, since
numba's cache has no lock: two processes that compile different signatures of one function at once may each store its
own under the other's name. What a test starts uses the folder of its process.
"""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numba

from models import kernels
from streams.process.compile_progress import FILE

ROOT = Path(__file__).parents[2]
PROCESS = os.environ.get("PYTEST_XDIST_WORKER", "alone")


def _link(source: str, target: str) -> None:
    if Path(target).exists():
        return
    try:
        os.link(source, target)  # numba replaces files, and never writes into them
    except OSError:  # on another file system
        shutil.copyfile(source, target)


def own_copy(folder: Path) -> Path:
    """Return the folder, with all kernels that the commands' folder has now."""
    shutil.copytree(kernels.folder(), folder / "kernels", copy_function=_link, dirs_exist_ok=True)
    return folder


@contextmanager
def fake_compilation(cache: Path, progress: str) -> Iterator[None]:
    """Publish this progress as a process does that compiles into a cache folder."""
    folder = cache / "kernels"
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    (folder / FILE).write_text(progress, encoding="utf-8")
    try:
        yield
    finally:
        os.close(descriptor)


def compile_beforehand() -> None:
    """Compile the kernels of all methods, unless that was done; about a minute."""
    from models.engine.settings import EngineSettings
    from models.method_registry import METHODS, RUN_METHODS
    from streams.process.first_start import compile_kernels

    compile_kernels(EngineSettings(shadows=tuple(METHODS), run_shadows=tuple(RUN_METHODS)))


if __name__ == "__main__":
    compile_beforehand()
elif "NUMBA_CACHE_DIR" not in os.environ:
    kernels.folder().mkdir(parents=True, exist_ok=True)
    os.environ["NUMBA_CACHE_DIR"] = str(own_copy(ROOT / ".pytest_cache" / "numba" / PROCESS))
    numba.config.CACHE_DIR = os.environ["NUMBA_CACHE_DIR"]
