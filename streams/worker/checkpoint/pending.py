"""What was processed of a partition and is not durable yet."""

from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Container, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from models.records import AnyEvent
from streams.worker.checkpoint.stored import Delivered


class AppliedEvent(NamedTuple):
    """An event in an engine: the event, its offset, and when it arrived at the broker (Unix seconds; None: unknown)."""

    event: AnyEvent
    offset: int
    arrived: float | None


class Gone(NamedTuple):
    """What is to be deleted of a site that has lost its place: a generation, and keys of the table."""

    generation: int
    keys: list[bytes]


@dataclass
class PendingBatch:
    """Events of one partition that were processed and are not durable yet, and what followed from them.

    `since` is when the first of them came, on the worker's clock. `sites` are those whose state has changed, if only by
    the offset. `gone` are sites that have lost their places. `applied` are those events that are in an engine.
    """

    since: float
    events: list[Delivered] = field(default_factory=list)
    sends: list[Awaitable[Any]] = field(default_factory=list)
    sites: set[str] = field(default_factory=set)
    gone: dict[str, Gone] = field(default_factory=dict)
    applied: list[AppliedEvent] = field(default_factory=list)


class Pending:
    """The pending batch of a partition: the events since the last checkpoint began.

    Parameters:
        most: events with which a checkpoint is due.
        seconds: after which it is due in any case.
    """

    def __init__(self, most: int, seconds: float, clock: Callable[[], float]) -> None:
        self._most = most
        self._seconds = seconds
        self._clock = clock
        self._batch: PendingBatch | None = None

    @property
    def batch(self) -> PendingBatch:
        """The batch; a new one where nothing is pending."""
        if self._batch is None:
            self._batch = PendingBatch(self._clock())
        return self._batch

    @property
    def gone(self) -> Container[str]:
        """The sites that have lost their places, which is still to be made durable."""
        return () if self._batch is None else self._batch.gone

    @property
    def since(self) -> float | None:
        """When its first event came; None where nothing is pending."""
        return None if self._batch is None else self._batch.since

    @property
    def due(self) -> bool:
        """Whether its events are many enough, or old enough, for a checkpoint."""
        batch = self._batch
        return batch is not None and (len(batch.events) >= self._most or batch.since <= self._clock() - self._seconds)

    def take(self) -> PendingBatch | None:
        """The batch, for a checkpoint; what follows belongs to the next one. None where nothing is pending."""
        batch, self._batch = self._batch, None
        return batch


class Acknowledgements:
    """The messages of a partition that are not acknowledged yet, by topic.

    A site that waits is passed over by others' messages, so what is durable may have gaps. Faust would commit beyond a
    gap where the group has not committed anything yet; therefore no message is acknowledged before all earlier ones of
    its topic. What lies beyond a gap is delivered again after a crash, and skipped by its site's offset. O(1) each.
    """

    def __init__(self) -> None:
        self._taken: defaultdict[str, deque[Delivered]] = defaultdict(deque)
        self._durable: set[Delivered] = set()

    def take(self, message: Delivered) -> None:
        """A message has come."""
        self._taken[message.message.topic].append(message)

    def durable(self, messages: Iterable[Delivered]) -> None:
        """All that followed from these messages is durable."""
        self._durable.update(messages)
        for taken in self._taken.values():
            while taken and taken[0] in self._durable:
                message = taken.popleft()
                self._durable.remove(message)
                message.ack()
