"""The genetic search for a set of templates (Smith, Taylor and Foster 1999, section 2.1.3).

Individuals are sets of templates. The less its error on the workload, the more children a set has; children are made
by crossover of sets of unequal lengths, and mutated; the two best sets survive as they are.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from models.papers.run_template import RunTemplate
from models.papers.search.genetic import Generation, SearchPlan, evolve
from models.papers.search.templates.encoding import Encoding, Gene
from models.papers.search.templates.workload import TemplateEstimates, TemplateSet, Workload, complete
from models.papers.template import Choice

MAX_SET_TEMPLATES = 10
"""Templates of an individual at most."""

FITNESS = (1.0, 4.0)
"""Of the worst and the best individual of a generation."""

MUTATION = 0.01
"""Probability with which a bit is flipped; 0.001 in the paper of 1998."""

Individual = tuple[Gene, ...]

Evaluate = Callable[[Sequence[RunTemplate]], Iterable[TemplateEstimates]]
"""Gives what each of these templates says at the workload's predictions, in their order; maybe on many cores."""


class TemplateSearchPlan(SearchPlan, frozen=True):
    """How large the search is; the population is even.

    `choice` is how a set's estimates become one, in the search and for whoever uses what it finds.

    Raises:
        ValueError: fewer than four individuals, or an odd number.
    """

    population: int = 20
    generations: int = 20
    seed: int = 1
    choice: Choice = "weighted"

    def __post_init__(self) -> None:
        if self.population < 4 or self.population % 2:
            raise ValueError(f"population is {self.population}; expected an even number from 4")


def search(
    workload: Workload,
    plan: TemplateSearchPlan,
    evaluate: Evaluate,
    after: Generation[Individual] | None = None,
    founders: Iterable[TemplateSet] = (),
) -> Iterator[Generation[Individual]]:
    """Breed generations to the plan's last; errors are in seconds.

    The same plan on the same workload gives the same generations, however they are evaluated and wherever the search
    was broken off.

    Parameters:
        after: the generation to go on from; without it the search begins with random sets.
        founders: sets that the first generation is to contain; templates that the encoding cannot express are left
            out.
    """
    return evolve(TemplateSets(workload, plan, evaluate, founders), plan, after)


class TemplateSets:
    """The sets of templates for a workload, as a `SearchProblem`.

    What a template says is asked once for as long as it is in the population.
    """

    def __init__(
        self, workload: Workload, plan: TemplateSearchPlan, evaluate: Evaluate, founders: Iterable[TemplateSet] = ()
    ) -> None:
        self._workload = workload
        self._encoding = Encoding.of(workload)
        self._plan = plan
        self._evaluate = evaluate
        self._founders = founders
        self._estimates: dict[RunTemplate, TemplateEstimates] = {}

    def first(self) -> list[Individual]:
        """The founders, and random sets."""
        encoding, population = self._encoding, self._plan.population
        genes = (tuple(filter(None, map(encoding.gene, founder)))[:MAX_SET_TEMPLATES] for founder in self._founders)
        individuals: list[Individual] = [individual for individual in genes if individual]
        dice = np.random.default_rng([self._plan.seed, 0])
        while len(individuals) < population:
            count = int(dice.integers(1, MAX_SET_TEMPLATES + 1))
            rows = dice.integers(0, 2, (count, encoding.bits))
            individuals.append(tuple("".join(map(str, row)) for row in rows))
        return individuals[:population]

    def errors(self, individuals: Sequence[Individual]) -> list[float]:
        """The mean absolute error of each set, in seconds."""
        choice = self._plan.choice
        sets = [complete(tuple(map(self._encoding.decode, one)), choice) for one in individuals]
        needed = dict.fromkeys(template for templates in sets for template in templates)
        known = {template: self._estimates[template] for template in needed if template in self._estimates}
        new = [template for template in needed if template not in known]
        self._estimates = known | dict(zip(new, self._evaluate(new), strict=True))
        return [self._workload.error_s([self._estimates[one] for one in templates], choice) for templates in sets]

    def children(self, parents: Generation[Individual], count: int) -> list[Individual]:
        """Children of sets that are drawn by their fitness."""
        return bred(parents, count, self._encoding.bits, self._plan.seed)

    def tie_break(self, individual: Individual) -> int:
        """Sets of the same error rank by their order."""
        return 0


def bred(parents: Generation[Individual], count: int, bits: int, seed: int) -> list[Individual]:
    """So many children, an even number, of sets that are drawn by their fitness."""
    dice = np.random.default_rng([seed, parents.number])
    fitness = np.array(fitnesses(parents.errors))
    places = dice.choice(len(fitness), count, p=fitness / fitness.sum())
    children: list[Individual] = []
    for one, other in zip(places[::2], places[1::2], strict=True):
        pair = crossover(parents.individuals[one], parents.individuals[other], bits, dice)
        children.extend(mutated(child, dice) for child in pair)
    return children


def fitnesses(errors_s: Sequence[float]) -> list[float]:
    """Each individual's fitness: from the least for the greatest error, in proportion, to four times that."""
    least, most = min(errors_s), max(errors_s)
    low, high = FITNESS
    if least == most:
        return [high] * len(errors_s)
    return [low + (most - error) / (most - least) * (high - low) for error in errors_s]


def crossover(
    one: Individual, other: Individual, bits: int, dice: np.random.Generator
) -> tuple[Individual, Individual]:
    """Two children: each begins as one of the parents and ends as the other, cut within a template of each.

    The cuts are drawn among those that give no child more than `MAX_SET_TEMPLATES` templates.
    """
    cuts = [
        (i, j)
        for i in range(len(one))
        for j in range(len(other))
        if i + len(other) - j <= MAX_SET_TEMPLATES and j + len(one) - i <= MAX_SET_TEMPLATES
    ]
    i, j = cuts[dice.integers(len(cuts))]
    p = int(dice.integers(bits + 1))
    first = (*one[:i], one[i][:p] + other[j][p:], *other[j + 1 :])
    second = (*other[:j], other[j][:p] + one[i][p:], *one[i + 1 :])
    return first, second


def mutated(individual: Individual, dice: np.random.Generator) -> Individual:
    """The individual with each bit flipped with probability `MUTATION`."""
    flips = dice.random((len(individual), len(individual[0]))) < MUTATION
    return tuple(
        "".join("10"[int(bit)] if flip else bit for bit, flip in zip(gene, row, strict=True))
        for gene, row in zip(individual, flips, strict=True)
    )
