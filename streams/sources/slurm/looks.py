"""One look at Slurm, whichever way, and looking by calls, each in a thread of its own while the source goes on."""

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import msgspec

from streams.sources.contract import OnSkipped
from streams.sources.slurm.calls import CallFailed, SlurmCalls
from streams.sources.slurm.machine import Machine
from streams.sources.slurm.rows import JobRow


class SlurmCursor(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What a cursor says: how far each way has come, and the jobs as they were told by then.

    `events` counts those that were given, `polls` the looks at the queue; `since` is when the accounting was looked at
    last (Unix seconds); `offsets` say where to go on in each topic; `capacity` is
    the fingerprint of the machine as it was told. `missing` are the live jobs that the last look at the queue did not
    show. `jobs` are the entries of `JobTable`, packed.
    """

    slurm: int
    events: int = 0
    polls: int = 0
    since: float = 0.0
    offsets: dict[str, int] = {}
    capacity: int = 0
    missing: list[str] = []
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

    def __init__(self) -> None:
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


OVERLAP_S = 300.0
"""Seconds that a look at the accounting goes back behind the one before: slurmdbd is told late where it was away."""

LIMITS_S = 3600.0  # seconds between two looks at the limits


class Polling(Way):
    """Calls every `pause_s` seconds. What fails is told as skipped, and called again when it is due."""

    def __init__(self, calls: SlurmCalls, on_skipped: OnSkipped, pause_s: float) -> None:
        super().__init__()
        self._slurm, self._on_skipped, self._pause_s = calls, on_skipped, pause_s
        self._pool = ThreadPoolExecutor(1)
        self._underway: Future[Look] | None = None
        self._due = 0.0
        self.begun = 0  # looks

    @abstractmethod
    def look(self, place: SlurmCursor) -> Look:
        """One look, in the thread."""

    def looks(self, place: SlurmCursor) -> Iterator[Look]:
        """The look that is done, if one is; otherwise one begins as soon as it is due."""
        if self._underway is None:
            if time.monotonic() < self._due:
                return
            self._due = time.monotonic() + self._pause_s
            self.begun += 1
            self._underway = self._pool.submit(self.look, place)
        if not self._underway.done():
            return
        done, self._underway = self._underway, None
        try:
            look = done.result()
        except CallFailed as error:
            self._on_skipped(error.skipped())
            return
        self.records += max(len(look.rows), 1)
        look.number = self.begun
        if look.queue:
            look.late, place.polls = place.polls == 0, place.polls + 1
        else:
            look.late, place.since = place.since == 0.0, look.at
        yield look

    def hurry(self) -> None:
        """Look again at once, or as soon as the look that is underway is done."""
        self._due = 0.0

    def close(self) -> None:
        """End what is underway."""
        self._slurm.close()
        self._pool.shutdown(wait=False, cancel_futures=True)


class QueuePolling(Polling):
    """The queue, in one call; the nodes, partitions and reservations every `machine_s` seconds."""

    def __init__(self, calls: SlurmCalls, on_skipped: OnSkipped, pause_s: float, machine_s: float) -> None:
        super().__init__(calls, on_skipped, pause_s)
        self._machine_s = machine_s
        self._machine_due = self._limits_due = 0.0
        self._machine = Machine()

    def look(self, place: SlurmCursor) -> Look:
        """The queue, and the machine where that is due."""
        machine = self._look_at_machine() if time.monotonic() >= self._machine_due else None
        at = float(int(time.time()))
        document = self._slurm.queue(self._on_skipped)
        return Look(document.rows, document.last_update or at, queue=True, machine=machine)

    def _look_at_machine(self) -> Machine:
        self._machine_due = time.monotonic() + self._machine_s
        if time.monotonic() >= self._limits_due:
            self._limits_due = time.monotonic() + LIMITS_S
            with self._told():
                self._machine.limits = self._slurm.limits()
        with self._told():
            self._machine.reservations = self._slurm.machine("reservations")
        with self._told():
            self._machine.nodes, self._machine.partitions = (
                self._slurm.machine("nodes"),
                self._slurm.machine("partitions"),
            )
        return self._machine

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except CallFailed as error:
            self._on_skipped(error.skipped())


class AccountingPolling(Polling):
    """What the accounting has of jobs that lived since the last look, at first those of the last `since_s` seconds."""

    def __init__(self, calls: SlurmCalls, on_skipped: OnSkipped, pause_s: float, since_s: float) -> None:
        super().__init__(calls, on_skipped, pause_s)
        self._since_s = since_s

    def look(self, place: SlurmCursor) -> Look:
        """The jobs since the last look, and a little before."""
        now = float(int(time.time()))
        since = place.since - OVERLAP_S if place.since else now - self._since_s
        return Look(self._slurm.accounting(max(since, 0.0), self._on_skipped).rows, now, accounting=True)
