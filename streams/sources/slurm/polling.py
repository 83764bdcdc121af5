"""A poll result from Slurm, from any input, and periodic polling in a background thread."""

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import msgspec

from streams.sources.contract import OnSkipped
from streams.sources.slurm.attempt_rows import JobRow
from streams.sources.slurm.calls import CallFailed, SlurmCalls
from streams.sources.slurm.machine import Machine


class SlurmCursor(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Content of a cursor: the place of each poller, and the jobs as they were last reported.

    `events` counts the emitted events, `polls` the polls of the queue. `since` is when the accounting was last polled
    (Unix seconds). `offsets` are the next offsets by topic and partition. `capacity` is the fingerprint of the last
    reported machine. `missing` are the live jobs that the last poll of the queue did not show. `jobs` are the packed
    entries of `JobTable`.
    """

    slurm: int
    events: int = 0
    polls: int = 0
    since: float = 0.0
    offsets: dict[str, int] = {}
    capacity: int = 0
    missing: list[str] = []
    jobs: str = ""


class PollResult(msgspec.Struct):
    """Result of one poll. `at` is its time at the scheduler; `queue` is True if it covers the whole queue.

    `late` is True if the state before is missing: started jobs are then too late for a prediction of their waits.
    `number` counts the polls that have started, if the poller counts them. `began` is when the poll began by this
    machine's clock, Unix seconds; 0 if it is not a poll of a scheduler.
    """

    rows: list[JobRow]
    at: float
    queue: bool = False
    accounting: bool = False
    machine: Machine | None = None
    late: bool = False
    number: int = 1
    began: float = 0.0


class Poller(ABC):
    """A poller of Slurm. A result that was yielded is recorded in the cursor, and not yielded again."""

    def __init__(self) -> None:
        self.records = 0
        self.lag: dict[str, float] = {}

    @abstractmethod
    def results(self, place: SlurmCursor) -> Iterator[PollResult]:
        """Yield the available results, oldest first, within a second; the cursor is advanced with each.

        Raises:
            UserError: this input can no longer be polled.
        """

    def poll_now(self) -> None:
        """Poll again as soon as possible, to resolve a missing job."""
        return

    def close(self) -> None:
        """Release open resources."""
        return


OVERLAP_S = 300.0
"""Overlap of accounting polls in seconds: after an outage slurmdbd receives data late."""

LIMITS_S = 3600.0  # seconds between two polls of the limits


class Polling(Poller):
    """Call Slurm every `pause_s` seconds. A failure is reported as skipped, and the call is repeated when due."""

    def __init__(self, calls: SlurmCalls, on_skipped: OnSkipped, pause_s: float) -> None:
        super().__init__()
        self._slurm, self._on_skipped, self._pause_s = calls, on_skipped, pause_s
        self._pool = ThreadPoolExecutor(1)
        self._underway: Future[PollResult] | None = None
        self._due = 0.0
        self.polls_started = 0

    @abstractmethod
    def poll(self, place: SlurmCursor) -> PollResult:
        """Poll once, in the thread."""

    def results(self, place: SlurmCursor) -> Iterator[PollResult]:
        """Yield the finished result, if any; otherwise start a poll when it is due."""
        if self._underway is None:
            if time.monotonic() < self._due:
                return
            self._due = time.monotonic() + self._pause_s
            self.polls_started += 1
            self._underway = self._pool.submit(self.poll, place)
        if not self._underway.done():
            return
        done, self._underway = self._underway, None
        try:
            found = done.result()
        except CallFailed as error:
            self._on_skipped(error.skipped())
            return
        self.records += max(len(found.rows), 1)
        found.number = self.polls_started
        if found.queue:
            found.late, place.polls = place.polls == 0, place.polls + 1
        else:
            found.late, place.since = place.since == 0.0, found.at
        yield found

    def poll_now(self) -> None:
        """Poll again immediately, or after the current poll."""
        self._due = 0.0

    def close(self) -> None:
        """Stop the current poll."""
        self._slurm.close()
        self._pool.shutdown(wait=False, cancel_futures=True)


class QueuePolling(Polling):
    """Poll the queue, in one call; the nodes, partitions and reservations every `machine_s` seconds."""

    def __init__(self, calls: SlurmCalls, on_skipped: OnSkipped, pause_s: float, machine_s: float) -> None:
        super().__init__(calls, on_skipped, pause_s)
        self._machine_s = machine_s
        self._machine_due = self._limits_due = 0.0
        self._machine = Machine()

    def poll(self, place: SlurmCursor) -> PollResult:
        """Poll the queue, and the machine if it is due."""
        machine = self._poll_machine() if time.monotonic() >= self._machine_due else None
        at = float(int(time.time()))
        document = self._slurm.queue(self._on_skipped)
        return PollResult(document.rows, document.last_update or at, queue=True, machine=machine, began=at)

    def _poll_machine(self) -> Machine:
        self._machine_due = time.monotonic() + self._machine_s
        if time.monotonic() >= self._limits_due:
            self._limits_due = time.monotonic() + LIMITS_S
            with self._skipping_failures():
                self._machine.limits = self._slurm.limits()
        with self._skipping_failures():
            self._machine.reservations = self._slurm.machine("reservations")
        with self._skipping_failures():
            self._machine.nodes, self._machine.partitions = (
                self._slurm.machine("nodes"),
                self._slurm.machine("partitions"),
            )
        return self._machine

    @contextmanager
    def _skipping_failures(self) -> Iterator[None]:
        try:
            yield
        except CallFailed as error:
            self._on_skipped(error.skipped())


class AccountingPolling(Polling):
    """Poll the accounting for jobs that were live since the last poll, at first in the last `since_s` seconds."""

    def __init__(self, calls: SlurmCalls, on_skipped: OnSkipped, pause_s: float, since_s: float) -> None:
        super().__init__(calls, on_skipped, pause_s)
        self._since_s = since_s

    def poll(self, place: SlurmCursor) -> PollResult:
        """Poll the jobs since the last poll, with an overlap."""
        now = float(int(time.time()))
        since = place.since - OVERLAP_S if place.since else now - self._since_s
        return PollResult(
            self._slurm.accounting(max(since, 0.0), self._on_skipped).rows, now, accounting=True, began=now
        )
