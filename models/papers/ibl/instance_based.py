"""The methods: waits and run times from the nearest of the last jobs, which are kept as arrays to compare with."""

from collections.abc import Hashable, Mapping
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, get_type_hints

import msgspec
import numpy as np
from msgspec import Meta

from models.arrays import Floats
from models.method import RunMethod, SiteContext, WaitMethod
from models.papers.ibl.distance import (
    JOB,
    NOMINAL,
    NUMERIC,
    POLICY,
    STATE,
    UNKNOWN,
    UNSEEN,
    VECTORS,
    Category,
    CategoryState,
    Columns,
    Instance,
    Ints,
    JobAttribute,
    Point,
    PolicyAttribute,
    Request,
    StateAttribute,
    nearest,
    request_of,
    state_of,
)
from models.records import JobKey
from models.site.job import Estimate, Job, RunEstimate
from models.site.rows import PerJob, Rows
from models.site.runs import RunHistory
from models.stored_values import encode, reader
from models.waits.qespera import kernel_mean, kernel_quantile

MAX_NAMES_PER_JOB = 8  # names per job in memory above which names of jobs that have left are removed


class Selection(NamedTuple):
    """The attributes that are compared: those of weight 1 in the paper."""

    job: tuple[JobAttribute, ...] = JOB
    policy: tuple[PolicyAttribute, ...] = POLICY
    state: tuple[StateAttribute, ...] = STATE

    @property
    def places(self) -> tuple[list[int], list[int], list[int], list[int]]:
        """Positions of the selected attributes in `NOMINAL`, `NUMERIC`, (free CPUs,) and `VECTORS`."""
        named = (NOMINAL, self.job), (NUMERIC, self.job), (STATE[:1], self.state), (VECTORS, self.state)
        nominal, numeric, free, vectors = (
            [place for place, name in enumerate(names) if name in chosen] for names, chosen in named
        )
        return nominal, numeric, free, vectors


class LearntInstance(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A row: a job at its submission, and its wait or run time, in seconds."""

    value_s: float
    instance: Instance


class InstanceMemory:
    """The last `size` jobs by the selected attributes, each with its wait or run time.

    It has the rows that are stored, and the arrays for comparison. The layout of the arrays depends on earlier
    contents; distances do not, since they are computed from whole numbers.
    """

    def __init__(self, size: int, selection: Selection) -> None:
        self.size = size
        self.rows = Rows(size)
        self._policy = tuple(attribute for attribute in POLICY if attribute in selection.policy)
        self._nominal, self._numeric, self._free, self._vectors = selection.places
        self._begin()

    def _begin(self) -> None:
        size, self.count = self.size, 0
        self._values: dict[tuple[int, Hashable], int] = {}
        self._categories: dict[Category, int] = {}
        self._tail = 0
        self.columns = Columns(
            nominal=np.empty((size, len(self._nominal)), np.int32),
            numeric=np.empty((size, len(self._numeric))),
            free=np.empty((size, len(self._free))),
            begin=np.zeros(size, np.int64),
            entries=np.zeros(size, np.int32),
            category=np.empty(0, np.int32),
            vectors=np.empty((0, len(self._vectors))),
            value=np.empty(size),
        )

    @property
    def first(self) -> int:
        """Number of the oldest job in memory; jobs are counted from 0."""
        return max(self.count - self.size, 0)

    @property
    def names(self) -> int:
        """Number of names in memory, including those of jobs that have left."""
        return len(self._values) + len(self._categories)

    def point(self, instance: Instance) -> Point:
        """Return the job in the form for comparison."""
        request, state = instance.request, self._comparable(instance.state)
        nominal = np.array([self._number(place, request, UNSEEN) for place in self._nominal], np.int32)
        vectors, totals = np.zeros((len(self._categories), len(self._vectors))), np.zeros(len(self._vectors))
        if state is not None and state.categories:
            values = self._selected(state)
            totals = values.sum(axis=0)
            for category, row in zip(state.categories, values, strict=True):
                number = self._categories.get(category)
                if number is not None:
                    vectors[number] = row
        return Point(nominal, self._scalars(request), self._free_of(state), state is not None, vectors, totals)

    def learn(self, instance: Instance, value_s: float) -> None:
        """Add a finished job, to be stored too."""
        self.rows.append(encode(LearntInstance(value_s, instance)))
        if self.names > MAX_NAMES_PER_JOB * self.size:
            self.restore()
        else:
            self.push(instance, value_s)

    def restore(self) -> None:
        """Rebuild the arrays from the rows, with the names that occur in them.

        Raises:
            ValueError: the rows are not of this method.
        """
        self._begin()
        for learnt in self.rows.read(_read):
            self.push(learnt.instance, learnt.value_s)

    def push(self, instance: Instance, value: float) -> None:
        """Add a job; the oldest is dropped if there is no space."""
        request, state, place = instance.request, self._comparable(instance.state), self.count % self.size
        entries = 0 if state is None else len(state.categories)
        self._make_room(entries)
        columns = self.columns
        for column, attribute in enumerate(self._nominal):
            columns.nominal[place, column] = self._number(attribute, request)
        columns.numeric[place] = self._scalars(request)
        columns.free[place] = self._free_of(state)
        columns.begin[place], columns.entries[place] = self._tail, UNKNOWN if state is None else entries
        if state is not None and entries:
            known = self._categories
            numbers = [known.setdefault(category, len(known)) for category in state.categories]
            columns.category[self._tail : self._tail + entries] = numbers
            columns.vectors[self._tail : self._tail + entries] = self._selected(state)
        columns.value[place] = value
        self._tail += entries
        self.count += 1

    def _comparable(self, state: CategoryState | None) -> CategoryState | None:
        """Return the state; None, as if it was missing, if it was stored by another policy."""
        return state if state is not None and state.policy == self._policy else None

    def _number(self, place: int, request: Request, missing: int | None = None) -> int:
        """Return the number of a nominal value; for a new value `missing`, if given, or else a new number."""
        value = getattr(request, NOMINAL[place])
        if value is None:
            return UNKNOWN
        if missing is None:
            return self._values.setdefault((place, value), len(self._values))
        return self._values.get((place, value), missing)

    def _scalars(self, request: Request) -> Floats:
        return np.array([_number_or_nan(getattr(request, NUMERIC[place])) for place in self._numeric])

    def _free_of(self, state: CategoryState | None) -> Floats:
        free = None if state is None else state.free_cpus
        return np.array([_number_or_nan(free) for _ in self._free])

    def _selected(self, state: CategoryState) -> Floats:
        return np.array(state.values, np.float64)[:, self._vectors]

    def _make_room(self, entries: int) -> None:
        """Copy the states to keep into arrays of twice their size if the arrays are full."""
        columns = self.columns
        if self._tail + entries <= len(columns.category):
            return
        oldest = max(self.count - self.size + 1, 0)
        begin = int(columns.begin[oldest % self.size]) if oldest < self.count else self._tail
        kept = self._tail - begin
        room = 2 * (kept + entries)
        category: Ints = np.empty(room, np.int32)
        vectors: Floats = np.empty((room, columns.vectors.shape[1]))
        category[:kept], vectors[:kept] = columns.category[begin : self._tail], columns.vectors[begin : self._tail]
        self.columns = columns._replace(begin=columns.begin - begin, category=category, vectors=vectors)
        self._tail = kept


def _number_or_nan(value: float | None) -> float:
    return float("nan") if value is None else float(value)


_read = reader(LearntInstance, "a job that was learnt")

Share = Annotated[float, Meta(ge=0.0, le=1.0)]
Neighbours = Annotated[int, Meta(ge=1, le=1000)]
Size = Annotated[int, Meta(ge=1, le=100_000)]
Middle = Literal["mean", "median"]


class IblParameters(NamedTuple):
    """Parameters of the methods; those of run times have the prefix `run_`.

    `policy`, `state` and `attributes` name what is compared: the attributes of weight 1 in the paper. `job_share` is
    its WA, `neighbours` its induction model (1 is 1-NN) and `history` the number of jobs compared with. `middle` is the
    average of the neighbours' values; the paper has only the mean.
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
        """Attributes that are compared for waits."""
        return Selection(self.attributes, self.policy, self.state)

    @property
    def runs(self) -> Selection:
        """Attributes that are compared for run times."""
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
    """Waits of the nearest jobs, by their attributes and the states at their submission; see the package."""

    name: ClassVar[str] = "ibl"
    tunable: ClassVar[Mapping[str, Any]] = get_type_hints(IblParameters, include_extras=True)
    rows: Rows

    def __init__(self, **parameters: Any) -> None:
        self.parameters = IblParameters(**parameters)
        self._learnt = InstanceMemory(self.parameters.history, self.parameters.waits)
        self.rows = self._learnt.rows
        self.per_job: PerJob[bytes] = PerJob(bytes)

    def predict(self, job: Job, context: SiteContext) -> Estimate:
        """Predict the wait; none while no job has started."""
        p, memory = self.parameters, self._learnt
        instance = Instance(request_of(job), state_of(context, job.submit, p.policy))
        self.per_job.put(job.key, encode(instance))
        found = predict(
            memory.point(instance), memory.columns, memory.first, memory.count, p.neighbours, p.job_share, p.middle
        )
        return Estimate(None, "no history") if found is None else Estimate(found.value_s, _reason(found, p.middle))

    def learn(self, job: Job, wait_s: float, context: SiteContext) -> None:
        """Add a job with the state at its submission."""
        instance = self.per_job.pop(job.key)
        if instance is not None:
            self._learnt.learn(_read_instance(instance), wait_s)

    def forget(self, key: JobKey) -> None:
        """Drop a job whose wait will stay unknown."""
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
        """Predict the run time, at most the walltime, from jobs that ran longer than the job has run already."""
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
        """Add a job with its run time."""
        self._learnt.learn(Instance(request_of(job)), run_s)

    def load(self, saved: bytes) -> None:
        """Rebuild the arrays from the rows; there is no other state."""
        self._learnt.restore()


def _reason(found: NeighbourPrediction, middle: Middle) -> str:
    return f"{middle} of {found.jobs} jobs within distance {found.distance:.2g}"
