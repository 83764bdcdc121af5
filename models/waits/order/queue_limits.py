"""Limits on the CPUs of the jobs of a queue, or of long jobs, inferred like those of users (`inferred_limits`)."""

import numpy as np

from models.arrays import Floats, Singles
from models.kernels import njit
from models.stored_values import check_alike
from models.waits.order.inferred_limits import FADING, ONCE, REFUSED, STARTED, Counts, limit_of, step_of
from models.waits.order.order_features import COUNT
from models.waits.order.pair_preference import NO_QUEUE
from models.waits.order.schedule import LENGTHS_S

STEPS = 25
"""Number of steps of the share of the machine up to which jobs are counted."""

MIN_STARTED = 50.0
"""Starts, with others of the queue running, before a limit is inferred: one job that is blocked by something else is
refused repeatedly."""

SavedQueueLimits = dict[int, tuple[str, Singles]]
"""The names of queues and their counts, by the places of the queues' weights."""


class QueueLimitsSeen:
    """Numbers of started and refused jobs of each queue, by the CPUs that the queue would then hold, (2, `STEPS` + 1).

    A job that is the only one of its queue does not count: it may run, of any size. Queues are identified by the places
    of their weights, and jobs longer than each of `LENGTHS_S` by its place. When another queue takes a place, its
    counts are reset.

    >>> seen = QueueLimitsSeen()
    >>> seen.begin("long", place=40)
    >>> for _ in range(60):
    ...     started_in(seen.counts[40], 20, 20, 100)
    ...     count_in(seen.counts[40, REFUSED], 40, 1, 100, 1)
    >>> float(seen.limits(site_cpus=100)[40])
    40.0
    """

    def __init__(self) -> None:
        self._names = {place: f"over {length_s:g} s" for place, length_s in enumerate(LENGTHS_S.tolist())}
        self.counts: Counts = np.zeros((NO_QUEUE + 1, 2, STEPS + 1), np.float32)
        """Counts by these places."""

    @property
    def places(self) -> int:
        """Number of places up to the last one with a name; later ones have no limit."""
        return max(self._names) + 1

    def begin(self, name: str, place: int) -> None:
        """Assign this place to this queue, before one of its jobs is counted."""
        if self._names.get(place) != name:
            self._names[place] = name
            self.counts[place] = 0.0

    def limits(self, site_cpus: int) -> Floats:
        """Return the limits found, CPUs by place, infinity for none."""
        return np.asarray(queue_limits(self.counts, self.places, site_cpus))

    def save(self) -> SavedQueueLimits:
        """Serialize the counts; 0.3 kB a queue."""
        return {place: (name, self.counts[place]) for place, name in self._names.items()}

    def load(self, saved: SavedQueueLimits) -> None:
        """Restore the state from `save`.

        Raises:
            ValueError: it is not such a state.
        """
        for place, (_, counts) in saved.items():
            if not 0 <= place < len(self.counts):
                raise ValueError(f"limits of a queue at place {place}; expected 0 to {len(self.counts) - 1}")
            check_alike(counts, self.counts[place], "limits of a queue")
        for place, (name, counts) in saved.items():
            self._names[place], self.counts[place] = name, counts


@njit(cache=True, nogil=True)
def started_in(counts: Counts, held: int, cpus: int, site_cpus: int) -> None:
    """Count the start of a job in a queue with these counts, (2, `STEPS` + 1), whose jobs held `held` CPUs."""
    counts *= np.float32(FADING)
    count_in(counts[STARTED], held, cpus, site_cpus, ONCE)


@njit(cache=True, nogil=True)
def count_in(counts: Counts, held: int, cpus: int, site_cpus: int, times: int) -> None:
    """Add `times` such jobs to the counts, (`STEPS` + 1,), unless the job is the only one of its queue."""
    if held > 0:
        counts[step_of(held + cpus, site_cpus, len(counts) - 1)] += times


@njit(cache=True, nogil=True)
def queue_limits(counts: Counts, places: int, site_cpus: int) -> Floats:
    """Return the CPUs that the jobs of a queue may hold together, by the place of its weight; infinity for no limit.

    Args:
        places: number of places, from the first, that may have a limit.
    """
    found = np.full(len(counts), np.inf)
    for place in range(places):
        if (place < len(LENGTHS_S) or place >= COUNT) and counts[place, STARTED].sum() >= MIN_STARTED:
            found[place] = limit_of(counts[place, STARTED], counts[place, REFUSED]) * site_cpus / STEPS
    return found
