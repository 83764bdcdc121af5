"""The genetic search for what to compare jobs by (Li, Groep and Wolters 2005, section 4.2).

A chromosome is a string of bits, in the paper's order: for waits {policy, state and job attributes, WA, model,
history}; for run times {job attributes, model, history}. One more bit, ours, chooses the paper's mean or the median.
What the paper leaves open of the standard operators is settled so: tournaments of two choose parents, two points cross
them, each bit of a child flips with probability 1/bits, and the best two chromosomes live on.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from random import Random
from typing import Any, Literal, get_args

import msgspec
import numpy as np

from models.engine import Engine, Settings
from models.ibl.attributes import JOB, POLICY, STATE, PolicyAttribute, Seen, request_of, state_of
from models.ibl.distance import Columns, Point, mean, median, nearest
from models.ibl.memory import Memory, Selection
from models.ibl.method import Middle, Parameters
from models.method import Site, WaitMethod
from models.records import AnyEvent, JobKey
from models.registry import DEFAULT
from models.state import Estimate, Job
from models.tuning import Truth

Target = Literal["wait", "run"]
Bits = tuple[int, ...]

SHARES = (0.25, 0.5, 0.75, 1.0)
NEIGHBOURS = (1, 3, 5, 10, 15, 20, 30, 50)
HISTORIES = (1000, 2000, 3000, 4000, 5000, 6000, 7000, 8000)
MIDDLES: tuple[Middle, ...] = get_args(Middle)

ELITE = 2


class Asked(msgspec.Struct, frozen=True):
    """A job to predict: how it was seen, how many jobs had been learnt by then, and the truth in seconds."""

    seen: Seen
    learnt: int
    value_s: float


class Examples(msgspec.Struct):
    """Jobs in the order in which they were learnt, each with its wait or run time in seconds, and those to predict."""

    target: Target
    learnt: list[tuple[Seen, float]] = msgspec.field(default_factory=list)
    asked: list[Asked] = msgspec.field(default_factory=list)


class Found(msgspec.Struct, frozen=True):
    """A chromosome, what it means, and its error as a share of the mean of what was to be predicted."""

    target: Target
    bits: Bits
    parameters: Parameters
    error: float

    @property
    def settings(self) -> dict[str, int | float | str | list[str]]:
        """What the chromosome says, as `[engine.parameters.ibl]` has it."""
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in self.parameters._asdict().items()
            if name.startswith("run_") == (self.target == "run")
        }


class Recorder(WaitMethod):
    """Stands where a method would, and notes what could be learnt when, and the jobs to predict."""

    name = "recorder"

    def __init__(self, jobs: Mapping[str, Truth]) -> None:
        self.waits, self.runs = Examples("wait"), Examples("run")
        self._jobs = jobs
        self._seen: dict[JobKey, Seen] = {}

    def predict(self, job: Job, site: Site) -> Estimate:
        """See the job and the state it finds, by all that could be selected; nothing is predicted."""
        seen = self._seen[job.key] = Seen(request_of(job), state_of(site, job.submit))
        truth = self._jobs.get(job.id)
        if truth is not None:
            self.waits.asked.append(Asked(seen, len(self.waits.learnt), truth.wait_s))
            if truth.run_s > 0.0:
                self.runs.asked.append(Asked(Seen(seen.request), len(self.runs.learnt), truth.run_s))
        return Estimate(None, "not predicted")

    def learn(self, job: Job, wait_s: float, site: Site) -> None:
        """A wait that can be learnt."""
        self.waits.learnt.append((self._seen[job.key], wait_s))

    def ended(self, job: Job, wait_s: float, run_s: float, site: Site) -> None:
        """A run time that can be learnt."""
        self.runs.learnt.append((Seen(self._seen.pop(job.key).request), run_s))

    def forget(self, key: JobKey) -> None:
        """A job of which nothing can be learnt."""
        self._seen.pop(key, None)


def collect(
    events: Iterable[AnyEvent], jobs: Mapping[str, Truth], settings: Settings | None = None
) -> tuple[Examples, Examples]:
    """The examples of waits and of run times that a site's events give.

    Parameters:
        events: from the site's beginning to the end of the stretch to tune on.
        jobs: those to predict, by name, and what became of them.
        settings: whose method for run times tells what the live jobs still need.
    """
    recorder = Recorder(jobs)
    engine = Engine("searched", msgspec.structs.replace(settings or Settings(), method=DEFAULT, shadows=(), bounds=""))
    engine.methods[DEFAULT] = recorder
    for event in events:
        engine.apply(event)
        engine.take_changes()  # nothing is stored here
    return recorder.waits, recorder.runs


def search(
    examples: Sequence[Examples],
    seed: int = 0,
    population: int = 40,
    generations: int = 30,
    progress: Callable[[int, Found], None] | None = None,
    mapper: Callable[[Callable[[Parameters], float], Iterable[Parameters]], Iterable[float]] = map,
) -> Found:
    """The best chromosome for one stretch of jobs, or the one that is best on the average of several.

    Parameters:
        examples: one or more stretches, all of one target.
        seed: of the chance in it; the same seed and examples give the same chromosome.
        progress: told of each generation, counted from 0, and of the best chromosome so far.
        mapper: as `map`; that of a thread pool uses more processors.

    Raises:
        ValueError: a stretch has no job to predict.
    """
    if not all(stretch.asked for stretch in examples):
        raise ValueError("a stretch without a job to predict")
    target = examples[0].target
    benches = [Bench(stretch) for stretch in examples]
    random, length = Random(seed), bits_of(target)
    errors: dict[Bits, float] = {}
    living = [tuple(random.getrandbits(1) for _ in range(length)) for _ in range(population)]
    for generation in range(generations):
        new = [bits for bits in dict.fromkeys(living) if bits not in errors]
        tried = [decode(bits, target) for bits in new]
        errors.update(zip(new, mapper(lambda p: sum(bench.error(p) for bench in benches), tried), strict=True))
        living.sort(key=lambda bits: (errors[bits], bits))
        best = Found(target, living[0], decode(living[0], target), errors[living[0]] / len(benches))
        if progress is not None:
            progress(generation, best)
        children = (_child(living, errors, random) for _ in range(population - ELITE))
        living = [*living[:ELITE], *children]
    return best


def _child(living: Sequence[Bits], errors: Mapping[Bits, float], random: Random) -> Bits:
    one, other = (min(random.sample(living, 2), key=lambda bits: errors[bits]) for _ in range(2))
    begin, end = sorted(random.sample(range(len(one) + 1), 2))
    crossed = one[:begin] + other[begin:end] + one[end:]
    return tuple(bit ^ (random.random() < 1 / len(crossed)) for bit in crossed)


def bits_of(target: Target) -> int:
    """The length of a chromosome."""
    return len(JOB) + 7 + (len(POLICY) + len(STATE) + 2 if target == "wait" else 0)


def decode(bits: Bits, target: Target, base: Parameters | None = None) -> Parameters:
    """What a chromosome means; parameters of the other target are those of `base`.

    >>> decode((0, 1, 0, 0, 1, 1, 0, 0, 1, 1, 1, 0, 0, 0), "run").run_attributes
    ('user', 'cpus', 'walltime')
    """
    genes = iter(bits)
    values: dict[str, Any] = {}
    if target == "wait":
        values["policy"], values["state"] = _chosen(POLICY, genes), _chosen(STATE, genes)
    values["attributes"] = _chosen(JOB, genes)
    if target == "wait":
        values["job_share"] = SHARES[_number(2, genes)]
    values["neighbours"], values["history"] = NEIGHBOURS[_number(3, genes)], HISTORIES[_number(3, genes)]
    values["middle"] = MIDDLES[_number(1, genes)]
    prefix = "run_" if target == "run" else ""
    return (base or Parameters())._replace(**{prefix + name: value for name, value in values.items()})


def _chosen(names: Sequence[str], genes: Iterator[int]) -> tuple[str, ...]:
    return tuple(name for name, bit in zip(names, list(islice(genes, len(names))), strict=True) if bit)


def _number(bits: int, genes: Iterator[int]) -> int:
    return int("".join(str(int(bit)) for bit in islice(genes, bits)), 2)


class Bench:
    """What chromosomes are tried on: the examples laid out by each policy, and the errors found so far."""

    def __init__(self, examples: Examples) -> None:
        self._examples = examples
        self._truth = np.array([asked.value_s for asked in examples.asked])
        self._laid: dict[tuple[PolicyAttribute, ...], tuple[Columns, list[Point]]] = {}
        self._errors: dict[tuple[Selection, float, int], dict[tuple[int, Middle], float]] = {}

    def error(self, parameters: Parameters) -> float:
        """The mean absolute error as a share of the mean of what was to be predicted."""
        p = parameters
        if self._examples.target == "run":
            return self._all_errors(p.runs, 1.0, p.run_history)[p.run_neighbours, p.run_middle]
        return self._all_errors(p.waits, p.job_share, p.history)[p.neighbours, p.middle]

    def _all_errors(self, selection: Selection, share: float, history: int) -> dict[tuple[int, Middle], float]:
        """The error of each model, with the mean and the median: the neighbours of all are among those of one."""
        key = (selection, share, history)
        if key not in self._errors:
            said: dict[tuple[int, Middle], list[float]] = {(n, middle): [] for n in NEIGHBOURS for middle in MIDDLES}
            columns, points = self._selected(selection)
            for point, asked in zip(points, self._examples.asked, strict=True):
                first = max(asked.learnt - history, 0)
                places, found = nearest(point, columns, first, asked.learnt, NEIGHBOURS[-1], share, -1.0)
                value = columns.value[places]
                for neighbours, middle in said:
                    averaged = mean if middle == "mean" else median
                    some = averaged(value[:neighbours], found[:neighbours]) if len(value) else 0.0
                    said[neighbours, middle].append(some)
            self._errors[key] = {model: self._error(values) for model, values in said.items()}
        return self._errors[key]

    def _error(self, said: list[float]) -> float:
        return float(np.abs(np.array(said) - self._truth).mean() / max(self._truth.mean(), 1.0))

    def _selected(self, selection: Selection) -> tuple[Columns, list[Point]]:
        """The examples by the selected attributes alone."""
        if selection.policy not in self._laid:
            self._laid[selection.policy] = self._lay(selection.policy)
        columns, points = self._laid[selection.policy]
        nominal, numeric, free, vectors = selection.nominal, selection.numeric, selection.free, selection.vectors
        return columns._replace(
            nominal=_some(columns.nominal, nominal),
            numeric=_some(columns.numeric, numeric),
            free=_some(columns.free, free),
            vectors=_some(columns.vectors, vectors),
        ), [
            point._replace(
                nominal=point.nominal[nominal],
                numeric=point.numeric[numeric],
                free=point.free[free],
                vectors=_some(point.vectors, vectors),
                totals=point.totals[vectors],
            )
            for point in points
        ]

    def _lay(self, policy: tuple[PolicyAttribute, ...]) -> tuple[Columns, list[Point]]:
        memory = Memory(max(len(self._examples.learnt), 1), Selection(policy=policy))
        for seen, value_s in self._examples.learnt:
            memory.push(_by(seen, policy), value_s)
        return memory.columns, [memory.point(_by(asked.seen, policy)) for asked in self._examples.asked]


def _some(array: Any, columns: list[int]) -> Any:
    return np.ascontiguousarray(array[:, columns])


def _by(seen: Seen, policy: tuple[PolicyAttribute, ...]) -> Seen:
    return Seen(seen.request, None if seen.state is None else seen.state.merged(policy))
