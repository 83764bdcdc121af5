"""Acknowledges messages in the order in which they came, whatever the order in which they became durable."""

from collections import defaultdict, deque
from collections.abc import Iterable

from streams.worker.checkpoint.stored import Delivered


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
