"""Size of a site, and plausibility limits for the sizes of the site and its jobs."""

import msgspec

from models.durations import DAY_S
from models.records import Alter, Capacity, Start, Submit

MAX_CPUS = 10_000_000  # upper limit for sites and jobs, also for nodes, GPUs and tasks
MAX_MEMORY = 1 << 56  # bytes, 64 PiB: upper limit for sites and jobs

MAX_ARRAY_CPUS = 10**12
"""Maximum CPUs of all tasks of an array together: above, sums over the live jobs would not be exact."""

MAX_CPUS_WHILE_NEW = 1_000_000  # upper limit for jobs at a new site of unknown size
MIN_CPUS_LIMIT = 1024  # at a site of unknown size, jobs up to this size are always accepted
SLACK = 4  # factor by which a job may exceed its site: sizes are declared late, and estimated too low
MAX_CHANGE = 64  # factor by which a declared size may exceed the known size
MIN_STARTED_JOBS = 32  # started jobs needed to estimate a size

MIN_IMPLAUSIBLE_JOBS = 8
"""Number of implausibly large jobs in a day, if more than started jobs, that increases an estimated size."""


class SizeSeen(msgspec.Struct, array_like=True):
    """Estimated CPUs of a site without a capacity event: the maximum that was in use at the same time.

    Once enough jobs have started, it grows at most fourfold per day of the site's time. It is a part of the stored
    state.
    """

    most: int = 0
    day_began: float = 0.0
    day_most: int = 0
    started: int = 0
    implausible: int = 0

    def see(self, in_use: int, now: float, settled: bool) -> None:
        """Update the estimate after the start of a job.

        Args:
            in_use: the CPUs in use.
            settled: whether enough jobs have started before.
        """
        self._begin_day(now)
        self.started += 1
        limit = max(SLACK * self.day_most, MIN_CPUS_LIMIT // SLACK) if settled else in_use
        self.most = max(self.most, min(in_use, limit))
        if not settled:
            self.day_most = self.most

    def doubt(self, now: float) -> None:
        """Count a job with an implausible size."""
        self._begin_day(now)
        self.implausible += 1

    def _begin_day(self, now: float) -> None:
        if self.day_began <= now < self.day_began + DAY_S:
            return
        if self.implausible >= MIN_IMPLAUSIBLE_JOBS and self.implausible > self.started:
            self.most = max(self.most, MIN_CPUS_LIMIT // SLACK) * SLACK
        self.day_began, self.day_most = now, self.most
        self.started = self.implausible = 0


def implausible_request(event: Submit | Start | Alter) -> str | None:
    """Return why a request is implausible for any job, apart from its CPUs; None if it is plausible."""
    for name in ("nodes", "gpus", "tasks", "array_size"):
        count = getattr(event, name, None)
        if count is not None and count > MAX_CPUS:
            return f"{count} {name}; expected at most {MAX_CPUS}"
    if isinstance(event, Start):
        return None
    if event.memory is not None and event.memory > MAX_MEMORY:
        return f"{event.memory} bytes of memory; expected at most {MAX_MEMORY}"
    gpus = sum((event.gpu_types or {}).values())
    if gpus > MAX_CPUS:
        return f"{gpus} GPUs of all types; expected at most {MAX_CPUS}"
    tasks = event.array_size or 1 if isinstance(event, Submit) else 1
    if (event.cpus or 1) * tasks > MAX_ARRAY_CPUS:
        return f"{event.cpus} CPUs for each of {tasks} tasks; expected at most {MAX_ARRAY_CPUS} together"
    return None


def implausible_pools(event: Capacity) -> str | None:
    """Return why the pools of a site are implausible: their nodes together exceed any site."""
    nodes = sum(pool.nodes for pool in event.pools)
    cpus = sum(pool.nodes * pool.cpus for pool in event.pools)
    gpus = sum(pool.nodes * sum(pool.gpus.values()) for pool in event.pools)
    memory = sum(pool.nodes * (pool.memory or 0) for pool in event.pools)
    counts = (("nodes", nodes, MAX_CPUS), ("CPUs", cpus, MAX_CPUS), ("GPUs", gpus, MAX_CPUS))
    for what, count, most in (*counts, ("bytes of memory", memory, MAX_MEMORY)):
        if count > most:
            return f"{count} {what} in all pools; expected at most {most}"
    return None


def implausible_job(cpus: int, declared: int, seen: int, settled: bool) -> str | None:
    """Return why a job with `cpus` CPUs is implausible; None if it is plausible.

    Args:
        declared: the CPUs of the site's capacity event; 0 for none.
        seen: the maximum number of CPUs in use at the same time.
        settled: whether enough jobs have started.
    """
    if declared:
        limit, why = SLACK * declared, f"the site has {declared}"
    elif settled:
        limit, why = max(SLACK * seen, MIN_CPUS_LIMIT), f"no more than {seen} were in use at once"
    else:
        limit, why = MAX_CPUS_WHILE_NEW, "the site is new"
    limit = min(limit, MAX_CPUS)
    return f"{cpus} CPUs; {why}, expected at most {limit}" if cpus > limit else None


def implausible_capacity(event: Capacity, declared: int, seen: int, largest_job: int, settled: bool) -> str | None:
    """Return why a declared capacity is implausible, compared with the largest job of the history; None if it is
    plausible.
    """
    if max(event.cpus, event.nodes or 0) > MAX_CPUS:
        return f"{event.cpus} CPUs on {event.nodes} nodes; expected at most {MAX_CPUS}"
    if event.nodes and event.down_nodes > event.nodes:
        return f"{event.down_nodes} of {event.nodes} nodes are down"
    if (reason := implausible_pools(event)) is not None:
        return reason
    if not (declared or settled) or event.cpus == 0:
        return None
    known = max(declared, seen)
    if event.cpus > MAX_CHANGE * max(known, MIN_CPUS_LIMIT):
        return f"{event.cpus} CPUs; the site had {known} so far"
    if settled and SLACK * event.cpus < largest_job:
        return f"{event.cpus} CPUs; a recent job had {largest_job}"
    return None
