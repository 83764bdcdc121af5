"""A load for a soak: sites with hundreds of users and an executable for each job, and jobs whose events come twice."""

import heapq
import random
from collections import deque
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from itertools import count

import msgspec

from models.engine.engine import Engine
from models.engine.outgoing import Anomaly
from models.engine.settings import EngineSettings
from models.records import AnyEvent, Cancel, End, JobEvent, JobKey, Submit
from models.simulation import SimulatedJob, generate, run

CPUS = 128
USERS = 500
CHUNK_JOBS = 2000
AGAIN = 0.2
"""The share of jobs that are sent twice."""

_encode = msgspec.json.Encoder().encode


def endless(site: str, seed: int) -> Iterator[AnyEvent]:
    """A busy site's events, made on demand; no two jobs run the same executable."""
    number = count()
    for event in run(_endless_jobs(seed), CPUS, site):
        if isinstance(event, Submit):
            event = msgspec.structs.replace(event, executable=f"job_{next(number)}.sh")
        yield event


def _endless_jobs(seed: int) -> Iterator[SimulatedJob]:
    """Workload after workload, each from where the one before ended."""
    begin = 0
    for chunk in count():
        jobs = generate(CHUNK_JOBS * seed + chunk, CHUNK_JOBS, CPUS, load=0.7, start_time=begin, users=USERS)
        for job in jobs:
            yield msgspec.structs.replace(job, job=f"{chunk}-{job.job}")
        begin = jobs[-1].submit


def merged(sites: Iterable[str]) -> Iterator[AnyEvent]:
    """The events of several sites by time."""
    return heapq.merge(*map(endless, sites, count(1)), key=lambda event: event.time)


class Twice:
    """Has some jobs' events come once more, all of them, when so many other jobs have left since."""

    def __init__(self, after_jobs: int, seed: int = 1) -> None:
        self._after = after_jobs
        self._dice = random.Random(seed)
        self._open: dict[tuple[str, JobKey], list[AnyEvent]] = {}
        self._left: deque[list[AnyEvent]] = deque()
        self.jobs = 0  # that came twice

    def of(self, event: AnyEvent) -> list[AnyEvent]:
        """What is sent in an event's place: the event, and perhaps an old job's events."""
        if not isinstance(event, JobEvent):
            return [event]
        key = (event.site, event.key)
        life = self._open.setdefault(key, [])
        life.append(event)
        if not isinstance(event, End | Cancel):
            return [event]
        self._left.append(self._open.pop(key))
        old = self._left.popleft() if len(self._left) > self._after else []
        if not old or self._dice.random() >= AGAIN:
            return [event]
        self.jobs += 1
        return [event, *old]


class Expected:
    """The records for the events where each comes once, as hashes: a million records fit."""

    def __init__(self, settings: EngineSettings) -> None:
        self._settings = settings
        self._engines: dict[str, Engine] = {}
        self.records: set[int] = set()

    def apply(self, event: AnyEvent) -> None:
        """Take an event in."""
        engine = self._engines.setdefault(event.site, Engine(event.site, self._settings))
        self.records.update(hashed(_encode(one)) for one in engine.apply(event) if not isinstance(one, Anomaly))
        engine.take_changes()

    @property
    def scored(self) -> int:
        """Jobs whose wait was scored."""
        scores = [engine.scores for engine in self._engines.values()]
        return sum(one["zero"].jobs for kept in scores for one in (kept.accuracy, kept.cancelled))


def hashed(record: bytes) -> int:
    """64 bits of a record."""
    return int.from_bytes(blake2b(record, digest_size=8).digest())
