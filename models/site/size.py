"""How large a site is, and which sizes are not believed of it or of its jobs."""

import msgspec

from models.durations import DAY_S
from models.records import Capacity

MAX_CPUS = 10_000_000
"""No site and no job is larger."""

MAX_CPUS_WHILE_NEW = 1_000_000
"""No job is larger at a site of unknown size of which little has been seen."""

MIN_CPUS_LIMIT = 1024
"""At a site that never said its size, jobs of so many processors are always accepted."""

SLACK = 4
"""A job may be so many times larger than its site: sizes are declared late, and guessed too small."""

MAX_CHANGE = 64
"""A declared size may be so many times what was known of the site."""

MIN_STARTED_JOBS = 32
"""Jobs that must have started before a size is guessed from them."""

MIN_DOUBTED_JOBS = 8
"""Jobs, and more than have started, that must be too large within a day for a guessed size to grow by them."""


class SizeSeen(msgspec.Struct, array_like=True):
    """The processors of a site that never said how many it has, guessed from the most that were in use at once.

    Once some jobs have started, it grows fourfold in a day of the site's time at most. It is a part of the stored
    state.
    """

    most: int = 0
    day_began: float = 0.0
    day_most: int = 0
    started: int = 0
    doubted: int = 0

    def see(self, in_use: int, now: float, settled: bool) -> None:
        """A job has started, and so many processors are in use. `settled`: enough jobs have started before."""
        self._begin_day(now)
        self.started += 1
        limit = max(SLACK * self.day_most, MIN_CPUS_LIMIT // SLACK) if settled else in_use
        self.most = max(self.most, min(in_use, limit))
        if not settled:
            self.day_most = self.most

    def doubt(self, now: float) -> None:
        """A job was too large to be believed."""
        self._begin_day(now)
        self.doubted += 1

    def _begin_day(self, now: float) -> None:
        if self.day_began <= now < self.day_began + DAY_S:
            return
        if self.doubted >= MIN_DOUBTED_JOBS and self.doubted > self.started:
            self.most = max(self.most, MIN_CPUS_LIMIT // SLACK) * SLACK
        self.day_began, self.day_most = now, self.most
        self.started = self.doubted = 0


def doubted_job(cpus: int, declared: int, seen: int, settled: bool) -> str | None:
    """Why a job of so many processors is not believed; None where it is.

    Parameters:
        declared: the site's processors, as it said; 0 where it did not.
        seen: the most processors that were in use at once.
        settled: whether enough jobs have started to go by that.
    """
    if declared:
        limit, why = SLACK * declared, f"the site has {declared}"
    elif settled:
        limit, why = max(SLACK * seen, MIN_CPUS_LIMIT), f"no more than {seen} were in use at once"
    else:
        limit, why = MAX_CPUS_WHILE_NEW, "hardly anything is known of the site"
    limit = min(limit, MAX_CPUS)
    return f"{cpus} processors; {why}, and at most {limit} are believed" if cpus > limit else None


def doubted_capacity(event: Capacity, declared: int, seen: int, largest_job: int, settled: bool) -> str | None:
    """Why a declared size is not believed; None where it is.

    Parameters:
        largest_job: processors of the largest job in the history.
    """
    if max(event.cpus, event.nodes or 0) > MAX_CPUS:
        return f"{event.cpus} processors on {event.nodes} nodes; at most {MAX_CPUS} are believed"
    if event.nodes and event.down_nodes > event.nodes:
        return f"{event.down_nodes} of {event.nodes} nodes are down"
    if not (declared or settled) or event.cpus == 0:
        return None
    known = max(declared, seen)
    if event.cpus > MAX_CHANGE * max(known, MIN_CPUS_LIMIT):
        return f"{event.cpus} processors; the site had {known} so far"
    if settled and SLACK * event.cpus < largest_job:
        return f"{event.cpus} processors; a job had {largest_job} lately"
    return None
