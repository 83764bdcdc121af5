"""The search space of the genetic search for the parameters of `ibl` (Li, Groep and Wolters 2005, section 4.2).

A chromosome is a string of bits, in the paper's order: for waits {policy, state and job attributes, WA, model,
history}; for run times {job attributes, model, history}. One more bit, not in the paper, chooses the mean (the paper's)
or the median. Each bit of a child flips with probability 1/bits.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Literal, get_args

import msgspec
import numpy as np

from models.engine.engine import Engine
from models.engine.settings import EngineSettings
from models.method import SiteContext, WaitMethod
from models.papers.ibl import distance
from models.papers.ibl.instance_based import IblParameters, InstanceMemory, Middle, Selection, predict
from models.papers.search.genetic import Gene, GenePart, Individual, read_gene, write_gene
from models.papers.search.tuning import ActualTimes
from models.records import AnyEvent, JobKey
from models.site.job import Estimate, Job

Target = Literal["wait", "run"]

SHARES = (0.25, 0.5, 0.75, 1.0)
NEIGHBOURS = (1, 3, 5, 10, 15, 20, 30, 50)
HISTORIES = (1000, 2000, 3000, 4000, 5000, 6000, 7000, 8000)
MIDDLES: tuple[Middle, ...] = get_args(Middle)
MAX_LAID = 16  # number of selections of attributes whose laid-out examples are cached; some megabytes each
Evaluate = Callable[[Sequence[IblParameters]], Iterable[float]]


class Query(msgspec.Struct, frozen=True):
    """A job to predict: its attributes, the number of jobs learned before it, and its wait or run time in seconds."""

    instance: distance.Instance
    learnt: int
    value_s: float


class Examples(msgspec.Struct):
    """Jobs in the order in which they were learned, each with its wait or run time in seconds, and those to predict."""

    target: Target
    learnt: list[tuple[distance.Instance, float]] = msgspec.field(default_factory=list)
    queries: list[Query] = msgspec.field(default_factory=list)

    @property
    def fingerprint(self) -> str:
        """A digest that differs from that of other examples."""
        digest = sha256(self.target.encode())
        for part in (self.learnt, self.queries):
            for one in part:
                digest.update(msgspec.msgpack.encode(one))
        return digest.hexdigest()


def settings_of(parameters: IblParameters, target: Target) -> dict[str, bool | int | float | str | list[str]]:
    """The parameters of a chromosome, as in `[engine.parameters.ibl]`."""
    values = {part.name: getattr(parameters, part.name) for part in parts(target)}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


class Recorder(WaitMethod):
    """Replacement for a method that records the jobs to learn from, with their order, and the jobs to predict."""

    name = "recorder"

    def __init__(self, jobs: Mapping[str, ActualTimes]) -> None:
        self.waits, self.runs = Examples("wait"), Examples("run")
        self._jobs = jobs
        self._instances: dict[JobKey, distance.Instance] = {}

    def predict(self, job: Job, context: SiteContext) -> Estimate:
        """Record the job and the site's state, by all attributes; nothing is predicted."""
        instance = self._instances[job.key] = distance.Instance(
            distance.request_of(job), distance.state_of(context, job.submit)
        )
        truth = self._jobs.get(job.id)
        if truth is not None:
            self.waits.queries.append(Query(instance, len(self.waits.learnt), truth.wait_s))
            if truth.run_s > 0.0:
                self.runs.queries.append(Query(distance.Instance(instance.request), len(self.runs.learnt), truth.run_s))
        return Estimate(None, "not predicted")

    def learn(self, job: Job, wait_s: float, context: SiteContext) -> None:
        """Record a wait to learn from."""
        self.waits.learnt.append((self._instances[job.key], wait_s))

    def ended(self, job: Job, wait_s: float, run_s: float, context: SiteContext) -> None:
        """Record a run time to learn from."""
        self.runs.learnt.append((distance.Instance(self._instances.pop(job.key).request), run_s))

    def forget(self, key: JobKey) -> None:
        """Drop a job from which nothing can be learned."""
        self._instances.pop(key, None)


def collect(
    events: Iterable[AnyEvent], jobs: Mapping[str, ActualTimes], settings: EngineSettings | None = None
) -> tuple[Examples, Examples]:
    """Return the examples of waits and of run times in a site's events, up to the end of the tuning period.

    `jobs` are those to predict, by name, with their outcomes. The settings' method for run times predicts the remaining
    run times of the live jobs.
    """
    recorder = Recorder(jobs)
    methods = {"method": "zero", "shadows": (), "bounds": "", "what_if_method": ""}
    engine = Engine("searched", msgspec.structs.replace(settings or EngineSettings(), **methods))
    engine.methods.waits["zero"] = recorder
    for event in events:
        engine.apply(event)
        engine.take_changes()  # nothing is stored here
    return recorder.waits, recorder.runs


class Chromosomes:
    """The parameters of `ibl` as a `SearchProblem` of one gene; each error, in seconds, is computed once.

    Args:
        target: "wait" or "run", the parameters to search for.
        evaluate: returns the errors of a list of parameters, in their order; it may use several CPUs.
    """

    most_genes = 1

    def __init__(self, target: Target, evaluate: Evaluate) -> None:
        self._target: Target = target
        self._evaluate = evaluate
        self._errors: dict[Individual, float] = {}
        self.bits = sum(part.length for part in parts(target))
        self.mutation = 1 / self.bits

    def errors(self, individuals: Sequence[Individual]) -> list[float]:
        """The error of each chromosome."""
        new = [one for one in dict.fromkeys(individuals) if one not in self._errors]
        found = self._evaluate([decode(bits, self._target) for (bits,) in new])
        self._errors.update(zip(new, found, strict=True))
        return [self._errors[one] for one in individuals]


def parts(target: Target) -> list[GenePart]:
    """Return the parts of a chromosome, in the paper's order."""
    model = [GenePart("neighbours", NEIGHBOURS), GenePart("history", HISTORIES), GenePart("middle", MIDDLES)]
    if target == "run":
        return [part._replace(name=f"run_{part.name}") for part in (GenePart("attributes", distance.JOB, True), *model)]
    compared = [
        GenePart("policy", distance.POLICY, True),
        GenePart("state", distance.STATE, True),
        GenePart("attributes", distance.JOB, True),
    ]
    return [*compared, GenePart("job_share", SHARES), *model]


def decode(gene: Gene, target: Target, base: IblParameters | None = None) -> IblParameters:
    """Return the parameters of a chromosome; those of the other target are from `base`.

    >>> decode("01001100111000", "run").run_attributes
    ('user', 'cpus', 'walltime')
    """
    return (base or IblParameters())._replace(**read_gene(parts(target), gene))


def encode(parameters: IblParameters, target: Target) -> Gene:
    """Return the chromosome of these parameters.

    Raises:
        ValueError: a number is not among those that are tried.
    """
    return write_gene(parts(target), parameters._asdict())


class Bench:
    """Computes the errors of parameters: the examples are laid out as in `ibl`, and predicted in turn.

    Raises:
        ValueError: there is no job to predict.
    """

    def __init__(self, examples: Examples) -> None:
        if not examples.queries:
            raise ValueError("no job to predict")
        self._examples = examples
        self._truth = np.array([query.value_s for query in examples.queries])
        self._laid: dict[Selection, tuple[distance.Columns, list[distance.Point]]] = {}

    @property
    def mean_s(self) -> float:
        """Mean of the values to predict, in seconds."""
        return float(self._truth.mean())

    def error_s(self, parameters: IblParameters) -> float:
        """The mean absolute error in seconds."""
        p = parameters
        if self._examples.target == "run":
            return self._error(p.runs, p.run_history, p.run_neighbours, 1.0, p.run_middle)
        return self._error(p.waits, p.history, p.neighbours, p.job_share, p.middle)

    def _error(self, selection: Selection, history: int, neighbours: int, share: float, middle: Middle) -> float:
        columns, points = self._lay(selection)
        predicted = []
        for point, query in zip(points, self._examples.queries, strict=True):
            first = max(query.learnt - history, 0)
            found = predict(point, columns, first, query.learnt, neighbours, share, middle)
            most_s = query.instance.request.walltime if self._examples.target == "run" else None
            predicted.append(min(found.value_s if found else 0.0, most_s or math.inf))
        return float(np.abs(np.array(predicted) - self._truth).mean())

    def _lay(self, selection: Selection) -> tuple[distance.Columns, list[distance.Point]]:
        """Lay out the examples by the selected attributes; the last `MAX_LAID` selections are cached."""
        if selection not in self._laid:
            memory = InstanceMemory(max(len(self._examples.learnt), 1), selection)
            policy = tuple(attribute for attribute in distance.POLICY if attribute in selection.policy)
            for instance, value_s in self._examples.learnt:
                memory.push(_by(instance, policy), value_s)
            points = [memory.point(_by(queries.instance, policy)) for queries in self._examples.queries]
            self._laid[selection] = memory.columns, points
            if len(self._laid) > MAX_LAID:
                del self._laid[next(iter(self._laid))]
        return self._laid[selection]


def _by(instance: distance.Instance, policy: tuple[distance.PolicyAttribute, ...]) -> distance.Instance:
    return distance.Instance(instance.request, None if instance.state is None else instance.state.merged(policy))
