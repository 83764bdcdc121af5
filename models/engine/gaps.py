"""What a site's knowledge lacks for a while: histories that were lost, and events that never came."""

import msgspec

MIN_JOBS_TO_RECOVER = 1000
"""Jobs that must start after histories or events were lost before predictions are no longer called degraded."""


class Gaps(msgspec.Struct):
    """Whether the histories were `lost` lately; until how many jobs have started they have a gap, and until how many
    events are missing (0: none).
    """

    lost: bool = False
    gap_until: int = 0
    missed_until: int = 0

    def save(self) -> "Gaps":
        """It is stored as it is."""
        return self

    def restore(self, saved: "Gaps") -> None:
        """Take back what was saved."""
        self.lost, self.gap_until, self.missed_until = saved.lost, saved.gap_until, saved.missed_until

    def see_started(self, count: int) -> None:
        """So many jobs have started."""
        self.lost = self.lost and count < MIN_JOBS_TO_RECOVER

    def miss_events(self, count: int) -> None:
        """Events were lost after so many jobs had started."""
        self.missed_until = count + MIN_JOBS_TO_RECOVER
