"""The trivial rule with bounds: a job waits as jobs did lately."""

from collections.abc import Sequence

import numpy as np

from models.site.history import History
from models.waits.blend.mixture import Floats

WINDOW_JOBS = 1000
"""Jobs that started last, of which the quantiles are taken; as of the method `median`."""


def recent_quantiles(history: History, probabilities: Sequence[float]) -> Floats:
    """The waits of the last jobs to start at these probabilities, seconds; nan where none has started. 30 µs."""
    waits = history.latest_waits(WINDOW_JOBS)
    if not len(waits):
        return np.full(len(probabilities), np.nan)
    places = [min(int(probability * len(waits)), len(waits) - 1) for probability in probabilities]
    found: Floats = np.partition(waits, places)[places]
    return found
