"""Histories of run times by category, which the methods for run times read.

A category is a set of jobs with the same values of a template's attributes (Smith, Foster and Taylor 1998, section
2.1). For example, the template (queue, user) puts jobs into categories such as (night, ada).
"""

from collections.abc import Callable, Iterable, Iterator
from functools import cache

import msgspec

from models.site.job import Job

Category = tuple[str, ...]  # a template's name and the values of its attributes: ("user,cpus", "ada", "5")


class Run(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A run of a job: its number in the site's history of runs, its category, and its run time."""

    number: int
    category: Category
    run_s: float
    walltime: float | None
    cpus: int


def power_of_two(size: int) -> str:
    """Return the exponent of the power of two at or above `size`: 1, 2, 3-4, 5-8 … share a range."""
    return str((size - 1).bit_length())


def _job_type(job: Job) -> str:
    """Return the job type: the given one, else serial or parallel."""
    return job.job_type or ("serial" if job.cpus == 1 else "parallel")


ATTRIBUTES: dict[str, Callable[[Job], str | None]] = {
    "type": _job_type,
    "queue": lambda job: job.queue,
    "class": lambda job: job.job_class,
    "user": lambda job: job.user,
    "group": lambda job: job.group,
    "account": lambda job: job.account,
    "script": lambda job: job.script,
    "executable": lambda job: job.executable,
    "arguments": lambda job: job.arguments,
    "network": lambda job: job.network,
    "nodes": lambda job: "|".join("&".join(one) for one in job.extras.node_features or ()) or None,
    "cpus": lambda job: power_of_two(job.cpus),
    "memory": lambda job: None if job.memory is None else power_of_two(max(job.memory, 1)),
    "walltime": lambda job: None if job.walltime is None else f"{job.walltime:.0f}",
}
"""Attributes of templates, by name; in addition, `cpus/N` is the index of the job's range of N CPUs."""


class Template(msgspec.Struct, frozen=True):
    """Attributes by which jobs are alike, and how many runs are kept of each category.

    >>> Template(("user", "cpus/4")).category(Job(id="1", attempt=0, submit=0.0, user="ada", cpus=5))
    ('user,cpus/4', 'ada', '1')
    """

    attributes: tuple[str, ...]
    depth: int = 64

    @property
    def name(self) -> str:
        """The prefix of its categories' names."""
        return _readers(self.attributes)[0]

    def category(self, job: Job) -> Category | None:
        """Return the job's category; None if one of its attributes is unknown."""
        name, readers = _readers(self.attributes)
        values = [name]
        for read in readers:
            value = read(job)
            if value is None:
                return None
            values.append(value)
        return tuple(values)


@cache
def _readers(attributes: tuple[str, ...]) -> tuple[str, list[Callable[[Job], str | None]]]:
    """Return the name of a template, and the functions that read its attributes."""
    return ",".join(attributes) or "site", [*map(_reader, attributes)]


def _reader(attribute: str) -> Callable[[Job], str | None]:
    kind, _, size = attribute.partition("/")
    if not size:
        return ATTRIBUTES[attribute]
    if kind != "cpus":
        raise KeyError(attribute)
    return lambda job: str((job.cpus - 1) // int(size))


class RunHistory:
    """The last runs of each of the `breadth` most recently used categories.

    Args:
        templates: the templates that methods use; of two with the same attributes, the deeper one counts.
        breadth: maximum number of categories; the least recently used one is removed first.

    >>> history = RunHistory([Template(("user",), depth=2)])
    >>> ada = Job(id="1", attempt=0, submit=0.0, user="ada")
    >>> for run_s in (60.0, 120.0, 180.0):
    ...     new, gone = history.learn(ada, run_s)
    >>> [run.run_s for run in history.of(("user", "ada"))], gone[0].run_s
    ([120.0, 180.0], 60.0)
    """

    def __init__(self, templates: Iterable[Template] = (), breadth: int = 50_000) -> None:
        self.templates: dict[str, Template] = {}
        for template in templates:
            known = self.templates.get(template.name)
            if known is None or known.depth < template.depth:
                self.templates[template.name] = template
        self.breadth = breadth
        self.categories: dict[Category, list[Run]] = {}  # lists, because a deque needs at least 0.7 kB
        self.count = 0  # runs ever learnt, counted once per category
        self._kept = 0

    def __len__(self) -> int:
        return self._kept

    def __iter__(self) -> Iterator[Run]:
        return (run for runs in self.categories.values() for run in runs)

    def of(self, category: Category | None) -> list[Run]:
        """Return the runs of a category, the oldest first; empty if it is unknown."""
        return self.categories.get(category) or [] if category is not None else []

    def learn(self, job: Job, run_s: float) -> tuple[list[Run], list[Run]]:
        """Add a run of `job` for `run_s` seconds; return the new entries and the removed ones."""
        new, gone = [], []
        for template in self.templates.values():
            category = template.category(job)
            if category is not None:
                category = self._shared(category)
                self.count += 1
                run = Run(self.count, category, run_s, job.limit_s, job.cpus)
                new.append(run)
                gone.extend(self._keep(run, template.depth))
        self._kept += len(new) - len(gone)
        return new, gone

    def _shared(self, category: Category) -> Category:
        """Return the stored object of an equal category, to save memory."""
        runs = self.categories.get(category)
        return runs[0].category if runs else category

    def _keep(self, run: Run, depth: int) -> list[Run]:
        gone: list[Run] = []
        runs = self.categories.pop(run.category, None)
        if runs is None:
            runs = [run]
            if len(self.categories) >= self.breadth:
                gone.extend(self.categories.pop(next(iter(self.categories))))
        else:
            while len(runs) >= depth:
                gone.append(runs.pop(0))
            runs.append(run)
        self.categories[run.category] = runs  # at the end: the most recently used one
        return gone

    def restore(self, runs: list[Run], count: int) -> None:
        """Restore the stored entries, in any order, as of `count` entries."""
        self.categories.clear()
        for run in sorted(runs, key=lambda run: run.number):
            msgspec.structs.force_setattr(run, "category", self._shared(run.category))
            self.categories[run.category] = self.categories.pop(run.category, [])
            self.categories[run.category].append(run)
        self.count, self._kept = count, len(runs)
