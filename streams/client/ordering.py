"""Messages of two topics in the order in which they were written: predictions before their outcomes."""

from collections.abc import Callable, Iterable
from typing import Any


class CausalOrder:
    """Hold back outcomes whose prediction may not be read yet.

    A site's predictions and outcomes are in partitions of the same number, each in order, but the consumer reads them
    independently. An outcome is handed on once a prediction of its partition with a later stamp was read, or all were.

    Parameters:
        first: the topic whose messages come first.
        at_end: whether all messages of that topic's partition of this number were read.
    """

    def __init__(self, first: str, at_end: Callable[[int], bool]) -> None:
        self._first = first
        self._at_end = at_end
        self._stamps: dict[int, float] = {}
        self._held: list[Any] = []

    def ordered(self, messages: Iterable[Any]) -> list[Any]:
        """Return the messages that can be released, including held ones, by timestamp."""
        found = [*self._held, *messages]
        for message in found:
            if message.topic == self._first:
                stamp = self._stamps.get(message.partition, message.timestamp)
                self._stamps[message.partition] = max(stamp, message.timestamp)
        self._held = [message for message in found if not self._may_go(message)]
        free = [message for message in found if self._may_go(message)]
        return sorted(free, key=lambda message: (message.timestamp, message.topic != self._first))

    def _may_go(self, message: Any) -> bool:
        if message.topic == self._first or self._at_end(message.partition):
            return True
        return bool(self._stamps.get(message.partition, -1.0) > message.timestamp)
