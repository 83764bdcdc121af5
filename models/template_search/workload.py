"""The jobs that a set of templates is judged by, and how well it predicts them."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from models.runs import ATTRIBUTES, Template
from models.state import Job
from models.template import PREDICTORS, RunTemplate, estimate, student_quantiles

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

Set = tuple[RunTemplate, ...]
"""A set of templates, in their order."""


class Moment(NamedTuple):
    """What happens to the job at this place of the workload's jobs: it is predicted, or it ends (`elapsed_s` None).

    `elapsed_s` is how long it has run when it is predicted, 0 at its submission.
    """

    place: int
    elapsed_s: float | None


class Estimates(NamedTuple):
    """What a template says at each prediction: seconds, and half its interval's width, infinite where it says nothing.

    What one template says does not depend on the others of its set.
    """

    run_s: Floats
    half_s: Floats


class Workload:
    """Jobs that ran, and when each was to be predicted and ended, in the order of the events.

    Parameters:
        jobs: as they were submitted.
        run_s: seconds that each ran.
        moments: the predictions and the ends.

    Raises:
        ValueError: there is no prediction among the moments.
    """

    def __init__(self, jobs: Sequence[Job], run_s: Sequence[float], moments: Iterable[Moment]) -> None:
        listed = list(moments)
        self.jobs = list(jobs)
        self.run_s: Floats = np.array(run_s, np.float64)
        self.place: Integers = np.array([moment.place for moment in listed], np.int64)
        self.elapsed_s: Floats = np.array([np.nan if m.elapsed_s is None else m.elapsed_s for m in listed])
        asked = ~np.isnan(self.elapsed_s)
        if not asked.any():
            raise ValueError("no job to predict")
        self.asked: Integers = self.place[asked]
        self._asked_after = self.elapsed_s[asked]
        walltimes = np.array([job.walltime or np.inf for job in self.jobs])
        self._most = np.maximum(walltimes[self.asked], self._asked_after)
        self._ids: dict[tuple[str, ...], Integers] = {}

    @cached_property
    def attributes(self) -> tuple[str, ...]:
        """The attributes, but for the processors, in which its jobs differ."""
        return tuple(name for name in ATTRIBUTES if name != "cpus" and self._categories((name,)).max() > 0)

    @cached_property
    def has_walltimes(self) -> bool:
        """Whether a job requested a walltime."""
        return any(job.walltime for job in self.jobs)

    @cached_property
    def has_running(self) -> bool:
        """Whether a job is predicted while it runs."""
        return bool(self._asked_after.max() > 0)

    def _categories(self, attributes: tuple[str, ...]) -> Integers:
        """The number of each job's category; -1 where it has none."""
        known = self._ids.get(attributes)
        if known is None:
            template = Template(attributes)
            numbers: dict[object, int] = {None: -1}
            found = (template.category(job) for job in self.jobs)
            known = np.array([numbers.setdefault(category, len(numbers) - 1) for category in found], np.int64)
            self._ids[attributes] = known
        return known

    def estimates(self, template: RunTemplate) -> Estimates:
        """What the template says at each prediction, in their order; as `models.template.Templates` would."""
        categories = self._categories(template.attributes)
        ends = self.place[np.isnan(self.elapsed_s)]
        ends = ends[categories[ends] >= 0]
        ends = ends[np.argsort(categories[ends], kind="stable")]  # by category, and in each as they came
        count = int(categories.max()) + 1
        begins = np.concatenate(([0], np.cumsum(np.bincount(categories[ends], minlength=count))))
        nodes = PREDICTORS[template.predictor]
        data = np.array(
            [
                [self.run_s[place] for place in ends],
                [template.point(self.run_s[place], self.jobs[place].walltime) for place in ends],
                [nodes(self.jobs[place].cpus) for place in ends],
            ]
        ).reshape(3, len(ends))
        regression = template.predictor != "mean"
        told = _tell(
            categories,
            self.place,
            self.elapsed_s,
            np.array([template.scale(job.walltime) for job in self.jobs]),
            np.array([nodes(job.cpus) for job in self.jobs]),
            data,
            begins,
            template.history,
            float(template.elapsed or 0),
            regression,
            student_quantiles(min(template.history, max(len(ends), 2))) if regression else np.empty(0),
        )
        return Estimates(told[0], told[1])

    def predictions(self, estimates: Sequence[Estimates]) -> Floats:
        """What a set says at each prediction, in seconds, from what each of its templates does; NaN for nothing."""
        run_s, half_s = np.full(len(self.asked), np.nan), np.full(len(self.asked), np.inf)
        for told in estimates:
            surer = told.half_s < half_s
            np.copyto(run_s, told.run_s, where=surer)
            np.copyto(half_s, told.half_s, where=surer)
        return np.clip(run_s, self._asked_after, self._most)

    def error_s(self, estimates: Sequence[Estimates]) -> float:
        """The mean absolute error of a set, in seconds; no estimate counts as one of zero."""
        predicted = np.nan_to_num(self.predictions(estimates), nan=0.0)
        return float(np.abs(predicted - self.run_s[self.asked]).mean())


@njit(cache=True)
def _tell(
    categories: Integers,
    place: Integers,
    elapsed_s: Floats,
    scales: Floats,
    nodes: Floats,
    data: Floats,
    begins: Integers,
    history: int,
    elapsed_range: float,
    regression: bool,
    quantiles: Floats,
) -> Floats:
    """Run through the moments. A category's data lie together in `data`; those of `ended` jobs are known already."""
    told = np.empty((2, len(place)))
    ended = np.zeros(len(begins), np.int64)
    count = 0
    for moment in range(len(place)):
        job = place[moment]
        category = categories[job]
        if np.isnan(elapsed_s[moment]):
            if category >= 0:
                ended[category] += 1
            continue
        told[0, count], told[1, count] = np.nan, np.inf
        if category >= 0 and not np.isnan(scales[job]):
            last = begins[category] + ended[category]
            first = max(begins[category], last - history)
            least = elapsed_s[moment] // elapsed_range * elapsed_range if elapsed_range > 0 else 0.0
            value, half, _ = estimate(data, first, last, least, nodes[job], regression, quantiles)
            told[0, count], told[1, count] = value * scales[job], half * scales[job]
        count += 1
    return told[:, :count]
