"""One look at Slurm, whichever way, and how a source keeps looking."""

from abc import ABC, abstractmethod
from collections.abc import Iterator

import msgspec

from streams.sources.contract import Calls
from streams.sources.slurm.machine.capacity import Machine
from streams.sources.slurm.rows import JobRow


class SlurmCursor(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What a cursor says: how far each way has come, and the jobs as they were told by then.

    `events` counts those that were given, `polls` the looks at the queue; `since` is when the accounting was looked at
    last (Unix seconds); `offsets` say where to go on in each file or topic, and `lines` after which line; `capacity` is
    the fingerprint of the machine as it was told. `doubted` are the live jobs that the last look at the queue did not
    show. `jobs` are the entries of `JobTable`, packed.
    """

    slurm: int
    events: int = 0
    polls: int = 0
    since: float = 0.0
    offsets: dict[str, int] = {}
    lines: dict[str, int] = {}
    capacity: int = 0
    doubted: list[str] = []
    jobs: str = ""


class Look(msgspec.Struct):
    """What one look has seen. `at` is the scheduler's time of it; `queue`: it has seen the whole queue.

    `late`: what came before is not known, so jobs that had started by then are told too late to predict their waits.
    `number` counts the looks that began, where a way says so.
    """

    rows: list[JobRow]
    at: float
    queue: bool = False
    accounting: bool = False
    machine: Machine | None = None
    late: bool = False
    number: int = 1


class Way(ABC):
    """One way to look at Slurm, again and again. A look that was given is in the place, and not given again."""

    def __init__(self, calls: dict[str, Calls]) -> None:
        self.calls = calls
        self.records = 0
        self.lag: dict[str, float] = {}

    @abstractmethod
    def looks(self, place: SlurmCursor) -> Iterator[Look]:
        """The looks that are there now, oldest first; none while nothing is. It returns within a second.

        As each is given, the place says how to go on after it. Raises UserError: this way cannot be looked any more.
        """

    def hurry(self) -> None:
        """Look again as soon as can be: something is in doubt."""
        return

    def close(self) -> None:
        """Let go of what is open."""
        return
