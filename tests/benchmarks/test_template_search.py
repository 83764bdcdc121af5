"""Time of the genetic search, which evaluates each template once and at constant cost."""

import time
from collections.abc import Iterable, Sequence

import numpy as np
import pytest

from models.papers.run_template import RunTemplate
from models.papers.search.evaluation_jobs import TemplateEstimates, Workload, WorkloadStep
from models.papers.search.genetic import SearchPlan, evolve
from models.papers.search.templates import TemplateSets
from models.papers.template import Templates
from models.simulation import generate
from models.site.job import Job
from models.site.runs import RunHistory

JOBS = 10_000
LEAST_RATIO = 10.0


@pytest.fixture(scope="module")
def workload() -> Workload:
    """Return jobs of a simulated site, each of which ends at the fortieth later submission."""
    made = [Job.of(job.submission("s")) for job in generate(1, JOBS, cpus=128, load=0.85)]
    run_s = [float(job.run) for job in generate(1, JOBS, cpus=128, load=0.85)]
    moments = [WorkloadStep(0, 0.0)]
    for place in range(1, JOBS):
        moments.append(WorkloadStep(place, 0.0))
        if place >= 40:
            moments.append(WorkloadStep(place - 40, None))
    return Workload(made, run_s, moments)


def test_genetic_search_evaluates_templates_once(workload: Workload) -> None:
    evaluations = 0

    def evaluate(templates: Sequence[RunTemplate]) -> Iterable[TemplateEstimates]:
        nonlocal evaluations
        for template in templates:
            evaluations += 1
            yield workload.estimates(template)

    workload.estimates(RunTemplate.parse("user mean relative 64"))
    begin = time.perf_counter()
    generations = list(evolve(TemplateSets(workload, "weighted", evaluate), SearchPlan(20, 20)))
    took = time.perf_counter() - begin
    sets = [individual for generation in generations for individual in generation.individuals]
    errors = [min(generation.errors) / 60 for generation in (generations[0], generations[-1])]
    print(f"\n20 sets, 20 generations, {JOBS} jobs, one process: {took:.1f} s; {errors[0]:.2f} to {errors[1]:.2f} min")
    assert evaluations < 0.6 * sum(map(len, sets))


def test_template_set_evaluation_is_faster_than_live_method(workload: Workload) -> None:
    texts = [
        "user mean relative 4096",
        "user,cpus/8 linear absolute 1024",
        "queue mean relative 64",
        "site mean absolute 9",
    ]
    templates = [RunTemplate.parse(text) for text in texts]
    for template in templates:
        workload.estimates(template)
    begin = time.perf_counter()
    estimates = [workload.estimates(template) for template in templates]
    judged = workload.predictions(estimates, "weighted")
    batch = time.perf_counter() - begin
    method = Templates(texts)
    history, run_times = RunHistory(method.templates), []
    begin = time.perf_counter()
    for place, elapsed_s in zip(workload.place.tolist(), workload.elapsed_s.tolist(), strict=True):
        if elapsed_s != elapsed_s:
            history.learn(workload.jobs[place], float(workload.run_s[place]))
        else:
            run_times.append(method.predict(workload.jobs[place], history).run_s)
    live = time.perf_counter() - begin
    np.testing.assert_array_equal(judged, [np.nan if run_s is None else run_s for run_s in run_times])
    print(f"\na set on {JOBS} jobs: {batch * 1e3:.1f} ms; live {live:.2f} s, {live / batch:.0f} times as long")
    assert live >= LEAST_RATIO * batch


@pytest.mark.parametrize("elapsed_s", [0.0, 600.0])
def test_live_template_prediction_time_is_printed(workload: Workload, elapsed_s: float) -> None:
    names, kinds = ("user", "queue", "cpus/8", "type", "queue,user"), ("mean relative", "linear absolute")
    texts = [f"{attributes},elapsed/64 {kind} 4096" for attributes in names for kind in kinds]
    method = Templates(texts)
    history = RunHistory(method.templates)
    for job, run_s in zip(workload.jobs, workload.run_s.tolist(), strict=True):
        history.learn(job, run_s)
    job = workload.jobs[0]
    method.predict(job, history, elapsed_s)
    begin = time.perf_counter()
    for _ in range(200):
        method.predict(job, history, elapsed_s)
    took = (time.perf_counter() - begin) / 200
    compared = sum(len(history.of(template.category(job))) for template in method.templates)
    print(f"\n{len(texts)} templates, {compared} runs compared, elapsed {elapsed_s:.0f} s: {took * 1e6:.0f} µs")
    assert compared > 10_000
