"""Environment of the Python processes that this one starts."""

import os
import sys
from pathlib import Path


def environment() -> dict[str, str]:
    """Return the environment in which a Python process finds the modules that this one finds."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(place or str(Path.cwd()) for place in sys.path)}
