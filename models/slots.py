"""Slots of names: their rows in arrays of bounded or reused size."""

from collections.abc import Hashable, Iterable, Mapping
from typing import Any, Generic, TypeVar

Name = TypeVar("Name", bound=Hashable)


class Slots(Generic[Name]):
    """Assigns slots to names, numbers from 0 on. A released slot is reused first.

    >>> slots = Slots(most=2)
    >>> slots.take("ada"), slots.take("bob"), slots.take("ada"), slots.take("cyd")
    (0, 1, 0, 1)
    >>> slots.names, slots.get("bob"), list(slots.in_order())
    (['ada', 'cyd'], None, [('ada', 0), ('cyd', 1)])

    Args:
        most: maximum number of names; a further one evicts the name that was taken least recently.

    Attributes:
        names: the names by slot; "" for an unused one.
        changes: how often a slot was assigned, for caches.
    """

    def __init__(self, most: int | None = None) -> None:
        self._most = most
        self._slots: dict[Name, int] = {}  # the least recently taken first
        self._unused: list[int] = []
        self.names: list[Any] = []
        self.changes = 0
        self.get = self._slots.get  # without a call in between: it is on hot paths

    def __len__(self) -> int:
        return len(self._slots)

    def in_order(self) -> Iterable[tuple[Name, int]]:
        """Return the names and their slots, the least recently taken first."""
        return self._slots.items()

    def take(self, name: Name) -> int:
        """Return the slot of a name, and assign one if it has none."""
        slot = self._slots.pop(name, None)
        if slot is None:
            if len(self._slots) == self._most:
                self.release(next(iter(self._slots)))
            slot = self._assign(name)
        self._slots[name] = slot
        return slot

    def _assign(self, name: Name) -> int:
        self.changes += 1
        if self._unused:
            slot = self._unused.pop()
            self.names[slot] = name
            return slot
        self.names.append(name)
        return len(self.names) - 1

    def release(self, name: Name) -> None:
        """Make the slot of a name free for another one."""
        slot = self._slots.pop(name)
        self.names[slot] = ""
        self._unused.append(slot)

    def restore(self, slots: Mapping[Name, int]) -> None:
        """Replace all names by these, in the order of `in_order`; their slots have no gap."""
        self._slots.clear()
        self._slots.update(slots)
        self.names[:] = sorted(slots, key=slots.__getitem__)
        self._unused.clear()
        self.changes += 1
