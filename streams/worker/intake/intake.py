"""What a message of the events topic is, and whether it may come there."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from models.engine.operations import begun_anew
from models.records import AnyEvent, AnyOperation, BeginAnew
from streams.worker.checkpoint.stored import SiteHandle
from streams.worker.intake.messages import Unreadable, read_event
from streams.worker.intake.operations import change, read_operation
from streams.worker.intake.places import Places
from streams.worker.intake.unknown_fields import UnknownFields


class Intake:
    """Reads messages, and counts fields that no event has.

    Parameters:
        count: counts one such field, by its name.
    """

    def __init__(self, places: Places, count: Callable[[str], None]) -> None:
        self.places = places
        self.unknown_fields = UnknownFields(count)

    def read(self, raw: Any) -> tuple[AnyEvent | AnyOperation, bool]:
        """The event or operation that a message carries, and whether it came on its site's own topic; 5 µs.

        Raises:
            Unreadable: it is nothing that can be read, or does not belong there.
        """
        what = read_operation(raw.key, raw.value) or read_event(raw.key, raw.value)
        return what, self.places.check(raw.topic, raw.partition, what.site)

    def replay(self, handle: SiteHandle, raw: Any) -> None:
        """Apply a message once more, as it was applied before; nothing is sent, for all that followed was sent then.

        Raises:
            Exception: whatever the engine raises, whose state may then be half of what it should be.
        """
        with suppress(Unreadable):
            what, _ = self.read(raw)
            if isinstance(what, BeginAnew):
                handle.engine = begun_anew(handle.engine)
            elif isinstance(what, AnyOperation):
                change(handle.engine, what)
            else:
                handle.engine.apply(what, arrived(raw))
                handle.arrivals.add(raw.timestamp)


def arrived(raw: Any) -> float | None:
    """When a message arrived at the broker, Unix seconds; None where that is unknown."""
    return raw.timestamp if raw.timestamp > 0.0 else None
