"""The last started jobs: their sixteen features at submission, and their waits."""

from array import array
from bisect import bisect_left, insort

import msgspec
import numpy as np

from models.site.job import Job, Phase
from models.site.spearman import RollingSpearman
from models.site.state import MICRO, SITE, SiteState, Totals

FEATURES = (
    "cpus",
    "ert",
    "queued_cpus",
    "queued_ert",
    "queued_elapsed",
    "running_cpus",
    "running_ert",
    "running_elapsed",
    "user_queued_work",
    "user_queued_cpus",
    "user_queued_ert",
    "user_queued_jobs",
    "user_running_work",
    "user_running_cpus",
    "user_running_ert",
    "user_running_jobs",
)
"""Names, in the order of the table. Times in seconds, work in CPU-seconds, sizes in CPUs."""

COUNT = len(FEATURES)


def features_of(job: Job, state: SiteState, now: float) -> np.ndarray:
    """Return the features (float64[16]) of `job` in the state at `now`, without the job itself. O(1).

    See Murali and Vadhiyar 2015, section 3.1, table II.
    """
    queued, running = state.totals(SITE, Phase.QUEUED), state.totals(SITE, Phase.RUNNING)
    values = [
        float(job.cpus),
        job.planned_run_s,
        queued.cpus,
        queued.planned_run_us / MICRO,
        queued.elapsed_s(now),
        running.cpus,
        running.planned_run_us / MICRO,
        running.elapsed_s(now),
        *_user_features(job, state, Phase.QUEUED),
        *_user_features(job, state, Phase.RUNNING),
    ]
    return np.array(values, dtype=np.float64)


def _user_features(job: Job, state: SiteState, phase: Phase) -> tuple[float, float, float, float]:
    """Return features 9 to 12 or 13 to 16: work, CPUs, estimated run times and number of the user's jobs."""
    own = state.totals(("user", job.user), phase) if job.user is not None else Totals()
    return own.work / MICRO, own.cpus, own.planned_run_us / MICRO, own.count


LATEST_JOBS = 1000  # number of waits in `History.latest`


class StartedJob(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A stored job of the history: its number in the site's history, its wait and its features."""

    number: int
    wait_s: float
    features: np.ndarray


class History:
    """The last `size` started jobs, as arrays in a ring buffer, and the weights of the features over them.

    Job number `n` is at index `(n - first) % size`, so a restored history has the same layout and gives the same sums,
    to the last bit. `first` is 0, or the number of the first job after the last change of the size.
    """

    def __init__(self, size: int = 6000) -> None:
        self.size = size
        self.count = 0
        self.first = 0
        self.window = RollingSpearman(COUNT, size)
        self.latest = array("d")  # waits of the last `LATEST_JOBS` jobs or fewer, in seconds, ascending

    def __len__(self) -> int:
        return min(self.count - self.first, self.size)

    @property
    def oldest(self) -> int:
        """The number of the oldest job in the history."""
        return max(self.count - self.size, self.first)

    def learn(self, job: Job, wait_s: float) -> StartedJob:
        """Add a job that has just started, in place of the oldest.

        Raises:
            ValueError: its wait or a feature is not finite; the history is unchanged.
        """
        assert job.features is not None
        row = StartedJob(self.count, wait_s, job.features)
        leaves = None
        if len(self.latest) == min(LATEST_JOBS, self.size):
            leaves = self.waits.item((self.count - len(self.latest) - self.first) % self.size)
        self.window.push(row.features, wait_s)  # first, because it may refuse the row
        if leaves is not None:
            del self.latest[bisect_left(self.latest, leaves)]
        insort(self.latest, wait_s)
        self.count += 1
        return row

    def stored(self) -> list[StartedJob]:
        """Return the jobs in their stored form, the oldest first."""
        numbers = range(self.oldest, self.count)
        places = [(number - self.first) % self.size for number in numbers]
        values, waits = self.window.values[places], self.waits[places].tolist()
        return [StartedJob(*row) for row in zip(numbers, waits, values, strict=True)]

    @property
    def waits(self) -> np.ndarray:
        """Waits in seconds, float64[len], in ring order."""
        return self.window.targets

    def correlations(self) -> dict[str, float]:
        """Return the absolute rank correlation of each feature with the wait, rounded, the largest first.

        Empty until two jobs have started.
        """
        if len(self) < 2:
            return {}
        found = zip(FEATURES, self.window.weights.round(3).tolist(), strict=True)
        return dict(sorted(found, key=lambda one: -one[1]))

    def restore(self, rows: list[StartedJob], count: int, first: int = 0, size: int | None = None) -> None:
        """Restore the last rows, in any order, of a history of `count` jobs.

        Args:
            first: the `first` of the stored history.
            size: the size of the stored history, if it may differ.

        Raises:
            ValueError: rows are missing.
        """
        if size is not None and size != self.size:
            first = max(count - min(size, self.size), first)
        length = min(count - first, self.size)
        kept = {row.number: row for row in rows if count - length <= row.number < count}
        if len(kept) < length:
            raise ValueError(f"history has {len(kept)} of the last {length} jobs")
        ordered = [kept[number] for number in sorted(kept)]
        features = np.array([row.features for row in ordered]).reshape(length, COUNT)
        waits = np.array([row.wait_s for row in ordered])
        self.window = RollingSpearman.from_rows(features, waits, self.size, pushed=count - first)
        self.count, self.first = count, first
        self.latest = array("d", sorted(waits[-LATEST_JOBS:].tolist()))
