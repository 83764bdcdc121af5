"""Where the tests keep compiled code: numba reads the place when it is imported, so this comes first.

`python -m tests.support.compiled` compiles beforehand what the methods need, as `make check` and `make test` do. Each
process of pytest-xdist begins with a copy of that, in a folder of its own, since numba's cache has no lock: two
processes that compile different signatures of one function at once may each store its own under the other's name. What
a test starts uses the folder of its process. The folders are others whenever a kernel changes, since numba does not see
that a function in another file has changed.
"""

import hashlib
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).parents[2]


def _kernels() -> str:
    """Tells the sources that numba compiles from those before a change."""
    sources = (path.read_bytes() for path in sorted((ROOT / "models").rglob("*.py")))
    return hashlib.sha256(b"".join(source for source in sources if b"njit" in source)).hexdigest()[:12]


FOLDER = ROOT / ".pytest_cache" / "numba" / _kernels()
BEFOREHAND = FOLDER / "beforehand"
PROCESS = os.environ.get("PYTEST_XDIST_WORKER", "alone")


def own_copy(folder: Path) -> Path:
    """The folder, which is made from what was compiled beforehand if that was done and it is not there."""
    if BEFOREHAND.exists() and not folder.exists():
        shutil.copytree(BEFOREHAND, folder, copy_function=os.link)  # numba replaces files, and never writes into them
    return folder


def compile_beforehand() -> None:
    """Compile what the methods need, unless that was done; about a minute."""
    if BEFOREHAND.exists():
        return
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=FOLDER, ignore_cleanup_errors=True) as unfinished:
        os.environ["NUMBA_CACHE_DIR"] = unfinished
        from models.engine.settings import EngineSettings
        from models.engine.warm_up import warm_up
        from models.registry import METHODS, RUN_METHODS

        warm_up(EngineSettings(shadows=tuple(METHODS), run_shadows=tuple(RUN_METHODS)))
        with suppress(OSError):  # another process was sooner
            Path(unfinished).rename(BEFOREHAND)


if __name__ == "__main__":
    compile_beforehand()
else:
    os.environ.setdefault("NUMBA_CACHE_DIR", str(own_copy(FOLDER / PROCESS)))
