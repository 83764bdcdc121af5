"""Command and environment of the Python processes that this one starts."""

import os
import sys
from pathlib import Path


def command(module: str, *arguments: str) -> list[str]:
    """Return the command that runs a module, without the working directory: its files would hide those of packages.

    The process needs `environment`.
    """
    return [sys.executable, "-P", "-m", module, *arguments]


def environment() -> dict[str, str]:
    """Return the environment in which a Python process finds the modules that this one finds."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(place or str(Path.cwd()) for place in sys.path)}
