"""Evidence for and against start events of jobs without a submit event."""

from math import exp

import msgspec

from models.durations import DAY_S

MEMORY_S = 30 * DAY_S
"""Time after which the weight of a confirmed or refuted start is 1/e."""

MIN_REFUTED = 4.0
"""Number of refuted starts from which on further ones must be confirmed."""


class UnsubmittedStarts(msgspec.Struct, array_like=True):
    """Counts of confirmed and refuted starts without a submit event. It is a part of the stored state.

    The submit or the end of its job confirms a start. A start is refuted if the running jobs together exceed the site's
    CPUs: then its end was lost, or the job never existed.

    >>> starts = UnsubmittedStarts()
    >>> for _ in range(5):
    ...     starts.refute(1000.0)
    >>> starts.doubtful
    True
    """

    confirmed: float = 0.0
    refuted: float = 0.0
    at: float = 0.0

    @property
    def doubtful(self) -> bool:
        """True if a start without a submit event must be confirmed before the job counts."""
        return self.refuted >= MIN_REFUTED and self.refuted > self.confirmed

    def confirm(self, now: float) -> None:
        """Count a start that was confirmed `now` (Unix seconds)."""
        self._fade(now)
        self.confirmed += 1.0

    def refute(self, now: float) -> None:
        """Count a start that was refuted `now` (Unix seconds)."""
        self._fade(now)
        self.refuted += 1.0

    def _fade(self, now: float) -> None:
        kept = exp(-max(now - self.at, 0.0) / MEMORY_S)
        self.confirmed, self.refuted, self.at = self.confirmed * kept, self.refuted * kept, max(now, self.at)
