"""Which version of queuecast this is."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("queuecast")
except PackageNotFoundError:  # its files are on the path, but nobody has installed it
    __version__ = "not installed"
