"""Where the tests keep compiled code: numba reads the place when it is imported, so this comes first.

Each process of pytest-xdist has a folder of its own, since numba's cache has no lock: two processes that compile
different signatures of one function at once may each store its own under the other's name. The folder is another one
whenever a kernel changes, since numba does not see that a function in another file has changed.
"""

import hashlib
import os
from pathlib import Path

ROOT = Path(__file__).parents[2]


def _kernels() -> str:
    """Tells the sources that numba compiles from those before a change."""
    sources = (path.read_bytes() for path in sorted((ROOT / "models").rglob("*.py")))
    return hashlib.sha256(b"".join(source for source in sources if b"njit" in source)).hexdigest()[:12]


PROCESS = os.environ.get("PYTEST_XDIST_WORKER", "alone")
os.environ.setdefault("NUMBA_CACHE_DIR", str(ROOT / ".pytest_cache" / "numba" / _kernels() / PROCESS))
