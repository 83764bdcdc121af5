"""The trivial rule with bounds: a job waits as jobs did lately."""

from collections.abc import Sequence

import numpy as np

from models.site.history import History
from models.waits.blend.mixture import Floats

WINDOW_JOBS = 1000
"""Jobs that started last, of which the quantiles are taken; as of the method `median`."""


class RecentQuantiles:
    """The waits of the last jobs to start at some probabilities. They change with each start, and are kept till then.

    Parameters:
        probabilities: of the quantiles.
    """

    def __init__(self, probabilities: Sequence[float]) -> None:
        self._probabilities = probabilities
        self._found: Floats = np.full(len(probabilities), np.nan)
        self._count = 0

    def of(self, history: History) -> Floats:
        """In seconds; nan where no job has started. 60 µs after a start."""
        if history.count != self._count:
            self._count = history.count
            waits = history.latest_waits(WINDOW_JOBS)
            if not len(waits):  # the history was lost
                return np.full(len(self._probabilities), np.nan)
            places = [min(int(probability * len(waits)), len(waits) - 1) for probability in self._probabilities]
            self._found = np.partition(waits, places)[places]
        return self._found
