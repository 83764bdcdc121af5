"""The jobs for the evaluation of a set of templates, and its error on them."""

from collections.abc import Iterable, Sequence
from functools import cached_property
from hashlib import sha256
from typing import NamedTuple

import msgspec
import numpy as np

from models.arrays import Flags, Floats, Ints
from models.kernels import njit
from models.papers.run_template import LAST_RESORT, PREDICTORS, UNIT, RunTemplate
from models.papers.template import (
    MIN_HALF_WIDTH_S,
    NODES,
    NOTHING,
    POINT,
    Choice,
    estimate,
    plus,
    student_quantiles,
    sums_of,
)
from models.site.job import REQUEST, Job
from models.site.runs import ATTRIBUTES, Template

TemplateSet = tuple[RunTemplate, ...]  # a set of templates, in their order


def complete(templates: TemplateSet, choice: Choice) -> TemplateSet:
    """Return the set with an estimate for every job: where estimates are weighted, with the last resort added.

    Else a set could lower its error by having no estimate for jobs of new users, which are short.
    """
    if choice == "surest" or not all(template.attributes for template in templates):
        return templates
    return (*templates, RunTemplate.parse(LAST_RESORT))


class WorkloadStep(NamedTuple):
    """Event of the job at this position in the workload: a prediction, or its end (`elapsed_s` is None).

    `elapsed_s` is the time that the job has run at the prediction, 0 at its submission.
    """

    place: int
    elapsed_s: float | None


class TemplateEstimates(NamedTuple):
    """A template's estimate at each prediction, and half the width of its interval, in seconds.

    The half width is infinite where the template has no estimate. The estimates of a template do not depend on the
    other templates of its set.
    """

    template: RunTemplate
    run_s: Floats
    half_s: Floats


class Workload:
    """The jobs as submitted, their run times in seconds, and their predictions and ends in the order of the events.

    Raises:
        ValueError: there is no prediction among the moments.
    """

    def __init__(self, jobs: Sequence[Job], run_s: Sequence[float], moments: Iterable[WorkloadStep]) -> None:
        listed = list(moments)
        self.jobs = list(jobs)
        self.run_s: Floats = np.array(run_s, np.float64)
        self.place: Ints = np.array([moment.place for moment in listed], np.int64)
        self.elapsed_s: Floats = np.array([np.nan if m.elapsed_s is None else m.elapsed_s for m in listed])
        has_query = ~np.isnan(self.elapsed_s)
        if not has_query.any():
            raise ValueError("no job to predict")
        self.queries: Ints = self.place[has_query]
        self._elapsed_at_query = self.elapsed_s[has_query]
        walltimes = np.array([job.walltime or np.inf for job in self.jobs])
        self._most = np.maximum(walltimes[self.queries], self._elapsed_at_query)
        self._ids: dict[tuple[str, ...], Ints] = {}
        self._points: dict[bool, tuple[Ints, Floats]] = {}
        self._nodes: dict[str, Ints] = {}

    @cached_property
    def attributes(self) -> tuple[str, ...]:
        """The attributes, but for the CPUs, in which its jobs differ."""
        return tuple(name for name in ATTRIBUTES if name != "cpus" and self._categories((name,)).max() > 0)

    @cached_property
    def has_walltimes(self) -> bool:
        """True if at least one job requested a walltime."""
        return any(job.walltime for job in self.jobs)

    @cached_property
    def has_running(self) -> bool:
        """True if at least one job is predicted while it runs."""
        return bool(self._elapsed_at_query.max() > 0)

    @cached_property
    def fingerprint(self) -> str:
        """A digest that differs from that of other workloads."""
        digest = sha256(msgspec.json.encode([{name: getattr(job, name) for name in REQUEST} for job in self.jobs]))
        for array in (self.run_s, self.place, self.elapsed_s):
            digest.update(array.tobytes())
        return digest.hexdigest()

    def _categories(self, attributes: tuple[str, ...]) -> Ints:
        known = self._ids.get(attributes)
        if known is None:
            template = Template(attributes)
            numbers: dict[object, int] = {None: -1}
            found = (template.category(job) for job in self.jobs)
            known = np.array([numbers.setdefault(category, len(numbers) - 1) for category in found], np.int64)
            self._ids[attributes] = known
        return known

    def estimates(self, template: RunTemplate) -> TemplateEstimates:
        """Return the template's estimates at each prediction, in their order, as `models.papers.template.Templates`
        would.
        """
        categories = self._categories(template.attributes)
        ends = self.place[np.isnan(self.elapsed_s)]
        ends = ends[categories[ends] >= 0]
        ends = ends[np.argsort(categories[ends], kind="stable")]  # by category, and in each by their order
        count = int(categories.max()) + 1
        begins = np.concatenate(([0], np.cumsum(np.bincount(categories[ends], minlength=count))))
        points, scales, nodes = self._columns(template)
        data = np.stack((np.minimum(self.run_s, UNIT).astype(np.int64), points, nodes))[:, ends]
        size = template.elapsed
        least_s = (self._elapsed_at_query // size * size if size else 0 * self._elapsed_at_query).astype(np.int64)
        regression = template.predictor != "mean"
        quantiles = student_quantiles(min(template.history, max(len(ends), 2))) if regression else np.empty(0)
        found = _estimate(
            categories,
            self.place,
            np.isnan(self.elapsed_s),
            least_s,
            scales,
            nodes,
            np.ascontiguousarray(data),
            begins,
            template.history,
            regression,
            quantiles,
        )
        return TemplateEstimates(template, found[0], found[1])

    def _columns(self, template: RunTemplate) -> tuple[Ints, Floats, Ints]:
        """Return each job as a data point, the scale of its estimates, and its place on the axis of a regression."""
        if template.relative not in self._points:
            self._points[template.relative] = (
                np.array([template.point(s, job.walltime) for s, job in zip(self.run_s, self.jobs, strict=True)]),
                np.array([template.scale(job.walltime) for job in self.jobs]),
            )
        if template.predictor not in self._nodes:
            self._nodes[template.predictor] = np.array([PREDICTORS[template.predictor](job.cpus) for job in self.jobs])
        return *self._points[template.relative], self._nodes[template.predictor]

    def predictions(self, parts: Sequence[TemplateEstimates], choice: Choice) -> Floats:
        """Return a set's prediction at each moment, in seconds, from its templates' estimates; NaN for none."""
        run_s = _weighted(parts) if choice == "weighted" else _surest(parts)
        return np.clip(run_s, self._elapsed_at_query, self._most)

    def error_s(self, parts: Sequence[TemplateEstimates], choice: Choice) -> float:
        """The mean absolute error of a set, in seconds; no estimate counts as one of zero."""
        predicted = np.nan_to_num(self.predictions(parts, choice), nan=0.0)
        return float(np.abs(predicted - self.run_s[self.queries]).mean())


def _surest(parts: Sequence[TemplateEstimates]) -> Floats:
    run_s, half_s = np.full(len(parts[0].run_s), np.nan), np.full(len(parts[0].run_s), np.inf)
    for estimates in parts:
        surer = estimates.half_s < half_s
        np.copyto(run_s, estimates.run_s, where=surer)
        np.copyto(half_s, estimates.half_s, where=surer)
    return run_s


def _weighted(parts: Sequence[TemplateEstimates]) -> Floats:
    """Return exactly the result of `models.papers.template.weighted`; an infinite width has the weight 0."""
    alike, mean = _mean([estimates for estimates in parts if estimates.template.attributes], len(parts[0].run_s))
    of_all, resort = _mean([estimates for estimates in parts if not estimates.template.attributes], len(parts[0].run_s))
    return np.where(alike > 0, mean, np.where(of_all > 0, resort, np.nan))


def _mean(parts: Sequence[TemplateEstimates], count: int) -> tuple[Floats, Floats]:
    weights, runs = np.zeros(count), np.zeros(count)
    for estimates in parts:
        weight = 1.0 / np.maximum(estimates.half_s, MIN_HALF_WIDTH_S)
        weights += weight
        runs += weight * estimates.run_s
    return weights, runs / np.where(weights > 0, weights, 1.0)


@njit(cache=True)
def _estimate(
    categories: Ints,
    place: Ints,
    ends: Flags,
    least_s: Ints,
    scales: Floats,
    nodes: Ints,
    data: Ints,
    begins: Ints,
    history: int,
    regression: bool,
    quantiles: Floats,
) -> Floats:
    """Run through the moments. `data` hold all that ends, by category; what has ended yet is summed up."""
    estimates = np.zeros((2, len(least_s)))
    estimates[1] = np.inf
    ended = begins.copy()
    sums = [NOTHING for _ in begins]
    query = -1
    for moment in range(len(place)):
        job = place[moment]
        category = categories[job]
        query += not ends[moment]
        if category < 0:
            continue
        last = ended[category]
        if ends[moment]:
            now = plus(sums[category], data[POINT, last], data[NODES, last], np.int64(1))
            out = last - history
            if out >= begins[category]:
                now = plus(now, data[POINT, out], data[NODES, out], np.int64(-1))
            sums[category] = now
            ended[category] += 1
        elif not np.isnan(scales[job]):
            first = max(begins[category], last - history)
            least = least_s[query]
            found = sums_of(data, first, last, least) if least > 0 else sums[category]
            value, half = estimate(found, nodes[job], regression, quantiles)
            estimates[0, query], estimates[1, query] = value * scales[job], half * scales[job]
    return estimates
