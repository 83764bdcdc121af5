"""A small workload to search templates for, and what evaluates them on it."""

import random
from collections.abc import Callable, Iterable, Sequence

from models.papers.run_template import RunTemplate
from models.papers.search.evaluation_jobs import TemplateEstimates, Workload, WorkloadStep
from models.site.job import Job


def workload(jobs: int = 300) -> Workload:
    """Each user's jobs run for as long as the user's last ones did, but for some noise."""
    dice = random.Random(3)
    listed, run_s, moments = [], [], []
    for number in range(jobs):
        user = dice.randrange(6)
        listed.append(
            Job(
                id=str(number),
                attempt=0,
                submit=0.0,
                user=f"u{user}",
                queue=dice.choice("pq"),
                cpus=dice.choice((1, 2, 8)),
                walltime=3600.0 * (1 + user % 3),
            )
        )
        run_s.append(300.0 * (1 + user) * dice.uniform(0.8, 1.2))
        moments.append(WorkloadStep(number, 0.0))
        if number >= 5:
            moments.append(WorkloadStep(number - 5, None))
    return Workload(listed, run_s, moments)


def in_turn(work: Workload, evaluated: list[RunTemplate] | None = None) -> Callable[..., Iterable[TemplateEstimates]]:
    def evaluate(templates: Sequence[RunTemplate]) -> Iterable[TemplateEstimates]:
        if evaluated is not None:
            evaluated.extend(templates)
        return [work.estimates(template) for template in templates]

    return evaluate
