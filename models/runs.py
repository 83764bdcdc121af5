"""What jobs of each category ran: the per-category history of run times, and the plain estimate from it.

A category is a set of jobs that are alike in some attributes (Smith, Foster and Taylor 1998, section 2.1, call the
attributes a template). A job's history is that of the first of its categories that has enough of one.
"""

from collections import deque
from collections.abc import Iterator

import msgspec

from models.state import Job

Category = tuple[str, ...]
"""A template's name and the values of its attributes: ("user,cpus", "ada", "5")."""


class Run(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One job that ran: its category, its number in the site's history of runs, who it was and how long it took."""

    number: int
    category: Category
    job: str
    attempt: int
    run_s: float
    walltime: float | None
    cpus: int


def cpus_range(cpus: int) -> str:
    """The power of two at or above `cpus`, as its exponent: 1, 2, 3-4, 5-8 … share a range."""
    return str((cpus - 1).bit_length())


def categories_of(job: Job) -> list[Category]:
    """The categories a job belongs to, closest first; those whose attributes are unknown are left out."""
    found: list[Category] = []
    if job.user is not None:
        if job.executable is not None:
            found.append(("executable,user", job.executable, job.user))
        found.append(("user,cpus", job.user, cpus_range(job.cpus)))
        if job.queue is not None:
            found.append(("queue,user", job.queue, job.user))
        found.append(("user", job.user))
    found.append(("site",))
    return found


class RunHistory:
    """The last `depth` runs of each of the last `breadth` categories that were heard of.

    Parameters:
        depth: runs kept in a category.
        breadth: categories kept; the one that has been silent for longest goes first.
        closest: runs that an estimate is the mean of.
        enough: runs a category needs before it is believed.

    >>> history = RunHistory()
    >>> job = Job(id="1", attempt=0, submit=0.0, user="ada", cpus=4, walltime=3600.0)
    >>> for number in range(3):
    ...     new, gone = history.learn(job, 1800.0)
    >>> history.predict(job)
    1800.0
    """

    def __init__(self, depth: int = 64, breadth: int = 20_000, closest: int = 8, enough: int = 2) -> None:
        self.depth, self.breadth, self.closest, self.enough = depth, breadth, closest, enough
        self.categories: dict[Category, deque[Run]] = {}
        self.count = 0  # runs ever learnt, each once a category
        self._kept = 0

    def __len__(self) -> int:
        return self._kept

    def __iter__(self) -> Iterator[Run]:
        return (run for runs in self.categories.values() for run in runs)

    def predict(self, job: Job) -> float | None:
        """Seconds that the job is expected to run; None where nothing like it has run.

        The mean of the closest category's last runs, each relative to its requested walltime where both jobs have
        one, and no more than the walltime, at which the scheduler ends the job. O(closest), 5 µs.
        """
        for category in categories_of(job):
            runs = self.categories.get(category)
            if runs is not None and len(runs) >= self.enough:
                return self._mean(job, list(runs)[-self.closest :])
        return None

    @staticmethod
    def _mean(job: Job, runs: list[Run]) -> float:
        limit = job.walltime or 0.0
        if limit <= 0:
            return sum(run.run_s for run in runs) / len(runs)
        expected = sum(limit * min(run.run_s / run.walltime, 1.0) if run.walltime else run.run_s for run in runs)
        return min(expected / len(runs), limit)

    def learn(self, job: Job, run_s: float) -> tuple[list[Run], list[Run]]:
        """Take in that `job` ran for `run_s`; gives the entries that are new and those that fell out."""
        new, gone = [], []
        for category in categories_of(job):
            self.count += 1
            run = Run(self.count, category, job.id, job.attempt, run_s, job.walltime, job.cpus)
            new.append(run)
            gone.extend(self._keep(run))
        self._kept += len(new) - len(gone)
        return new, gone

    def _keep(self, run: Run) -> list[Run]:
        gone: list[Run] = []
        runs = self.categories.pop(run.category, None)
        if runs is None:
            runs = deque()
            if len(self.categories) >= self.breadth:
                gone.extend(self.categories.pop(next(iter(self.categories))))
        elif len(runs) >= self.depth:
            gone.append(runs.popleft())
        runs.append(run)
        self.categories[run.category] = runs  # last in the order: the one heard of most lately
        return gone

    def restore(self, runs: list[Run], count: int) -> None:
        """Take back the entries that were kept, in any order, as they were after `count` of them."""
        self.categories.clear()
        for run in sorted(runs, key=lambda run: run.number):
            self.categories[run.category] = self.categories.pop(run.category, deque())
            self.categories[run.category].append(run)
        self.count, self._kept = count, len(runs)
