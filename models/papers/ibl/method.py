"""The methods: waits and run times from the nearest jobs of the history."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, get_type_hints

from msgspec import Meta

from models.arrays import Floats
from models.method import RunMethod, SiteContext, WaitMethod
from models.papers.ibl.attributes import Instance, JobAttribute, PolicyAttribute, StateAttribute, request_of, state_of
from models.papers.ibl.distance import Columns, Point, nearest
from models.papers.ibl.memory import InstanceMemory, Selection
from models.records import JobKey
from models.site.job import Estimate, Job, RunEstimate
from models.site.per_job import PerJob
from models.site.rows import Rows
from models.site.runs import RunHistory
from models.stored import encode, reader
from models.waits.qespera import kernel_mean, kernel_quantile

Share = Annotated[float, Meta(ge=0.0, le=1.0)]
Neighbours = Annotated[int, Meta(ge=1, le=1000)]
Size = Annotated[int, Meta(ge=1, le=100_000)]
Middle = Literal["mean", "median"]


class IblParameters(NamedTuple):
    """What the methods can be tuned by: those of run times are the ones that begin with `run_`.

    `policy`, `state` and `attributes` name what is compared, the paper's weights of 1. `job_share` is its WA,
    `neighbours` its induction model (1 is 1-NN), `history` the number of jobs compared with, and `middle` how the
    neighbours' values are averaged; the paper has the mean only.
    """

    policy: tuple[PolicyAttribute, ...] = ("queue",)
    state: tuple[StateAttribute, ...] = ("queued_jobs",)
    attributes: tuple[JobAttribute, ...] = ("user", "cpus", "walltime")
    job_share: Share = 0.75
    neighbours: Neighbours = 15
    history: Size = 6000
    middle: Middle = "median"
    run_attributes: tuple[JobAttribute, ...] = ("group", "user", "queue", "walltime")
    run_neighbours: Neighbours = 5
    run_history: Size = 6000
    run_middle: Middle = "mean"

    @property
    def waits(self) -> Selection:
        """What is compared for waits."""
        return Selection(self.attributes, self.policy, self.state)

    @property
    def runs(self) -> Selection:
        """What is compared for run times."""
        return Selection(self.run_attributes, (), ())


class NeighbourPrediction(NamedTuple):
    """A prediction in seconds, from how many jobs within which distance."""

    value_s: float
    jobs: int
    distance: float


def predict(
    point: Point,
    columns: Columns,
    first: int,
    last: int,
    neighbours: int,
    job_share: float = 1.0,
    middle: Middle = "mean",
    above_s: float = -1.0,
) -> NeighbourPrediction | None:
    """The middle of the nearest jobs' values; None where there is no job. The parameters are those of `nearest`."""
    places, distance = nearest(point, columns, first, last, neighbours, job_share, above_s)
    if not len(places):
        return None
    value_s = averaged(columns.value[places], distance, middle)
    return NeighbourPrediction(value_s, len(places), float(distance[-1]))


def averaged(values: Floats, distance: Floats, middle: Middle) -> float:
    """The mean or the (lower) median of the nearest jobs' values, nearer ones weighing more (section 4.1.2)."""
    return float(kernel_mean(values, distance) if middle == "mean" else kernel_quantile(values, distance, 0.5))


_read_instance = reader(Instance, "a job's attributes")


class Ibl(WaitMethod):
    """Waits of the nearest jobs, by their attributes and the states they found; see the package."""

    name: ClassVar[str] = "ibl"
    tunable: ClassVar[Mapping[str, Any]] = get_type_hints(IblParameters, include_extras=True)
    rows: Rows

    def __init__(self, **parameters: Any) -> None:
        self.parameters = IblParameters(**parameters)
        self._learnt = InstanceMemory(self.parameters.history, self.parameters.waits)
        self.rows = self._learnt.rows
        self.per_job: PerJob[bytes] = PerJob(bytes)

    def predict(self, job: Job, context: SiteContext) -> Estimate:
        """The wait; nothing while no job has started. Beside the comparison, 1 µs for each live job."""
        p, memory = self.parameters, self._learnt
        instance = Instance(request_of(job), state_of(context, job.submit, p.policy))
        self.per_job.put(job.key, encode(instance))
        found = predict(
            memory.point(instance), memory.columns, memory.first, memory.count, p.neighbours, p.job_share, p.middle
        )
        return Estimate(None, "no history") if found is None else Estimate(found.value_s, _reason(found, p.middle))

    def learn(self, job: Job, wait_s: float, context: SiteContext) -> None:
        """Remember the job by the state that it found."""
        instance = self.per_job.pop(job.key)
        if instance is not None:
            self._learnt.learn(_read_instance(instance), wait_s)

    def forget(self, key: JobKey) -> None:
        """The job's wait will not be known."""
        self.per_job.pop(key)

    def load(self, saved: bytes) -> None:
        """Lay out the rows."""
        self._learnt.restore()


class IblRuns(RunMethod):
    """Run times of the nearest jobs, by their attributes alone."""

    name: ClassVar[str] = "ibl"
    tunable: ClassVar[Mapping[str, Any]] = Ibl.tunable
    rows: Rows

    def __init__(self, **parameters: Any) -> None:
        self.parameters = IblParameters(**parameters)
        self._learnt = InstanceMemory(self.parameters.run_history, self.parameters.runs)
        self.rows = self._learnt.rows

    def predict(self, job: Job, runs: RunHistory, elapsed_s: float = 0.0) -> RunEstimate:
        """The run time, at most the walltime; from those that ran longer than the job has run already."""
        p, memory = self.parameters, self._learnt
        point, above_s = memory.point(Instance(request_of(job))), elapsed_s if elapsed_s > 0.0 else -1.0
        found = predict(
            point, memory.columns, memory.first, memory.count, p.run_neighbours, middle=p.run_middle, above_s=above_s
        )
        if found is None:
            return RunEstimate(elapsed_s or None, "no history")
        run_s = min(found.value_s, job.walltime) if job.walltime else found.value_s
        return RunEstimate(max(run_s, elapsed_s), _reason(found, p.run_middle))

    def learn(self, job: Job, run_s: float, runs: RunHistory) -> None:
        """Remember the job."""
        self._learnt.learn(Instance(request_of(job)), run_s)

    def load(self, saved: bytes) -> None:
        """Lay out the rows; there is nothing else."""
        self._learnt.restore()


def _reason(found: NeighbourPrediction, middle: Middle) -> str:
    return f"{middle} of {found.jobs} jobs within distance {found.distance:.2g}"
