"""Sets of templates as individuals of the genetic search, a gene a template (Smith, Taylor and Foster 1999, 2.1.3)."""

from collections.abc import Callable, Iterable, Sequence

from models.papers.run_template import RunTemplate
from models.papers.search.genetic import Individual
from models.papers.search.templates.encoding import Encoding
from models.papers.search.templates.workload import TemplateEstimates, TemplateSet, Workload, complete
from models.papers.template import Choice

MAX_SET_TEMPLATES = 10
"""Templates of an individual at most."""

Evaluate = Callable[[Sequence[RunTemplate]], Iterable[TemplateEstimates]]
"""Gives what each of these templates says at the workload's predictions, in their order; maybe on many cores."""


class TemplateSets:
    """The sets of templates for a workload, as a `SearchProblem`; errors are in seconds.

    What a template says is asked once for as long as it is in the population.

    Parameters:
        choice: how a set's estimates become one.
    """

    most_genes = MAX_SET_TEMPLATES
    mutation = 0.01  # 0.001 in the paper of 1998

    def __init__(self, workload: Workload, choice: Choice, evaluate: Evaluate) -> None:
        self._workload = workload
        self._encoding = Encoding.of(workload)
        self._choice: Choice = choice
        self._evaluate = evaluate
        self._estimates: dict[RunTemplate, TemplateEstimates] = {}
        self.bits = self._encoding.bits

    def templates(self, individual: Individual) -> TemplateSet:
        """The set of templates, with something to say of every job."""
        return complete(tuple(map(self._encoding.decode, individual)), self._choice)

    def individuals(self, sets: Iterable[TemplateSet]) -> list[Individual]:
        """The sets as individuals; templates that the encoding cannot express are left out."""
        genes = (tuple(filter(None, map(self._encoding.gene, one)))[:MAX_SET_TEMPLATES] for one in sets)
        return [individual for individual in genes if individual]

    def errors(self, individuals: Sequence[Individual]) -> list[float]:
        """The mean absolute error of each set, in seconds."""
        sets = list(map(self.templates, individuals))
        needed = dict.fromkeys(template for templates in sets for template in templates)
        known = {template: self._estimates[template] for template in needed if template in self._estimates}
        new = [template for template in needed if template not in known]
        self._estimates = known | dict(zip(new, self._evaluate(new), strict=True))
        return [self._workload.error_s([self._estimates[one] for one in templates], self._choice) for templates in sets]
