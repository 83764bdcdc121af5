"""The version of queuecast."""

from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version

__version__ = "not installed"  # its files are on the path
for distribution in ("queuecast", "queuecast-client"):
    with suppress(PackageNotFoundError):
        __version__ = version(distribution)
