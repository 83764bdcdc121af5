"""What-if beside the true schedule of a simulated cluster, where run times are known and no job is submitted later."""

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from models.engine.asking.engine_answers import answer
from models.engine.engine import Engine
from models.engine.settings import EngineSettings
from models.records import Alter, WaitAnswer, WaitQuestion
from tests.simulation.cluster import Cluster, ClusterJob, ClusterScheduler

NEAR, NEAR_S = 0.1, 60.0
"""A wait is right where it is off by no more than this share of the true one, or by so many seconds."""


class Probe(NamedTuple):
    """A job that was only considered: its partition, and the predicted and the true wait, in seconds."""

    partition: str
    predicted_s: float
    true_s: float

    @property
    def is_right(self) -> bool:
        """Whether the predicted wait is near enough."""
        return abs(self.predicted_s - self.true_s) <= max(NEAR * self.true_s, NEAR_S)


class Watched:
    """A cluster, and an engine that sees its events.

    Parameters:
        start_time: when its clock begins, whole Unix seconds.
        reports_priorities: whether it reports the priority of each job that waits whenever its clock was moved.
    """

    def __init__(
        self, cluster: Cluster, settings: EngineSettings, start_time: int, reports_priorities: bool = False
    ) -> None:
        self._reports_priorities = reports_priorities
        self.scheduler = ClusterScheduler("a", cluster, start_time)
        self.engine = Engine("a", settings)
        self.engine.apply(self.scheduler.capacity())

    def submit(self, job: ClusterJob) -> None:
        """Submit a job at its time."""
        for event in self.scheduler.submit(job):
            self.engine.apply(event)

    def advance(self, until: int) -> None:
        """Move the clock."""
        for event in self.scheduler.advance(until):
            self.engine.apply(event)
        if self._reports_priorities:
            for job, priority in self.scheduler.priorities().items():
                self.engine.apply(Alter(site="a", time=float(self.scheduler.now), job=job, priority=priority))

    def what_if(self, probe: ClusterJob) -> WaitAnswer:
        """The answer of what-if, for this job now."""
        submit = probe.submission("a")
        fields = {name: getattr(submit, name) for name in WaitQuestion.__struct_fields__ if hasattr(submit, name)}
        found = answer(WaitQuestion(id="1", **fields), self.engine, float(self.scheduler.now))
        assert isinstance(found, WaitAnswer)
        return found

    def probe(self, job: ClusterJob) -> Probe:
        """The predicted wait of this job now, and the true one if no job is submitted later."""
        job = msgspec.structs.replace(job, submit=self.scheduler.now)
        predicted_s = self.what_if(job).predicted_wait_s
        true = self.scheduler.fork()
        true.submit(job)
        start = true.start_of(job.job)
        assert start is not None and predicted_s is not None
        return Probe(job.partitions[0], predicted_s, float(start - job.submit))


def as_planned(jobs: Iterable[ClusterJob]) -> list[ClusterJob]:
    """The same jobs, each with a walltime equal to its run time."""
    return [msgspec.structs.replace(job, walltime=job.seconds, run=job.seconds) for job in jobs]


def probes(watched: Watched, jobs: Iterable[ClusterJob], moments: Iterable[int], each: int) -> Iterator[Probe]:
    """Submit the jobs, and at each of the moments (Unix seconds) probe with the next `each` ones of every partition."""
    to_come = deque(jobs)
    for moment in moments:
        while to_come and to_come[0].submit <= moment:
            watched.submit(to_come.popleft())
        watched.advance(moment)
        counts: Counter[str] = Counter()
        for job in to_come:
            counts[job.partitions[0]] += 1
            if counts[job.partitions[0]] <= each:
                yield watched.probe(job)
