"""Errors of predicted run times at a site."""

import msgspec

MOST_OFF, RUNS_KEPT = 0.2, 200.0
"""Run times are accurate while predictions were off by at most this share of the run times of the last `RUNS_KEPT`
jobs."""


class RunsSeen(msgspec.Struct, array_like=True):
    """Errors of predicted run times, and the run times of these jobs: sums in seconds, of recent jobs."""

    off_s: float = 0.0
    run_s: float = 0.0

    def see(self, predicted_s: float, run_s: float) -> None:
        """Add the run time of a job."""
        kept = 1.0 - 1.0 / RUNS_KEPT
        self.off_s = kept * self.off_s + abs(predicted_s - run_s)
        self.run_s = kept * self.run_s + run_s

    @property
    def has_accurate_run_times(self) -> bool:
        """True if predicted run times are accurate; also until jobs have ended."""
        return self.off_s <= MOST_OFF * self.run_s
