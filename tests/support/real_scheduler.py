"""What the real schedulers of these tests have in common: Debian's packages of them, run in a folder, for a while."""

import os
import shutil
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, Self

import pytest

PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin"
PATIENCE_S = 60.0


class RealScheduler(ABC):
    """A scheduler on this machine, in a folder and on ports of its own. Use it as a context manager.

    Attributes:
        name: as people call it.
        programs: of its packages, those that are needed.
        packages: Debian's.
        environment: in which its commands find it.
    """

    name: ClassVar[str]
    programs: ClassVar[tuple[str, ...]]
    packages: ClassVar[str]

    def __init__(self, **environment: str) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="qc-"))  # short: sockets lie in it
        self.directory.chmod(0o755)
        self.environment = os.environ | {"PATH": PATH, **environment}

    @classmethod
    def require(cls) -> None:
        """Skip, saying why, where it is not installed or cannot be run; in CI that is a failure."""
        if reason := cls.obstacle():
            pytest.skip(reason)

    @classmethod
    def obstacle(cls) -> str:
        """Return why it cannot be run here; empty if it can."""
        missing = [program for program in cls.programs if shutil.which(program, path=PATH) is None]
        if missing:
            return f"no {', '.join(missing)}; install {cls.packages}"
        if os.geteuid() != 0:
            return f"its daemons start jobs, so a real {cls.name} needs root"
        return ""

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)

    def until(self, true: Callable[[], object], seconds: float = PATIENCE_S) -> None:
        """Wait for something to come true, and fail if it does not."""
        deadline = time.monotonic() + seconds
        while not true():
            assert time.monotonic() < deadline, f"it did not come true within {seconds:g} s; {self.logs()}"
            time.sleep(0.1)

    @abstractmethod
    def start(self) -> None:
        """Start it, and wait until it takes jobs."""

    @abstractmethod
    def stop(self) -> None:
        """End its processes, by their ids, as far as they have been started."""

    @abstractmethod
    def logs(self) -> str:
        """The last that it logged."""
